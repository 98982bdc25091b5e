//! Each scenario of the lists in `tests/scenarios` is a test whose name begins with its id.
//!
//! The lists are the contract: what an id stands for is written there, and a test of that name is found in the sources or
//! the id stands below `[later]` with the reason. Only functions directly behind a test attribute count.

use std::collections::{BTreeMap, BTreeSet};

use crate::tidy::source::with_tests;
use crate::tidy::{assert_none, read, root, rust_files};

/// The lists, and how many ids each has at the least: one that was cut would demand nothing.
const LISTS: &[(&str, usize)] = &[
    ("checkpoints.txt", 223),
    ("known-bugs.txt", 44),
    ("public-reports.txt", 22),
    ("blocklist.txt", 135),
];

#[test]
fn every_scenario_has_a_test_that_begins_with_its_id() {
    let shown = shown();
    let mut wrong = Vec::new();
    for (file, ids) in lists() {
        for (id, entry) in ids {
            match (shown.contains_key(&id), entry.is_later) {
                (false, false) => wrong.push(format!("{file}: no test begins with {id}_")),
                (true, true) => wrong.push(format!("{file}: {id} has a test, but stands as later")),
                (true, false) | (false, true) => {}
            }
        }
    }
    assert_none(&wrong);
}

#[test]
fn every_test_that_begins_with_an_id_is_of_a_listed_scenario() {
    let known: BTreeSet<_> = lists().into_iter().flat_map(|(_, ids)| ids.into_keys()).collect();
    let unknown = shown().into_iter().filter(|(id, _)| !known.contains(id));
    let wrong: Vec<_> = unknown.map(|(id, tests)| format!("no list has {id}: {tests:?}")).collect();
    assert_none(&wrong);
}

#[test]
fn the_lists_are_whole_and_say_what_each_id_stands_for() {
    let (lists, mut seen, mut wrong) = (lists(), BTreeSet::new(), Vec::new());
    for ((file, ids), (_, least)) in lists.iter().zip(LISTS) {
        if ids.len() < *least {
            wrong.push(format!("{file}: {} ids, fewer than {least}", ids.len()));
        }
        for (id, entry) in ids {
            if entry.text.len() < 5 || entry.text.len() > 120 {
                wrong.push(format!("{file}: {id} is described by '{}'", entry.text));
            }
            if id_of(&format!("{id}_x")).as_deref() != Some(id) {
                wrong.push(format!("{file}: no test can begin with {id}"));
            }
            if !seen.insert(id) {
                wrong.push(format!("{file}: {id} stands in two lists"));
            }
        }
    }
    assert_none(&wrong);
}

/// What a list says of an id.
struct Entry {
    text: String,
    is_later: bool,
}

/// Each list with its ids.
fn lists() -> Vec<(&'static str, BTreeMap<String, Entry>)> {
    let folder = root().join("tests/scenarios");
    LISTS.iter().map(|(file, _)| (*file, entries(&read(&folder.join(file))))).collect()
}

/// `id text` a line; `# …` is a comment, and below `[later]` the text says why there is no test yet.
fn entries(list: &str) -> BTreeMap<String, Entry> {
    let (mut ids, mut is_later) = (BTreeMap::new(), false);
    for line in list.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if line.starts_with('#') {
            continue;
        }
        if line == "[later]" {
            is_later = true;
            continue;
        }
        let (id, text) = line.split_once(' ').unwrap_or((line, ""));
        let entry = Entry { text: text.trim().to_owned(), is_later };
        assert!(ids.insert(id.to_owned(), entry).is_none(), "{id} stands there twice");
    }
    ids
}

/// The ids that tests begin with, and the tests.
fn shown() -> BTreeMap<String, Vec<String>> {
    let mut shown: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, text) in rust_files() {
        for name in tests_in(&with_tests(&text)) {
            if let Some(id) = id_of(&name) {
                shown.entry(id).or_default().push(format!("{path}: {name}"));
            }
        }
    }
    shown
}

