//! From a key's hash to its key group to its subtask: by multiplication and shift, never by modulo.
//!
//! The group is the hash's top bits, so state written in the order of hashes is written in the order of groups.
//! Tables use the bits below them.

use crate::id::KeyGroup;

/// How many key groups a job has: a power of two, at least the greatest parallelism it may ever have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyGroups {
    bits: u32,
}

impl KeyGroups {
    /// At least `max_parallelism` groups; at most 32,768.
    pub fn at_least(max_parallelism: u32) -> Self {
        Self { bits: max_parallelism.clamp(2, 32_768).next_power_of_two().trailing_zeros() }
    }

    /// How many there are.
    pub fn count(self) -> u32 {
        1 << self.bits
    }

    /// The group of a hash.
    #[inline(always)]
    pub fn of(self, hash: u64) -> KeyGroup {
        KeyGroup((hash >> (64 - self.bits)) as u32)
    }

    /// The subtask, of `parallelism`, that owns a hash.
    #[inline(always)]
    pub fn subtask(self, hash: u64, parallelism: u32) -> u32 {
        self.owner(self.of(hash), parallelism)
    }

    /// The subtask, of `parallelism`, that owns a group: contiguous ranges.
    #[inline(always)]
    pub fn owner(self, group: KeyGroup, parallelism: u32) -> u32 {
        ((u64::from(group.0) * u64::from(parallelism)) >> self.bits) as u32
    }

    /// The groups that subtask `index` of `parallelism` owns.
    pub fn range(self, index: u32, parallelism: u32) -> KeyGroupRange {
        let first =
            |index: u32| (u64::from(index) << self.bits).div_ceil(u64::from(parallelism)) as u32;
        KeyGroupRange { first: first(index), end: first(index + 1) }
    }
}

/// Key groups `first..end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyGroupRange {
    /// The first group.
    pub first: u32,
    /// The one behind the last.
    pub end: u32,
}

impl KeyGroupRange {
    /// Whether `group` is one of them.
    pub fn contains(self, group: KeyGroup) -> bool {
        (self.first..self.end).contains(&group.0)
    }

    /// Whether the two have a group in common.
    pub fn intersects(self, other: Self) -> bool {
        self.first < other.end && other.first < self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_partition_the_groups_and_agree_with_the_owner() {
        for max in [2, 128, 129, 4096] {
            let groups = KeyGroups::at_least(max);
            for parallelism in [1, 2, 3, 5, 7, 128] {
                let mut next = 0;
                for index in 0..parallelism {
                    let range = groups.range(index, parallelism);
                    assert_eq!(range.first, next);
                    for group in range.first..range.end {
                        assert_eq!(groups.owner(KeyGroup(group), parallelism), index);
                    }
                    next = range.end;
                }
                assert_eq!(next, groups.count());
            }
        }
    }

    #[test]
    fn the_group_is_the_top_of_the_hash() {
        let groups = KeyGroups::at_least(128);
        assert_eq!(groups.of(u64::MAX), KeyGroup(127));
        assert_eq!(groups.of(0), KeyGroup(0));
        assert_eq!(groups.subtask(u64::MAX, 3), 2);
    }
}
