//! Which of 64 bytes have a property, as the bits of a word; and with that the positions of a byte that is frequent.
//!
//! A search that is called again behind each match costs more than the bytes it looks at when lines are short. Here a
//! comparison of 64 bytes is a loop that the compiler makes a few vector instructions of, on any machine, and what is
//! left per match is to find the next bit. Bench: `words`. Called by `text` and `source`.
#![expect(unsafe_code, reason = "the instruction that gathers the bits of 16 bytes")]

/// Bit `i` is flag `i`.
#[inline(always)]
pub(crate) fn bits(flags: [bool; 64]) -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{__m128i, _mm_movemask_epi8, _mm_slli_epi16};

        // SAFETY: 64 flags are four vectors of initialised bytes.
        let sixteens: [__m128i; 4] = unsafe { std::mem::transmute(flags) };
        let sixteens = sixteens.map(|flags| {
            // A flag is the lowest bit of its byte, and the highest ones are taken.
            // SAFETY: every x86-64 processor has the instruction.
            let highest = unsafe { _mm_slli_epi16::<7>(flags) };
            // SAFETY: as above.
            (unsafe { _mm_movemask_epi8(highest) }) as u64
        });
        sixteens[0] | sixteens[1] << 16 | sixteens[2] << 32 | sixteens[3] << 48
    }
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    by_multiplication(flags)
}

/// The same on any machine.
#[cfg(any(not(target_arch = "x86_64"), miri, test))]
fn by_multiplication(flags: [bool; 64]) -> u64 {
    let (eights, _) = flags.as_chunks::<8>();
    let mut bits = 0;
    for (place, eight) in eights.iter().enumerate() {
        // Moves the bit of byte `i` to bit `56 + i`; no two meet on the way.
        let eight = u64::from_le_bytes(eight.map(u8::from)).wrapping_mul(0x0102_0408_1020_4080);
        bits |= (eight >> 56) << (8 * place);
    }
    bits
}

/// Where `byte` is in `bytes`, in order.
#[inline(always)]
pub(crate) fn positions(byte: u8, bytes: &[u8]) -> Positions<'_> {
    Positions { byte, rest: bytes, behind: 0, found: 0 }
}

/// See [`positions`].
#[derive(Debug)]
pub(crate) struct Positions<'a> {
    byte: u8,
    rest: &'a [u8],
    /// Where `rest` begins.
    behind: usize,
    /// A bit for each match in the 64 bytes before `behind` that was not told yet.
    found: u64,
}

impl Iterator for Positions<'_> {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        while self.found == 0 {
            let Some((block, rest)) = self.rest.split_first_chunk::<64>() else {
                self.found = self.last()?;
                break;
            };
            self.found = bits(block.map(|b| b == self.byte));
            (self.rest, self.behind) = (rest, self.behind + 64);
        }
        let at = self.behind - 64 + self.found.trailing_zeros() as usize;
        self.found &= self.found - 1;
        Some(at)
    }
}

impl Positions<'_> {
    /// The matches in the last, short block; `None` if there are none.
    #[cold]
    fn last(&mut self) -> Option<u64> {
        let mut block = [!self.byte; 64];
        block[..self.rest.len()].copy_from_slice(self.rest);
        (self.rest, self.behind) = (&[], self.behind + 64);
        let found = bits(block.map(|b| b == self.byte));
        (found != 0).then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bit_is_a_flag() {
        for place in 0..64 {
            assert_eq!(bits(std::array::from_fn(|i| i == place)), 1 << place);
        }
        assert_eq!(bits([true; 64]), u64::MAX);
        assert_eq!(bits([false; 64]), 0);
        for step in 2..9 {
            let flags = std::array::from_fn(|i| i % step == 1);
            assert_eq!(bits(flags), by_multiplication(flags));
        }
    }

    #[test]
    fn positions_are_those_of_a_plain_search_at_every_length() {
        let mut state = 3u64;
        for n in 0..400 {
            for one_in in [1, 3, 40, 200] {
                let mut byte = || {
                    state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(11);
                    if (state >> 33).is_multiple_of(one_in) { b'\n' } else { (state >> 40) as u8 }
                };
                let bytes: Vec<u8> = (0..n).map(|_| byte()).collect();
                let plain = (0..n).filter(|&at| bytes[at] == b'\n');
                assert!(positions(b'\n', &bytes).eq(plain), "{n} bytes, one in {one_in}");
                let zeros = (0..n).filter(|&at| bytes[at] == 0);
                assert!(positions(0, &bytes).eq(zeros));
            }
        }
    }
}
