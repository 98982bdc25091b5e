//! How records lie in memory: frames of a fixed head and a tail, written once and read in place.
//!
//! ```text
//! frame       = [hash: 8 bytes, on keyed channels of types with a tail] head tail padding-to-8
//! head        = 8 bytes a field: a number in its low bytes, a string's length, an option's or enum's tag and then its content
//! tail        = the bytes of strings, byte strings and lists, in the order of the fields
//! ```
//! A type without a tail is therefore a packed array. Numbers are little-endian on the machines we build for.
//!
//! Invariants. Only this file reads and writes raw memory of records. `Codec` is sealed: its implementations are
//! here, so `read` sees exactly what `write` of the same type made (an edge has one record type, given when both
//! ends are made) or what [`Codec::check`] has passed (bytes from a disk or a socket). A buffer has
//! [`SPARE`] bytes behind its end, so a tail of up to 16 bytes is copied by two stores whatever its length.
#![expect(unsafe_code, reason = "records are read in place from buffers written by the same codec")]

use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use bytes::Bytes;
use tidegate_netstack::lane::Producer;
use tidegate_netstack::pool::PoolExhausted;
use tidegate_netstack::segment::SPARE;

use super::Data;
use super::list::List;
use super::load::words16;

/// Why bytes are not a frame of the type they were read as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadFrame {
    /// The frame ends before its head or tail does.
    Short,
    /// A string is not UTF-8.
    Utf8,
    /// A tag of an option, enum, `bool` or `char` is none that its type has.
    Tag,
}

impl std::fmt::Display for BadFrame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Short => "the frame is cut short",
            Self::Utf8 => "a string is not UTF-8",
            Self::Tag => "a tag is out of range",
        })
    }
}

impl std::error::Error for BadFrame {}

mod sealed {
    #[expect(unnameable_types, reason = "only this file implements codecs")]
    pub trait Sealed {}
}
use sealed::Sealed;

/// How a view's bytes lie in a frame. Implemented here for built-in types, tuples and [`Or`]; a derived record uses these.
pub trait Codec: Sealed + 'static {
    /// The view in codec terms.
    type Ref<'a>: Copy;
    /// Bytes of the head, a multiple of 8.
    const HEAD: usize;
    /// Whether there is no tail: frames are then `HEAD` bytes apart.
    const FIXED: bool;

    /// The same view with a shorter life.
    fn shorten<'short, 'long: 'short>(view: Self::Ref<'long>) -> Self::Ref<'short>;

    /// Bytes of the tail.
    fn tail_len(view: Self::Ref<'_>) -> usize;

    /// Writes head and tail and moves `tail` behind what it wrote.
    ///
    /// # Safety
    /// `head` has room for `HEAD` bytes, and `*tail` for `tail_len(view)` and `SPARE` more.
    #[doc(hidden)]
    unsafe fn write(view: Self::Ref<'_>, head: *mut u8, tail: &mut *mut u8);

    /// Reads in place and moves `tail` behind what it read.
    ///
    /// # Safety
    /// `head` and `*tail` point to what `write` of this type made, or `check` passed, and live for `'a`.
    #[doc(hidden)]
    unsafe fn read<'a>(head: *const u8, tail: &mut *const u8) -> Self::Ref<'a>;

    /// Checks that untrusted bytes are a frame, and moves `tail` behind what it used.
    ///
    /// # Errors
    /// Says what is wrong; nothing of such a frame may be read.
    #[doc(hidden)]
    fn check(head: &[u8], tail: &mut &[u8]) -> Result<(), BadFrame>;

    /// Writes what the type looks like in a frame: equal shapes, equal frames. Part of the checkpoint format.
    #[doc(hidden)]
    fn shape(out: &mut String);
}

/// A codec without a tail, whose values can lie back to back in a list.
pub trait FixedCodec: Codec {
    /// Bytes that one item of a list takes.
    const ITEM: usize;

    /// Writes an item of a list.
    ///
    /// # Safety
    /// `at` has room for `ITEM` bytes.
    #[doc(hidden)]
    unsafe fn write_item(view: Self::Ref<'_>, at: *mut u8);

    /// Reads an item of a list.
    ///
    /// # Safety
    /// `at` points to what `write_item` made.
    #[doc(hidden)]
    unsafe fn read_item<'a>(at: *const u8) -> Self::Ref<'a>;
}

/// The field of a head at `at`, as a word.
fn word(head: &[u8], at: usize) -> Result<u64, BadFrame> {
    let field = head.get(at..at + 8).ok_or(BadFrame::Short)?;
    Ok(u64::from_le_bytes(field.try_into().expect("eight bytes were cut")))
}

/// Cuts `n` bytes off the front of a tail.
fn cut<'a>(tail: &mut &'a [u8], n: u64) -> Result<&'a [u8], BadFrame> {
    let n = usize::try_from(n).map_err(|_| BadFrame::Short)?;
    let (front, rest) = tail.split_at_checked(n).ok_or(BadFrame::Short)?;
    *tail = rest;
    Ok(front)
}

