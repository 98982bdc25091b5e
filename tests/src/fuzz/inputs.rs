//! What sources read: lines, rows, fields, JSON, words, and the positions in checkpoints.

use tidegate::clock::EpochMillis;
use tidegate::decoders::{self, LineSeen};
use tidegate::source::csv_field::CsvField;
use tidegate::source::csv_row::{CsvRow, RowParser};
use tidegate::source::{Split, range, text_bytes, text_files};
use tidegate::{Data, text};

use super::{Seed, accept, reference, text_seed, variant_and_text};

/// Lines are those of the slow reader, however the reads fall into them, so no character is cut.
pub(super) fn lines(bytes: &[u8]) {
    let Some((&step, bytes)) = bytes.split_first() else { return };
    accept();
    let expected: Vec<_> = reference::lines(bytes)
        .into_iter()
        .map(|(at, line)| match String::from_utf8(line) {
            Ok(text) => LineSeen::Text(at, text),
            Err(error) => LineSeen::Bytes(at, error.into_bytes()),
        })
        .collect();
    for step in [usize::from(step % 7) + 1, bytes.len()] {
        let seen = decoders::lines_of(bytes, step, bytes.len() + 1, None);
        assert_eq!(seen, expected, "{step} bytes a read");
    }
    // What is longer than the bound is passed over; the others stay what they are.
    let most = 8;
    for seen in decoders::lines_of(bytes, usize::from(step) + 1, most, None) {
        match seen {
            LineSeen::Text(_, line) => assert!(line.len() <= most, "{line:?}"),
            LineSeen::Bytes(_, line) => assert!(line.len() <= most, "{line:?}"),
            LineSeen::TooLong(at) => assert!(at <= bytes.len() as u64),
        }
    }
    // Quoted breaks: the same whatever the steps.
    let quotes = Some((b'"', b','));
    let whole = decoders::lines_of(bytes, bytes.len(), bytes.len() + 1, quotes);
    for step in 1..4 {
        assert_eq!(decoders::lines_of(bytes, step, bytes.len() + 1, quotes), whole, "{step}");
    }
}

pub(super) fn line_seeds() -> Vec<Seed> {
    vec![
        text_seed("breaks", 0, "a\nbb\r\n\n\r\nc\rd"),
        text_seed("characters", 1, "ä€😀\n\u{feff}é\n😀😀😀😀"),
        text_seed("mark", 2, "\u{feff}first\nsecond\n"),
        text_seed("quotes", 3, "a,\"b\nc\",d\n\"\"\"\n\",e\n"),
        ("not-text", b"\x05ok\n\xff\xfe\nok".to_vec()),
        text_seed("long", 6, "short\nlonger than the bound is\nx\n"),
    ]
}

#[derive(Clone, Data, CsvRow, Debug, PartialEq)]
struct Flight {
    id: u32,
    delay: Option<i32>,
    origin: String,
}

/// Columns are those of the slow reader; a row without as many as the header is refused.
pub(super) fn csv_rows(bytes: &[u8]) {
    let Some((variant, text)) = variant_and_text(bytes) else { return };
    let delimiter = [b',', b';', b'\t', b'|'][usize::from(variant % 4)];
    if let Some((header, row)) = text.split_once('\n')
        && let Ok(mut parser) = RowParser::new::<Flight>(header, delimiter)
    {
        let _ = parser.row::<Flight>(row);
    }
    let header = ["id", "delay", "origin"].join(&char::from(delimiter).to_string());
    let mut parser = RowParser::new::<Flight>(&header, delimiter).expect("the header has all");
    let columns = reference::columns(text, char::from(delimiter));
    let read = parser.row::<Flight>(text);
    let expected = columns.filter(|columns| columns.len() == 3).and_then(|columns| {
        let id = u32::parse(&columns[0]).ok()?;
        Some((id, Option::<i32>::parse(&columns[1]).ok()?, columns[2].clone()))
    });
    match (read, expected) {
        (Ok(flight), Some((id, delay, origin))) => {
            accept();
            assert_eq!((flight.id, flight.delay, flight.origin), (id, delay, origin.as_str()));
        }
        (Err(error), None) => assert!(!error.to_string().is_empty()),
        (read, expected) => panic!("{text:?}: {read:?}, expected {expected:?}"),
    }
}

pub(super) fn csv_row_seeds() -> Vec<Seed> {
    vec![
        text_seed("plain", 0, "7,-3,Zürich\r"),
        text_seed("quoted", 0, "7,,\"a, \"\"b\"\"\""),
        text_seed("semicolon", 1, "1;2;\"x;y\""),
        text_seed("header", 0, "origin,id,delay\nJFK,1,2"),
        text_seed("short", 0, "7,3"),
        text_seed("open-quote", 0, "7,3,\"x"),
    ]
}

