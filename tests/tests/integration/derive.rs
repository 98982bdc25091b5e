//! `#[derive(Data)]` and `#[derive(CsvRow)]` as users write them, from outside the crate.

use bytes::Bytes;
use tidegate::clock::EpochMillis;
use tidegate::record::codec::Codec;
use tidegate::record::{AsData, Data, Feed, Key, List};
use tidegate::source::csv_row::{CsvRow, RowParser};
use tidegate_tests::records::{Bid, BidRef, Kind, KindRef, Point, Tick, TickRef};

/// Names that the macros' output must not be confused by.
mod shadows {
    #![allow(dead_code, missing_docs)]
    pub(crate) struct Option;
    pub(crate) struct Result;
    pub(crate) struct Ok;
    pub(crate) struct Codec;
    pub(crate) struct Or;
    pub(crate) mod tidegate {}
    pub(crate) mod core {}

    #[derive(Clone, Debug, PartialEq, ::tidegate::record::Data)]
    pub(crate) struct Plain {
        pub(crate) view: u64,
        pub(crate) raw: String,
        pub(crate) other: std::option::Option<u8>,
    }

    #[derive(Clone, Debug, PartialEq, ::tidegate::record::Data)]
    pub(crate) enum Kind {
        This(Plain),
        Rest { never: u8 },
    }
}

fn bid(r#type: Kind) -> Bid {
    Bid { auction: 7, url: "https://example.org".into(), price: (1.5, Some(2)), r#type }
}

fn through_the_codec<T: Data>(record: &T) -> T {
    T::own(T::decode(<T::Codec as Codec>::shorten(T::encode(record.view()))))
}

#[test]
fn a_record_is_the_same_behind_its_view_and_codec() {
    let kinds = [
        Kind::Plain,
        Kind::Raw(Bytes::from_static(b"\xff"), vec![Point(1, -1), Point(0, 0)]),
        Kind::Named { name: "ann".into() },
    ];
    for kind in kinds {
        assert_eq!(through_the_codec(&bid(kind.clone())), bid(kind));
    }
    assert_eq!(through_the_codec(&Tick), Tick);
    let plain = shadows::Plain { view: 1, raw: "r".into(), other: None };
    for kind in [shadows::Kind::This(plain), shadows::Kind::Rest { never: 3 }] {
        assert_eq!(through_the_codec(&kind), kind);
    }
}

#[test]
fn views_can_be_built_matched_and_compared() {
    let url = "https://example.org".to_owned();
    let built = BidRef { auction: 7, url: &url, price: (1.5, Some(2)), r#type: KindRef::Plain };
    assert_eq!(built, bid(Kind::Plain).view());
    assert_eq!(Bid::own(built), bid(Kind::Plain));
    let points = [Point(3, 4)];
    let raw = KindRef::Raw(b"x", List::from_slice(&points));
    match raw {
        KindRef::Raw(bytes, list) => assert_eq!((bytes, list.len()), (&b"x"[..], 1)),
        KindRef::Plain | KindRef::Named { .. } => panic!("another variant"),
    }
    assert_ne!(raw, KindRef::Named { name: "x" });
    assert_eq!(TickRef, Tick.view());
    assert_eq!(format!("{:?}", Point(1, 2).view()), "PointRef(1, 2)");
}

#[test]
fn a_view_that_spells_its_types_is_covariant() {
    fn shorter<'a>(view: KindRef<'static>, _: &'a str) -> KindRef<'a> {
        view
    }
    assert_eq!(
        shorter(KindRef::Named { name: "n" }, &String::from("s")),
        KindRef::Named { name: "n" }
    );
}

#[test]
fn owned_records_views_and_tuples_of_both_are_emitted_alike() {
    struct Two(Vec<(Bid, String)>);
    impl Feed<(Bid, String)> for Two {
        fn each<G: for<'x> FnMut((BidRef<'x>, &'x str))>(self, mut g: G) {
            for record in &self.0 {
                g(record.view());
            }
        }
    }
    fn name_of<R: AsData<Data = (Bid, String)>>(record: R) -> (Bid, String) {
        <(Bid, String)>::own(record.view())
    }
    let record = (bid(Kind::Plain), "x".to_owned());
    assert_eq!(name_of((record.0.view(), "x")), record);
    assert_eq!(name_of((record.0.clone(), "x")), record);
    let mut seen = Vec::new();
    Two(vec![record.clone()]).each(|view| seen.push(<(Bid, String)>::own(view)));
    assert_eq!(seen, [record]);
}

#[test]
fn a_type_whose_fields_are_keys_is_a_key() {
    fn is_key<K: Key>() -> bool {
        <K::Codec as Codec>::FIXED
    }
    assert!(is_key::<Point>());
    assert!(!is_key::<Name>());

    #[derive(Clone, Data)]
    enum Name {
        #[allow(dead_code)]
        Number(u64),
        #[allow(dead_code)]
        Text(String),
    }
}

/// A record written by hand whose view can't be compared.
#[derive(Clone, Debug)]
struct Opaque(u8);

#[derive(Clone, Copy, Debug)]
struct OpaqueRef(u8);

impl AsData for Opaque {
    type Data = Self;
    fn view(&self) -> OpaqueRef {
        OpaqueRef(self.0)
    }
}

impl AsData for OpaqueRef {
    type Data = Opaque;
    fn view(&self) -> Self {
        *self
    }
}

impl Data for Opaque {
    type Ref<'a> = OpaqueRef;
    type Codec = u8;
    fn encode<'a>(view: Self::Ref<'a>) -> <Self::Codec as Codec>::Ref<'a> {
        view.0
    }
    fn decode<'a>(raw: <Self::Codec as Codec>::Ref<'a>) -> Self::Ref<'a> {
        OpaqueRef(raw)
    }
    fn own(view: Self::Ref<'_>) -> Self {
        Self(view.0)
    }
    fn shorten<'short, 'long: 'short>(view: Self::Ref<'long>) -> Self::Ref<'short> {
        view
    }
}

#[test]
fn a_field_without_equality_takes_it_from_the_view_only() {
    #[derive(Clone, Data)]
    struct Holder {
        opaque: Opaque,
        name: String,
    }
    let holder = Holder { opaque: Opaque(9), name: "h".into() };
    let again = through_the_codec(&holder);
    assert_eq!((again.opaque.0, again.name.as_str()), (9, "h"));
}

#[test]
fn rows_of_a_file_become_views() {
    /// A flight.
    #[derive(Clone, Data, CsvRow, Debug, PartialEq)]
    struct Flight {
        date: EpochMillis,
        #[csv(rename = "arrival delay")]
        delay: Option<i32>,
        origin: String,
        diverted: bool,
        speed: f64,
    }
    let header = "origin,date,speed,diverted,arrival delay";
    assert_eq!(Flight::COLUMNS, ["date", "arrival delay", "origin", "diverted", "speed"]);
    let mut rows = RowParser::new::<Flight>(header, b',').expect("the header has all columns");
    let line = "LAS,2001-01-01T00:01,412.5,false,-7".to_owned();
    let view = rows.row::<Flight>(&line).expect("the row is right");
    assert!(line.as_bytes().as_ptr_range().contains(&view.origin.as_ptr()));
    let flight = Flight {
        date: EpochMillis(978_307_260_000),
        delay: Some(-7),
        origin: "LAS".into(),
        diverted: false,
        speed: 412.5,
    };
    assert_eq!(Flight::own(view), flight);
    let error = rows.row::<Flight>("LAS,yesterday,1,true,").map(drop).expect_err("no moment");
    assert_eq!(error.column, Some("date"));
}
