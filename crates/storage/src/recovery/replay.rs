//! Replaying a journal into the write cache.
//!
//! ```text
//!  mark ─► segment ─► group ─► record:  entry ─► half of the write cache (flushed when it is full)
//!                                       fact  ─► ledgers
//! ```
//! Everything here may be known already: entries that are in the logs, ledgers that are in the checkpoint. Doing it again
//! changes nothing. The order within a journal is the order of what happened.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use pharos_ledger::{Sealed, StorageFault};
use pharos_runtime::fs::AlignedBuf;
use pharos_runtime::{Nanos, clock};
use pharos_storage_format::checkpoint::{Mark, durability_from_number};
use pharos_storage_format::file::SegmentFile;
use pharos_storage_format::names::{SEGMENT, file_name, parse};
use pharos_storage_format::record::{Kind, RecordHeader};
use pharos_storage_format::round_up;
use pharos_storage_format::scan::{self, Bad, Bounds, Event, Swept};
use pharos_storage_format::segment_header::{NO_SEGMENT, SegmentEnd, SegmentHeader};
use pharos_types::LedgerId;

use crate::OpenStoreError;
use crate::cache::JournalProgress;
use crate::chunk::CachedEntry;
use crate::flush::Flusher;
use crate::journal::on_deleted;
use crate::journal::segments::Segment;
use crate::ledgers::{Damage, Ledger};
use crate::shared::{Pace, Shared};

/// Size of a rewrite step, in bytes.
const REWRITE_BYTES: u64 = 1 << 20;

/// Interval of logging the progress, in nanoseconds.
const TELL_EVERY: u64 = 1_000_000_000;

/// A segment file before its content is known.
#[derive(Debug)]
struct Candidate {
    file: Arc<SegmentFile>,
    file_bytes: u64,
    header: Option<SegmentHeader>,
    has_group: bool,
}

/// Replays all journals, one after the other.
pub(super) struct Replay<'a> {
    shared: &'a Arc<Shared>,
    flusher: &'a mut Flusher,
    deleted: HashSet<LedgerId>,
    damages: u64,
    done_bytes: u64,
    /// Upper bound of `done_bytes`, as far as it is known: files are longer than their content.
    most_bytes: u64,
    told_at: Nanos,
}

/// The journal that is being replayed.
struct Current {
    number: usize,
    path: PathBuf,
    segment: u32,
    progress: JournalProgress,
    damaged: bool,
}

/// End state of a journal, from which it continues.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub(super) previous: SegmentEnd,
    pub(super) written: u64,
}

impl<'a> Replay<'a> {
    pub(super) fn new(shared: &'a Arc<Shared>, flusher: &'a mut Flusher) -> Self {
        Self {
            shared,
            flusher,
            deleted: HashSet::new(),
            damages: 0,
            done_bytes: 0,
            most_bytes: 0,
            told_at: clock::now(),
        }
    }

    /// Damaged stretches found so far.
    pub(super) fn damages(&self) -> u64 {
        self.damages
    }

    /// Bytes of groups replayed so far.
    pub(super) fn done_bytes(&self) -> u64 {
        self.done_bytes
    }

    /// Replays one journal from its mark, and says how it goes on.
    pub(super) fn journal(&mut self, number: usize, clean: bool) -> Result<Ended, OpenStoreError> {
        let mark = self.shared.checkpointed(number).mark;
        let mut candidates = self.find(number, mark)?;
        let dir = self.shared.journals[number].dir.clone();
        if candidates.is_empty() && !clean && mark != Mark::default() {
            return Err(OpenStoreError::wrong(
                dir,
                "the segments of this journal are missing",
            ));
        }
        let mut ended = Ended {
            previous: SegmentEnd {
                segment: NO_SEGMENT,
                end: 0,
                sequence: mark.sequence,
            },
            written: 0,
        };
        let old = candidates.partition_point(|candidate| candidate.file.id < mark.segment);
        for candidate in candidates.drain(..old) {
            self.keep(number, &candidate, mark.sequence, false);
        }
        if candidates.is_empty() && !clean && mark != Mark::default() {
            self.on_missing(
                number,
                &dir,
                "the segments behind the checkpoint's mark are missing",
            );
        }
        let files: u64 = candidates.iter().map(|candidate| candidate.file_bytes).sum();
        self.most_bytes += files.saturating_sub(mark.byte_offset);
        for at in 0..candidates.len() {
            let next = candidates.get(at + 1);
            self.segment(number, &candidates[at], next, at == 0, &mut ended)?;
        }
        Ok(ended)
    }

