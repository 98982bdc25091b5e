//! The built-in record types: numbers, strings, bytes, options, vectors, tuples.

use bytes::Bytes;

use super::codec::{Codec, FixedCodec};
use super::{AsData, Data, List};
use crate::clock::EpochMillis;

macro_rules! number {
    ($($type:ty),*) => {$(
        impl AsData for $type {
            type Data = $type;
            #[inline(always)]
            fn view(&self) -> $type { *self }
        }
        impl Data for $type {
            type Ref<'a> = $type;
            type Codec = $type;
            #[inline(always)]
            fn encode<'a>(view: $type) -> <Self::Codec as Codec>::Ref<'a> { view }
            #[inline(always)]
            fn decode<'a>(raw: <Self::Codec as Codec>::Ref<'a>) -> Self::Ref<'a> { raw }
            #[inline(always)]
            fn own(view: $type) -> $type { view }
            #[inline(always)]
            fn shorten<'short, 'long: 'short>(view: $type) -> $type { view }
        }
    )*};
}
number!(u8, u16, u32, u64, i8, i16, i32, i64, f32, f64, bool, char);

impl AsData for EpochMillis {
    type Data = Self;
    #[inline(always)]
    fn view(&self) -> Self {
        *self
    }
}

impl Data for EpochMillis {
    type Ref<'a> = Self;
    type Codec = i64;
    #[inline(always)]
    fn encode<'a>(view: Self) -> <i64 as Codec>::Ref<'a> {
        view.0
    }
    #[inline(always)]
    fn decode<'a>(raw: <i64 as Codec>::Ref<'a>) -> Self::Ref<'a> {
        Self(raw)
    }
    #[inline(always)]
    fn own(view: Self) -> Self {
        view
    }
    #[inline(always)]
    fn shorten<'short, 'long: 'short>(view: Self) -> Self {
        view
    }
}

impl AsData for String {
    type Data = Self;
    #[inline(always)]
    fn view(&self) -> &str {
        self
    }
}

impl AsData for &str {
    type Data = String;
    #[inline(always)]
    fn view(&self) -> &str {
        self
    }
}

impl Data for String {
    type Ref<'a> = &'a str;
    type Codec = Self;
    #[inline(always)]
    fn encode<'a>(view: Self::Ref<'a>) -> <Self as Codec>::Ref<'a> {
        view
    }
    #[inline(always)]
    fn decode<'a>(raw: <Self as Codec>::Ref<'a>) -> Self::Ref<'a> {
        raw
    }
    fn own(view: &str) -> Self {
        view.to_owned()
    }
    #[inline(always)]
    fn shorten<'short, 'long: 'short>(view: &'long str) -> &'short str {
        view
    }
}

impl AsData for Bytes {
    type Data = Self;
    #[inline(always)]
    fn view(&self) -> &[u8] {
        self
    }
}

impl AsData for &[u8] {
    type Data = Bytes;
    #[inline(always)]
    fn view(&self) -> &[u8] {
        self
    }
}

impl Data for Bytes {
    type Ref<'a> = &'a [u8];
    type Codec = Self;
    #[inline(always)]
    fn encode<'a>(view: Self::Ref<'a>) -> <Self as Codec>::Ref<'a> {
        view
    }
    #[inline(always)]
    fn decode<'a>(raw: <Self as Codec>::Ref<'a>) -> Self::Ref<'a> {
        raw
    }
    fn own(view: &[u8]) -> Self {
        Self::copy_from_slice(view)
    }
    #[inline(always)]
    fn shorten<'short, 'long: 'short>(view: &'long [u8]) -> &'short [u8] {
        view
    }
}

impl<T: AsData> AsData for Option<T> {
    type Data = Option<T::Data>;
    #[inline(always)]
    fn view(&self) -> Option<<T::Data as Data>::Ref<'_>> {
        self.as_ref().map(T::view)
    }
}

impl<T: Data> Data for Option<T> {
    type Ref<'a> = Option<T::Ref<'a>>;
    type Codec = Option<T::Codec>;
    #[inline(always)]
    fn encode<'a>(view: Self::Ref<'a>) -> <Self::Codec as Codec>::Ref<'a> {
        view.map(T::encode)
    }
    #[inline(always)]
    fn decode<'a>(raw: <Self::Codec as Codec>::Ref<'a>) -> Self::Ref<'a> {
        raw.map(T::decode)
    }
    fn own(view: Self::Ref<'_>) -> Self {
        view.map(T::own)
    }
    #[inline(always)]
    fn shorten<'short, 'long: 'short>(view: Self::Ref<'long>) -> Self::Ref<'short> {
        view.map(T::shorten)
    }
}

impl<T: Data<Codec: FixedCodec>> AsData for Vec<T> {
    type Data = Self;
    #[inline(always)]
    fn view(&self) -> List<'_, T> {
        List::from_slice(self)
    }
}

impl<T: Data<Codec: FixedCodec>> AsData for List<'_, T> {
    type Data = Vec<T>;
    #[inline(always)]
    fn view(&self) -> List<'_, T> {
        *self
    }
}

impl<T: Data<Codec: FixedCodec>> Data for Vec<T> {
    type Ref<'a> = List<'a, T>;
    type Codec = Self;
    #[inline(always)]
    fn encode<'a>(view: Self::Ref<'a>) -> <Self as Codec>::Ref<'a> {
        view
    }
    #[inline(always)]
    fn decode<'a>(raw: <Self as Codec>::Ref<'a>) -> Self::Ref<'a> {
        raw
    }
    fn own(view: List<'_, T>) -> Self {
        view.iter().map(T::own).collect()
    }
    #[inline(always)]
    fn shorten<'short, 'long: 'short>(view: List<'long, T>) -> List<'short, T> {
        view
    }
}