macro_rules! number {
    ($($type:ty),*) => {$(
        impl Sealed for $type {}
        impl Codec for $type {
            type Ref<'a> = $type;
            const HEAD: usize = 8;
            const FIXED: bool = true;
            #[inline(always)]
            fn shorten<'short, 'long: 'short>(view: $type) -> $type { view }
            #[inline(always)]
            fn tail_len(_: $type) -> usize { 0 }
            #[inline(always)]
            unsafe fn write(view: $type, head: *mut u8, _: &mut *mut u8) {
                // SAFETY: the caller gives room for 8 bytes; no number is wider.
                unsafe { head.cast::<$type>().write_unaligned(view) }
            }
            #[inline(always)]
            unsafe fn read<'a>(head: *const u8, _: &mut *const u8) -> Self::Ref<'a> {
                // SAFETY: `write` put a value of this type here, and every bit pattern is one.
                unsafe { head.cast::<$type>().read_unaligned() }
            }
            fn check(head: &[u8], _: &mut &[u8]) -> Result<(), BadFrame> { word(head, 0).map(drop) }
            fn shape(out: &mut String) { out.push_str(stringify!($type)); }
        }
        impl FixedCodec for $type {
            const ITEM: usize = size_of::<$type>();
            #[inline(always)]
            unsafe fn write_item(view: $type, at: *mut u8) {
                // SAFETY: the caller gives room for `ITEM` bytes.
                unsafe { at.cast::<$type>().write_unaligned(view) }
            }
            #[inline(always)]
            unsafe fn read_item<'a>(at: *const u8) -> Self::Ref<'a> {
                // SAFETY: `write_item` put a value of this type here.
                unsafe { at.cast::<$type>().read_unaligned() }
            }
        }
    )*};
}
number!(u8, u16, u32, u64, i8, i16, i32, i64, f32, f64);

/// `bool` and `char`: numbers of which not every bit pattern is a value.
macro_rules! narrow {
    ($($type:ty as $wide:ty, $to:expr, $from:expr;)*) => {$(
        impl Sealed for $type {}
        impl Codec for $type {
            type Ref<'a> = $type;
            const HEAD: usize = 8;
            const FIXED: bool = true;
            #[inline(always)]
            fn shorten<'short, 'long: 'short>(view: $type) -> $type { view }
            #[inline(always)]
            fn tail_len(_: $type) -> usize { 0 }
            #[inline(always)]
            unsafe fn write(view: $type, head: *mut u8, tail: &mut *mut u8) {
                // SAFETY: the same contract as the wider number's.
                unsafe { <$wide as Codec>::write($to(view), head, tail) }
            }
            #[inline(always)]
            unsafe fn read<'a>(head: *const u8, tail: &mut *const u8) -> Self::Ref<'a> {
                // SAFETY: the same contract as the wider number's.
                let wide = unsafe { <$wide as Codec>::read(head, tail) };
                $from(wide).unwrap_or_default()
            }
            fn check(head: &[u8], _: &mut &[u8]) -> Result<(), BadFrame> {
                word(head, 0)?;
                let bytes = head[..size_of::<$wide>()].try_into().expect("a word is longer");
                $from(<$wide>::from_le_bytes(bytes)).map(drop).ok_or(BadFrame::Tag)
            }
            fn shape(out: &mut String) { out.push_str(stringify!($type)); }
        }
        impl FixedCodec for $type {
            const ITEM: usize = size_of::<$wide>();
            #[inline(always)]
            unsafe fn write_item(view: $type, at: *mut u8) {
                // SAFETY: the same contract as the wider number's.
                unsafe { <$wide>::write_item($to(view), at) }
            }
            #[inline(always)]
            unsafe fn read_item<'a>(at: *const u8) -> Self::Ref<'a> {
                // SAFETY: the same contract as the wider number's.
                $from(unsafe { <$wide>::read_item(at) }).unwrap_or_default()
            }
        }
    )*};
}
narrow! {
    bool as u8, u8::from, |b: u8| match b { 0 => Some(false), 1 => Some(true), _ => None };
    char as u32, u32::from, char::from_u32;
}