    /// The segments of a journal in rising order; what was never used or finished is removed.
    fn find(&self, number: usize, mark: Mark) -> Result<Vec<Candidate>, OpenStoreError> {
        let here = &self.shared.journals[number];
        let fs = &self.shared.fs;
        let names = fs
            .list(&here.dir)
            .map_err(OpenStoreError::io("list", &here.dir))?;
        let mut ids = BTreeSet::new();
        for name in &names {
            ids.extend(parse(name, SEGMENT));
            let unfinished = name.ends_with(".tmp");
            if unfinished && let Err(error) = fs.remove(&here.dir.join(name)) {
                tracing::warn!(%error, name, "cannot remove a leftover file");
            }
        }
        let block = here.superblock.block_bytes;
        let mut candidates = Vec::new();
        for id in &ids {
            let path = here.dir.join(file_name(*id, SEGMENT));
            let io = |what| OpenStoreError::io(what, path.clone());
            let file = fs.open(&path, self.shared.open_how(block)).map_err(io("open"))?;
            let file_bytes = file.len().map_err(io("measure"))?;
            let salt = here.superblock.salt(*id);
            let file = SegmentFile {
                id: *id,
                salt,
                path: path.clone(),
                file,
            };
            let (header, has_group) = scan::peek(&file, u64::from(block)).unwrap_or_else(|error| {
                tracing::error!(%error, file = %path.display(), "cannot read the start of a segment");
                (None, true)
            });
            candidates.push(Candidate {
                file: Arc::new(file),
                file_bytes,
                header,
                has_group,
            });
        }
        // Never used again under the same id: bytes of a group whose header was lost in a crash could otherwise be taken
        // for new ones. The same goes for what is in spares.
        let spare = here.adopt_spares(self.shared, &names);
        let next = ids
            .last()
            .copied()
            .max(spare)
            .max(Some(mark.segment))
            .unwrap_or(0)
            + 1;
        here.supply().segment_next = next;
        let known: Vec<_> = candidates
            .iter()
            .map(|found| (found.file.id, found.header, found.has_group))
            .collect();
        let mut used = scan::may_be_used(&known).into_iter();
        for unused in candidates.extract_if(.., |_| !used.next().unwrap_or(true)) {
            here.let_go(self.shared, unused.file.id, &unused.file.path, unused.file_bytes)
                .map_err(OpenStoreError::io("remove", &unused.file.path))?;
        }
        while let Some(last) = candidates.last() {
            if last.header.is_some()
                || last.has_group
                || last.file.id <= mark.segment && mark != Mark::default()
            {
                break;
            }
            let (id, path) = (last.file.id, last.file.path.clone());
            here.let_go(self.shared, id, &path, last.file_bytes)
                .map_err(OpenStoreError::io("remove", path))?;
            candidates.pop();
        }
        Ok(candidates)
    }

