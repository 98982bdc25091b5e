//! Tests of derived records in frames: what `#[derive(Data)]` makes must survive being written and read in place.

use bytes::Bytes;

use super::codec::{BadFrame, Codec, FixedCodec, append, check_frame, read_frame};
use super::{AsData, Data, List, key};
use crate::clock::EpochMillis;

#[derive(Clone, Data, Debug, PartialEq)]
struct Event {
    key: u64,
    at: EpochMillis,
    kind: u8,
}

#[derive(Clone, Data, Debug, PartialEq)]
struct Bid {
    auction: u64,
    url: String,
    payload: Bytes,
    note: Option<String>,
    events: Vec<Event>,
    inner: (Event, String),
}

#[derive(Clone, Data, Debug, PartialEq)]
struct Meters(f64, String);

#[derive(Clone, Data, Debug, PartialEq)]
struct Tick;

#[derive(Clone, Data, Debug, PartialEq)]
enum Action {
    Open,
    Bid(Bid, u8),
    Close { at: EpochMillis, by: String },
}

#[derive(Clone, Data, Debug, PartialEq)]
enum Color {
    Red,
    Green,
}

/// More fields than the longest tuple has.
#[derive(Clone, Data, Debug, PartialEq)]
struct Wide {
    a: u8,
    b: u8,
    c: String,
    d: u8,
    e: u8,
    f: u8,
    g: u8,
    h: String,
    i: u8,
    j: String,
}

fn bid() -> Bid {
    let event = Event { key: 7, at: EpochMillis(-1), kind: 3 };
    Bid {
        auction: 1,
        url: "https://example.org/a/long/path".into(),
        payload: Bytes::from_static(b"\0\xff"),
        note: Some("ß".into()),
        events: vec![event.clone(), Event { key: 8, ..event.clone() }],
        inner: (event, "in".into()),
    }
}

fn wide() -> Wide {
    Wide {
        a: 1,
        b: 2,
        c: "three".into(),
        d: 4,
        e: 5,
        f: 6,
        g: 7,
        h: String::new(),
        i: 9,
        j: "ten".into(),
    }
}

fn frame<T: Data>(value: &T) -> Vec<u8> {
    let mut bytes = Vec::new();
    append::<T>(&mut bytes, AsData::view(value));
    bytes
}

fn round_trip<T: Data + PartialEq + std::fmt::Debug>(value: T) {
    let bytes = frame(&value);
    assert_eq!(check_frame::<T>(&bytes), Ok(bytes.len()));
    assert_eq!(T::own(read_frame::<T>(&bytes)), value);
    for n in 0..bytes.len() {
        assert_eq!(check_frame::<T>(&bytes[..n]), Err(BadFrame::Short), "cut at {n}");
    }
}

#[test]
fn derived_structs_and_enums_survive_a_round_trip_and_their_truncations_are_refused() {
    round_trip(Event { key: 1, at: EpochMillis(2), kind: 3 });
    round_trip(bid());
    round_trip(Meters(2.5, "two and a half".into()));
    round_trip(Tick);
    round_trip(Action::Open);
    round_trip(Action::Bid(bid(), 9));
    round_trip(Action::Close { at: EpochMillis::MAX, by: "ann".into() });
    round_trip((Color::Red, Color::Green));
    round_trip(wide());
}

#[test]
fn a_tag_that_no_variant_has_is_refused() {
    let mut bytes = frame(&Color::Green);
    bytes[8] = 1;
    assert_eq!(check_frame::<Color>(&bytes), Err(BadFrame::Tag));
    bytes[8] = 2;
    assert_eq!(check_frame::<Color>(&bytes), Err(BadFrame::Tag));
}

#[test]
fn a_struct_of_fixed_fields_is_fixed_and_packs_in_lists() {
    fn item_bytes<T: Data<Codec: FixedCodec>>() -> usize {
        T::Codec::ITEM
    }
    assert_eq!(item_bytes::<Event>(), 17);
    assert_eq!(<<Event as Data>::Codec as Codec>::HEAD, 24);
    assert_eq!(<<Bid as Data>::Codec as Codec>::HEAD, 8 + 8 + 8 + 16 + 8 + 32);
    let events = bid().events;
    assert_eq!(List::from_slice(&events).get(1).map(|event| event.key), Some(8));
}

#[test]
fn derived_keys_hash_alike_owned_and_read_in_place() {
    #[derive(Clone, Data)]
    enum Name {
        Number(u64),
        Text { text: String },
    }
    let hash_read = |name: &Name| key::hash::<Name>(read_frame::<Name>(&frame(name)));
    for name in [Name::Number(5), Name::Text { text: "a name of more than sixteen bytes".into() }] {
        assert_eq!(key::hash::<Name>(name.view()), hash_read(&name));
    }
    assert_ne!(hash_read(&Name::Number(5)), hash_read(&Name::Number(6)));
}

#[test]
fn views_borrow_from_the_frame_and_compare_by_value() {
    let bytes = frame(&bid());
    let view = read_frame::<Bid>(&bytes);
    assert!(bytes.as_ptr_range().contains(&view.url.as_ptr()));
    let owned = bid();
    assert_eq!(view, owned.view());
    assert_ne!(BidRef { auction: 2, ..view }, view);
    assert_ne!(Action::Open.view(), Action::Bid(bid(), 1).view());
}
