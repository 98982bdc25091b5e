//! CRC32C of bytes that come piece by piece, some of them known by their sum only.
//!
//! Joining lets a payload be read once and still count in the sums of its block, its run and its file. A sum is a
//! polynomial over GF(2) with the coefficient of x⁰ in the highest bit; `n` bytes behind it multiply it by x⁸ⁿ.

/// CRC32C over some bytes, with their count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    /// How many bytes.
    pub(crate) bytes: u64,
    /// Their CRC32C.
    pub(crate) crc: u32,
}

impl Sum {
    /// The sum of `bytes`.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self { bytes: bytes.len() as u64, crc: crc32c::crc32c(bytes) }
    }

    /// Adds `bytes`.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.crc = crc32c::crc32c_append(self.crc, bytes);
        self.bytes += bytes.len() as u64;
    }

    /// Adds bytes of which only the sum is known.
    pub(crate) fn join(&mut self, next: Self) {
        self.crc = times(shift(next.bytes), self.crc) ^ next.crc;
        self.bytes += next.bytes;
    }
}

/// x⁸ⁿ.
fn shift(bytes: u64) -> u32 {
    let mut product = ONE;
    let mut left = bytes;
    let mut power = 3;
    while left != 0 {
        if left & 1 != 0 {
            product = times(POWERS[power], product);
        }
        left >>= 1;
        power += 1;
    }
    product
}

/// The product of two polynomials, modulo that of CRC32C.
const fn times(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut bit = 32;
    while bit > 0 {
        bit -= 1;
        // Masks instead of branches: the bits are as good as random.
        product ^= b & ((a >> bit) & 1).wrapping_neg();
        b = (b >> 1) ^ (POLYNOMIAL & (b & 1).wrapping_neg());
    }
    product
}

const POLYNOMIAL: u32 = 0x82f6_3b78;
const ONE: u32 = 1 << 31;
/// x to the power of 2 to the power of the index.
const POWERS: [u32; 67] = {
    let mut powers = [1 << 30; 67];
    let mut at = 1;
    while at < powers.len() {
        powers[at] = times(powers[at - 1], powers[at - 1]);
        at += 1;
    }
    powers
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn sums_of_pieces_join_to_the_sum_of_the_whole(
            pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 0..6)
        ) {
            let mut joined = Sum::default();
            pieces.iter().for_each(|piece| joined.join(Sum::of(piece)));
            prop_assert_eq!(joined, Sum::of(&pieces.concat()));
        }
    }

    #[test]
    fn a_long_piece_joins_like_a_short_one() {
        let (front, back) = (vec![7; 1000], vec![9; 3 << 20]);
        let mut joined = Sum::of(&front);
        joined.join(Sum::of(&back));
        assert_eq!(joined, Sum::of(&[front, back].concat()));
    }
}
