//! Keys: records that can be hashed, compared with a stored copy, and stored in a table's slot.

use bytes::Bytes;

use super::Data;
use super::codec::{Codec, Never, Or};
use super::load::{as_bytes, words16};

/// A record that can be a key: integers, `bool`, `char`, strings, bytes, options, tuples and derived types of such.
///
/// Floats are no keys: two equal ones may have different bytes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be a key",
    note = "keys are integers, `bool`, `char`, strings, bytes, options and tuples of keys, and derived types of such"
)]
pub trait Key: Data<Codec: KeyCodec> {}
impl<T: Data<Codec: KeyCodec>> Key for T {}

/// What a key's codec can do besides reading and writing.
pub trait KeyCodec: Codec {
    /// The key's own copy in a table's entry; long strings lie in the table's arena.
    #[doc(hidden)]
    type Slot: Copy + Send + Sync + 'static;
    /// 64 well-mixed bits. Part of the checkpoint format: it may never change.
    #[doc(hidden)]
    fn hash(view: Self::Ref<'_>) -> u64;
    /// Whether the slot holds this key.
    #[doc(hidden)]
    fn same(slot: &Self::Slot, view: Self::Ref<'_>, arena: &[u8]) -> bool;
    /// Stores a key; what does not fit the slot is appended to the arena.
    #[doc(hidden)]
    fn store(view: Self::Ref<'_>, arena: &mut Vec<u8>) -> Self::Slot;
    /// The key that a slot holds.
    #[doc(hidden)]
    fn load<'a>(slot: &'a Self::Slot, arena: &'a [u8]) -> Self::Ref<'a>;
}

/// An odd multiplier with well-spread bits (the golden ratio's).
const MIX: u64 = 0x9E37_79B9_7F4A_7C15;
/// Another, so that a field's place counts.
const MIX_FIELD: u64 = 0xD6E8_FEB8_6659_FD93;

/// A 64 x 64 -> 128-bit multiplication, folded.
#[inline(always)]
pub(crate) fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// The hash of a key, by which it is sent to a subtask and found in tables.
#[inline(always)]
pub(crate) fn hash<K: Key>(key: K::Ref<'_>) -> u64 {
    <K::Codec as KeyCodec>::hash(K::encode(key))
}

macro_rules! integer {
    ($($type:ty),*) => {$(
        impl KeyCodec for $type {
            type Slot = $type;
            #[inline(always)]
            fn hash(view: $type) -> u64 { fold(view as u64 ^ 0x7469_6465_6761_7465, MIX) }
            #[inline(always)]
            fn same(slot: &$type, view: $type, _: &[u8]) -> bool { *slot == view }
            #[inline(always)]
            fn store(view: $type, _: &mut Vec<u8>) -> $type { view }
            #[inline(always)]
            fn load<'a>(slot: &'a $type, _: &'a [u8]) -> Self::Ref<'a> { *slot }
        }
    )*};
}
integer!(u8, u16, u32, u64, i8, i16, i32, i64, bool, char);

/// A string's copy: up to 15 bytes in place with the length in the last byte; longer ones as {first 8 bytes, arena
/// offset, length with the top bit set}.
#[derive(Clone, Copy, Debug)]
pub struct Text([u64; 2]);

const TEXT_INLINE_MAX: usize = 15;
const TEXT_LONG: u64 = 1 << 63;

impl Text {
    #[inline(always)]
    fn hash(bytes: &[u8]) -> u64 {
        let (low, high) = words16(bytes);
        let mut hash = fold(low ^ MIX, high ^ MIX_FIELD ^ bytes.len() as u64);
        if bytes.len() > 16 {
            hash = Self::hash_rest(hash, &bytes[16..]);
        }
        fold(hash, MIX)
    }

    /// Apart, so that what most strings need stays small enough to be put where it is used.
    #[inline(never)]
    fn hash_rest(mut hash: u64, rest: &[u8]) -> u64 {
        for part in rest.chunks(16) {
            let (low, high) = words16(part);
            hash = fold(hash ^ low, high ^ MIX);
        }
        hash
    }

    #[inline(always)]
    fn same(self, bytes: &[u8], arena: &[u8]) -> bool {
        let (low, high) = words16(bytes);
        if bytes.len() <= TEXT_INLINE_MAX {
            return self.0 == [low, high | (bytes.len() as u64) << 56];
        }
        self.0[0] == low && self.is_long() && self.len() == bytes.len() && self.long(arena) == bytes
    }

    fn store(bytes: &[u8], arena: &mut Vec<u8>) -> Self {
        let (low, high) = words16(bytes);
        if bytes.len() <= TEXT_INLINE_MAX {
            return Self([low, high | (bytes.len() as u64) << 56]);
        }
        let at = arena.len() as u64;
        assert!(at < 1 << 32 && (bytes.len() as u64) < 1 << 31, "a table's arena is below 4 GiB");
        arena.extend_from_slice(bytes);
        Self([low, at | (bytes.len() as u64) << 32 | TEXT_LONG])
    }

    fn is_long(self) -> bool {
        self.0[1] & TEXT_LONG != 0
    }

    fn len(self) -> usize {
        (self.0[1] >> 32 & 0x7FFF_FFFF) as usize
    }

    fn long(self, arena: &[u8]) -> &[u8] {
        let at = self.0[1] as u32 as usize;
        &arena[at..at + self.len()]
    }

    fn load<'a>(&'a self, arena: &'a [u8]) -> &'a [u8] {
        if self.is_long() {
            return self.long(arena);
        }
        // The words are stored as little-endian bytes on every machine we build for.
        let bytes = as_bytes(&self.0);
        &bytes[..usize::from(bytes[15])]
    }
}

macro_rules! text {
    ($($type:ty, $bytes:expr, $from:expr;)*) => {$(
        impl KeyCodec for $type {
            type Slot = Text;
            #[inline(always)]
            fn hash(view: Self::Ref<'_>) -> u64 { Text::hash($bytes(view)) }
            #[inline(always)]
            fn same(slot: &Text, view: Self::Ref<'_>, arena: &[u8]) -> bool { slot.same($bytes(view), arena) }
            fn store(view: Self::Ref<'_>, arena: &mut Vec<u8>) -> Text { Text::store($bytes(view), arena) }
            fn load<'a>(slot: &'a Text, arena: &'a [u8]) -> Self::Ref<'a> { $from(slot.load(arena)) }
        }
    )*};
}
text! {
    String, str::as_bytes, |bytes| std::str::from_utf8(bytes).expect("`store` took it from a `str`");
    Bytes, |bytes| bytes, |bytes| bytes;
}

impl<T: KeyCodec> KeyCodec for Option<T> {
    type Slot = Option<T::Slot>;
    #[inline(always)]
    fn hash(view: Self::Ref<'_>) -> u64 {
        view.map_or(MIX_FIELD, |view| fold(T::hash(view), MIX))
    }
    #[inline(always)]
    fn same(slot: &Self::Slot, view: Self::Ref<'_>, arena: &[u8]) -> bool {
        match (slot, view) {
            (Some(slot), Some(view)) => T::same(slot, view, arena),
            (slot, view) => slot.is_none() && view.is_none(),
        }
    }
    fn store(view: Self::Ref<'_>, arena: &mut Vec<u8>) -> Self::Slot {
        view.map(|view| T::store(view, arena))
    }
    fn load<'a>(slot: &'a Self::Slot, arena: &'a [u8]) -> Self::Ref<'a> {
        slot.as_ref().map(|slot| T::load(slot, arena))
    }
}

impl KeyCodec for Never {
    type Slot = Self;
    fn hash(view: Self) -> u64 {
        match view {}
    }
    fn same(slot: &Self, _: Self, _: &[u8]) -> bool {
        match *slot {}
    }
    fn store(view: Self, _: &mut Vec<u8>) -> Self {
        view
    }
    fn load<'a>(slot: &'a Self, _: &'a [u8]) -> Self::Ref<'a> {
        *slot
    }
}

impl<A: KeyCodec, B: KeyCodec> KeyCodec for Or<A, B> {
    type Slot = Or<A::Slot, B::Slot>;
    #[inline(always)]
    fn hash(view: Self::Ref<'_>) -> u64 {
        match view {
            Or::This(a) => fold(A::hash(a) ^ MIX_FIELD, MIX),
            Or::Rest(b) => fold(B::hash(b), MIX_FIELD),
        }
    }
    #[inline(always)]
    fn same(slot: &Self::Slot, view: Self::Ref<'_>, arena: &[u8]) -> bool {
        match (slot, view) {
            (Or::This(slot), Or::This(view)) => A::same(slot, view, arena),
            (Or::Rest(slot), Or::Rest(view)) => B::same(slot, view, arena),
            (Or::This(_), Or::Rest(_)) | (Or::Rest(_), Or::This(_)) => false,
        }
    }
    fn store(view: Self::Ref<'_>, arena: &mut Vec<u8>) -> Self::Slot {
        match view {
            Or::This(a) => Or::This(A::store(a, arena)),
            Or::Rest(b) => Or::Rest(B::store(b, arena)),
        }
    }
    fn load<'a>(slot: &'a Self::Slot, arena: &'a [u8]) -> Self::Ref<'a> {
        match slot {
            Or::This(slot) => Or::This(A::load(slot, arena)),
            Or::Rest(slot) => Or::Rest(B::load(slot, arena)),
        }
    }
}

impl KeyCodec for () {
    type Slot = ();
    fn hash((): ()) -> u64 {
        MIX
    }
    fn same((): &(), (): (), _: &[u8]) -> bool {
        true
    }
    fn store((): (), _: &mut Vec<u8>) {}
    fn load<'a>((): &'a (), _: &'a [u8]) -> Self::Ref<'a> {}
}

macro_rules! tuple {
    ($($type:ident $index:tt),*) => {
        impl<$($type: KeyCodec),*> KeyCodec for ($($type,)*) {
            type Slot = ($($type::Slot,)*);
            #[inline(always)]
            fn hash(view: Self::Ref<'_>) -> u64 {
                let mut hash = MIX_FIELD;
                $(hash = fold(hash ^ MIX, $type::hash(view.$index));)*
                hash
            }
            #[inline(always)]
            fn same(slot: &Self::Slot, view: Self::Ref<'_>, arena: &[u8]) -> bool {
                true $(&& $type::same(&slot.$index, view.$index, arena))*
            }
            fn store(view: Self::Ref<'_>, arena: &mut Vec<u8>) -> Self::Slot {
                ($($type::store(view.$index, arena),)*)
            }
            fn load<'a>(slot: &'a Self::Slot, arena: &'a [u8]) -> Self::Ref<'a> {
                ($($type::load(&slot.$index, arena),)*)
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
    use super::*;

    fn stored<K: Key + PartialEq + std::fmt::Debug>(key: K, other: K) {
        let mut arena = b"what lies before".to_vec();
        let slot = K::Codec::store(K::encode(key.view()), &mut arena);
        assert!(K::Codec::same(&slot, K::encode(key.view()), &arena));
        assert!(!K::Codec::same(&slot, K::encode(other.view()), &arena));
        assert_eq!(K::own(K::decode(K::Codec::load(&slot, &arena))), key);
        assert_ne!(hash::<K>(key.view()), hash::<K>(other.view()));
    }

    #[test]
    fn a_stored_key_is_found_and_read_back_and_another_is_not() {
        stored(5u64, 6);
        stored("fifteen bytes i".to_owned(), "fifteen bytes j".to_owned());
        stored("sixteen bytes it".to_owned(), "sixteen bytes is".to_owned());
        stored("".to_owned(), "\0".to_owned());
        stored(
            ("a much longer key than that".to_owned(), 1u32),
            ("a much longer key than that".to_owned(), 2),
        );
        stored(Some(Bytes::from_static(b"x")), None);
    }

    #[test]
    fn hashes_are_part_of_the_checkpoint_format() {
        assert_eq!(hash::<u64>(1), 0x2C39B064A25002A8);
        assert_eq!(hash::<String>("word"), 0x7A27A710FC6052A7);
        assert_eq!(hash::<String>("a string of 27 bytes, three"), 0x4EAC266CE722989F);
        assert_eq!(hash::<(u64, String)>((1, "word")), 0xE2F89F768CE9A746);
        assert_ne!(hash::<(u64, u64)>((1, 2)), hash::<(u64, u64)>((2, 1)));
    }
}
