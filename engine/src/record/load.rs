//! The first 16 or 64 bytes of a string, filled up with zeros, without a branch on its length.
//!
//! Words of text have lengths that no branch predictor guesses; masking a 16-byte load instead of branching took word
//! count from 14 to 19 M words/s on one worker. The load may read past the string, but never past its page, so it can't
//! fault; since reading out of bounds is no defined Rust, it sits in `asm!` on x86-64. Elsewhere (and under miri or
//! loom) the bytes are read by cases. Called by `codec`, `key` and `text`.
#![expect(unsafe_code, reason = "masked loads instead of branches on the length")]

/// A page, the smallest there is: a load that stays in one can't fault if its first byte is mapped.
#[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
const PAGE_BYTES: usize = 4096;

/// `MASKS[n]` keeps the low `n` bytes of a pair of words.
const MASKS: [(u64, u64); 17] = {
    let mut masks = [(0, 0); 17];
    let mut n = 0;
    while n <= 16 {
        masks[n] = (
            if n >= 8 { u64::MAX } else { (1 << (8 * n)) - 1 },
            if n == 16 {
                u64::MAX
            } else if n > 8 {
                (1 << (8 * (n - 8))) - 1
            } else {
                0
            },
        );
        n += 1;
    }
    masks
};

/// The first 16 bytes of `bytes` as two little-endian words, filled up with zeros.
#[inline(always)]
pub(crate) fn words16(bytes: &[u8]) -> (u64, u64) {
    #[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
    {
        let at = bytes.as_ptr();
        if !bytes.is_empty() && at as usize % PAGE_BYTES <= PAGE_BYTES - 16 {
            let (low, high): (u64, u64);
            // SAFETY: `at` points to at least one live byte and the 16 bytes lie in its page, so the load can't fault.
            unsafe {
                std::arch::asm!(
                    "mov {low}, qword ptr [{at}]",
                    "mov {high}, qword ptr [{at} + 8]",
                    at = in(reg) at,
                    low = out(reg) low,
                    high = lateout(reg) high,
                    options(pure, readonly, nostack, preserves_flags)
                );
            }
            let mask = MASKS[bytes.len().min(16)];
            return (low & mask.0, high & mask.1);
        }
    }
    by_cases(bytes)
}

/// The same by cases of the length.
#[cold]
#[inline(never)]
fn by_cases(bytes: &[u8]) -> (u64, u64) {
    let pair = u128::from_le_bytes(padded(bytes));
    (pair as u64, (pair >> 64) as u64)
}

/// The first `N` bytes, filled up with zeros.
#[inline]
fn padded<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut all = [0; N];
    let n = bytes.len().min(N);
    all[..n].copy_from_slice(&bytes[..n]);
    all
}

/// From `64 - n` on: `n` bytes that are kept, then 64 - `n` that are not.
#[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
const KEPT: [u8; 128] = {
    let mut kept = [0; 128];
    let mut n = 0;
    while n < 64 {
        kept[n] = 0xFF;
        n += 1;
    }
    kept
};

/// Loads 16 bytes into a vector register. In code for AVX the instruction of old would make the processor wait.
#[cfg(all(target_arch = "x86_64", target_feature = "avx", not(miri), not(loom)))]
macro_rules! load {
    ($to:literal, $from:literal) => {
        concat!("vmovdqu {", $to, "}, xmmword ptr [{at} + ", $from, "]")
    };
}
#[cfg(all(target_arch = "x86_64", not(target_feature = "avx"), not(miri), not(loom)))]
macro_rules! load {
    ($to:literal, $from:literal) => {
        concat!("movdqu {", $to, "}, xmmword ptr [{at} + ", $from, "]")
    };
}

/// The first 64 bytes of `bytes`, filled up with zeros.
#[inline(always)]
pub(crate) fn bytes64(bytes: &[u8]) -> [u8; 64] {
    #[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
    {
        use std::arch::x86_64::__m128i;

        let at = bytes.as_ptr();
        if !bytes.is_empty() && at as usize % PAGE_BYTES <= PAGE_BYTES - 64 {
            let (a, b, c, d): (__m128i, __m128i, __m128i, __m128i);
            // SAFETY: `at` points to at least one live byte and the 64 bytes lie in its page, so the loads can't fault.
            unsafe {
                std::arch::asm!(
                    load!("a", "0"),
                    load!("b", "16"),
                    load!("c", "32"),
                    load!("d", "48"),
                    at = in(reg) at,
                    a = out(xmm_reg) a,
                    b = out(xmm_reg) b,
                    c = out(xmm_reg) c,
                    d = out(xmm_reg) d,
                    options(pure, readonly, nostack, preserves_flags)
                );
            }
            // SAFETY: four vectors are 64 initialised bytes.
            let all: [u8; 64] = unsafe { std::mem::transmute([a, b, c, d]) };
            let kept = &KEPT[64 - bytes.len().min(64)..];
            return std::array::from_fn(|i| all[i] & kept[i]);
        }
    }
    padded(bytes)
}

/// Two words as their 16 bytes in memory.
#[inline(always)]
pub(crate) fn as_bytes(words: &[u64; 2]) -> &[u8; 16] {
    // SAFETY: two words are 16 initialised bytes, and bytes need no alignment.
    unsafe { &*std::ptr::from_ref(words).cast::<[u8; 16]>() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masked_load_equals_the_load_by_cases_at_every_length_and_page_offset() {
        let page = vec![0xA5u8; 3 * 4096];
        let skip = page.as_ptr().align_offset(4096);
        for offset in (0..40).chain(4070..4096) {
            for n in 0..=20 {
                let bytes = &page[skip + offset..skip + offset + n];
                assert_eq!(words16(bytes), by_cases(bytes), "offset {offset}, length {n}");
            }
            for n in 0..=70 {
                let bytes = &page[skip + offset..skip + offset + n];
                assert_eq!(bytes64(bytes), padded(bytes), "offset {offset}, length {n}");
            }
        }
        assert_eq!(words16(b"ab"), (0x6261, 0));
        assert_eq!(words16(b"0123456789abcdef!"), words16(b"0123456789abcdef"));
        assert_eq!(MASKS[3].0, 0xFF_FFFF);
    }
}
