//! The one writer of a ledger: pipelined adds, confirmed in order; ensemble changes without stopping; close.
//!
//! ```text
//!  Writing ── a bookie failed ──► Changing (metadata is being written; nothing is confirmed meanwhile) ──► Writing
//!     │ close, and nothing pending                       │ another client recovers the ledger
//!     ▼                                                  ▼
//!  Closing ──► Closed                                 Failed
//! ```
//! Why nothing is confirmed while the ensemble changes: the new segment begins at the first entry that is not confirmed. An entry
//! confirmed by the old ensemble after that was decided would be looked for on the new one.

use std::collections::BTreeMap;

use bytes::Bytes;
use pharos_metadata::Version;
use pharos_types::EntryId;

use super::adds::{AddAnswer, AddEffect, Adds, Failed};
use super::forcing::{Forced, Forcing, Heard, WAITING_MAX};
use super::wanted::{EnsembleChange, WriterEffect, WriterError};
use super::{MetadataAnswer, Placement};
use crate::call::CallError;
use crate::entry::{Digester, EntryHeader};
use crate::metadata::{BookieId, LedgerMetadata, State};
use crate::wire::Status;

#[derive(Debug)]
enum Phase {
    Writing,
    /// Holds what was asked to be written.
    Changing(Box<LedgerMetadata>),
    /// As above.
    Closing(Box<LedgerMetadata>),
    Closed,
    Failed(WriterError),
}

/// The writer's state. See the module for its phases.
#[derive(Debug)]
pub struct Writer {
    digester: Digester,
    change: EnsembleChange,
    metadata: LedgerMetadata,
    version: Version,
    adds: Adds,
    phase: Phase,
    /// Takes no more; closes when nothing is pending.
    is_closing: bool,
    /// Bookies to be exchanged, by their position.
    suspects: BTreeMap<usize, BookieId>,
    /// Bookies were told that entries before this are confirmed.
    told: EntryId,
    /// State of deferred sync, for a ledger with it: bookies acknowledge entries before they are on disk, and sync
    /// them when forced. Only synced entries are announced as confirmed, so that a recovery looks for the rest and
    /// writes it again. The ensemble does not change: entries before the next segment would have to be on disk on
    /// their present bookies.
    deferred: Option<Forcing>,
}

/// [`Adds`] speaks of adds only; this makes them the writer's effects.
struct Sent<'a>(&'a mut Vec<WriterEffect>);

impl Extend<AddEffect> for Sent<'_> {
    fn extend<T: IntoIterator<Item = AddEffect>>(&mut self, adds: T) {
        self.0.extend(adds.into_iter().map(WriterEffect::Add));
    }
}

impl Writer {
    /// The writer of a ledger that was just made: `metadata` is open, has one segment and was stored as `version`.
    #[must_use]
    pub fn new(
        digester: Digester,
        metadata: LedgerMetadata,
        version: Version,
        change: EnsembleChange,
    ) -> Self {
        let ensemble = metadata.last_segment().map(|last| last.ensemble.clone());
        let adds = Adds::new(metadata.quorum, ensemble.unwrap_or_default(), EntryId(0), 0);
        Self {
            digester,
            change,
            metadata,
            version,
            adds,
            phase: Phase::Writing,
            is_closing: false,
            suspects: BTreeMap::new(),
            told: EntryId(0),
            deferred: None,
        }
    }

    /// As [`new`](Self::new), for a ledger whose bookies sync when they are told to: [`force`](Self::force).
    #[must_use]
    pub fn deferring(digester: Digester, metadata: LedgerMetadata, version: Version) -> Self {
        Self {
            deferred: Some(Forcing::default()),
            ..Self::new(digester, metadata, version, EnsembleChange::WhenNeeded)
        }
    }

    /// True if bookies may acknowledge entries before they are on disk.
    #[must_use]
    pub fn is_deferring(&self) -> bool {
        self.deferred.is_some()
    }

