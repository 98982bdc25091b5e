//! What sinks, windows and channels leave in checkpoints.

use tidegate::decoders;

use super::{Seed, accept};

/// What a sink has prepared is read and written as the same bytes, and its names stay in the folder.
pub(super) fn prepared_parts(bytes: &[u8]) {
    if let Ok(again) = decoders::prepared_again(bytes) {
        accept();
        assert_eq!(again, bytes);
    }
    if let Ok(name) = std::str::from_utf8(bytes)
        && let Some((subtask, number, is_committed)) = decoders::part_name(name)
    {
        let dot = if is_committed { "" } else { "." };
        let canonical = format!("{dot}part-{subtask}-{number}.");
        // Leading zeros are the one other spelling.
        assert!(name.starts_with(&canonical) || name.contains("-0"), "{name:?}, {canonical:?}");
    }
}

pub(super) fn prepared_seeds() -> Vec<Seed> {
    vec![
        ("sealed", decoders::prepared_sample()),
        ("committed-name", b"part-3-7.9.csv".to_vec()),
        ("uncommitted-name", b".part-3-7.1".to_vec()),
    ]
}

/// An event in flight is read and written as the same bytes, but for numbers that mean nothing.
pub(super) fn events(bytes: &[u8]) {
    if let Ok(again) = decoders::event_again(bytes) {
        accept();
        assert_eq!(decoders::event_again(&again).expect("it was just written"), again);
        assert_eq!(again[..8], bytes[..8]);
    }
}

pub(super) fn event_seeds() -> Vec<Seed> {
    let event = |kind: u64, number: i64| [kind.to_le_bytes(), number.to_le_bytes()].concat();
    vec![("watermark", event(1, -5)), ("idle", event(2, 0)), ("active", event(3, 0))]
}

/// A pane's name is the one that its end and state have.
pub(super) fn panes(bytes: &[u8]) {
    if let Ok(name) = std::str::from_utf8(bytes)
        && let Ok(again) = decoders::pane_again(name)
    {
        accept();
        assert_eq!(decoders::pane_again(&again).expect("it was just written"), again);
    }
}

pub(super) fn pane_seeds() -> Vec<Seed> {
    vec![("open", b"open 60000".to_vec()), ("fired", b"fired -9223372036854775808".to_vec())]
}
