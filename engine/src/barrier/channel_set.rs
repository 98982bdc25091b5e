//! A set of channels of one task: bits for a number of channels fixed at the start. No operation allocates.

use crate::id::ChannelIndex;

/// A set of channels out of `0..len`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ChannelSet {
    words: Box<[u64]>,
    count: usize,
}

impl ChannelSet {
    /// The empty set over `len` channels.
    pub fn new(len: usize) -> Self {
        Self { words: vec![0; len.div_ceil(64)].into_boxed_slice(), count: 0 }
    }

    /// Puts `channel` in; whether it was missing.
    ///
    /// # Panics
    /// If the channel is not one of the set's channels.
    pub fn insert(&mut self, channel: ChannelIndex) -> bool {
        let (word, bit) = place(channel);
        let missing = self.words[word] & bit == 0;
        self.words[word] |= bit;
        self.count += usize::from(missing);
        missing
    }

    /// Takes `channel` out; whether it was there.
    ///
    /// # Panics
    /// If the channel is not one of the set's channels.
    pub fn remove(&mut self, channel: ChannelIndex) -> bool {
        let (word, bit) = place(channel);
        let present = self.words[word] & bit != 0;
        self.words[word] &= !bit;
        self.count -= usize::from(present);
        present
    }

    /// Takes all out.
    pub fn clear(&mut self) {
        self.words.fill(0);
        self.count = 0;
    }

    /// Whether `channel` is in.
    pub fn contains(&self, channel: ChannelIndex) -> bool {
        let (word, bit) = place(channel);
        self.words.get(word).is_some_and(|w| w & bit != 0)
    }

    /// How many are in.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Whether none is in.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Those in the set, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = ChannelIndex> + '_ {
        (0u32..).zip(&self.words).flat_map(|(index, &word)| {
            let mut left = word;
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros())?;
                left &= left - 1;
                Some(ChannelIndex(index * 64 + bit))
            })
        })
    }
}

fn place(channel: ChannelIndex) -> (usize, u64) {
    (channel.0 as usize / 64, 1 << (channel.0 % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_works_beyond_sixty_four_channels() {
        let mut set = ChannelSet::new(200);
        for index in [0, 63, 64, 127, 128, 199] {
            assert!(set.insert(ChannelIndex(index)));
            assert!(!set.insert(ChannelIndex(index)));
        }
        assert_eq!(set.count(), 6);
        let all: Vec<u32> = set.iter().map(|c| c.0).collect();
        assert_eq!(all, [0, 63, 64, 127, 128, 199]);
        assert!(set.remove(ChannelIndex(64)) && !set.remove(ChannelIndex(64)));
        assert!(!set.contains(ChannelIndex(64)) && set.contains(ChannelIndex(199)));
        set.clear();
        assert!(set.is_empty() && set.iter().next().is_none());
    }
}
