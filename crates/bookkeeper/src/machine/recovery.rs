//! Recovery: fence the writer, find the last entry that can have been confirmed, write everything behind what is known to be
//! confirmed again, seal.
//!
//! ```text
//!  Marking ─► Fencing ─► Reading ─► (Measuring) ─► Closing ─► done
//!   state       newest entry   from there on, with     length of an     the end and the
//!   InRecovery  of every       fence; what is found    empty rest       new ensembles in
//!   by CAS      bookie, fence  is written again                         one write, by CAS
//! ```
//! The rules, each of which keeps a confirmed entry from being cut off or an end from being told twice:
//! 1. Fencing is done when no write set has an ack quorum of bookies that did not answer.
//! 2. Reading begins behind the highest last-add-confirmed that was heard, or where the last segment begins if that is later.
//! 3. Every read fences as well: a bookie that says "no such entry" will not take it afterwards.
//! 4. An entry is the end only when so many bookies of its write set say that they do not have it that the rest is no ack quorum. A
//!    bookie that fails or does not answer says nothing; when that decides, recovery fails and is tried again later. Of a ledger with
//!    deferred sync all bookies of the write set are heard first: one that crashed says that it does not have what it had acknowledged,
//!    and another may have it.
//! 5. What is found is on its ack quorum again before the ledger is sealed.
//! 6. Bookies exchanged meanwhile appear in the metadata only with the end: another recovery that begins in between reads where the
//!    writer wrote.
//! 7. What is written again says that no more is confirmed than was when this recovery began. It may be on bookies that only this
//!    recovery knows of (rule 6): had it told of it and then died, the next one would begin behind it and cut it off.
//! 8. Sealing insists on the version that this recovery began with. Whatever else is there by then, it begins anew from that.

use std::collections::BTreeMap;

use pharos_metadata::Version;
use pharos_types::{EntryId, LedgerId};

use super::adds::{AddAnswer, AddEffect, Adds, Failed};
use super::reading::{Asked, Fencing, Reading};
use super::{MetadataAnswer, Placement};
use crate::call::CallError;
use crate::entry::{Digester, Entry};
use crate::metadata::{BookieId, LedgerMetadata, State};
use crate::quorum::Quorum;
use crate::wire::Status;

/// Entries that are read at a time.
const WINDOW: u64 = 8;

/// Reason why the end cannot be determined now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecoveryError {
    /// The ledger was deleted.
    #[error("no such ledger")]
    NoSuchLedger,
    /// Bookies refuse the ledger's key.
    #[error("not authorized")]
    Unauthorized,
    /// Too few bookies answered to be sure. Try again later.
    #[error("too few bookies answered, one of them: {0}")]
    Undecided(CallError),
    /// An entry cannot be written to its ack quorum again. Try again later.
    #[error("not enough bookies")]
    NotEnoughBookies,
}

/// Action that a recovery requests. `attempt` is returned with the answer.
#[derive(Clone, Debug)]
pub enum RecoveryEffect {
    /// Write this if the version is still there; the answer goes to [`Recovery::on_metadata`].
    PutMetadata {
        /// Metadata to write.
        metadata: Box<LedgerMetadata>,
        /// Expected version.
        version: Version,
    },
    /// Fence, and ask for the newest entry; the answer goes to [`Recovery::on_newest`].
    Fence {
        /// Number of the attempt.
        attempt: u32,
        /// Position in the ensemble.
        position: usize,
        /// Bookie to ask.
        bookie: BookieId,
    },
    /// Read; the answer goes to [`Recovery::on_read`].
    Read {
        /// Number of the attempt.
        attempt: u32,
        /// Position in the ensemble.
        position: usize,
        /// From whom.
        bookie: BookieId,
        /// Id of the entry.
        entry: EntryId,
        /// Fence as well.
        is_fencing: bool,
    },
    /// Store as a recovery; the answer goes to [`Recovery::on_add`].
    Add {
        /// Number of the attempt.
        attempt: u32,
        /// Entry, and the bookie to send it to.
        add: AddEffect,
    },
    /// The recovery has ended: the ledger is closed with this metadata, or the recovery failed.
    Done(Result<Box<LedgerMetadata>, RecoveryError>),
}

