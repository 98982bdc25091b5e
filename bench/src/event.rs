//! The events of the throughput workloads and their checksums, bit for bit those of the programs compared with.
//!
//! All arithmetic is on unsigned 64-bit integers and wraps.

const SEED: u64 = 0x7469_6465_6761_7465;
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
const VALUE_MUL: u64 = 0xD6E8_FEB8_6659_FD93;

/// Key and value.
pub type Event = (u64, u64);

/// A number that looks random and depends on `i` alone: splitmix64 over a counter.
#[inline(always)]
pub fn mix(i: u64) -> u64 {
    let z = SEED.wrapping_add(i.wrapping_add(1).wrapping_mul(GOLDEN));
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The key of event `i` of a stream over `keys` keys, at most 2^32.
#[inline(always)]
pub fn key(i: u64, keys: u64) -> u64 {
    ((mix(i) >> 32) * keys) >> 32
}

/// Event `i` of a stream over `keys` keys, at most 2^32.
#[inline(always)]
pub fn event(i: u64, keys: u64) -> Event {
    let key = key(i, keys);
    (key, key.wrapping_mul(VALUE_MUL))
}

/// W1's map.
#[inline(always)]
pub fn w1_map((key, value): Event) -> Event {
    (key, value.wrapping_mul(31).wrapping_add(key))
}

/// W1's filter.
#[inline(always)]
pub fn w1_keep((_, value): Event) -> bool {
    (value >> 16) & 1 == 0
}

/// What one update of W2 adds to its checksum, which no interleaving of sources changes.
#[inline(always)]
pub fn w2_check(key: u64, count: u64, sum: u64) -> u64 {
    (sum ^ count.rotate_left(32)).wrapping_add(key).wrapping_mul(GOLDEN)
}

/// What one count of a word adds to W3's checksum.
#[inline(always)]
pub fn w3_check(word: &str, count: u64) -> u64 {
    let first = word.as_bytes().first().copied().unwrap_or(0);
    (31 * word.len() as u64 + u64::from(first)).wrapping_mul(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_spread_over_their_keys() {
        let keys: std::collections::BTreeSet<u64> = (0..1000).map(|i| key(i, 10)).collect();
        assert_eq!(keys, (0..10).collect());
        assert!((0..1000).all(|i| event(i, 1 << 32).0 < 1 << 32));
    }
}