/// The id that a test's name begins with: one letter and two digits, or two letters, a line and two digits.
fn id_of(name: &str) -> Option<String> {
    let letters = name.bytes().take_while(u8::is_ascii_lowercase).count();
    let number = match letters {
        1 => &name[1..],
        2 => name[2..].strip_prefix('_')?,
        _ => return None,
    };
    let digits = number.bytes().take_while(u8::is_ascii_digit).count();
    let rest = &number[digits..];
    let is_id = digits == 2 && rest.len() > 1 && rest.starts_with('_');
    is_id.then(|| name[..name.len() - rest.len()].to_owned())
}

/// The names of functions that directly follow a test attribute, with further attributes between; those that are
/// ignored don't run and don't count.
fn tests_in(code: &str) -> Vec<String> {
    let (mut tests, mut rest) = (Vec::new(), code);
    while let Some(at) = rest.find("#[") {
        rest = &rest[at..];
        let mut attributes = Vec::new();
        while let Some((attribute, behind)) = attribute(rest) {
            attributes.push(attribute.trim());
            rest = behind.trim_start();
        }
        if attributes.is_empty() {
            break;
        }
        let is_test = attributes.iter().any(|of| *of == "test" || of.ends_with("::test"));
        let is_ignored = attributes.iter().any(|of| name_in(of) == "ignore");
        if is_test
            && !is_ignored
            && let Some(name) = function(rest)
        {
            tests.push(name);
        }
    }
    tests
}

/// The contents of an attribute that begins here, and what comes behind it.
fn attribute(code: &str) -> Option<(&str, &str)> {
    let inside = code.strip_prefix("#[")?;
    let mut depth = 0;
    for (at, c) in inside.char_indices() {
        match c {
            '[' => depth += 1,
            ']' if depth == 0 => return Some((&inside[..at], &inside[at + 1..])),
            ']' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// The name of the function that begins here.
fn function(code: &str) -> Option<String> {
    let mut rest = code;
    for qualifier in ["pub(crate)", "pub", "const", "async", "unsafe"] {
        rest = rest.strip_prefix(qualifier).unwrap_or(rest).trim_start();
    }
    let name = name_in(rest.strip_prefix("fn ")?.trim_start());
    (!name.is_empty()).then(|| name.to_owned())
}

fn name_in(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

#[test]
fn only_functions_behind_a_test_attribute_are_tests() {
    let text = "
        #[test]
        fn k01_plain() {}
        proptest! {
            #![proptest_config(ProptestConfig { cases: 3, ..Default::default() })]
            #[test]
            fn k02_property(a in 0..3, b in [1, 2]) {}
        }
        #[cfg(not(miri))]
        #[test] // and a word
        #[should_panic(expected = \"#[test] fn k03_text() {}\")]
        pub(crate) async fn k04_attributes() {}
        #[tokio::test(flavor = \"x\")]
        fn k05_of_arguments() {}
        #[tokio::test]
        fn k06_path() {}
        #[test]
        #[ignore = \"slow\"]
        fn k07_ignored() {}
        #[derive(Debug)]
        struct Other;
        fn k08_helper() {}
        // #[test]
        fn k09_comment() {}
        #[test]
        fn $passes() {}
        #[inline]
        fn k10_helper() {}
    ";
    assert_eq!(
        tests_in(&with_tests(text)),
        ["k01_plain", "k02_property", "k04_attributes", "k06_path"]
    );
}

#[test]
fn an_id_is_one_or_two_letters_and_two_digits() {
    for (name, id) in [
        ("k01_what", Some("k01")),
        ("ep_02_what", Some("ep_02")),
        ("ep_18_loom_what", Some("ep_18")),
        ("b123_what", None),
        ("ep02_what", None),
        ("p_04_what", None),
        ("abc_04_what", None),
        ("t06_", None),
        ("t06", None),
        ("a_barrier", None),
    ] {
        assert_eq!(id_of(name).as_deref(), id, "{name}");
    }
}

#[test]
fn a_list_has_ids_texts_and_what_comes_later() {
    let ids = entries("# head\n\na01 does it\n[later]\n# why\na02 waits for a03\n");
    let shown: Vec<_> =
        ids.iter().map(|(id, entry)| (id.as_str(), entry.text.as_str(), entry.is_later)).collect();
    assert_eq!(shown, [("a01", "does it", false), ("a02", "waits for a03", true)]);
}