/// Numbers are what the standard library says they are; nothing else is a number.
pub(super) fn csv_fields(bytes: &[u8]) {
    fn same<T>(text: &str)
    where
        T: for<'a> CsvField<Ref<'a> = T> + std::str::FromStr + PartialEq + std::fmt::Debug,
    {
        assert_eq!(<T as CsvField>::parse(text).ok(), text.parse::<T>().ok(), "{text:?}");
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    same::<u8>(text);
    same::<i8>(text);
    same::<u16>(text);
    same::<i16>(text);
    same::<u32>(text);
    same::<i32>(text);
    same::<u64>(text);
    same::<i64>(text);
    for parsed in [f64::parse(text).ok(), f32::parse(text).ok().map(f64::from)] {
        assert!(parsed.is_none() || text.trim().parse::<f64>().is_ok(), "{text:?}");
    }
    let _ = (bool::parse(text), char::parse(text), EpochMillis::parse(text));
    if f64::parse(text).is_ok() || EpochMillis::parse(text).is_ok() {
        accept();
    }
    assert_eq!(String::parse(text).ok(), Some(text));
    let optional = Option::<i64>::parse(text);
    if !text.is_empty() {
        assert_eq!(optional.ok().flatten(), text.parse::<i64>().ok(), "{text:?}");
    }
}

pub(super) fn csv_field_seeds() -> Vec<Seed> {
    let texts = [
        ("zero", "0"),
        ("minus", "-1"),
        ("plus", "+1"),
        ("eight", "12345678"),
        ("nine", "123456789"),
        ("most", "18446744073709551615"),
        ("least", "-9223372036854775808"),
        ("minute", "2026-03-01T12:34"),
        ("moment", "2026-03-01 12:34:56.789Z"),
        ("float", "-1.5e-3"),
        ("nan", "NaN"),
        ("true", "true"),
    ];
    texts.map(|(name, text)| (name, text.as_bytes().to_vec())).into()
}

/// A value that is read is the one that serde_json reads.
pub(super) fn json_lines(bytes: &[u8]) {
    let Ok(line) = std::str::from_utf8(bytes) else { return };
    let mut format = decoders::json_format::<(u64, String)>();
    let mut seen = Vec::new();
    let outcome = decoders::line(&mut format, line, |(number, text)| {
        seen.push((number, text.to_owned()));
    });
    let expected = serde_json::from_str::<(u64, String)>(line).ok();
    if line.trim_ascii().is_empty() {
        assert!(outcome.is_ok() && seen.is_empty());
    } else {
        if outcome.is_ok() {
            accept();
        }
        assert_eq!(outcome.is_ok(), expected.is_some(), "{line:?}");
        assert_eq!(seen, Vec::from_iter(expected), "{line:?}");
    }
}

pub(super) fn json_seeds() -> Vec<Seed> {
    let texts = [
        ("pair", r#"[1,"one"]"#),
        ("escapes", r#"[2, "t\nwo\u00df\ud83d\ude00"]"#),
        ("empty", ""),
        ("deep", "[[[[[[[["),
        ("large", r#"[18446744073709551616,""]"#),
    ];
    texts.map(|(name, text)| (name, text.as_bytes().to_vec())).into()
}

/// Words are those of the slow splitter.
pub(super) fn words(bytes: &[u8]) {
    let line = String::from_utf8_lossy(bytes);
    let mut seen = Vec::new();
    text::words(&line, |word| seen.push(word.to_owned()));
    assert_eq!(seen, reference::words(&line));
    accept();
}

pub(super) fn word_seeds() -> Vec<Seed> {
    vec![
        ("apostrophe", "Don't panic, Zoë!".into()),
        ("long", "X".repeat(300).into()),
        ("edges", format!("{} {}", "a".repeat(255), "B".repeat(257)).into()),
        ("sixty-four", format!("{}-{}", "a".repeat(63), "b".repeat(64)).into()),
        ("not-text", vec![b'a', 0xFF, b'b', 0x80]),
    ]
}

/// A position that a source accepts is the one that it gives back.
pub(super) fn splits(bytes: &[u8]) {
    let Some((&variant, bytes)) = bytes.split_first() else { return };
    let split = vec![Split(bytes.to_vec())];
    let again = match variant % 3 {
        0 => decoders::splits_again(&text_bytes(TEXT), split),
        1 => decoders::splits_again(&range(0..100), split),
        // There is no such file, so opening errs at the latest then.
        _ => decoders::splits_again(&text_files("/nonexistent/*"), split),
    };
    if let Ok(again) = again {
        accept();
        assert!(again.len() <= 1, "one split became {}", again.len());
        if let Some(again) = again.first() {
            assert_eq!(again.0, bytes);
        }
    }
}

const TEXT: &str = "one\ntwo\nthree\n";

pub(super) fn split_seeds() -> Vec<Seed> {
    use tidegate::source::Source;
    let of = |variant: u8, splits: Vec<Split>| [&[variant], &*splits[0].0].concat();
    vec![
        ("text", of(0, text_bytes(TEXT).splits(2).expect("it is text"))),
        ("range", of(1, range(0..100).splits(3).expect("it is a range"))),
        ("file", vec![2, 1, 1, 0, 0, 0, 0, 0, 0, 0, b'x']),
    ]
}
