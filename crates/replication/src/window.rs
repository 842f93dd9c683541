//! Window of entries in flight to another cluster: a state machine without I/O and without a clock.
//!
//! ```text
//!     acked                  next            end of the log
//!  ─────┼──────────────────────┼─────────────────┤
//!   done   sent, no answer yet    to be read
//! ```
//! Answers arrive in the order of the sends. Entries that are not sent are passed: at once if nothing is in flight,
//! else together with the entries sent before them.

use std::collections::VecDeque;

use pharos_types::Ordinal;

/// Identification of a send in its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SentAs {
    /// The number of the send.
    Sequence(u64),
    /// The place of the entry in the cluster that it comes from: ledger and entry.
    Source(u64, u64),
}

impl SentAs {
    fn is_answered_by(self, sequence_id: u64, highest_sequence_id: u64) -> bool {
        match self {
            Self::Sequence(sent) => sent == sequence_id,
            Self::Source(ledger, entry) => (ledger, entry) == (sequence_id, highest_sequence_id),
        }
    }
}

/// An entry that is on its way.
struct OnItsWay<H> {
    sent_as: SentAs,
    /// Everything before this is done once it is answered.
    passes: Ordinal,
    messages: u32,
    bytes: usize,
    /// Value held for the entry until then.
    held: H,
}

/// An entry that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    /// Its messages.
    pub messages: u32,
    /// Its bytes.
    pub bytes: usize,
}

/// An answer that belongs to no send: what it was sent for is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an answer to {sequence_id}:{highest_sequence_id} came, and {expected:?} was to be answered")]
pub struct UnexpectedAnswer {
    sequence_id: u64,
    highest_sequence_id: u64,
    expected: Option<SentAs>,
}

/// Entries in flight, and the position up to which everything is done. `H`: value held for an entry until it is
/// answered.
pub struct SendWindow<H> {
    entries_max: usize,
    acked: Ordinal,
    next: Ordinal,
    /// Entries before this are sent one by one.
    careful_to: Ordinal,
    on_their_way: VecDeque<OnItsWay<H>>,
}

impl<H> SendWindow<H> {
    /// Everything before `from` is done.
    #[must_use]
    pub fn new(from: Ordinal, entries_max: usize) -> Self {
        Self {
            entries_max: entries_max.max(1),
            acked: from,
            next: from,
            careful_to: from,
            on_their_way: VecDeque::new(),
        }
    }

    /// Everything before this is over there, or not for there.
    #[must_use]
    pub fn acked(&self) -> Ordinal {
        self.acked
    }

    /// The next entry to read.
    #[must_use]
    pub fn next(&self) -> Ordinal {
        self.next
    }

    /// Returns the number of entries that may be sent now; after a refusal, one at a time until the affected entries
    /// are done.
    #[must_use]
    pub fn room(&self) -> usize {
        let entries_max = match self.next < self.careful_to {
            true => 1,
            false => self.entries_max,
        };
        entries_max.saturating_sub(self.on_their_way.len())
    }

    /// Handles the refusal of an entry when the results of the others are unknown: they are sent one by one on the
    /// next try, so that those before the refused entry are completed, and none behind it arrives first.
    pub fn be_careful(&mut self) {
        self.careful_to = self.careful_to.max(self.next);
    }

    /// Returns the number of entries without an answer.
    #[must_use]
    pub fn on_their_way(&self) -> usize {
        self.on_their_way.len()
    }

    /// Returns the value held for the first entry without an answer.
    #[must_use]
    pub fn oldest(&self) -> Option<&H> {
        self.on_their_way.front().map(|first| &first.held)
    }

    /// Marks the entries from the next one to `to` as not sent: they are not for the remote cluster, or no longer
    /// exist.
    pub fn on_passed(&mut self, to: Ordinal) {
        self.next = self.next.max(to);
        match self.on_their_way.back_mut() {
            Some(last) => last.passes = self.next,
            None => self.acked = self.next,
        }
    }

    /// The entry at `at` is sent. What lies before it and was not told of is passed.
    pub fn on_sent(&mut self, at: Ordinal, sent_as: SentAs, messages: u32, bytes: usize, held: H) {
        debug_assert!(at >= self.next, "an entry is sent once");
        if at > self.next {
            self.on_passed(at);
        }
        self.next = at.plus(1);
        self.on_their_way.push_back(OnItsWay {
            sent_as,
            passes: self.next,
            messages,
            bytes,
            held,
        });
    }

    /// The first of what is on its way arrived.
    ///
    /// # Errors
    /// The answer is to something else; nothing changed.
    pub fn on_answer(
        &mut self,
        sequence_id: u64,
        highest_sequence_id: u64,
    ) -> Result<Answered, UnexpectedAnswer> {
        let fits = |first: &mut OnItsWay<H>| first.sent_as.is_answered_by(sequence_id, highest_sequence_id);
        let Some(first) = self.on_their_way.pop_front_if(fits) else {
            return Err(UnexpectedAnswer {
                sequence_id,
                highest_sequence_id,
                expected: self.on_their_way.front().map(|first| first.sent_as),
            });
        };
        self.acked = first.passes;
        Ok(Answered {
            messages: first.messages,
            bytes: first.bytes,
        })
    }

    /// The way is broken: what has no answer is read and sent again. `done`: everything before is to be left alone, because the
    /// cursor was moved there.
    pub fn begin_again(&mut self, done: Ordinal) {
        self.on_their_way.clear();
        self.acked = self.acked.max(done);
        self.next = self.acked;
    }
}
