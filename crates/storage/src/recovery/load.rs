//! From what is in each segment to the ledgers and what is live.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use pharos_ledger::{Durability, Sealed, StorageFault};
use pharos_types::LedgerId;

use crate::format::record::Kind;
use crate::format::side_file::{Run, SideFile};
use crate::journal::group::RESTATED;
use crate::ledgers::{Ledger, Ledgers, Location};
use crate::segments::{Segment, Segments};

/// A gap in a ledger's entries that is longer than this is not believed.
const HOLE_MAX: u64 = 1 << 24;

#[derive(Debug, Default)]
struct Draft {
    created: Option<(u64, u32)>,
    sealed: Option<(u64, u32)>,
    index: Vec<Location>,
}

/// Collects segments in rising order, then says what there is.
#[derive(Debug, Default)]
pub(super) struct Loader {
    drafts: HashMap<LedgerId, Draft>,
    segments: Segments,
    ledger_next: u64,
}

/// What a store holds.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) ledgers: Ledgers,
    pub(super) segments: Segments,
    pub(super) ledger_next: u64,
    /// Damaged stretches and entries that they hide.
    pub(super) damages: u64,
}

impl Loader {
    /// Adds a segment that is no longer written.
    pub(super) fn add(&mut self, mut segment: Segment, side: SideFile) {
        segment.closed = true;
        segment.header_durable = true;
        segment.end = side.end;
        segment.sequence = side.sequence;
        segment.ledger_next = side.ledger_next;
        segment.damages = side.damages;
        self.ledger_next = self.ledger_next.max(side.ledger_next);
        let id = segment.file.id;
        for run in &side.runs {
            let ledger = LedgerId(run.ledger);
            self.ledger_next = self.ledger_next.max(run.ledger.saturating_add(1));
            if run.kind.is_entry() {
                segment.note_entry(ledger, run.kind, run.first, 0, false);
            } else {
                segment.note_fact(ledger, run.kind, false);
            }
            self.add_run(ledger, run, id);
        }
        self.segments.by_id.insert(id, segment);
    }

    fn add_run(&mut self, ledger: LedgerId, run: &Run, segment: u32) {
        match run.kind {
            Kind::Deleted => {
                self.segments.deleted.insert(ledger, segment);
            }
            Kind::Fenced => {}
            Kind::Created => self.draft(ledger).created = Some((run.first, segment)),
            Kind::Sealed => self.draft(ledger).sealed = Some((run.first, segment)),
            Kind::Entry | Kind::Moved => {
                let moved = run.kind == Kind::Moved;
                let draft = self.draft(ledger);
                for (entry, place) in (run.first..).zip(&run.places) {
                    let location = Location::new(segment, place.byte_offset, place.body_bytes, moved);
                    draft.put(ledger, entry, location);
                }
            }
        }
    }

    fn draft(&mut self, ledger: LedgerId) -> &mut Draft {
        self.drafts.entry(ledger).or_default()
    }

    /// Everything was added.
    pub(super) fn finish(mut self) -> Loaded {
        let stretches: usize = self.segments.by_id.values().map(|s| s.damages.len()).sum();
        let mut damages = stretches as u64;
        let unknown = unknown_damages(&self.segments);
        let gone: HashSet<LedgerId> = self.segments.deleted.keys().copied().collect();
        let mut ledgers = HashMap::new();
        for (id, draft) in self.drafts {
            // A deletion counts wherever it was written: ids are never given out twice.
            if gone.contains(&id) {
                continue;
            }
            let ledger = draft.finish(id, &unknown, &mut self.segments);
            let hidden = ledger.lock().index.iter().filter(|l| l.is_nowhere()).count();
            if hidden > 0 {
                tracing::error!(
                    ledger = id.0,
                    entries = hidden,
                    "damage has hidden entries of a ledger"
                );
                damages += hidden as u64;
            }
            ledgers.insert(id, Arc::new(ledger));
        }
        for ledger in gone {
            self.segments.settle_deletion(ledger);
        }
        Loaded {
            ledgers: Ledgers::new(ledgers),
            segments: self.segments,
            ledger_next: self.ledger_next,
            damages,
        }
    }
}