/// Writes a string's length and bytes.
///
/// # Safety
/// As for [`Codec::write`].
#[inline(always)]
unsafe fn write_bytes(bytes: &[u8], head: *mut u8, tail: &mut *mut u8) {
    let n = bytes.len();
    // SAFETY: the head has room for 8 bytes.
    unsafe { head.cast::<u64>().write_unaligned(n as u64) };
    if n > 16 {
        // SAFETY: the tail has room for `n` bytes, and a fresh buffer does not overlap what is written into it.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), *tail, n) };
    } else {
        let (low, high) = words16(bytes);
        // SAFETY: there are `SPARE` bytes behind the tail, so 16 may be written whatever `n` is.
        unsafe { tail.cast::<[u64; 2]>().write_unaligned([low, high]) };
    }
    // SAFETY: the tail has room for `n` bytes.
    *tail = unsafe { tail.add(n) };
}

/// Reads a string's bytes in place.
///
/// # Safety
/// As for [`Codec::read`].
#[inline(always)]
unsafe fn read_bytes<'a>(head: *const u8, tail: &mut *const u8) -> &'a [u8] {
    // SAFETY: `write_bytes` put the length here.
    let n = unsafe { head.cast::<u64>().read_unaligned() } as usize;
    // SAFETY: `write_bytes` put `n` bytes here, which live for `'a`.
    let bytes = unsafe { std::slice::from_raw_parts(*tail, n) };
    // SAFETY: as above.
    *tail = unsafe { tail.add(n) };
    bytes
}

impl Sealed for String {}
impl Codec for String {
    type Ref<'a> = &'a str;
    const HEAD: usize = 8;
    const FIXED: bool = false;
    #[inline(always)]
    fn shorten<'short, 'long: 'short>(view: &'long str) -> &'short str {
        view
    }
    #[inline(always)]
    fn tail_len(view: &str) -> usize {
        view.len()
    }
    #[inline(always)]
    unsafe fn write(view: &str, head: *mut u8, tail: &mut *mut u8) {
        // SAFETY: the same contract.
        unsafe { write_bytes(view.as_bytes(), head, tail) }
    }
    #[inline(always)]
    unsafe fn read<'a>(head: *const u8, tail: &mut *const u8) -> Self::Ref<'a> {
        // SAFETY: the same contract.
        let bytes = unsafe { read_bytes(head, tail) };
        // SAFETY: `write` took these bytes from a `str`, or `check` found them to be UTF-8.
        unsafe { std::str::from_utf8_unchecked(bytes) }
    }
    fn check(head: &[u8], tail: &mut &[u8]) -> Result<(), BadFrame> {
        let bytes = cut(tail, word(head, 0)?)?;
        std::str::from_utf8(bytes).map(drop).map_err(|_| BadFrame::Utf8)
    }
    fn shape(out: &mut String) {
        out.push_str("str");
    }
}

impl Sealed for Bytes {}
impl Codec for Bytes {
    type Ref<'a> = &'a [u8];
    const HEAD: usize = 8;
    const FIXED: bool = false;
    #[inline(always)]
    fn shorten<'short, 'long: 'short>(view: &'long [u8]) -> &'short [u8] {
        view
    }
    #[inline(always)]
    fn tail_len(view: &[u8]) -> usize {
        view.len()
    }
    #[inline(always)]
    unsafe fn write(view: &[u8], head: *mut u8, tail: &mut *mut u8) {
        // SAFETY: the same contract.
        unsafe { write_bytes(view, head, tail) }
    }
    #[inline(always)]
    unsafe fn read<'a>(head: *const u8, tail: &mut *const u8) -> Self::Ref<'a> {
        // SAFETY: the same contract.
        unsafe { read_bytes(head, tail) }
    }
    fn check(head: &[u8], tail: &mut &[u8]) -> Result<(), BadFrame> {
        cut(tail, word(head, 0)?).map(drop)
    }
    fn shape(out: &mut String) {
        out.push_str("bytes");
    }
}

impl<T: Codec> Sealed for Option<T> {}
impl<T: Codec> Codec for Option<T> {
    type Ref<'a> = Option<T::Ref<'a>>;
    const HEAD: usize = 8 + T::HEAD;
    const FIXED: bool = T::FIXED;
    #[inline(always)]
    fn shorten<'short, 'long: 'short>(view: Self::Ref<'long>) -> Self::Ref<'short> {
        view.map(T::shorten)
    }
    #[inline(always)]
    fn tail_len(view: Self::Ref<'_>) -> usize {
        view.map_or(0, T::tail_len)
    }
    #[inline(always)]
    unsafe fn write(view: Self::Ref<'_>, head: *mut u8, tail: &mut *mut u8) {
        // SAFETY: the head begins with 8 bytes of tag.
        unsafe { head.cast::<u64>().write_unaligned(u64::from(view.is_some())) };
        if let Some(view) = view {
            // SAFETY: the content's head lies behind the tag.
            let content = unsafe { head.add(8) };
            // SAFETY: the same contract.
            unsafe { T::write(view, content, tail) };
        }
    }
    #[inline(always)]
    unsafe fn read<'a>(head: *const u8, tail: &mut *const u8) -> Self::Ref<'a> {
        // SAFETY: `write` put the tag here.
        if unsafe { head.cast::<u64>().read_unaligned() } == 0 {
            return None;
        }
        // SAFETY: the content's head lies behind the tag.
        let content = unsafe { head.add(8) };
        // SAFETY: the tag says that `write` put the content here.
        Some(unsafe { T::read(content, tail) })
    }
    fn check(head: &[u8], tail: &mut &[u8]) -> Result<(), BadFrame> {
        match word(head, 0)? {
            0 => Ok(()),
            1 => T::check(&head[8..], tail),
            _ => Err(BadFrame::Tag),
        }
    }
    fn shape(out: &mut String) {
        out.push('?');
        T::shape(out);
    }
}

