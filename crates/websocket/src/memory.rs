//! Memory of a session: messages that its caller has not taken.
//!
//! A session asks the broker for few bytes ahead, encodes one message at a time, and counts what it holds in the account in which the
//! broker counts the unwritten bytes of all consumers. A caller that takes nothing while that account is short is closed: it keeps
//! nothing then, and what it has not acknowledged is read again when it reconnects.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pharos_accounts::unwritten::{Queued, Unwritten};

/// Bytes that a session asks the broker for ahead of its caller; one message may be larger.
const AHEAD_BYTES: usize = 64 << 10;
/// Messages that a session asks for ahead, at most.
const AHEAD_MESSAGES: usize = 64;
/// Time without a byte taken after which a caller is closed if memory is short.
pub(crate) const STALLED_MAX: Duration = Duration::from_secs(2);

/// Messages to ask the broker for, by the size of those that came.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ahead {
    /// Moving average of the payload size, in bytes; `None` before the first message.
    average: Option<usize>,
}

impl Ahead {
    /// Notes the size of a message that came, in bytes.
    pub(crate) fn note(&mut self, bytes: usize) {
        self.average = Some(match self.average {
            // A larger one counts at once, smaller ones by and by.
            Some(average) if bytes < average => average - (average - bytes) / 8,
            _ => bytes,
        });
    }

    /// Messages to ask for: one until a size is known.
    pub(crate) fn messages(self) -> usize {
        match self.average {
            None => 1,
            Some(average) => (AHEAD_BYTES / average.max(1)).clamp(1, AHEAD_MESSAGES),
        }
    }

    /// Bytes that the session may have received ahead of its caller.
    pub(crate) fn bytes(self) -> usize {
        self.average
            .map_or(0, |average| average.saturating_mul(self.messages()))
    }
}

/// A session's share of the broker's account of unwritten bytes.
#[derive(Clone)]
pub(crate) struct SessionMemory {
    account: Arc<Unwritten>,
    /// Bytes that its caller's socket has taken.
    taken: Arc<AtomicU64>,
}

impl SessionMemory {
    pub(crate) fn new(account: Arc<Unwritten>) -> Self {
        Self {
            account,
            taken: Arc::default(),
        }
    }

    /// Counts bytes until the result is dropped.
    pub(crate) fn hold(&self, bytes: usize) -> Queued {
        self.account.hold_queued(bytes)
    }

    /// True if a caller that takes nothing must be closed.
    pub(crate) fn is_short(&self) -> bool {
        self.account.is_short()
    }

    /// True if no more messages should be asked for now.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.account.is_exhausted()
    }

    /// Notes bytes that the socket has taken.
    pub(crate) fn took(&self, bytes: usize) {
        self.taken.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Bytes that the socket has taken so far.
    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_large_messages_are_asked_for_and_more_small_ones() {
        let mut ahead = Ahead::default();
        assert_eq!((ahead.messages(), ahead.bytes()), (1, 0));
        ahead.note(10);
        assert_eq!(ahead.messages(), AHEAD_MESSAGES);
        ahead.note(5 << 20);
        assert_eq!((ahead.messages(), ahead.bytes()), (1, 5 << 20));
        for _ in 0..200 {
            ahead.note(1024);
        }
        assert!(ahead.messages() > 50 && ahead.bytes() <= AHEAD_BYTES);
    }
}
