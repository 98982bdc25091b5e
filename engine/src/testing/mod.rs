//! Suites that a source or sink must pass, for ours and for those that users write.
//!
//! They drive the traits directly, without threads, clock or job, and panic with a sentence where the trait's rules are
//! broken: `testing::source::conformance(|| source::range(0..10), &[0, 1, …])`.

pub mod sink;
pub mod source;

/// A fixed sequence of numbers that look random, the same in every run.
#[derive(Clone, Debug)]
struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `n`.
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % n.max(1) as u64) as usize
    }
}

/// Records as the bytes of their frames, sorted: to compare what has no order.
fn multiset<T: crate::record::Data>(records: &[T]) -> Vec<Vec<u8>> {
    let mut frames: Vec<_> = records
        .iter()
        .map(|record| {
            let mut bytes = Vec::new();
            crate::record::codec::append::<T>(&mut bytes, record.view());
            bytes
        })
        .collect();
    frames.sort_unstable();
    frames
}

#[cfg(test)]
mod tests;