impl<T: Data<Codec: FixedCodec>> Sealed for Vec<T> {}
impl<T: Data<Codec: FixedCodec>> Codec for Vec<T> {
    type Ref<'a> = List<'a, T>;
    const HEAD: usize = 8;
    const FIXED: bool = false;
    #[inline(always)]
    fn shorten<'short, 'long: 'short>(view: List<'long, T>) -> List<'short, T> {
        view
    }
    #[inline(always)]
    fn tail_len(view: List<'_, T>) -> usize {
        view.len() * T::Codec::ITEM
    }
    #[inline(always)]
    unsafe fn write(view: List<'_, T>, head: *mut u8, tail: &mut *mut u8) {
        // SAFETY: the head has room for 8 bytes.
        unsafe { head.cast::<u64>().write_unaligned(view.len() as u64) };
        for item in view.iter() {
            // SAFETY: the tail has room for all items.
            unsafe { T::Codec::write_item(T::encode(item), *tail) };
            // SAFETY: as above.
            *tail = unsafe { tail.add(T::Codec::ITEM) };
        }
    }
    #[inline(always)]
    unsafe fn read<'a>(head: *const u8, tail: &mut *const u8) -> Self::Ref<'a> {
        // SAFETY: `write` put the count here.
        let n = unsafe { head.cast::<u64>().read_unaligned() } as usize * T::Codec::ITEM;
        // SAFETY: `write` put that many items here, which live for `'a`.
        let bytes = unsafe { std::slice::from_raw_parts(*tail, n) };
        // SAFETY: as above.
        *tail = unsafe { tail.add(n) };
        List::packed(bytes)
    }
    fn check(head: &[u8], tail: &mut &[u8]) -> Result<(), BadFrame> {
        let n = word(head, 0)?.checked_mul(T::Codec::ITEM as u64).ok_or(BadFrame::Short)?;
        cut(tail, n).map(drop)
    }
    fn shape(out: &mut String) {
        out.push('*');
        T::Codec::shape(out);
    }
}

/// Item `index` of a list's bytes. Panics if there is none.
#[inline(always)]
pub(super) fn item<T: FixedCodec>(bytes: &[u8], index: usize) -> T::Ref<'_> {
    let item = &bytes[index * T::ITEM..(index + 1) * T::ITEM];
    // SAFETY: the slice is one item of what `Vec`'s codec wrote or passed.
    unsafe { T::read_item(item.as_ptr()) }
}

