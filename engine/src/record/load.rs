//! The first 16 bytes of a string as two words, without a branch on its length.
//!
//! Words of text have lengths that no branch predictor guesses; masking a 16-byte load instead of branching took word
//! count from 14 to 19 M words/s on one worker. The load may read past the string, but never past its page, so it can't
//! fault; since reading out of bounds is no defined Rust, it sits in `asm!` on x86-64. Elsewhere (and under miri or
//! loom) the bytes are read by cases. Called by `codec` and `key`.
#![expect(unsafe_code, reason = "a masked 16-byte load instead of branches on the length")]

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
#[inline]
fn by_cases(bytes: &[u8]) -> (u64, u64) {
    let mut all = [0; 16];
    let n = bytes.len().min(16);
    all[..n].copy_from_slice(&bytes[..n]);
    let pair = u128::from_le_bytes(all);
    (pair as u64, (pair >> 64) as u64)
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
        }
        assert_eq!(words16(b"ab"), (0x6261, 0));
        assert_eq!(words16(b"0123456789abcdef!"), words16(b"0123456789abcdef"));
        assert_eq!(MASKS[3].0, 0xFF_FFFF);
    }
}
