//! Payload of a benchmark message: a stamp, and a body derived from it.
//!
//! Layout, big-endian: magic (8), sequence (8), sent at (8, ns), source (4), body. The body is a piece of one fixed
//! text that begins at a different offset for each message, so that a consumer can tell a message's own bytes from
//! another's. Each benchmark chooses the clock of `sent at`; publisher and consumers must agree.

/// Bytes of the stamp; no benchmark message is smaller.
pub const STAMP_BYTES: usize = 28;

const MAGIC: [u8; 8] = *b"PHAROSB1";

/// Stamp of a benchmark message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Number of the message within its source, from 0.
    pub sequence: u64,
    /// Time at which it was, or should have been, sent, in nanoseconds.
    pub sent_ns: u64,
    /// Number of its producer.
    pub source: u32,
}

impl Stamp {
    /// Reads the stamp; `None` if the payload is not a benchmark's.
    #[inline]
    pub fn read(payload: &[u8]) -> Option<Self> {
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

/// Length of the text that bodies are taken from; it repeats. Small enough for the fastest cache, and a power of two.
const TEXT_BYTES: usize = 16 << 10;

/// The bodies of all messages; they differ from one message to the next.
#[derive(Debug)]
pub struct Bodies {
    text: Vec<u8>,
}

impl Default for Bodies {
    fn default() -> Self {
        Self {
            text: pattern(TEXT_BYTES),
        }
    }
}

impl Bodies {
    /// Returns the offset in the text at which the body of a message begins.
    fn start(stamp: &Stamp) -> usize {
        // The factor is odd, so that a run of `TEXT_BYTES` messages has as many different beginnings.
        let mixed = stamp.sequence.wrapping_mul(0x9e37_79b1);
        let mixed = mixed.wrapping_add(u64::from(stamp.source).wrapping_mul(0x85eb));
        mixed as usize & (TEXT_BYTES - 1)
    }

    /// The pieces of the text that make a body of `bytes`.
    #[inline]
    fn pieces(&self, stamp: &Stamp, bytes: usize) -> impl Iterator<Item = &[u8]> {
        let (mut from, mut left) = (Self::start(stamp), bytes);
        std::iter::from_fn(move || {
            let piece = self.text.get(from..(from + left).min(TEXT_BYTES))?;
            from = 0;
            left -= piece.len();
            (!piece.is_empty()).then_some(piece)
        })
    }

    /// Writes the stamp and the body that belongs to it over `payload`, which must hold [`STAMP_BYTES`].
    #[inline]
    pub fn write(&self, stamp: &Stamp, payload: &mut [u8]) {
        stamp.write(payload);
        let mut rest = payload.get_mut(STAMP_BYTES..).unwrap_or_default();
        for piece in self.pieces(stamp, rest.len()) {
            let (now, later) = rest.split_at_mut(piece.len());
            now.copy_from_slice(piece);
            rest = later;
        }
    }

    /// True if `payload`, from which `stamp` was read, has the body that belongs to it.
    #[inline]
    pub fn is_right(&self, stamp: &Stamp, payload: &[u8]) -> bool {
        let mut rest = payload.get(STAMP_BYTES..).unwrap_or_default();
        for piece in self.pieces(stamp, rest.len()) {
            let (now, later) = rest.split_at(piece.len());
            if now != piece {
                return false;
            }
            rest = later;
        }
        true
    }
}

/// A payload of `bytes` (at least [`STAMP_BYTES`]) filled with a pattern that does not compress to nothing.
pub fn pattern(bytes: usize) -> Vec<u8> {
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

    #[test]
    fn a_body_belongs_to_one_message() {
        let bodies = Bodies::default();
        for bytes in [STAMP_BYTES, 29, 300, 10_240, 40_000] {
            let (mut one, mut other) = (pattern(bytes), pattern(bytes));
            let stamp = |sequence| Stamp {
                sequence,
                sent_ns: 5,
                source: 3,
            };
            bodies.write(&stamp(1), &mut one);
            bodies.write(&stamp(2), &mut other);
            assert!(bodies.is_right(&stamp(1), &one) && bodies.is_right(&stamp(2), &other));
            if bytes >= 300 {
                // The stamp of one on the body of the other.
                stamp(2).write(&mut one);
                assert!(!bodies.is_right(&stamp(2), &one));
                let last = other.len() - 1;
                other[last] ^= 1;
                assert!(!bodies.is_right(&stamp(2), &other));
            }
        }
    }
}