impl<T: AsData<Data: Data<Codec: FixedCodec>>, const N: usize> AsData for [T; N] {
    type Data = [T::Data; N];
    #[inline(always)]
    fn view(&self) -> [<T::Data as Data>::Ref<'_>; N] {
        std::array::from_fn(|index| self[index].view())
    }
}

impl<T: Data<Codec: FixedCodec>, const N: usize> Data for [T; N] {
    type Ref<'a> = [T::Ref<'a>; N];
    type Codec = [T::Codec; N];
    #[inline(always)]
    fn encode<'a>(view: Self::Ref<'a>) -> <Self::Codec as Codec>::Ref<'a> {
        view.map(T::encode)
    }
    #[inline(always)]
    fn decode<'a>(raw: <Self::Codec as Codec>::Ref<'a>) -> Self::Ref<'a> {
        raw.map(T::decode)
    }
    #[inline(always)]
    fn own(view: Self::Ref<'_>) -> Self {
        view.map(T::own)
    }
    #[inline(always)]
    fn shorten<'short, 'long: 'short>(view: Self::Ref<'long>) -> Self::Ref<'short> {
        view.map(T::shorten)
    }
}

impl AsData for () {
    type Data = Self;
    fn view(&self) {}
}

impl Data for () {
    type Ref<'a> = ();
    type Codec = Self;
    fn encode<'a>((): ()) -> <Self as Codec>::Ref<'a> {}
    fn decode<'a>((): <Self as Codec>::Ref<'a>) -> Self::Ref<'a> {}
    fn own((): ()) {}
    fn shorten<'short, 'long: 'short>((): ()) {}
}

macro_rules! tuple {
    ($($type:ident $index:tt),*) => {
        impl<$($type: AsData),*> AsData for ($($type,)*) {
            type Data = ($($type::Data,)*);
            #[inline(always)]
            fn view(&self) -> <Self::Data as Data>::Ref<'_> { ($(self.$index.view(),)*) }
        }
        impl<$($type: Data),*> Data for ($($type,)*) {
            type Ref<'a> = ($($type::Ref<'a>,)*);
            type Codec = ($($type::Codec,)*);
            #[inline(always)]
            fn encode<'a>(view: Self::Ref<'a>) -> <Self::Codec as Codec>::Ref<'a> {
                ($($type::encode(view.$index),)*)
            }
            #[inline(always)]
            fn decode<'a>(raw: <Self::Codec as Codec>::Ref<'a>) -> Self::Ref<'a> {
                ($($type::decode(raw.$index),)*)
            }
            fn own(view: Self::Ref<'_>) -> Self { ($($type::own(view.$index),)*) }
            #[inline(always)]
            fn shorten<'short, 'long: 'short>(view: Self::Ref<'long>) -> Self::Ref<'short> {
                ($($type::shorten(view.$index),)*)
            }
        }
    };
}
tuple!(A 0);
tuple!(A 0, B 1);
tuple!(A 0, B 1, C 2);
tuple!(A 0, B 1, C 2, D 3);
tuple!(A 0, B 1, C 2, D 3, E 4);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);

#[cfg(test)]
mod tests {
    use super::super::codec::{append, check_frame, read_frame};
    use super::*;

    fn round_trip<T: Data + PartialEq + std::fmt::Debug>(value: T) {
        let mut bytes = Vec::new();
        append::<T>(&mut bytes, value.view());
        assert_eq!(check_frame::<T>(&bytes), Ok(bytes.len()));
        assert_eq!(T::own(read_frame::<T>(&bytes)), value);
        for n in 0..bytes.len() {
            assert!(check_frame::<T>(&bytes[..n]).is_err() || n == bytes.len());
        }
    }

    #[test]
    fn every_built_in_type_survives_a_round_trip_and_its_truncations_are_refused() {
        round_trip(7u64);
        round_trip(());
        round_trip((-7i32, true, 'ß', 2.5f64));
        round_trip(String::new());
        round_trip("sixteen bytes it".to_owned());
        round_trip("a longer string than the sixteen bytes".to_owned());
        round_trip((Some("x".to_owned()), None::<u64>, Bytes::from_static(b"\0\xff")));
        round_trip((vec![(1u32, 2u8), (3, 4)], "after the list".to_owned()));
        round_trip(([1u8, 2, 3], "after the array".to_owned(), [[(7u64, true); 2]; 3]));
        round_trip(((1u64, "in".to_owned()), EpochMillis(-5), vec![true, false]));
    }

    #[test]
    fn untrusted_bytes_with_a_wrong_tag_or_text_are_refused() {
        use super::super::codec::BadFrame;
        let mut bytes = Vec::new();
        append::<(bool, String)>(&mut bytes, (true, "abc"));
        bytes[0] = 2;
        assert_eq!(check_frame::<(bool, String)>(&bytes), Err(BadFrame::Tag));
        bytes[0] = 1;
        bytes[16] = 0xFF;
        assert_eq!(check_frame::<(bool, String)>(&bytes), Err(BadFrame::Utf8));
        bytes[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(check_frame::<(bool, String)>(&bytes), Err(BadFrame::Short));
        assert_eq!(check_frame::<Vec<u64>>(&u64::MAX.to_le_bytes()), Err(BadFrame::Short));
    }
}
