//! Lines however the reads, the ranges and the bound fall.

use proptest::prelude::*;

use super::*;

/// Gives at most `step` bytes a read.
struct Slow<'a>(&'a [u8], usize);

impl Input for Slow<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let n = self.0.len().min(self.1).min(into.len());
        into[..n].copy_from_slice(&self.0[..n]);
        self.0 = &self.0[n..];
        Ok(n)
    }
}

/// Offsets and lines that begin in a range; `!` for a line that is too long, which is skipped.
fn read(mut lines: Lines<Slow<'_>>, before: u64, limit: usize) -> Vec<(u64, String)> {
    let mut seen = Vec::new();
    loop {
        match lines.find(limit, before).expect("reads") {
            Found::Lines => {
                let shown: Result<(), ()> = lines.consume(|at, line| {
                    seen.push(match line {
                        Line::Text(text) => (at, text.to_owned()),
                        Line::Bytes(bytes) => (at, format!("{bytes:?}")),
                    });
                    Ok(())
                });
                shown.expect("is shown");
            }
            Found::Nothing => {}
            Found::TooLong => {
                seen.push((lines.position(), "!".to_owned()));
                lines.skip_line();
            }
            Found::End => return seen,
        }
    }
}

fn texts(bytes: &[u8], step: usize, limit: usize) -> Vec<String> {
    let lines = Lines::new(Slow(bytes, step), 1 << 20, None);
    read(lines, u64::MAX, limit).into_iter().map(|(_, line)| line).collect()
}

#[test]
fn lines_end_at_a_break_at_crlf_or_at_the_end() {
    for step in 1..5 {
        for limit in [1, 2, 100] {
            assert_eq!(texts(b"a\nbb\r\n\n\r\nc\rd", step, limit), ["a", "bb", "", "", "c\rd"]);
            assert_eq!(texts(b"a\n", step, limit), ["a"]);
            assert_eq!(texts(b"", step, limit), [""; 0]);
            assert_eq!(texts("\u{feff}a\n\u{feff}".as_bytes(), step, limit), ["a", "\u{feff}"]);
        }
    }
}

#[test]
fn p22_a_character_at_any_place_of_a_read_comes_through_whole() {
    let text: String = "aé€😀\n".repeat(20);
    for step in 1..13 {
        assert_eq!(texts(text.as_bytes(), step, 7), ["aé€😀"; 20], "reads of {step}");
    }
    for character in ["é", "€", "😀"] {
        for before in 1..=character.len() {
            let long = "x".repeat(READ_BYTES - before) + character + "y\nz";
            let read = texts(long.as_bytes(), usize::MAX, 9);
            assert_eq!(read[0].len(), READ_BYTES - before + character.len() + 1);
            assert!(read[0].ends_with(&format!("x{character}y")));
            assert_eq!(read[1], "z");
        }
    }
}

#[test]
fn p22_bytes_that_are_no_text_are_shown_as_such_and_their_neighbours_as_text() {
    assert_eq!(
        texts(b"ok\n\xFFx\r\nok too\n\xE2\x82", 3, 9),
        ["ok", "[255, 120]", "ok too", "[226, 130]"]
    );
}

#[test]
fn p09_a_line_above_the_bound_is_reported_once_and_skipped_at_any_size() {
    let text = "short\n0123456789\nend\n";
    for step in 1..8 {
        for limit in [1, 100] {
            let lines = Lines::new(Slow(text.as_bytes(), step), 8, None);
            let found = read(lines, u64::MAX, limit);
            assert_eq!(found, [(0, "short".into()), (6, "!".into()), (17, "end".into())]);
        }
    }
    let huge = [vec![b'x'; 3 << 20], b"\nafter".to_vec()].concat();
    let lines = Lines::new(Slow(&huge, usize::MAX), 1 << 20, None);
    assert_eq!(read(lines, u64::MAX, 9), [(0, "!".into()), ((3 << 20) + 1, "after".into())]);
    assert_eq!(texts(&huge[(2 << 20) + 9..], usize::MAX, 9).len(), 2, "below it the buffer grows");
}

#[test]
fn however_a_text_is_cut_each_line_belongs_to_the_range_in_which_it_begins() {
    let text = b"first\n\nthird line\r\nx\nlast";
    let n = text.len() as u64;
    let whole = read(Lines::new(Slow(text, 4), 99, None), n, 2);
    assert_eq!(whole.len(), 5);
    for a in 0..=n {
        for b in a..=n {
            for step in [1, 3, 99] {
                let mut all = Vec::new();
                for (from, to) in [(0, a), (a, b), (b, n)] {
                    let mut lines = Lines::new(Slow(text, step), 99, None);
                    lines.go_to(from).expect("goes");
                    all.extend(read(lines, to, 2));
                }
                assert_eq!(all, whole, "cut at {a} and {b}");
            }
        }
    }
}

#[test]
fn a_break_between_quotes_ends_no_line_but_a_quote_inside_a_column_opens_nothing() {
    let quotes = Some(Quotes { quote: b'"', delimiter: b',' });
    let text = "a,\"b\nc\",d\n5\" pipe,x\n\"q\"\"\n\"\n\"\"\nz\"y\n\"open\nto the end";
    for step in 1..9 {
        for limit in [1, 3, 99] {
            let found = read(Lines::new(Slow(text.as_bytes(), step), 99, quotes), 999, limit);
            let found: Vec<_> = found.iter().map(|(_, line)| line.as_str()).collect();
            let expected =
                ["a,\"b\nc\",d", "5\" pipe,x", "\"q\"\"\n\"", "\"\"", "z\"y", "\"open\nto the end"];
            assert_eq!(found, expected, "reads of {step}, limit {limit}");
        }
    }
}

/// Where records of quoted text end, decided character by character.
fn ends_by_the_rules(text: &[u8]) -> Vec<usize> {
    let (mut ends, mut begin, mut is_quoted, mut closed) = (Vec::new(), 0, false, None);
    for (at, &byte) in text.iter().enumerate() {
        match byte {
            b'"' if is_quoted => (is_quoted, closed) = (false, Some(at)),
            b'"' => {
                is_quoted = at == begin || text[at - 1] == b',' || closed == Some(at - 1);
            }
            b'\n' if !is_quoted => {
                ends.push(at + 1);
                (begin, closed) = (at + 1, None);
            }
            _ => {}
        }
    }
    if begin < text.len() {
        ends.push(text.len());
    }
    ends
}

proptest! {
    #[test]
    fn quoted_records_end_where_the_rules_say_however_they_are_read(
        text in "[a,\"\n]{0,60}",
        step in 1usize..9,
        limit in 1usize..5,
    ) {
        let quotes = Some(Quotes { quote: b'"', delimiter: b',' });
        let lines = Lines::new(Slow(text.as_bytes(), step), 999, quotes);
        let begins: Vec<_> = read(lines, 999, limit).iter().map(|(at, _)| *at as usize).collect();
        let mut expected = ends_by_the_rules(text.as_bytes());
        expected.pop();
        if !text.is_empty() {
            expected.insert(0, 0);
        }
        prop_assert_eq!(begins, expected);
    }
}
