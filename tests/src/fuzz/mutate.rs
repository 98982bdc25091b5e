//! Mutations of an input that are the same in each run: what a seed means never changes.

use std::fmt;

/// A small generator of its own.
pub struct Dice(u64);

impl fmt::Debug for Dice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dice({:#x})", self.0)
    }
}

impl Dice {
    /// Dice that fall the same way for the same seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03)
    }

    /// A number below `sides`; 0 if there are none.
    pub fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13 | 1;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33) as usize)
            .checked_rem(sides)
            .unwrap_or(0)
    }
}

/// The longest input made.
const BYTES_MAX: usize = 4096;

/// Numbers at which lengths and counts go wrong.
const EXTREMES: [u64; 10] = [
    0,
    1,
    0x7F,
    0xFF,
    0xFFFF,
    0x7FFF_FFFF,
    0xFFFF_FFFF,
    0x7FFF_FFFF_FFFF_FFFF,
    0xFFFF_FFFF_FFFF_FFFF,
    0x8000_0000_0000_0000,
];

/// Texts at which parsers go wrong.
const TEXTS: [&str; 16] = [
    "\0",
    "\n",
    "\r\n",
    "\"",
    "\"\"",
    ",",
    "\u{feff}",
    "\u{fffd}",
    "-",
    "..",
    "/../",
    "%00",
    "\\",
    "18446744073709551616",
    "{",
    "[[",
];

/// One mutation of an input from `corpus`, which must not be empty.
pub fn mutate(corpus: &[Vec<u8>], dice: &mut Dice) -> Vec<u8> {
    let mut bytes = corpus[dice.roll(corpus.len())].clone();
    for _ in 0..=dice.roll(3) {
        let at = dice.roll(bytes.len() + 1);
        match dice.roll(8) {
            0 if at < bytes.len() => bytes[at] ^= 1 << dice.roll(8),
            1 if at < bytes.len() => bytes[at] = dice.roll(256) as u8,
            2 => bytes.truncate(at),
            3 => {
                let other = &corpus[dice.roll(corpus.len())];
                let from = dice.roll(other.len() + 1);
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            4 => put_number(&mut bytes, at, dice),
            5 => {
                let text = TEXTS[dice.roll(TEXTS.len())];
                bytes.splice(at..at, text.bytes());
            }
            6 => {
                let end = (at + dice.roll(16)).min(bytes.len());
                bytes.drain(at..end);
            }
            _ => {
                let end = (at + dice.roll(32)).min(bytes.len());
                let twice = bytes[at..end].to_vec();
                bytes.splice(at..at, twice);
            }
        }
    }
    bytes.truncate(BYTES_MAX);
    bytes
}

/// An extreme number where a length may stand, of any width.
fn put_number(bytes: &mut [u8], at: usize, dice: &mut Dice) {
    let number = EXTREMES[dice.roll(EXTREMES.len())].to_le_bytes();
    let width = [1, 2, 4, 8][dice.roll(4)];
    for (place, byte) in bytes.iter_mut().skip(at).take(width).zip(number) {
        *place = byte;
    }
}
