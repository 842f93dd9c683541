//! Reading without fencing: one entry, and how far a ledger is confirmed.

use pharos_types::EntryId;

use crate::call::CallError;
use crate::metadata::{BookieId, Segment};
use crate::quorum::{Positions, Quorum};

/// Next step of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Ask this one as well.
    Ask(BookieId),
    /// Wait for those that were asked.
    Wait,
    /// No bookie can give the entry.
    Failed(CallError),
}

/// Read of one entry, from one bookie of its write set after another; a second one is asked if the first is slow.
#[derive(Debug)]
pub struct EntryRead {
    /// Bookies that were not asked yet, the next one last.
    others: Vec<BookieId>,
    outstanding: usize,
    error: Option<CallError>,
}

impl EntryRead {
    /// Of `entry`, which is in `segment`. When every bookie has every entry, `preferred` is the position to ask first, so that
    /// its read-ahead is of use; otherwise the first of the write set is. Bookies that are slow at present are asked last.
    #[must_use]
    pub fn new(
        quorum: Quorum,
        segment: &Segment,
        entry: EntryId,
        preferred: usize,
        is_slow: impl Fn(&BookieId) -> bool,
    ) -> Self {
        let set = if quorum.write() == quorum.ensemble() {
            EntryId(preferred as u64)
        } else {
            entry
        };
        let mut others: Vec<_> = quorum
            .write_set(set)
            .filter_map(|position| segment.ensemble.get(position).cloned())
            .collect();
        others.sort_by_cached_key(is_slow);
        others.reverse();
        Self {
            others,
            outstanding: 0,
            error: None,
        }
    }

    /// At the start, and whenever those that were asked take long.
    pub fn ask(&mut self) -> Next {
        match self.others.pop() {
            Some(bookie) => {
                self.outstanding += 1;
                Next::Ask(bookie)
            }
            None if self.outstanding > 0 => Next::Wait,
            None => Next::Failed(
                self.error
                    .take()
                    .unwrap_or(CallError::NotSent("the ensemble is empty")),
            ),
        }
    }

    /// A bookie that was asked could not give it.
    pub fn on_error(&mut self, error: CallError) -> Next {
        self.outstanding = self.outstanding.saturating_sub(1);
        // What may pass is more worth telling than that one of them does not have it.
        if self.error.as_ref().is_none_or(CallError::is_missing) {
            self.error = Some(error);
        }
        if self.outstanding > 0 {
            Next::Wait
        } else {
            self.ask()
        }
    }
}

/// Finds out whether an entry behind the confirmed part of an open ledger exists, as a recovery decides it, but without fencing: every bookie
/// of its write set is asked, one that has it is enough, and so many must lack it that it cannot have been confirmed.
#[derive(Debug)]
pub struct UnconfirmedRead {
    quorum: Quorum,
    lacking: usize,
    outstanding: usize,
    error: Option<CallError>,
}

impl UnconfirmedRead {
    /// Of an entry of a ledger with this quorum.
    #[must_use]
    pub fn new(quorum: Quorum) -> Self {
        Self {
            quorum,
            lacking: 0,
            outstanding: quorum.write(),
            error: None,
        }
    }

    /// The answer of a bookie of the write set; `None`: it lacks the entry. The outcome, once there is one.
    pub fn on_answer<T>(
        &mut self,
        answer: Result<Option<T>, CallError>,
    ) -> Option<Result<Option<T>, CallError>> {
        self.outstanding = self.outstanding.saturating_sub(1);
        match answer {
            Ok(Some(found)) => return Some(Ok(Some(found))),
            Ok(None) => self.lacking += 1,
            Err(error) => self.error = Some(error),
        }
        if self.lacking >= self.quorum.refuting() {
            return Some(Ok(None));
        }
        (self.outstanding == 0)
            .then(|| Err(self.error.take().unwrap_or(CallError::NotSent("too few bookies"))))
    }
}

/// Read of the last-add-confirmed of another writer's ledger, as far as its bookies know it.
#[derive(Debug)]
pub struct LacRead {
    quorum: Quorum,
    answered: Positions,
    failed: Positions,
    error: Option<CallError>,
    lac: Option<EntryId>,
}

impl LacRead {
    /// `known`: what is confirmed in any case, such as everything before the last segment.
    #[must_use]
    pub fn new(quorum: Quorum, known: Option<EntryId>) -> Self {
        Self {
            quorum,
            answered: Positions::default(),
            failed: Positions::default(),
            error: None,
            lac: known,
        }
    }