    fn segment(
        &mut self,
        number: usize,
        candidate: &Candidate,
        next: Option<&Candidate>,
        first: bool,
        ended: &mut Ended,
    ) -> Result<(), OpenStoreError> {
        let here = &self.shared.journals[number];
        let block = u64::from(here.superblock.block_bytes);
        let mark = self.shared.checkpointed(number).mark;
        let marked = candidate.file.id == mark.segment && mark != Mark::default();
        let mut current = Current {
            number,
            path: candidate.file.path.clone(),
            segment: candidate.file.id,
            progress: JournalProgress {
                mark,
                written: ended.written,
            },
            damaged: false,
        };
        self.check_chain(&mut current, candidate, first && !marked, ended);
        if let Some(header) = candidate.header {
            // A torn group at the end of the segment before has used a number as well.
            let used = header.previous.sequence;
            ended.previous.sequence = ended.previous.sequence.max(used);
        }
        if marked && mark.byte_offset > candidate.file_bytes {
            let path = &candidate.file.path;
            self.on_missing(number, path, "the checkpoint's mark is not inside this segment");
            current.damaged = true;
        }
        let known_end = next
            .and_then(|next| next.header)
            .filter(|header| header.previous.segment == candidate.file.id)
            .map(|header| header.previous.end);
        let from = if marked { mark.byte_offset } else { block };
        let mut bounds = Bounds {
            block_bytes: block,
            file_bytes: candidate.file_bytes,
            from,
            sequence: ended.previous.sequence,
            end: known_end,
        };
        // A segment that is not the last was synced to its end before the next one began, so nothing in it is torn.
        let mut highest = bounds.sequence;
        if next.is_none() {
            let found = scan::find_end(&candidate.file, &bounds);
            highest = found.swept.sequence;
            bounds.end = Some(found.swept.end);
            // Before it is applied: a flush in between may let a log go because of a deletion that it found.
            make_durable(candidate, &bounds, found.synced)?;
        }
        let swept = self.apply(&candidate.file, &bounds, &mut current);
        ended.previous = SegmentEnd {
            segment: candidate.file.id,
            end: swept.end.max(from),
            sequence: swept.sequence.max(highest),
        };
        ended.written += swept.end.saturating_sub(from);
        // It stays until a mark has passed the numbers of its torn groups as well: the next header counts them, and with
        // nothing before that header they would look like groups that are missing.
        let used = next
            .and_then(|next| next.header)
            .map_or(0, |header| header.previous.sequence);
        let sequence = ended.previous.sequence.max(used);
        self.keep(number, candidate, sequence, current.damaged);
        Ok(())
    }

    /// Checks that this segment follows the one before it, or the mark.
    fn check_chain(&mut self, current: &mut Current, candidate: &Candidate, first: bool, ended: &Ended) {
        let Some(header) = candidate.header else {
            // Of a segment that was begun just before a crash it may never have reached the device. Its groups say the
            // rest.
            tracing::warn!(file = %candidate.file.path.display(), "a segment has no header");
            return;
        };
        let missing = if first {
            header.misses_groups_after(&current.progress.mark)
        } else {
            header.misses_groups_between(&ended.previous)
        };
        if missing {
            self.on_missing(
                current.number,
                &candidate.file.path,
                "a segment before this one is missing",
            );
            current.damaged = true;
        }
    }

    /// Something that was in the journal is not there at all.
    fn on_missing(&mut self, number: usize, path: &Path, what: &str) {
        tracing::error!(file = %path.display(), "{what}");
        let mut current = Current {
            number,
            path: path.to_owned(),
            segment: 0,
            progress: JournalProgress::default(),
            damaged: false,
        };
        let bad = Bad {
            start: 0,
            end: 0,
            sequence: 0,
            known: false,
        };
        self.on_bad(&mut current, &bad);
    }

