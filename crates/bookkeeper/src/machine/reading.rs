//! State of a recovery while it fences and reads.

use std::collections::BTreeMap;

use pharos_types::EntryId;

use super::Placement;
use super::adds::{AddEffect, Adds};
use crate::call::CallError;
use crate::entry::{Digester, Entry, EntryHeader};
use crate::metadata::BookieId;
use crate::quorum::{Positions, Quorum};

#[derive(Debug, Default)]
pub(super) struct Fencing {
    pub(super) answered: Positions,
    pub(super) failed: Positions,
    pub(super) error: Option<CallError>,
    /// Entries known to be confirmed.
    pub(super) confirmed: u64,
    /// Payload bytes of the first so many entries, as far as they were heard of.
    pub(super) lengths: BTreeMap<u64, u64>,
}

#[derive(Debug)]
pub(super) struct Reading {
    pub(super) adds: Adds,
    pub(super) reads: BTreeMap<EntryId, Asked>,
    /// The last entry that was confirmed when the reading began.
    pub(super) lac: Option<EntryId>,
    /// The next entry to ask for.
    pub(super) next: EntryId,
    /// The first entry that was not confirmed, once that is certain.
    pub(super) end: Option<EntryId>,
    /// Payload bytes before the next entry to write again; `None` while it is not known.
    pub(super) length: Option<u64>,
    /// Exchanged bookies: from which entry on.
    pub(super) ensembles: BTreeMap<EntryId, Vec<BookieId>>,
}

#[derive(Debug, Default)]
pub(super) struct Asked {
    pub(super) missing: Positions,
    pub(super) failed: Positions,
    pub(super) error: Option<CallError>,
    pub(super) found: Option<Entry>,
}

impl Asked {
    /// True if no answer is outstanding.
    pub(super) fn is_answered(&self, quorum: Quorum) -> bool {
        self.missing.or(self.failed).count() == quorum.write()
    }
}

impl Fencing {
    pub(super) fn heard(&mut self, newest: &Entry) {
        let EntryHeader { entry, lac, length } = newest.header;
        self.confirmed = self.confirmed.max(lac.map_or(0, |lac| lac.0 + 1));
        self.lengths.insert(entry.0 + 1, length);
        self.lengths
            .insert(entry.0, length.saturating_sub(newest.payload.len() as u64));
    }
}

impl Reading {
    pub(super) fn write_again(
        &mut self,
        digester: &Digester,
        found: Entry,
        out: &mut impl Extend<AddEffect>,
    ) {
        let header = EntryHeader {
            lac: self.lac,
            ..found.header
        };
        self.length = Some(header.length);
        let body = digester.pack(header, found.payload, None);
        self.adds.push(body, header.length, out);
    }

    /// Puts another bookie there. `false`: there is none, and an entry needs it.
    pub(super) fn exchange(
        &mut self,
        position: usize,
        bookie: &BookieId,
        placement: &mut dyn Placement,
        out: &mut impl Extend<AddEffect>,
    ) -> bool {
        let mut ensemble = self.adds.ensemble().to_vec();
        match (
            placement.replace(&ensemble, position, std::slice::from_ref(bookie)),
            ensemble.get_mut(position),
        ) {
            (Some(other), Some(place)) => {
                *place = other;
                self.ensembles.insert(self.adds.confirmed(), ensemble.clone());
                self.adds.replace(ensemble, out);
                true
            }
            _ => self.adds.hopeless().is_empty(),
        }
    }
}
