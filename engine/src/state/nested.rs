//! Hashes of what lies under a key: a map's entries, and timers.
//!
//! They keep the key's own key group, so that they move with the key when a job is rescaled, and spread over its table
//! by the rest.

use crate::record::key::fold;

/// The top bits that every possible key group is made of.
const GROUP_BITS: u32 = 15;
const GROUP_MASK: u64 = !(u64::MAX >> GROUP_BITS);

/// Odd multipliers with well-spread bits.
const MIX: u64 = 0x9E37_79B9_7F4A_7C15;
const MIX_INNER: u64 = 0xA076_1D64_78BD_642F;

/// The hash of `inner` under the key whose hash is `outer`.
#[inline(always)]
pub(super) fn nested_hash(outer: u64, inner: u64) -> u64 {
    let mixed = fold(fold(outer ^ MIX, inner ^ MIX_INNER), MIX);
    outer & GROUP_MASK | mixed >> GROUP_BITS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::key_group::KeyGroups;

    #[test]
    fn what_lies_under_a_key_is_in_the_keys_own_group() {
        for max in [2, 128, 32_768] {
            let groups = KeyGroups::at_least(max);
            for outer in [0, 1, 0x1234_5678_9ABC_DEF0, u64::MAX] {
                assert_eq!(groups.of(nested_hash(outer, 77)), groups.of(outer));
            }
        }
        assert_ne!(nested_hash(0, 1), nested_hash(0, 2));
    }
}