    /// Brings everything in a segment into memory.
    fn apply(&mut self, file: &SegmentFile, bounds: &Bounds, current: &mut Current) -> Swept {
        let started = current.progress.written;
        scan::sweep(file, bounds, &mut |event| match event {
            Event::Begin { record_bytes } => self.make_room(record_bytes),
            Event::Record {
                header,
                body,
                byte_offset,
            } => self.on_record(current, header, body, byte_offset),
            Event::Bad(bad) => self.on_bad(current, &bad),
            Event::End { byte_offset, group } => {
                self.shared
                    .ledger_next
                    .fetch_max(group.ledger_next, Ordering::AcqRel);
                self.done_bytes += u64::from(group.record_bytes);
                current.progress = JournalProgress {
                    mark: Mark {
                        segment: current.segment,
                        byte_offset,
                        sequence: group.sequence,
                    },
                    written: started + byte_offset.saturating_sub(bounds.from),
                };
                let cache = &self.shared.cache;
                cache.begin_publish(current.number, Some(current.progress));
                cache.end_publish(current.number);
                self.tell(&current.path);
            }
        })
    }

    fn tell(&mut self, path: &Path) {
        let now = clock::now();
        if now.since(self.told_at) >= TELL_EVERY {
            self.told_at = now;
            tracing::info!(
                file = %path.display(),
                bytes = self.done_bytes,
                of_at_most = self.most_bytes,
                "replaying the journal"
            );
        }
    }

    /// Flushes when a group may not fit. Only between groups: a mark must not lie inside one.
    fn make_room(&mut self, record_bytes: u64) {
        // Entries count for more in memory than in the journal by at most this.
        let cost = record_bytes.saturating_mul(3);
        if self.shared.cache.room() >= cost || self.shared.cache.fill().bytes == 0 {
            return;
        }
        self.shared.flush_wanted.store(true, Ordering::Release);
        let flushed = self.shared.counters.flushes.load(Ordering::Relaxed);
        while self.flusher.step(clock::now()) == Pace::Again {}
        if self.shared.counters.flushes.load(Ordering::Relaxed) == flushed {
            // No room on the device: go on in memory; it was there before.
            tracing::warn!("cannot flush while replaying the journal");
        }
    }

    fn on_record(&mut self, current: &Current, header: &RecordHeader, body: Option<&[u8]>, byte_offset: u64) {
        let id = LedgerId(header.ledger);
        let next = header.ledger.saturating_add(1);
        self.shared.ledger_next.fetch_max(next, Ordering::AcqRel);
        if self.deleted.contains(&id) {
            return;
        }
        match header.kind {
            Kind::Entry => {
                let ledger = self.ledger(current, id, 0);
                let damage = || Damage {
                    file: current.path.display().to_string(),
                    byte_offset,
                };
                self.on_entry(&ledger, header, body, damage);
            }
            Kind::Created => {
                self.ledger(current, id, header.value);
            }
            Kind::Sealed => {
                let ledger = self.ledger(current, id, 0);
                let mut state = ledger.lock();
                let bytes = state.bytes;
                state.sealed.get_or_insert(Sealed {
                    entry_count: header.value,
                    bytes,
                });
                state.end_unknown = None;
            }
            Kind::Deleted => {
                self.deleted.insert(id);
                if let Some(ledger) = self.shared.ledgers.get(id) {
                    on_deleted(self.shared, &ledger);
                }
            }
        }
    }

    /// The ledger, known or found just now.
    fn ledger(&self, current: &Current, id: LedgerId, durability: u64) -> Arc<Ledger> {
        if let Some(known) = self.shared.ledgers.get(id) {
            return known;
        }
        let durability = durability_from_number(durability);
        let (_, dir) = self.shared.places(id);
        let ledger = Arc::new(Ledger::found(id, durability, (current.number as u16, dir)));
        self.shared.ledgers.insert(Arc::clone(&ledger));
        ledger
    }

