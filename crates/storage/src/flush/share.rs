//! Share of a flush that belongs to one ledger directory.
//!
//! ```text
//!  write (ledger by ledger, sorted) ─► finish: synced, indexed ─► install: runs in, memory out ─► done
//!    ▲                                    │
//!    └────────── failed: again ◄──────────┘
//! ```
//! The shares of a flush are independent: each has the ledgers of its directory, its own log writer and its own
//! pacer. They may run one after the other, step by step, or each on a thread. The checkpoint that names what they
//! have installed comes when all of them are done, so a crash between finds their entries in the journals as well.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use pharos_runtime::Nanos;
use pharos_storage_format::record::record_bytes;
use pharos_types::LedgerId;

use super::log_writer::{LogWriter, Written};
use super::pacer::{Pacer, Rests};
use super::{Trouble, add_runs};
use crate::chunk::{CachedEntry, Chunk};
use crate::ledgers::Ledger;
use crate::shared::Shared;
use crate::stats::bump;

#[derive(Debug)]
pub(super) struct Share {
    shared: Arc<Shared>,
    epoch: u64,
    /// Its ledgers in the order of their ids.
    ledgers: Vec<Arc<Ledger>>,
    /// Number of those that are pushed.
    pushed: usize,
    /// Room for all of them was made, or is not known to be short.
    has_room: bool,
    done: bool,
    pacer: Pacer,
}

impl Share {
    /// Returns the share of ledgers that are all of one directory in the half of this epoch, swapped at `began`.
    pub(super) fn new(
        shared: &Arc<Shared>,
        epoch: u64,
        mut ledgers: Vec<Arc<Ledger>>,
        rests: Rests,
        began: Nanos,
    ) -> Self {
        ledgers.sort_unstable_by_key(|ledger| ledger.id);
        let cost = |ledger: &Arc<Ledger>| ledger.lock().chunks[half(epoch)].cost;
        let bytes = match rests {
            Rests::Long => ledgers.iter().map(cost).sum(),
            Rests::None | Rests::Short => 0,
        };
        Self {
            shared: Arc::clone(shared),
            epoch,
            pushed: 0,
            has_room: false,
            done: ledgers.is_empty(),
            ledgers,
            pacer: Pacer::new(Arc::clone(shared), rests, began, bytes),
        }
    }

    /// True if it is in the logs and out of memory.
    pub(super) fn is_done(&self) -> bool {
        self.done
    }

    /// Pushes one ledger's entries, or finishes. On an error it begins again with the next step.
    pub(super) fn step(&mut self, writer: &mut LogWriter) -> Result<(), Trouble> {
        let stepped = match self.ledgers.get(self.pushed) {
            Some(_) if self.pushed == 0 && !self.has_room => {
                let is_short = self.shared.journals.iter().any(|j| j.queue.refuses_for_space());
                let made = match is_short {
                    // Found out before it is written, because what is written then would be for nothing.
                    true => writer.make_room(self.record_bytes()),
                    false => Ok(()),
                };
                self.has_room = made.is_ok();
                made.map_err(|error| ("make room in", error))
            }
            Some(ledger) => {
                self.pushed += 1;
                let pushed = push_ledger(writer, ledger, self.epoch, &mut self.pacer);
                pushed.map_err(|error| ("write", error))
            }
            None => match writer.finish() {
                Ok(written) => {
                    self.install(written);
                    self.done = true;
                    Ok(())
                }
                Err(error) => Err(("finish", error)),
            },
        };
        stepped.map_err(|(what, error)| {
            writer.abort();
            self.pushed = 0;
            self.has_room = false;
            self.pacer.restart();
            let path = self.shared.dirs[writer.dir()].path.display();
            Trouble::of(format!("{what} an entry log in {path}"), error)
        })
    }

    /// Returns the size of its entries in a log, in bytes.
    fn record_bytes(&self) -> u64 {
        let of_ledger = |ledger: &Arc<Ledger>| {
            let state = ledger.lock();
            let pieces = &state.chunks[half(self.epoch)].pieces;
            let entries = pieces.iter().flat_map(|piece| &piece.entries);
            let bytes = |entry: &CachedEntry| record_bytes(entry.payload.len()) as u64;
            entries.map(bytes).sum::<u64>()
        };
        self.ledgers.iter().map(of_ledger).sum()
    }

    /// All of it, unless the store is poisoned meanwhile.
    pub(super) fn run(&mut self, writer: &mut LogWriter) -> Result<(), Trouble> {
        while !self.done && self.shared.poison().is_none() {
            self.step(writer)?;
        }
        Ok(())
    }

    fn install(&mut self, written: Vec<Written>) {
        self.pacer.on_written();
        let mut bytes = 0;
        let mut by_ledger: HashMap<LedgerId, Vec<Written>> = HashMap::new();
        for one in written {
            bytes += u64::from(one.run.end - one.run.start);
            by_ledger.entry(LedgerId(one.run.ledger)).or_default().push(one);
        }
        for ledger in std::mem::take(&mut self.ledgers) {
            let runs = by_ledger.remove(&ledger.id).unwrap_or_default();
            if let Some(chunk) = install(&self.shared, &ledger, self.epoch, &runs) {
                free(chunk, &mut self.pacer);
            }
        }
        bump(&self.shared.counters.flushed_bytes, bytes);
    }
}

/// Returns the half of the write cache that an epoch fills.
fn half(epoch: u64) -> usize {
    (epoch & 1) as usize
}

/// Pushes what a ledger has in one half, unless it was deleted meanwhile.
fn push_ledger(writer: &mut LogWriter, ledger: &Ledger, epoch: u64, pacer: &mut Pacer) -> io::Result<()> {
    for number in 0.. {
        let piece = {
            let state = ledger.lock();
            state.chunks[half(epoch)].pieces.get(number).cloned()
        };
        let Some(piece) = piece else { break };
        for (entry, cached) in (piece.first..).zip(&piece.entries) {
            writer.push(ledger.id.0, entry, &cached.payload, cached.crc)?;
            pacer.on_pushed(cached.cost());
        }
    }
    Ok(())
}

/// A ledger's entries of one half are durable in the logs: they are read from there now. Gives back what left memory.
fn install(shared: &Shared, ledger: &Ledger, epoch: u64, runs: &[Written]) -> Option<Chunk> {
    let chunk = {
        let mut state = ledger.lock();
        if state.deleted {
            return None;
        }
        add_runs(
            shared,
            ledger.dir,
            &mut state.runs,
            runs.iter().map(|w| (w.log, &w.run)),
        );
        let bytes: u64 = runs.iter().map(|written| written.run.payload_bytes).sum();
        let chunk = std::mem::take(&mut state.chunks[half(epoch)]);
        if let Some(piece) = chunk.pieces.last() {
            state.flushed = piece.end();
        }
        state.flushed_bytes += bytes;
        state.named_by = shared.generation() + 1;
        chunk
    };
    shared.cache.release(epoch, chunk.cost);
    Some(chunk)
}

/// Lets the entries go, without any lock.
fn free(chunk: Chunk, pacer: &mut Pacer) {
    for piece in chunk.pieces {
        // No other thread has one of this half by now.
        let Ok(piece) = Arc::try_unwrap(piece) else {
            continue;
        };
        for entry in piece.entries {
            let bytes = entry.cost();
            drop(entry);
            pacer.on_freed(bytes);
        }
    }
}