macro_rules! tuple {
    ($($type:ident $index:tt),*) => {
        impl<$($type: Codec),*> Sealed for ($($type,)*) {}
        impl<$($type: Codec),*> Codec for ($($type,)*) {
            type Ref<'a> = ($($type::Ref<'a>,)*);
            const HEAD: usize = 0 $(+ $type::HEAD)*;
            const FIXED: bool = true $(&& $type::FIXED)*;
            #[inline(always)]
            fn shorten<'short, 'long: 'short>(view: Self::Ref<'long>) -> Self::Ref<'short> {
                ($($type::shorten(view.$index),)*)
            }
            #[inline(always)]
            fn tail_len(view: Self::Ref<'_>) -> usize { 0 $(+ $type::tail_len(view.$index))* }
            #[inline(always)]
            unsafe fn write(view: Self::Ref<'_>, head: *mut u8, tail: &mut *mut u8) {
                let mut at = 0;
                $(
                    // SAFETY: the fields' heads add up to this head.
                    let field = unsafe { head.add(at) };
                    // SAFETY: the same contract, field by field.
                    unsafe { $type::write(view.$index, field, tail) };
                    at += $type::HEAD;
                )*
                debug_assert_eq!(at, Self::HEAD);
            }
            #[inline(always)]
            unsafe fn read<'a>(head: *const u8, tail: &mut *const u8) -> Self::Ref<'a> {
                let mut at = 0;
                let view = ($({
                    // SAFETY: the fields' heads add up to this head.
                    let field = unsafe { head.add(at) };
                    at += $type::HEAD;
                    // SAFETY: the same contract, field by field.
                    unsafe { $type::read(field, tail) }
                },)*);
                debug_assert_eq!(at, Self::HEAD);
                view
            }
            fn check(head: &[u8], tail: &mut &[u8]) -> Result<(), BadFrame> {
                let mut at = 0;
                $(
                    $type::check(head.get(at..).ok_or(BadFrame::Short)?, tail)?;
                    at += $type::HEAD;
                )*
                debug_assert_eq!(at, Self::HEAD);
                Ok(())
            }
            fn shape(out: &mut String) {
                out.push('(');
                $($type::shape(out); out.push(',');)*
                out.push(')');
            }
        }
        impl<$($type: FixedCodec),*> FixedCodec for ($($type,)*) {
            const ITEM: usize = 0 $(+ $type::ITEM)*;
            #[inline(always)]
            unsafe fn write_item(view: Self::Ref<'_>, at: *mut u8) {
                let mut offset = 0;
                $(
                    // SAFETY: the fields' items add up to this item.
                    let field = unsafe { at.add(offset) };
                    // SAFETY: the same contract, field by field.
                    unsafe { $type::write_item(view.$index, field) };
                    offset += $type::ITEM;
                )*
                debug_assert_eq!(offset, Self::ITEM);
            }
            #[inline(always)]
            unsafe fn read_item<'a>(at: *const u8) -> Self::Ref<'a> {
                let mut offset = 0;
                let view = ($({
                    // SAFETY: the fields' items add up to this item.
                    let field = unsafe { at.add(offset) };
                    offset += $type::ITEM;
                    // SAFETY: the same contract, field by field.
                    unsafe { $type::read_item(field) }
                },)*);
                debug_assert_eq!(offset, Self::ITEM);
                view
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

impl Sealed for () {}
impl Codec for () {
    type Ref<'a> = ();
    /// Not 0: frames must not all lie in one place.
    const HEAD: usize = 8;
    const FIXED: bool = true;
    #[inline(always)]
    fn shorten<'short, 'long: 'short>((): ()) {}
    #[inline(always)]
    fn tail_len((): ()) -> usize {
        0
    }
    #[inline(always)]
    unsafe fn write((): (), _: *mut u8, _: &mut *mut u8) {}
    #[inline(always)]
    unsafe fn read<'a>(_: *const u8, _: &mut *const u8) -> Self::Ref<'a> {}
    fn check(_: &[u8], _: &mut &[u8]) -> Result<(), BadFrame> {
        Ok(())
    }
    fn shape(out: &mut String) {
        out.push_str("()");
    }
}

/// An array's items lie back to back, as in a list, filled up to 8 bytes.
impl<T: FixedCodec, const N: usize> Sealed for [T; N] {}
impl<T: FixedCodec, const N: usize> Codec for [T; N] {
    type Ref<'a> = [T::Ref<'a>; N];
    const HEAD: usize = (N * T::ITEM).next_multiple_of(8);
    const FIXED: bool = true;
    #[inline(always)]
    fn shorten<'short, 'long: 'short>(view: Self::Ref<'long>) -> Self::Ref<'short> {
        view.map(T::shorten)
    }
    #[inline(always)]
    fn tail_len(_: Self::Ref<'_>) -> usize {
        0
    }
    #[inline(always)]
    unsafe fn write(view: Self::Ref<'_>, head: *mut u8, _: &mut *mut u8) {
        // SAFETY: the head has room for all items.
        unsafe { Self::write_item(view, head) };
    }
    #[inline(always)]
    unsafe fn read<'a>(head: *const u8, _: &mut *const u8) -> Self::Ref<'a> {
        // SAFETY: `write` put all items here.
        unsafe { Self::read_item(head) }
    }
    fn check(head: &[u8], _: &mut &[u8]) -> Result<(), BadFrame> {
        if head.len() < Self::HEAD { Err(BadFrame::Short) } else { Ok(()) }
    }
    fn shape(out: &mut String) {
        out.push('[');
        T::shape(out);
        out.push_str(&format!(";{N}]"));
    }
}
impl<T: FixedCodec, const N: usize> FixedCodec for [T; N] {
    const ITEM: usize = N * T::ITEM;
    #[inline(always)]
    unsafe fn write_item(view: Self::Ref<'_>, at: *mut u8) {
        for (index, item) in view.into_iter().enumerate() {
            // SAFETY: the items lie back to back within `ITEM` bytes.
            let at = unsafe { at.add(index * T::ITEM) };
            // SAFETY: the same contract, item by item.
            unsafe { T::write_item(item, at) };
        }
    }
    #[inline(always)]
    unsafe fn read_item<'a>(at: *const u8) -> Self::Ref<'a> {
        std::array::from_fn(|index| {
            // SAFETY: the items lie back to back within `ITEM` bytes.
            let at = unsafe { at.add(index * T::ITEM) };
            // SAFETY: the same contract, item by item.
            unsafe { T::read_item(at) }
        })
    }
}