#[derive(Debug)]
enum Phase {
    Marking(Box<LedgerMetadata>),
    Fencing(Fencing),
    Reading(Reading),
    /// Asks how long the ledger is up to and with its last entry.
    Measuring {
        reading: Reading,
        last: Option<EntryId>,
        failed: usize,
    },
    Closing(Box<LedgerMetadata>),
    Done,
}

/// A recovery. See the module for its rules.
#[derive(Debug)]
pub struct Recovery {
    ledger: LedgerId,
    digester: Digester,
    metadata: LedgerMetadata,
    version: Version,
    attempt: u32,
    phase: Phase,
}

impl Recovery {
    /// Begins to recover a ledger whose metadata is this.
    #[must_use]
    pub fn begin(
        ledger: LedgerId,
        metadata: LedgerMetadata,
        version: Version,
        out: &mut Vec<RecoveryEffect>,
    ) -> Self {
        let mut recovery = Self {
            ledger,
            digester: Digester::new(ledger, metadata.digest, &metadata.password),
            metadata,
            version,
            attempt: 0,
            phase: Phase::Done,
        };
        recovery.restart(out);
        recovery
    }

    /// The digester of the ledger's entries, to check with what bookies answer.
    #[must_use]
    pub fn digester(&self) -> &Digester {
        &self.digester
    }

    /// The ledger's quorums.
    #[must_use]
    pub fn quorum(&self) -> Quorum {
        self.metadata.quorum
    }

    fn restart(&mut self, out: &mut Vec<RecoveryEffect>) {
        self.attempt = self.attempt.wrapping_add(1);
        match self.metadata.state {
            State::Open => {
                let metadata = Box::new(self.metadata.with_state(State::InRecovery));
                self.phase = Phase::Marking(metadata.clone());
                out.push(RecoveryEffect::PutMetadata {
                    metadata,
                    version: self.version,
                });
            }
            State::InRecovery => {
                self.phase = Phase::Fencing(Fencing::default());
                for (position, bookie) in self.ensemble().into_iter().enumerate() {
                    out.push(RecoveryEffect::Fence {
                        attempt: self.attempt,
                        position,
                        bookie,
                    });
                }
            }
            State::Closed { .. } => self.finish(Ok(Box::new(self.metadata.clone())), out),
        }
    }

    /// Returns the ensemble that the writer used last.
    fn ensemble(&self) -> Vec<BookieId> {
        self.metadata
            .last_segment()
            .map(|last| last.ensemble.clone())
            .unwrap_or_default()
    }

    /// Handles the result of [`RecoveryEffect::PutMetadata`].
    pub fn on_metadata(&mut self, answer: MetadataAnswer, out: &mut Vec<RecoveryEffect>) {
        match (std::mem::replace(&mut self.phase, Phase::Done), answer) {
            (Phase::Marking(written), MetadataAnswer::Written(version)) => {
                self.metadata = *written;
                self.version = version;
                self.restart(out);
            }
            (Phase::Closing(written), MetadataAnswer::Written(_)) => self.finish(Ok(written), out),
            (Phase::Marking(_) | Phase::Closing(_), MetadataAnswer::Current(Some((current, version)))) => {
                self.metadata = current;
                self.version = version;
                self.restart(out);
            }
            (Phase::Marking(_) | Phase::Closing(_), MetadataAnswer::Current(None)) => {
                self.finish(Err(RecoveryError::NoSuchLedger), out);
            }
            (phase, _) => self.phase = phase,
        }
    }

    /// Handles a bookie's answer to [`RecoveryEffect::Fence`]: its newest entry, or none.
    pub fn on_newest(
        &mut self,
        attempt: u32,
        position: usize,
        answer: Result<Option<Entry>, CallError>,
        out: &mut Vec<RecoveryEffect>,
    ) {
        let Phase::Fencing(fencing) = &mut self.phase else {
            return;
        };
        if attempt != self.attempt {
            return;
        }
        match answer {
            Ok(newest) => {
                fencing.answered.insert(position);
                if let Some(newest) = newest {
                    fencing.heard(&newest);
                }
            }
            Err(CallError::Refused(Status::Unauthorized)) => {
                self.finish(Err(RecoveryError::Unauthorized), out);
                return;
            }
            Err(error) => {
                fencing.failed.insert(position);
                fencing.error = Some(error);
            }
        }
        if self.metadata.quorum.is_covered_by(fencing.answered) {
            let fencing = std::mem::take(fencing);
            self.begin_reading(&fencing, out);
        } else if fencing.answered.or(fencing.failed).count() == self.metadata.quorum.ensemble() {
            // Whichever came last, an answer or a failure: there is none left to wait for.
            let error = fencing
                .error
                .take()
                .unwrap_or(CallError::NotSent("too few bookies"));
            self.finish(Err(RecoveryError::Undecided(error)), out);
        }
    }

