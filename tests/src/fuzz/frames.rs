//! Records as frames.

use serde::{Deserialize, Serialize};
use tidegate::decoders;
use tidegate::record::{Data, Serde};

use super::{Seed, accept};

/// What is checked reads the same again.
fn again<T: Data>(bytes: &[u8]) {
    if let Ok(first) = decoders::frames::<T>(bytes) {
        accept();
        let second = decoders::frames::<T>(&first).expect("what was written can be read");
        assert_eq!(first, second, "frames of another length or content");
    }
}

/// Each type reads the bytes as its own: the first byte does not choose, so that a corpus serves all.
pub(super) fn frames(bytes: &[u8]) {
    again::<u64>(bytes);
    again::<String>(bytes);
    again::<(u32, String)>(bytes);
    again::<(bool, Option<i64>, char)>(bytes);
    again::<(String, Option<String>, u8)>(bytes);
    again::<(f64, (u16, String))>(bytes);
    again::<Vec<u32>>(bytes);
    again::<Vec<u8>>(bytes);
    again::<()>(bytes);
}

pub(super) fn seeds() -> Vec<Seed> {
    fn of<T: Data>(records: &[T]) -> Vec<u8> {
        decoders::written(records)
    }
    vec![
        ("numbers", of(&[1u64, u64::MAX])),
        ("strings", of(&[String::new(), "words".to_owned(), "é".repeat(40)])),
        ("pairs", of(&[(7u32, "seven".to_owned()), (8, String::new())])),
        ("options", of(&[(true, Some(-1i64), 'ß'), (false, None, '\0')])),
        ("mixed", of(&[("a".to_owned(), Some("b".to_owned()), 3u8), (String::new(), None, 0)])),
        ("nested", of(&[(0.5f64, (1u16, "x".to_owned()))])),
        ("lists", of(&[vec![1u32, 2, 3], Vec::new()])),
    ]
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Order {
    id: u64,
    lines: Vec<(String, Option<i32>)>,
    state: State,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum State {
    New,
    Sent { at: i64 },
}

/// What was decoded encodes to what decodes to the same; nothing is allocated that the bytes don't hold.
pub(super) fn serde_records(bytes: &[u8]) {
    again::<Serde<Order>>(bytes);
    decoders::each_frame::<Serde<Order>>(bytes, |order| {
        if let Ok(order) = order.get() {
            accept();
            let again = Serde::new(&order).expect("it was decoded").get().expect("it was encoded");
            assert_eq!(order, again);
        }
    });
}

pub(super) fn serde_seeds() -> Vec<Seed> {
    let order = |id, state| {
        let lines = vec![("bolt".to_owned(), Some(3)), ("nut".to_owned(), None)];
        Serde::new(&Order { id, lines, state }).expect("it can be encoded")
    };
    vec![
        ("new", decoders::written(&[order(1, State::New)])),
        (
            "sent",
            decoders::written(&[order(u64::MAX, State::Sent { at: -5 }), order(2, State::New)]),
        ),
    ]
}
