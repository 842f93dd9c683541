//! Writing the side file of a segment that is no longer written, from what memory knows.

use std::io;

use pharos_ledger::Durability;
use pharos_runtime::fs::OpenHow;
use pharos_types::LedgerId;

use super::Keeper;
use crate::format::record::Kind;
use crate::format::side_file::{Place, Run, SideFile};
use crate::journal::group::RESTATED;
use crate::ledgers::{Ledger, Location};
use crate::segments::{Presence, side_file_name};
use crate::shared::Shared;

/// Failures after which side files are left to the next start.
const FAILURES_MAX: u32 = 3;

impl Keeper {
    /// Writes the side file of one closed segment that has none; `true` when there was one.
    pub(super) fn write_one_side_file(&mut self) -> bool {
        if self.side_failures >= FAILURES_MAX {
            return false;
        }
        let next = {
            let segments = self.shared.segments();
            let next = segments.by_id.iter().find(|(_, s)| s.closed && !s.indexed);
            next.map(|(id, _)| *id)
        };
        let Some(segment) = next else { return false };
        match write_side_file(&self.shared, segment) {
            Ok(()) => self.side_failures = 0,
            Err(error) => {
                self.side_failures += 1;
                tracing::warn!(%error, segment, "cannot write a segment's side file");
            }
        }
        true
    }
}

/// Writes the side file of a closed segment and notes that it is there.
pub(crate) fn write_side_file(shared: &Shared, segment: u32) -> io::Result<()> {
    let Some(side) = collect(shared, segment) else {
        return Ok(());
    };
    let path = shared.dir.join(side_file_name(segment));
    let temporary = path.with_extension("tmp-idx");
    let file = shared.fs.open(&temporary, OpenHow::CREATE)?;
    file.set_len(0)?;
    file.write_all_at(&side.encode(), 0)?;
    file.sync_data()?;
    shared.fs.rename(&temporary, &path)?;
    shared.fs.sync_dir(&shared.dir)?;
    if let Some(segment) = shared.segments().by_id.get_mut(&segment) {
        segment.indexed = true;
    }
    Ok(())
}

fn collect(shared: &Shared, id: u32) -> Option<SideFile> {
    let (mut side, ledgers, deleted) = {
        let segments = shared.segments();
        let segment = segments.by_id.get(&id)?;
        let ledgers: Vec<(LedgerId, Presence)> = segment.ledgers.iter().map(|(l, p)| (*l, *p)).collect();
        let deleted: Vec<LedgerId> = segments
            .deleted
            .iter()
            .filter(|(_, s)| **s == id)
            .map(|(l, _)| *l)
            .collect();
        let side = SideFile {
            segment: id,
            salt: segment.file.salt,
            end: segment.end,
            sequence: segment.sequence,
            ledger_next: segment.ledger_next,
            damages: segment.damages.clone(),
            runs: Vec::new(),
        };
        (side, ledgers, deleted)
    };
    let fact = |kind, ledger: LedgerId, value| Run {
        kind,
        ledger: ledger.0,
        first: value,
        places: Vec::new(),
    };
    for (ledger, presence) in ledgers {
        let before = side.runs.len();
        if let Some(ledger) = shared.ledgers.get(ledger) {
            push_runs(&mut side.runs, &ledger, &presence, id);
        }
        if side.runs.len() == before && presence.has_content() {
            side.runs.push(fact(Kind::Entry, ledger, 0));
        }
    }
    side.runs
        .extend(deleted.into_iter().map(|ledger| fact(Kind::Deleted, ledger, 0)));
    Some(side)
}

/// The runs of a ledger that exists.
fn push_runs(runs: &mut Vec<Run>, ledger: &Ledger, presence: &Presence, segment: u32) {
    let id = ledger.id.0;
    let state = ledger.lock();
    if state.created_in == segment {
        let restated = if state.created_restated { RESTATED } else { 0 };
        runs.push(Run {
            kind: Kind::Created,
            ledger: id,
            first: u64::from(ledger.durability == Durability::Async) | restated,
            places: Vec::new(),
        });
    }
    if state.sealed_in == segment
        && let Some(sealed) = state.sealed
    {
        runs.push(Run {
            kind: Kind::Sealed,
            ledger: id,
            first: sealed.entry_count,
            places: Vec::new(),
        });
    }
    let mut open: Option<(Run, u64)> = None;
    for entry in presence.first..=presence.last {
        let location = usize::try_from(entry).ok().and_then(|e| state.index.get(e));
        let Some(location) = location.filter(|l| l.segment == segment) else {
            continue;
        };
        let kind = if location.is_moved() {
            Kind::Moved
        } else {
            Kind::Entry
        };
        match &mut open {
            Some((run, next)) if *next == entry && run.kind == kind => {
                run.places.push(place(*location));
                *next += 1;
            }
            _ => {
                runs.extend(open.take().map(|(run, _)| run));
                let run = Run {
                    kind,
                    ledger: id,
                    first: entry,
                    places: vec![place(*location)],
                };
                open = Some((run, entry + 1));
            }
        }
    }
    runs.extend(open.map(|(run, _)| run));
}

fn place(location: Location) -> Place {
    Place {
        byte_offset: location.byte_offset,
        body_bytes: location.body_bytes() as u32,
    }
}