    /// Entries before it stay whatever happens: they are confirmed, and on disk.
    #[must_use]
    pub fn settled(&self) -> EntryId {
        match &self.deferred {
            Some(forcing) => EntryId(forcing.synced()),
            None => self.adds.confirmed(),
        }
    }

    /// True if everything that was appended is confirmed.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.adds.is_idle()
    }

    /// The metadata as the writer knows it.
    #[must_use]
    pub fn metadata(&self) -> &LedgerMetadata {
        &self.metadata
    }

    /// Entries before it are confirmed.
    #[must_use]
    pub fn confirmed(&self) -> EntryId {
        self.adds.confirmed()
    }

    /// The id that the next entry gets.
    #[must_use]
    pub fn next(&self) -> EntryId {
        self.adds.next()
    }

    /// Returns the error after which it confirms nothing more.
    #[must_use]
    pub fn error(&self) -> Option<WriterError> {
        match &self.phase {
            Phase::Failed(error) => Some(*error),
            _ => None,
        }
    }

    /// True if a close was requested.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.is_closing
    }

    /// Appends an entry and says which id it got. `None`: the writer was closed or has failed. `payload_crc32c` as for
    /// [`Digester::pack`].
    pub fn append(
        &mut self,
        payload: Bytes,
        payload_crc32c: Option<u32>,
        placement: &mut dyn Placement,
        out: &mut Vec<WriterEffect>,
    ) -> Option<EntryId> {
        if self.is_closing || !matches!(self.phase, Phase::Writing | Phase::Changing(_)) {
            return None;
        }
        let entry = self.adds.next();
        let length = self.adds.length() + payload.len() as u64;
        self.told = self.settled();
        let header = EntryHeader {
            entry,
            lac: self.told.0.checked_sub(1).map(EntryId),
            length,
        };
        let body = self.digester.pack(header, payload, payload_crc32c);
        self.adds.push(body, length, &mut Sent(out));
        self.change_ensemble(placement, out);
        Some(entry)
    }

    /// Handles a bookie's answer to an add.
    pub fn on_add(&mut self, answer: &AddAnswer, placement: &mut dyn Placement, out: &mut Vec<WriterEffect>) {
        if matches!(self.phase, Phase::Closed | Phase::Failed(_)) {
            return;
        }
        match &answer.result {
            Ok(()) => {
                if !self.counts(answer.position, answer.connection, out) {
                    return;
                }
                let is_news = self.adds.on_stored(answer.entry, answer.position, &answer.bookie);
                if let Some(forcing) = self.deferred.as_mut().filter(|_| is_news) {
                    forcing.on_stored(answer.entry.0, answer.position);
                }
                self.confirm(out);
            }
            Err(CallError::Refused(Status::Fenced)) => self.fail(WriterError::Fenced, out),
            Err(CallError::Refused(Status::Unauthorized)) => self.fail(WriterError::Unauthorized, out),
            Err(error) => {
                let is_read_only = *error == CallError::Refused(Status::ReadOnly);
                self.on_failed(answer, is_read_only, placement, out);
            }
        }
    }

    /// True if an answer on this connection counts. A reconnected bookie is sent the entries that it may lack.
    fn counts(&mut self, position: usize, connection: u64, out: &mut Vec<WriterEffect>) -> bool {
        let Some(forcing) = &mut self.deferred else {
            return true;
        };
        match forcing.heard_on(position, connection) {
            Heard::Same => return true,
            Heard::Late => return false,
            Heard::Anew => {}
        }
        let quorum = self.metadata.quorum;
        if forcing.is_hopeless(quorum) {
            self.fail(WriterError::NotEnoughBookies, out);
            return false;
        }
        if let Some(bookie) = self.adds.ensemble().get(position) {
            let again = forcing.missed(quorum, position).map(|(entry, body)| AddEffect {
                position,
                bookie: bookie.clone(),
                entry,
                body,
            });
            Sent(out).extend(again);
        }
        self.adds.send_again(position, &mut Sent(out));
        true
    }

    fn on_failed(
        &mut self,
        answer: &AddAnswer,
        is_read_only: bool,
        placement: &mut dyn Placement,
        out: &mut Vec<WriterEffect>,
    ) {
        let (position, bookie) = (answer.position, &answer.bookie);
        match (self.adds.on_failed(answer.entry, position, bookie), self.change) {
            (Failed::Stale, _) | (Failed::Confirmed, EnsembleChange::WhenNeeded | EnsembleChange::Never) => {}
            // It is exchanged when the next entry comes: an idle ledger changes nothing.
            (Failed::Confirmed, EnsembleChange::AtOnce) => {
                self.suspects.insert(position, bookie.clone());
            }
            (Failed::Pending, EnsembleChange::Never) => out.push(WriterEffect::ResendLater {
                position,
                bookie: bookie.clone(),
            }),
            (Failed::Pending, change) => {
                if change == EnsembleChange::AtOnce || is_read_only {
                    self.suspects.insert(position, bookie.clone());
                }
                self.suspect_the_hopeless();
                self.change_ensemble(placement, out);
            }
        }
    }

    fn suspect_the_hopeless(&mut self) {
        for position in self.adds.hopeless().iter() {
            let bookie = self.adds.ensemble().get(position).cloned();
            self.suspects.extend(bookie.map(|bookie| (position, bookie)));
        }
    }

    /// Sends again what this bookie refused, if it still stands there.
    pub fn resend(&mut self, position: usize, bookie: &BookieId, out: &mut Vec<WriterEffect>) {
        if matches!(self.phase, Phase::Writing | Phase::Changing(_)) {
            self.adds.resend(position, bookie, &mut Sent(out));
        }
    }

    /// Has bookies sync what is confirmed, if sync is deferred and they are not at it. To be called every now and then.
    pub fn force(&mut self, out: &mut Vec<WriterEffect>) {
        if !matches!(self.phase, Phase::Writing) {
            return;
        }
        let Some(number) = self.deferred.as_mut().and_then(Forcing::begin) else {
            return;
        };
        let force = |(position, bookie): (usize, &BookieId)| WriterEffect::Force {
            number,
            position,
            bookie: bookie.clone(),
        };
        out.extend(self.adds.ensemble().iter().enumerate().map(force));
    }

    /// Handles a bookie's answer to [`WriterEffect::Force`]; `connection` as in [`AddAnswer`].
    pub fn on_forced(
        &mut self,
        number: u64,
        position: usize,
        connection: u64,
        result: Result<(), CallError>,
        out: &mut Vec<WriterEffect>,
    ) {
        if matches!(self.phase, Phase::Closed | Phase::Failed(_)) {
            return;
        }
        let is_done = result.is_ok() && self.counts(position, connection, out);
        let Some(forcing) = &mut self.deferred else {
            return;
        };
        match forcing.on_forced(self.metadata.quorum, number, position, is_done) {
            // It cannot be closed with what may not be on disk. A recovery finds what is.
            Some(Forced::InPart) if self.is_closing && self.adds.is_idle() => {
                // A bookie that is back in a moment gets what it missed.
                if forcing.is_patient() {
                    out.push(WriterEffect::ForceLater);
                } else {
                    self.fail(WriterError::NotEnoughBookies, out);
                }
            }
            Some(_) => self.close_when_idle(out),
            None => {}
        }
    }

    /// Tells bookies how far the ledger is confirmed, if no entry has told them. To be called every now and then, so that readers
    /// elsewhere see the last entries of a writer that pauses.
    pub fn tell_confirmed(&mut self, out: &mut Vec<WriterEffect>) {
        let settled = self.settled();
        let Some(lac) = settled.0.checked_sub(1).map(EntryId) else {
            return;
        };
        if self.told == settled || !matches!(self.phase, Phase::Writing) {
            return;
        }
        self.told = settled;
        let tell = |bookie: &BookieId| WriterEffect::TellConfirmed {
            bookie: bookie.clone(),
            lac,
        };
        out.extend(self.adds.ensemble().iter().map(tell));
    }

    /// Takes no more; seals the ledger once everything is confirmed. A second call does nothing.
    pub fn close(&mut self, out: &mut Vec<WriterEffect>) {
        self.is_closing = true;
        self.close_when_idle(out);
    }

    /// The ledger was recovered or deleted in this process: nothing more is confirmed.
    pub fn fence(&mut self, out: &mut Vec<WriterEffect>) {
        if !matches!(self.phase, Phase::Closed) {
            self.fail(WriterError::Fenced, out);
        }
    }

    /// Handles the result of [`WriterEffect::PutMetadata`].
    pub fn on_metadata(
        &mut self,
        answer: MetadataAnswer,
        placement: &mut dyn Placement,
        out: &mut Vec<WriterEffect>,
    ) {
        match (std::mem::replace(&mut self.phase, Phase::Writing), answer) {
            (Phase::Changing(written), MetadataAnswer::Written(version)) => {
                self.adopt(*written, version, out);
                self.after_change(placement, out);
            }
            (Phase::Changing(wanted), MetadataAnswer::Current(Some((current, version)))) => {
                self.on_other_ensemble(wanted, current, version, placement, out);
            }
            (Phase::Closing(written), MetadataAnswer::Written(version)) => {
                self.on_closed(*written, version, out);
            }
            (Phase::Closing(wanted), MetadataAnswer::Current(Some((current, version)))) => {
                if current.state == wanted.state {
                    // Ours after all, or a recovery found the same end.
                    self.on_closed(current, version, out);
                } else if current.state == State::Open {
                    // Auto-recovery exchanged a bookie of an earlier segment.
                    self.metadata = current;
                    self.version = version;
                    self.close_when_idle(out);
                } else {
                    self.fail(WriterError::Fenced, out);
                }
            }
            (Phase::Changing(_) | Phase::Closing(_), MetadataAnswer::Current(None)) => {
                self.fail(WriterError::Fenced, out);
            }
            (phase @ (Phase::Writing | Phase::Closed | Phase::Failed(_)), _) => self.phase = phase,
        }
    }

    /// Handles stored metadata that differs from what was to be written: by a write whose answer was lost, by an
    /// exchange of auto-recovery, or by a recovery.
    fn on_other_ensemble(
        &mut self,
        wanted: Box<LedgerMetadata>,
        current: LedgerMetadata,
        version: Version,
        placement: &mut dyn Placement,
        out: &mut Vec<WriterEffect>,
    ) {
        if version == self.version {
            // The write may still be on its way. Only the same one again is safe: whichever lands, it says the same, and the other
            // finds another version. Going on with the old ensemble would confirm entries that the new one is asked for later.
            self.put(wanted, Phase::Changing, out);
            return;
        }
        let begins_late = |first: EntryId| first > self.adds.confirmed();
        if current.state != State::Open || current.last_segment().is_none_or(|last| begins_late(last.first)) {
            self.fail(WriterError::Fenced, out);
            return;
        }
        let before = self.adds.ensemble().to_vec();
        self.adopt(current, version, out);
        // Those that were to be exchanged and still stand there.
        let wanted = wanted.last_segment().map(|last| last.ensemble.as_slice());
        let wanted = wanted.unwrap_or_default().iter();
        for (position, (before, wanted)) in before.iter().zip(wanted).enumerate() {
            if before != wanted && self.adds.ensemble().get(position) == Some(before) {
                self.suspects.insert(position, before.clone());
            }
        }
        self.after_change(placement, out);
    }

    fn adopt(&mut self, metadata: LedgerMetadata, version: Version, out: &mut Vec<WriterEffect>) {
        let ensemble = metadata.last_segment().map(|last| last.ensemble.clone());
        self.metadata = metadata;
        self.version = version;
        self.adds.replace(ensemble.unwrap_or_default(), &mut Sent(out));
    }

    fn after_change(&mut self, placement: &mut dyn Placement, out: &mut Vec<WriterEffect>) {
        self.suspect_the_hopeless();
        self.change_ensemble(placement, out);
        self.confirm(out);
    }

    /// Exchanges the suspects, as far as there are others. Where there are none, the ledger goes on as long as entries get their
    /// ack quorum.
    fn change_ensemble(&mut self, placement: &mut dyn Placement, out: &mut Vec<WriterEffect>) {
        if !matches!(self.phase, Phase::Writing) || self.suspects.is_empty() {
            return;
        }
        let suspects = std::mem::take(&mut self.suspects);
        if self.is_deferring() {
            if !self.adds.hopeless().is_empty() {
                self.fail(WriterError::NotEnoughBookies, out);
            }
            return;
        }
        let excluded: Vec<BookieId> = suspects.values().cloned().collect();
        let mut ensemble = self.adds.ensemble().to_vec();
        for (position, bookie) in &suspects {
            if ensemble.get(*position) != Some(bookie) {
                continue;
            }
            if let Some(other) = placement.replace(&ensemble, *position, &excluded)
                && let Some(place) = ensemble.get_mut(*position)
            {
                *place = other;
            }
        }
        if ensemble == self.adds.ensemble() {
            if !self.adds.hopeless().is_empty() {
                self.fail(WriterError::NotEnoughBookies, out);
            }
            return;
        }
        let metadata = Box::new(self.metadata.with_segment(self.adds.confirmed(), ensemble));
        self.put(metadata, Phase::Changing, out);
    }

    fn put(
        &mut self,
        metadata: Box<LedgerMetadata>,
        phase: fn(Box<LedgerMetadata>) -> Phase,
        out: &mut Vec<WriterEffect>,
    ) {
        self.phase = phase(metadata.clone());
        out.push(WriterEffect::PutMetadata {
            metadata,
            version: self.version,
        });
    }

    fn confirm(&mut self, out: &mut Vec<WriterEffect>) {
        if !matches!(self.phase, Phase::Writing) {
            return;
        }
        let forcing = &mut self.deferred;
        let is_more = self.adds.confirm_with(|acked, body| {
            if let Some(forcing) = forcing {
                forcing.on_confirmed(acked, body);
            }
        });
        if is_more {
            let end = self.adds.confirmed();
            out.push(WriterEffect::Confirmed { end });
        }
        if self
            .deferred
            .as_ref()
            .is_some_and(|forcing| forcing.waiting() > WAITING_MAX)
        {
            self.fail(WriterError::NotEnoughBookies, out);
            return;
        }
        if self.deferred.as_ref().is_some_and(Forcing::is_urgent) {
            self.force(out);
        }
        self.close_when_idle(out);
    }

    fn close_when_idle(&mut self, out: &mut Vec<WriterEffect>) {
        if !self.is_closing || !self.adds.is_idle() || !matches!(self.phase, Phase::Writing) {
            return;
        }
        if self.settled() != self.adds.confirmed() {
            self.force(out);
            return;
        }
        let metadata = Box::new(self.metadata.with_state(State::Closed {
            last: self.adds.lac(),
            length: self.adds.confirmed_length(),
        }));
        self.put(metadata, Phase::Closing, out);
    }

    fn on_closed(&mut self, metadata: LedgerMetadata, version: Version, out: &mut Vec<WriterEffect>) {
        self.metadata = metadata;
        self.version = version;
        self.phase = Phase::Closed;
        out.push(WriterEffect::Closed);
    }

    fn fail(&mut self, error: WriterError, out: &mut Vec<WriterEffect>) {
        if !matches!(self.phase, Phase::Failed(_)) {
            self.phase = Phase::Failed(error);
            out.push(WriterEffect::Failed(error));
        }
    }
}