impl Draft {
    fn put(&mut self, ledger: LedgerId, entry: u64, location: Location) {
        let length = self.index.len() as u64;
        if entry > length.saturating_add(HOLE_MAX) {
            tracing::error!(
                ledger = ledger.0,
                entry,
                "an entry far beyond its ledger's end is ignored"
            );
            return;
        }
        let at = entry as usize;
        if at >= self.index.len() {
            self.index.resize(at + 1, Location::NOWHERE);
        }
        // Of several copies the newest wins: the older one is in a segment that is about to go.
        self.index[at] = location;
    }

    fn finish(mut self, id: LedgerId, unknown: &[(u32, u64, String)], segments: &mut Segments) -> Ledger {
        if let Some((count, _)) = self.sealed {
            let believed = count.min(self.index.len() as u64 + HOLE_MAX);
            self.index.resize(believed as usize, Location::NOWHERE);
        }
        let end_unknown = if self.sealed.is_some() {
            None
        } else {
            self.hiding_damage(unknown)
        };
        let (value, created_in) = self.created.unwrap_or((0, u32::MAX));
        let durability = if value & 1 == 1 {
            Durability::Async
        } else {
            Durability::Sync
        };
        for (entry, location) in self.index.iter().enumerate() {
            if let Some(segment) = segments.by_id.get_mut(&location.segment) {
                let kind = if location.is_moved() {
                    Kind::Moved
                } else {
                    Kind::Entry
                };
                segment.note_entry(id, kind, entry as u64, location.body_bytes(), true);
            }
        }
        let facts = [(Kind::Created, self.created), (Kind::Sealed, self.sealed)];
        for (kind, fact) in facts {
            if let Some(segment) = fact.and_then(|(_, segment)| segments.by_id.get_mut(&segment)) {
                segment.note_fact(id, kind, true);
            }
        }
        let ledger = Ledger::found(id, durability);
        {
            let mut state = ledger.lock();
            state.entry_next = self.index.len() as u64;
            state.bytes = self.index.iter().map(|l| l.body_bytes() as u64).sum();
            self.index.shrink_to_fit();
            state.index = self.index;
            state.created_in = created_in;
            state.created_restated = value & RESTATED != 0;
            if let Some((_, sealed_in)) = self.sealed {
                state.sealed = Some(Sealed {
                    entry_count: state.entry_next,
                    bytes: state.bytes,
                });
                state.sealed_in = sealed_in;
            }
            state.end_unknown = end_unknown;
        }
        ledger
    }

    /// A damage that may have swallowed entries after the last one known: any that lies behind the last record whose
    /// place tells its time. Copies do not, so they do not count.
    fn hiding_damage(&self, unknown: &[(u32, u64, String)]) -> Option<Arc<StorageFault>> {
        let created = self
            .created
            .filter(|(value, _)| value & RESTATED == 0)
            .map(|(_, segment)| (segment, 0));
        let entries = self.index.iter().filter(|l| !l.is_nowhere() && !l.is_moved());
        let last = entries.map(|l| (l.segment, u64::from(l.byte_offset))).max();
        let from = last.max(created).unwrap_or((0, 0));
        let (_, byte_offset, file) = unknown.iter().find(|(segment, at, _)| (*segment, *at) > from)?;
        let what = format!("damage at {byte_offset} of {file}");
        Some(StorageFault::new(
            what,
            "it may hide the last entries of this ledger",
        ))
    }
}

fn unknown_damages(segments: &Segments) -> Vec<(u32, u64, String)> {
    let all = segments.by_id.iter().flat_map(|(id, s)| {
        let unknown = s.damages.iter().filter(|damage| !damage.known);
        unknown.map(|damage| (*id, damage.byte_offset, s.file.path.display().to_string()))
    });
    all.collect()
}
