//! Record of one topic: messages sent and acknowledged in each round, and the result of reading them back.

use std::collections::BTreeMap;

use crate::proto::payload::Stamp;

/// Faults kept in words.
const FAULTS_MAX: usize = 10;
/// Messages whose source has this bit are marks: one is sent before each reading, to know where to stop.
pub(super) const MARK: u32 = 1 << 31;

/// Record of one round of one topic; marks are rounds of one message.
#[derive(Clone, Debug, Default)]
struct Known {
    sent: u64,
    acknowledged: u64,
    /// Number of messages found by the first read.
    settled: Option<u64>,
}

/// A topic's account.
#[derive(Debug, Default)]
pub(super) struct Account {
    /// By place in time: round and whether it is the mark before it.
    known: BTreeMap<(u32, bool), Known>,
    /// The reading under way: messages seen of each.
    seen: BTreeMap<(u32, bool), u64>,
    latest: (u32, bool),
    faults: Vec<String>,
}

/// Marks come before the messages of their round.
fn place(source: u32) -> (u32, bool) {
    (source & !MARK, source & MARK == 0)
}

impl Account {
    /// The messages of a round were sent, and so many of them acknowledged.
    pub(super) fn published(&mut self, source: u32, sent: u64, acknowledged: u64) {
        let known = self.known.entry(place(source)).or_default();
        (known.sent, known.acknowledged) = (sent, acknowledged);
    }

    /// A reading from the first message on begins.
    pub(super) fn begin_reading(&mut self) {
        self.seen.clear();
        self.latest = (0, false);
    }

    /// Records one message, in order of arrival; `is_whole` is true if its bytes are those that were sent.
    pub(super) fn saw(&mut self, stamp: &Stamp, is_whole: bool) {
        let place = place(stamp.source);
        if !is_whole {
            self.fault(format!(
                "round {}: message {} is damaged",
                place.0, stamp.sequence
            ));
        }
        if place < self.latest {
            self.fault(format!("round {} goes on after a later one", place.0));
        }
        self.latest = self.latest.max(place);
        let seen = self.seen.entry(place).or_insert(0);
        let expected = *seen;
        if stamp.sequence == expected {
            *seen += 1;
        } else {
            *seen = expected.max(stamp.sequence + 1);
            self.fault(format!(
                "round {}: message {} came where {expected} was due",
                place.0, stamp.sequence
            ));
        }
    }

    fn fault(&mut self, fault: String) {
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(fault);
        }
    }

    /// Holds the reading against what is known. Adds acknowledged messages that were not there to `lost`, all else that is
    /// wrong to `faults`; returns how many messages were read.
    pub(super) fn end_of_reading(&mut self, may_lose: bool, lost: &mut u64, faults: &mut Vec<String>) -> u64 {
        let mut found = Vec::new();
        for (place, known) in &mut self.known {
            let seen = self.seen.get(place).copied().unwrap_or(0);
            let settled = known.settled.replace(seen);
            // What was gone before is not gone again.
            let wanted = settled.map_or(known.acknowledged, |settled| settled.min(known.acknowledged));
            *lost += wanted.saturating_sub(seen);
            if seen > known.sent {
                found.push(format!(
                    "round {}: {seen} messages of {} sent",
                    place.0, known.sent
                ));
            }
            if let Some(settled) = settled
                && seen != settled
                && !(may_lose && seen < settled)
            {
                found.push(format!(
                    "round {}: {seen} messages where there were {settled}",
                    place.0
                ));
            }
        }
        for place in self.seen.keys().filter(|place| !self.known.contains_key(place)) {
            found.push(format!("round {}: messages that were never sent", place.0));
        }
        found.append(&mut self.faults);
        let room = FAULTS_MAX.saturating_sub(faults.len());
        faults.extend(found.into_iter().take(room));
        self.seen.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(account: &mut Account, messages: &[(u32, u64)], may_lose: bool) -> (u64, Vec<String>) {
        account.begin_reading();
        for (source, sequence) in messages {
            account.saw(
                &Stamp {
                    sequence: *sequence,
                    sent_ns: 0,
                    source: *source,
                },
                true,
            );
        }
        let (mut lost, mut faults) = (0, Vec::new());
        account.end_of_reading(may_lose, &mut lost, &mut faults);
        (lost, faults)
    }

    fn account() -> Account {
        let mut account = Account::default();
        account.published(MARK, 1, 1);
        account.published(0, 5, 3);
        account.published(MARK | 1, 1, 1);
        account
    }

    #[test]
    fn what_was_acknowledged_must_be_there_and_more_may() {
        for count in 3..=5 {
            let mut messages = vec![(MARK, 0)];
            messages.extend((0..count).map(|sequence| (0, sequence)));
            messages.push((MARK | 1, 0));
            assert_eq!(read(&mut account(), &messages, false), (0, vec![]));
        }
        let short = [(MARK, 0), (0, 0), (0, 1), (MARK | 1, 0)];
        assert_eq!(read(&mut account(), &short, false).0, 1);
    }

    #[test]
    fn holes_repeats_and_strangers_are_faults() {
        for wrong in [
            &[(MARK, 0), (0, 0), (0, 2), (0, 3), (MARK | 1, 0)][..],
            &[(MARK, 0), (0, 0), (0, 1), (0, 1), (0, 2), (MARK | 1, 0)],
            &[(MARK, 0), (0, 0), (0, 1), (0, 2), (MARK | 1, 0), (0, 3)],
            &[(MARK, 0), (0, 0), (0, 1), (0, 2), (MARK | 1, 0), (7, 0)],
        ] {
            assert!(!read(&mut account(), wrong, false).1.is_empty(), "{wrong:?}");
        }
    }

    #[test]
    fn what_was_there_stays() {
        let mut account = account();
        let four = [(MARK, 0), (0, 0), (0, 1), (0, 2), (0, 3), (MARK | 1, 0)];
        assert_eq!(read(&mut account, &four, false), (0, vec![]));
        let three = [(MARK, 0), (0, 0), (0, 1), (0, 2), (MARK | 1, 0)];
        let (lost, faults) = read(&mut account, &three, false);
        assert_eq!((lost, faults.len()), (0, 1));
    }

    #[test]
    fn bypass_may_end_early_but_not_have_holes() {
        let mut account = account();
        let (lost, faults) = read(&mut account, &[(MARK, 0), (0, 0), (MARK | 1, 0)], true);
        assert_eq!((lost, faults.len()), (2, 0));
        assert_eq!(read(&mut account, &[(MARK, 0), (MARK | 1, 0)], true), (1, vec![]));
        assert_eq!(
            read(&mut account, &[(MARK, 0), (0, 1), (MARK | 1, 0)], true)
                .1
                .len(),
            2
        );
    }
}