/// One of two: a derived enum's codec is a list of these, one a variant, ended by [`Never`].
#[derive(Clone, Copy, Debug)]
pub enum Or<A, B> {
    /// This variant.
    This(A),
    /// One of those behind it.
    Rest(B),
}

/// No variant: the end of an enum's list.
#[derive(Clone, Copy, Debug)]
pub enum Never {}

impl Sealed for Never {}
impl Codec for Never {
    type Ref<'a> = Self;
    const HEAD: usize = 0;
    const FIXED: bool = true;
    fn shorten<'short, 'long: 'short>(view: Self) -> Self {
        view
    }
    fn tail_len(view: Self) -> usize {
        match view {}
    }
    unsafe fn write(view: Self, _: *mut u8, _: &mut *mut u8) {
        match view {}
    }
    unsafe fn read<'a>(_: *const u8, _: &mut *const u8) -> Self::Ref<'a> {
        unreachable!("no enum writes a variant that it hasn't got")
    }
    fn check(_: &[u8], _: &mut &[u8]) -> Result<(), BadFrame> {
        Err(BadFrame::Tag)
    }
    fn shape(out: &mut String) {
        out.push('!');
    }
}

impl<A: Codec, B: Codec> Sealed for Or<A, B> {}
impl<A: Codec, B: Codec> Codec for Or<A, B> {
    type Ref<'a> = Or<A::Ref<'a>, B::Ref<'a>>;
    const HEAD: usize = 8 + if A::HEAD > B::HEAD { A::HEAD } else { B::HEAD };
    const FIXED: bool = A::FIXED && B::FIXED;
    #[inline(always)]
    fn shorten<'short, 'long: 'short>(view: Self::Ref<'long>) -> Self::Ref<'short> {
        match view {
            Or::This(a) => Or::This(A::shorten(a)),
            Or::Rest(b) => Or::Rest(B::shorten(b)),
        }
    }
    #[inline(always)]
    fn tail_len(view: Self::Ref<'_>) -> usize {
        match view {
            Or::This(a) => A::tail_len(a),
            Or::Rest(b) => B::tail_len(b),
        }
    }
    #[inline(always)]
    unsafe fn write(view: Self::Ref<'_>, head: *mut u8, tail: &mut *mut u8) {
        // SAFETY: the content's head lies behind 8 bytes of tag.
        let content = unsafe { head.add(8) };
        let tag = match view {
            Or::This(a) => {
                // SAFETY: the same contract.
                unsafe { A::write(a, content, tail) };
                0u64
            }
            Or::Rest(b) => {
                // SAFETY: the same contract.
                unsafe { B::write(b, content, tail) };
                1
            }
        };
        // SAFETY: the head begins with 8 bytes of tag.
        unsafe { head.cast::<u64>().write_unaligned(tag) };
    }
    #[inline(always)]
    unsafe fn read<'a>(head: *const u8, tail: &mut *const u8) -> Self::Ref<'a> {
        // SAFETY: the content's head lies behind 8 bytes of tag.
        let content = unsafe { head.add(8) };
        // SAFETY: `write` put the tag here.
        if unsafe { head.cast::<u64>().read_unaligned() } == 0 {
            // SAFETY: the tag says that `write` put this variant here.
            Or::This(unsafe { A::read(content, tail) })
        } else {
            // SAFETY: as above.
            Or::Rest(unsafe { B::read(content, tail) })
        }
    }
    fn check(head: &[u8], tail: &mut &[u8]) -> Result<(), BadFrame> {
        match word(head, 0)? {
            0 => A::check(&head[8..], tail),
            1 => B::check(&head[8..], tail),
            _ => Err(BadFrame::Tag),
        }
    }
    fn shape(out: &mut String) {
        out.push('<');
        A::shape(out);
        out.push('|');
        B::shape(out);
        out.push('>');
    }
}

/// Bytes of the hash in front of each frame of a keyed channel: fixed-size keys are cheaper to hash again.
pub(crate) const fn prefix<T: Data>() -> usize {
    if T::Codec::FIXED { 0 } else { 8 }
}