    fn begin_reading(&mut self, fencing: &Fencing, out: &mut Vec<RecoveryEffect>) {
        let first = self.metadata.last_segment().map_or(0, |last| last.first.0);
        let start = EntryId(first.max(fencing.confirmed));
        let length = match start.0 {
            0 => Some(0),
            start => fencing.lengths.get(&start).copied(),
        };
        self.phase = Phase::Reading(Reading {
            adds: Adds::new(self.metadata.quorum, self.ensemble(), start, length.unwrap_or(0)),
            reads: BTreeMap::new(),
            lac: start.0.checked_sub(1).map(EntryId),
            next: start,
            end: None,
            length,
            ensembles: BTreeMap::new(),
        });
        self.go_on(out);
    }

    /// Handles a bookie's answer to [`RecoveryEffect::Read`]: the entry, or that the bookie does not have it.
    pub fn on_read(
        &mut self,
        attempt: u32,
        position: usize,
        entry: EntryId,
        answer: Result<Option<Entry>, CallError>,
        out: &mut Vec<RecoveryEffect>,
    ) {
        if attempt != self.attempt {
            return;
        }
        match &mut self.phase {
            Phase::Reading(reading) => {
                let Some(asked) = reading.reads.get_mut(&entry) else {
                    return;
                };
                match answer {
                    Ok(Some(found)) => asked.found = Some(found),
                    Ok(None) => {
                        asked.missing.insert(position);
                    }
                    Err(error) => {
                        asked.failed.insert(position);
                        asked.error = Some(error);
                    }
                }
                self.go_on(out);
            }
            // An answer to a read of before, of another entry, may come now.
            Phase::Measuring { last, .. } if *last != Some(entry) => {}
            Phase::Measuring { reading, failed, .. } => match answer {
                Ok(Some(found)) => {
                    reading.length = Some(found.header.length);
                    self.close(out);
                }
                refused => {
                    *failed += 1;
                    if *failed == self.metadata.quorum.write() {
                        let error = refused.err().unwrap_or(CallError::Refused(Status::NoEntry));
                        self.finish(Err(RecoveryError::Undecided(error)), out);
                    }
                }
            },
            _ => {}
        }
    }

    /// Handles a bookie's answer to [`RecoveryEffect::Add`].
    pub fn on_add(
        &mut self,
        attempt: u32,
        answer: &AddAnswer,
        placement: &mut dyn Placement,
        out: &mut Vec<RecoveryEffect>,
    ) {
        let Phase::Reading(reading) = &mut self.phase else {
            return;
        };
        if attempt != self.attempt {
            return;
        }
        let (position, bookie) = (answer.position, &answer.bookie);
        match &answer.result {
            Ok(()) => {
                reading.adds.on_stored(answer.entry, position, bookie);
            }
            Err(CallError::Refused(Status::Unauthorized)) => {
                self.finish(Err(RecoveryError::Unauthorized), out);
                return;
            }
            Err(_) => {
                if reading.adds.on_failed(answer.entry, position, bookie) != Failed::Pending {
                    return;
                }
                if !reading.exchange(position, bookie, placement, &mut Sent(attempt, out)) {
                    self.finish(Err(RecoveryError::NotEnoughBookies), out);
                    return;
                }
            }
        }
        self.go_on(out);
    }