    /// `damage`: where the entry is, should something be wrong with it.
    fn on_entry(
        &self,
        ledger: &Arc<Ledger>,
        header: &RecordHeader,
        body: Option<&[u8]>,
        damage: impl FnOnce() -> Damage,
    ) {
        let mut state = ledger.lock();
        // There is something behind whatever damage was met before.
        state.end_unknown = None;
        if header.value < state.end {
            return;
        }
        let Some(body) = body else {
            // The entry existed, so what comes after it has its id.
            let damage = damage();
            tracing::error!(
                ledger = ledger.id.0,
                entry = header.value,
                file = damage.file,
                byte_offset = damage.byte_offset,
                "an entry is damaged"
            );
            state.hidden_by.get_or_insert(damage);
            state.end = header.value + 1;
            return;
        };
        if header.value > state.end {
            tracing::error!(
                ledger = ledger.id.0,
                first = state.end,
                before = header.value,
                "damage has hidden entries of a ledger"
            );
            state.hidden_by.get_or_insert_with(damage);
        }
        let cached = CachedEntry {
            payload: Bytes::copy_from_slice(body),
            crc: header.body_crc,
        };
        let cost = cached.cost();
        let cache = &self.shared.cache;
        let epoch = cache.begin_publish(usize::MAX, None);
        let first_here = state.chunks[(epoch & 1) as usize].is_empty();
        state.publish(epoch, header.value, vec![cached]);
        drop(state);
        let touched = first_here.then(|| Arc::clone(ledger));
        cache.add(epoch, 0, cost, touched, clock::now());
    }

    fn on_bad(&mut self, current: &mut Current, bad: &Bad) {
        self.damages += 1;
        current.damaged = true;
        tracing::error!(
            file = %current.path.display(), byte_offset = bad.start, bytes = bad.end - bad.start,
            "damage: what was written and synced here has changed"
        );
        if bad.known {
            return;
        }
        let fault = StorageFault::new(
            format!("damage at {} of {}", bad.start, current.path.display()),
            "it may hide the last entries of this ledger",
        );
        for ledger in self.shared.ledgers.all() {
            let mut state = ledger.lock();
            let here = usize::from(ledger.journal) % self.shared.journals.len() == current.number;
            if here && state.sealed.is_none() {
                state.end_unknown.get_or_insert_with(|| Arc::clone(&fault));
            }
        }
    }

    /// Remembers a segment, so that it goes once a checkpoint covers it.
    fn keep(&self, number: usize, candidate: &Candidate, sequence: u64, damaged: bool) {
        let mut segment = Segment::new(Arc::clone(&candidate.file), candidate.file_bytes);
        segment.sequence = sequence;
        segment.closed = true;
        segment.header_durable = true;
        segment.damaged = damaged;
        let by_id: &mut BTreeMap<u32, Segment> = &mut self.shared.journals[number].segments().by_id;
        by_id.insert(candidate.file.id, segment);
    }
}

/// Makes what was found at the end of the last segment durable, from `from` on.
///
/// It is written again, because a sync alone may do nothing: if the process before this one ended with a failed sync, the page
/// cache has what the device never got, and calls it clean.
fn make_durable(candidate: &Candidate, bounds: &Bounds, from: u64) -> Result<(), OpenStoreError> {
    let SegmentFile { file, path, .. } = &*candidate.file;
    let block = bounds.block_bytes;
    // A header is durable with the first group that is.
    let mut at = if from == block && candidate.header.is_some() {
        0
    } else {
        from
    };
    let end = round_up(bounds.end.unwrap_or(from), block).min(bounds.file_bytes);
    let mut piece_bytes = REWRITE_BYTES;
    let mut buf = AlignedBuf::default();
    while at < end {
        let bytes = (end - at).min(piece_bytes);
        buf.reserve(bytes as usize);
        let piece = buf.bytes_mut().get_mut(..bytes as usize).unwrap_or_default();
        if file.read_at(piece, at).is_ok_and(|count| count as u64 == bytes) {
            file.write_all_at(piece, at)
                .map_err(OpenStoreError::io("write again", path))?;
        } else if bytes > block {
            piece_bytes = block;
            continue;
        }
        // A block that cannot be read is damage, and told as that.
        at += bytes;
    }
    file.sync_data().map_err(OpenStoreError::io("sync", path))
}