/// Bytes from one frame without a tail to the next: a record without bytes takes room too, so that frames can be counted.
pub(crate) const fn fixed_len<T: Data>() -> usize {
    if T::Codec::HEAD == 0 { 8 } else { T::Codec::HEAD }
}

/// Bytes that a record takes in a buffer, without the hash.
#[inline(always)]
pub(crate) fn frame_len<T: Data>(view: T::Ref<'_>) -> usize {
    if T::Codec::FIXED {
        fixed_len::<T>()
    } else {
        T::Codec::HEAD + T::Codec::tail_len(T::encode(view)).next_multiple_of(8)
    }
}

/// Writes a frame at `at`, where `frame_len` bytes and `SPARE` more are free.
///
/// # Safety
/// There is that much room at `at`.
#[inline(always)]
pub(crate) unsafe fn write_frame<T: Data>(at: NonNull<u8>, view: T::Ref<'_>) {
    let head = at.as_ptr();
    // SAFETY: the tail follows the head within the room that the caller gives.
    let mut tail = unsafe { head.add(T::Codec::HEAD) };
    // SAFETY: the caller gives the room.
    unsafe { T::Codec::write(T::encode(view), head, &mut tail) };
}

/// Writes a record's frame, with its hash if the type carries one, into the open buffer of a lane.
///
/// # Errors
/// The lane's memory is exhausted.
#[inline(always)]
pub(crate) fn put_in_lane<T: Data, E: Copy + Send>(
    lane: &mut Producer<E>,
    hash: u64,
    view: T::Ref<'_>,
) -> Result<(), PoolExhausted> {
    let prefix = prefix::<T>();
    let bytes = prefix + frame_len::<T>(view);
    let at = lane.reserve(bytes)?;
    fetch_for_writing(at, AHEAD_BYTES);
    if prefix > 0 {
        // SAFETY: `reserve` gave room for the prefix and the frame.
        unsafe { at.cast::<u64>().write_unaligned(hash) };
    }
    // SAFETY: as above.
    let frame = unsafe { at.add(prefix) };
    // SAFETY: `frame_len` bytes and the segment's `SPARE` lie behind.
    unsafe { write_frame::<T>(frame, view) };
    lane.advance(bytes);
    Ok(())
}

/// How far ahead of the written byte a buffer's lines are fetched.
const AHEAD_BYTES: usize = 512;

/// Fetches the line `ahead` bytes behind `at` for writing: a buffer that comes back lies in the consumer's cache, and a store
/// would wait for it.
#[inline(always)]
fn fetch_for_writing(at: NonNull<u8>, ahead: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
    {
        let line = at.as_ptr().wrapping_add(ahead).cast_const().cast();
        // SAFETY: a prefetch has no effect but on caches, whatever the address.
        unsafe { std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_ET0 }>(line) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri), not(loom))))]
    let _ = (at, ahead);
}

/// Appends a frame (without hash) to owned bytes: for state, snapshots and scratch batches.
pub(crate) fn append<T: Data>(to: &mut Vec<u8>, view: T::Ref<'_>) {
    let (at, n) = (to.len(), frame_len::<T>(view));
    to.resize(at + n + SPARE, 0);
    let place = NonNull::from(&mut to[at]);
    // SAFETY: `n + SPARE` bytes were just added at `at`.
    unsafe { write_frame::<T>(place, view) };
    to.truncate(at + n);
}

/// Writes a frame (without hash) at `at` in `to` and returns its length; `None` if there is no room. There have to be
/// `SPARE` bytes behind it. Padding keeps the bytes that were there.
#[inline(always)]
pub(crate) fn put<T: Data>(to: &mut [u8], at: usize, view: T::Ref<'_>) -> Option<usize> {
    let n = frame_len::<T>(view);
    let place = NonNull::from(to.get_mut(at..at + n + SPARE)?).cast();
    // SAFETY: `n + SPARE` bytes were just cut at `at`.
    unsafe { write_frame::<T>(place, view) };
    Some(n)
}