    /// Handles the answer of the bookie at `position` of the last ensemble. Returns the result, once there is one:
    /// the last confirmed entry, or the reason why it cannot be determined.
    pub fn on_answer(
        &mut self,
        position: usize,
        answer: Result<Option<EntryId>, CallError>,
    ) -> Option<Result<Option<EntryId>, CallError>> {
        match answer {
            Ok(lac) => {
                self.answered.insert(position);
                self.lac = self.lac.max(lac);
            }
            Err(error) => {
                self.failed.insert(position);
                self.error = Some(error);
            }
        }
        if self.quorum.is_covered_by(self.answered) {
            return Some(Ok(self.lac));
        }
        // Whichever came last, an answer or a failure: there is none left to wait for.
        let all = self.answered.or(self.failed).count() == self.quorum.ensemble();
        all.then(|| Err(self.error.take().unwrap_or(CallError::NotSent("too few bookies"))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Status;

    fn segment() -> Segment {
        Segment {
            first: EntryId(0),
            ensemble: ["a", "b", "c"].map(BookieId::new).to_vec(),
        }
    }

    fn ask(name: &str) -> Next {
        Next::Ask(BookieId::new(name))
    }

    const MISSING: CallError = CallError::Refused(Status::NoEntry);
    const SLOW: CallError = CallError::NoAnswer("time");

    #[test]
    fn the_next_bookie_is_asked_when_one_fails_or_is_slow() {
        let quorum = Quorum::new(3, 3, 2).unwrap();
        let mut read = EntryRead::new(quorum, &segment(), EntryId(7), 2, |_| false);
        assert_eq!(read.ask(), ask("c"));
        assert_eq!(read.on_error(MISSING), ask("a"));
        assert_eq!(read.ask(), ask("b"), "slow");
        assert_eq!(read.ask(), Next::Wait, "none is left");
        assert_eq!(read.on_error(SLOW), Next::Wait);
        assert_eq!(read.on_error(MISSING), Next::Failed(SLOW));
    }

    #[test]
    fn a_striped_ledger_is_read_where_the_entry_is() {
        let quorum = Quorum::new(3, 2, 2).unwrap();
        let mut read = EntryRead::new(quorum, &segment(), EntryId(5), 0, |_| false);
        assert_eq!(read.ask(), ask("c"));
        assert_eq!(read.on_error(SLOW), ask("a"));
        assert_eq!(read.on_error(MISSING), Next::Failed(SLOW));
    }

    #[test]
    fn slow_bookies_are_asked_last() {
        let quorum = Quorum::new(3, 3, 2).unwrap();
        let slow = |bookie: &BookieId| bookie.as_str() != "b";
        let mut read = EntryRead::new(quorum, &segment(), EntryId(7), 2, slow);
        assert_eq!(
            [read.ask(), read.ask(), read.ask()],
            [ask("b"), ask("c"), ask("a")]
        );
    }

    #[test]
    fn an_unconfirmed_entry_is_there_if_one_has_it_and_gone_if_it_cannot_have_been_confirmed() {
        let quorum = Quorum::new(3, 3, 2).unwrap();
        let mut read = UnconfirmedRead::new(quorum);
        assert_eq!(read.on_answer::<u8>(Ok(None)), None);
        assert_eq!(read.on_answer::<u8>(Err(SLOW)), None);
        assert_eq!(read.on_answer(Ok(Some(7))), Some(Ok(Some(7))));
        let mut read = UnconfirmedRead::new(quorum);
        assert_eq!(read.on_answer::<u8>(Ok(None)), None);
        assert_eq!(read.on_answer::<u8>(Ok(None)), Some(Ok(None)));
        // One that lacks it says nothing while two others may have it.
        let mut read = UnconfirmedRead::new(quorum);
        assert_eq!(read.on_answer::<u8>(Err(SLOW)), None);
        assert_eq!(read.on_answer::<u8>(Ok(None)), None);
        assert_eq!(read.on_answer::<u8>(Err(SLOW)), Some(Err(SLOW)));
    }

    #[test]
    fn the_last_add_confirmed_is_the_highest_of_a_coverage() {
        let quorum = Quorum::new(3, 3, 2).unwrap();
        let mut read = LacRead::new(quorum, Some(EntryId(1)));
        assert_eq!(read.on_answer(0, Ok(None)), None);
        assert_eq!(read.on_answer(1, Err(SLOW)), None);
        assert_eq!(
            read.on_answer(2, Ok(Some(EntryId(4)))),
            Some(Ok(Some(EntryId(4))))
        );
        let mut read = LacRead::new(quorum, None);
        assert_eq!(read.on_answer(0, Ok(None)), None);
        assert_eq!(read.on_answer(1, Err(SLOW)), None);
        assert_eq!(read.on_answer(2, Err(SLOW)), Some(Err(SLOW)));
    }

    #[test]
    fn the_last_add_confirmed_cannot_be_told_when_the_last_answer_is_not_enough() {
        let quorum = Quorum::new(3, 3, 2).unwrap();
        let mut read = LacRead::new(quorum, None);
        assert_eq!(read.on_answer(0, Err(SLOW)), None);
        assert_eq!(read.on_answer(1, Err(SLOW)), None);
        assert_eq!(read.on_answer(2, Ok(None)), Some(Err(SLOW)));
    }
}
