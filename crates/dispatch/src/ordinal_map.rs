//! A hash map keyed by numbers the broker counts itself (ordinals, hash slots).
//!
//! Such keys are not chosen by a peer, so a multiplication is hash enough and several times cheaper than the default.
//! Chunk uuids, which a peer does choose, reach it only after the caller has hashed them.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Map from an ordinal, or another dense number, to `V`.
pub(super) type OrdinalMap<V> = HashMap<u64, V, BuildHasherDefault<Spread>>;

/// Spreads neighbouring numbers over the whole range.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        // The map takes its buckets from the low bits and its tags from the high ones; the product is good only high up.
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// Gives memory back after a burst: a map that has become empty keeps only a small table.
pub(super) fn shrink_if_empty<V>(map: &mut OrdinalMap<V>) {
    const KEPT_CAPACITY: usize = 4096;
    if map.is_empty() && map.capacity() > KEPT_CAPACITY {
        map.shrink_to(KEPT_CAPACITY);
    }
}