/// Writes records as frames into `room`, as many as fit, and shows each as it is read back in place: for benches. How many
/// there were.
#[doc(hidden)]
pub fn round_trip<T: Data>(
    records: &[T],
    room: &mut [u8],
    mut each: impl FnMut(T::Ref<'_>),
) -> usize {
    let mut at = 0;
    let written = records.iter().map_while(|record| {
        at += put::<T>(room, at, record.view())?;
        Some(())
    });
    let count = written.count();
    let mut frames = Frames::<T>::new(&room[..at], 0);
    while let Some(frame) = frames.next_frame() {
        each(frame.read());
    }
    count
}

/// Checks one frame of untrusted bytes.
///
/// # Errors
/// As [`Codec::check`]. On success the length of the frame.
pub(crate) fn check_frame<T: Data>(bytes: &[u8]) -> Result<usize, BadFrame> {
    let (head, mut tail) = bytes.split_at_checked(T::Codec::HEAD).ok_or(BadFrame::Short)?;
    let before = tail.len();
    T::Codec::check(head, &mut tail)?;
    let n = if T::Codec::FIXED {
        fixed_len::<T>()
    } else {
        T::Codec::HEAD + (before - tail.len()).next_multiple_of(8)
    };
    if n <= bytes.len() { Ok(n) } else { Err(BadFrame::Short) }
}

/// Checks that untrusted bytes are whole frames of a channel, with their hashes if the type carries them.
///
/// # Errors
/// As [`Codec::check`].
pub(crate) fn check_frames<T: Data>(bytes: &[u8]) -> Result<(), BadFrame> {
    let mut at = 0;
    while at < bytes.len() {
        let frame = bytes.get(at + prefix::<T>()..).ok_or(BadFrame::Short)?;
        let n = prefix::<T>() + check_frame::<T>(frame)?;
        if n == 0 {
            return Err(BadFrame::Short);
        }
        at += n;
    }
    Ok(())
}

/// Reads one checked frame: `bytes` begins with a frame that `append` of the same type made or `check_frame` passed.
#[inline(always)]
pub(crate) fn read_frame<T: Data>(bytes: &[u8]) -> T::Ref<'_> {
    assert!(bytes.len() >= T::Codec::HEAD, "a frame is at least its head");
    let head = bytes.as_ptr();
    // SAFETY: the head was just seen to be there.
    let mut tail = unsafe { head.add(T::Codec::HEAD) };
    // SAFETY: the bytes were made or checked as a frame of this type.
    T::decode(unsafe { T::Codec::read(head, &mut tail) })
}

/// A frame found by [`Frames`]: where its record lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'a, T> {
    head: NonNull<u8>,
    of: PhantomData<(&'a [u8], fn() -> T)>,
}

impl<'a, T: Data> Frame<'a, T> {
    /// The record.
    #[inline(always)]
    pub(crate) fn read(self) -> T::Ref<'a> {
        let head = self.head.as_ptr().cast_const();
        // SAFETY: `Frames` found a whole frame here, whose tail follows its head.
        let mut tail = unsafe { head.add(T::Codec::HEAD) };
        // SAFETY: `Frames` walks bytes written by this type's codec, which live for `'a`.
        T::decode(unsafe { T::Codec::read(head, &mut tail) })
    }
}

/// The frames of a buffer, read in place from some offset on.
#[derive(Debug)]
pub(crate) struct Frames<'a, T> {
    bytes: &'a [u8],
    at: usize,
    of: PhantomData<fn() -> T>,
}

impl<'a, T: Data> Frames<'a, T> {
    /// The frames of `bytes` from offset `at` on. The bytes are whole frames that this type's codec wrote or passed.
    #[inline(always)]
    pub(crate) fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at, of: PhantomData }
    }

    /// Where the next frame (with its hash, if it carries one) begins.
    #[inline(always)]
    pub(crate) fn offset(&self) -> usize {
        self.at
    }

    /// The next frame of a channel that carries no hashes.
    #[inline(always)]
    pub(crate) fn next_frame(&mut self) -> Option<Frame<'a, T>> {
        if self.at >= self.bytes.len() {
            return None;
        }
        // SAFETY: `at` is below the length.
        let start = unsafe { self.bytes.as_ptr().add(self.at) };
        // SAFETY: a slice's pointer is never null.
        let head = unsafe { NonNull::new_unchecked(start.cast_mut()) };
        let n = if T::Codec::FIXED {
            fixed_len::<T>()
        } else {
            // SAFETY: a whole frame begins here, whose tail follows its head.
            let tail = unsafe { start.add(T::Codec::HEAD) };
            let mut end = tail;
            // SAFETY: the bytes were written by this type's codec; the view is dropped at once.
            let _ = unsafe { T::Codec::read(start, &mut end) };
            T::Codec::HEAD + (end as usize - tail as usize).next_multiple_of(8)
        };
        self.at += n;
        Some(Frame { head, of: PhantomData })
    }

    /// The next frame of a keyed channel, with its hash if it carries one.
    #[inline(always)]
    pub(crate) fn next_hashed(&mut self) -> Option<(Frame<'a, T>, Option<u64>)> {
        if prefix::<T>() == 0 {
            return self.next_frame().map(|frame| (frame, None));
        }
        let hash = self.bytes.get(self.at..self.at + 8)?;
        let hash = u64::from_le_bytes(hash.try_into().expect("eight bytes were cut"));
        self.at += 8;
        self.next_frame().map(|frame| (frame, Some(hash)))
    }
}
