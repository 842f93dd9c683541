//! Plausibility check of acknowledgements of parts of a batch.

/// An `ack_set` of so many words is taken whatever the topic holds: more than the 1,000 messages that clients put into a batch by
/// default.
const ACK_SET_WORDS_MIN: usize = 16;

/// The size of the largest batch that was delivered, to tell which acknowledgements of parts of a batch make sense.
///
/// Each word that a client sends is kept until the batch is done, so a set may not be longer than any batch it can be for.
#[derive(Clone, Copy, Debug, Default)]
pub struct LargestBatch(u32);

impl LargestBatch {
    /// An entry of so many messages is delivered.
    #[inline]
    pub fn note(&mut self, messages: u32) {
        self.0 = self.0.max(messages);
    }

    /// True if a set of so many words can be for a batch that was delivered.
    #[inline]
    #[must_use]
    pub fn allows(self, words: usize) -> bool {
        words <= ACK_SET_WORDS_MIN || words <= self.0.div_ceil(64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_may_be_as_long_as_a_batch() {
        let mut largest = LargestBatch::default();
        assert!(largest.allows(16) && !largest.allows(17));
        largest.note(2_000);
        largest.note(3);
        assert!(largest.allows(32) && !largest.allows(33));
    }
}
