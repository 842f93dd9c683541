//! The stamp at the head of every benchmark payload.
//!
//! Layout, big-endian: magic (8), sequence (8), sent at (8, ns), source (4). What follows is a fixed pattern. Which clock
//! `sent at` is read from is the benchmark's own choice; publisher and consumers must agree.

/// Bytes of the stamp; no benchmark message is smaller.
pub(crate) const STAMP_BYTES: usize = 28;

const MAGIC: [u8; 8] = *b"PHAROSB1";

/// What a benchmark message says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// Number of the message within its source, from 0.
    pub(crate) sequence: u64,
    /// When it was, or should have been, sent; nanoseconds.
    pub(crate) sent_ns: u64,
    /// Which producer made it.
    pub(crate) source: u32,
}

impl Stamp {
    /// Reads the stamp; `None` if the payload is not a benchmark's.
    #[inline]
    pub(crate) fn read(payload: &[u8]) -> Option<Self> {
        let head = payload.first_chunk::<STAMP_BYTES>()?;
        if head[..8] != MAGIC {
            return None;
        }
        let word = |at: usize| u64::from_be_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|i: usize| head[at + i]));
        let source = u32::from_be_bytes([head[24], head[25], head[26], head[27]]);
        Some(Self {
            sequence: word(8),
            sent_ns: word(16),
            source,
        })
    }

    /// Writes the stamp over the head of `payload`, which must hold [`STAMP_BYTES`].
    #[inline]
    pub(crate) fn write(&self, payload: &mut [u8]) {
        if let Some(head) = payload.first_chunk_mut::<STAMP_BYTES>() {
            head[..8].copy_from_slice(&MAGIC);
            head[8..16].copy_from_slice(&self.sequence.to_be_bytes());
            head[16..24].copy_from_slice(&self.sent_ns.to_be_bytes());
            head[24..28].copy_from_slice(&self.source.to_be_bytes());
        }
    }
}

/// A payload of `bytes` (at least [`STAMP_BYTES`]) filled with a pattern that does not compress to nothing.
pub(crate) fn pattern(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    (0..bytes.max(STAMP_BYTES))
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            b'a' + (state % 26) as u8
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_survives_the_trip() {
        let mut payload = pattern(100);
        assert_eq!(Stamp::read(&payload), None);
        let stamp = Stamp {
            sequence: 7,
            sent_ns: u64::MAX - 3,
            source: 2,
        };
        stamp.write(&mut payload);
        assert_eq!(Stamp::read(&payload), Some(stamp));
        assert_eq!(Stamp::read(&payload[..STAMP_BYTES - 1]), None);
    }
}