    /// Writes again what was found, in order; asks for more; closes when the end is certain and all is written.
    fn go_on(&mut self, out: &mut Vec<RecoveryEffect>) {
        let Phase::Reading(reading) = &mut self.phase else {
            return;
        };
        let quorum = self.metadata.quorum;
        let is_deferred = self.metadata.is_sync_deferred();
        while reading.end.is_none() {
            let head = reading.adds.next();
            let Some(asked) = reading.reads.get_mut(&head) else {
                break;
            };
            if let Some(found) = asked.found.take() {
                reading.reads.remove(&head);
                reading.write_again(&self.digester, found, &mut Sent(self.attempt, out));
            } else if asked.missing.count() >= quorum.refuting()
                && (!is_deferred || asked.is_answered(quorum))
            {
                reading.end = Some(head);
                reading.reads.clear();
            } else if asked.is_answered(quorum) {
                let error = asked.error.take().unwrap_or(CallError::Refused(Status::NoEntry));
                self.finish(Err(RecoveryError::Undecided(error)), out);
                return;
            } else {
                break;
            }
        }
        reading.adds.confirm();
        match reading.end {
            Some(_) if reading.adds.is_idle() => self.measure(out),
            Some(_) => {}
            None => self.ask_for_more(out),
        }
    }

    fn ask_for_more(&mut self, out: &mut Vec<RecoveryEffect>) {
        let ensemble = self.ensemble();
        let Phase::Reading(reading) = &mut self.phase else {
            return;
        };
        while reading.next.0 < reading.adds.confirmed().0 + WINDOW {
            let entry = reading.next;
            reading.next = EntryId(entry.0 + 1);
            reading.reads.insert(entry, Asked::default());
            out.extend(read_effects(self.attempt, &self.metadata, &ensemble, entry, true));
        }
    }

    /// Closes, once it is known how many bytes the ledger has.
    fn measure(&mut self, out: &mut Vec<RecoveryEffect>) {
        let Phase::Reading(reading) = std::mem::replace(&mut self.phase, Phase::Done) else {
            return;
        };
        let last = reading.adds.lac();
        let is_known = reading.length.is_some();
        self.phase = Phase::Measuring {
            reading,
            last,
            failed: 0,
        };
        match last.filter(|_| !is_known) {
            None => self.close(out),
            Some(last) => {
                let ensemble = self.metadata.segment_of(last).map(|segment| &segment.ensemble);
                let ensemble = ensemble.cloned().unwrap_or_default();
                out.extend(read_effects(self.attempt, &self.metadata, &ensemble, last, false));
            }
        }
    }

    fn close(&mut self, out: &mut Vec<RecoveryEffect>) {
        let Phase::Measuring { reading, .. } = std::mem::replace(&mut self.phase, Phase::Done) else {
            return;
        };
        let end = reading.adds.confirmed();
        let mut metadata = self.metadata.clone();
        for (first, ensemble) in reading.ensembles {
            // Nothing of the ledger is on an ensemble that begins behind its end.
            if first < end {
                metadata = metadata.with_segment(first, ensemble);
            }
        }
        let metadata = Box::new(metadata.with_state(State::Closed {
            last: reading.adds.lac(),
            length: reading.length.unwrap_or(0),
        }));
        self.phase = Phase::Closing(metadata.clone());
        out.push(RecoveryEffect::PutMetadata {
            metadata,
            version: self.version,
        });
    }

    fn finish(&mut self, result: Result<Box<LedgerMetadata>, RecoveryError>, out: &mut Vec<RecoveryEffect>) {
        self.phase = Phase::Done;
        out.push(RecoveryEffect::Done(result));
    }

    /// Returns the ledger.
    #[must_use]
    pub fn ledger(&self) -> LedgerId {
        self.ledger
    }
}

fn read_effects(
    attempt: u32,
    metadata: &LedgerMetadata,
    ensemble: &[BookieId],
    entry: EntryId,
    is_fencing: bool,
) -> Vec<RecoveryEffect> {
    let read = |position| {
        Some(RecoveryEffect::Read {
            attempt,
            position,
            bookie: ensemble.get(position).cloned()?,
            entry,
            is_fencing,
        })
    };
    metadata.quorum.write_set(entry).filter_map(read).collect()
}

/// As the writer's: adds of an attempt.
struct Sent<'a>(u32, &'a mut Vec<RecoveryEffect>);

impl Extend<AddEffect> for Sent<'_> {
    fn extend<T: IntoIterator<Item = AddEffect>>(&mut self, adds: T) {
        let attempt = self.0;
        self.1
            .extend(adds.into_iter().map(|add| RecoveryEffect::Add { attempt, add }));
    }
}

#[cfg(test)]
#[path = "recovery_tests.rs"]
mod tests;
