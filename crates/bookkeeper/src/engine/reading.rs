//! Reading entries: several at a time, each from a bookie that has it.

use std::sync::Arc;

use futures_util::future::join_all;
use pharos_ledger::{ReadEntry, ReadError, StorageFault};
use pharos_types::{EntryId, LedgerId};

use super::recovering::{open, sealed};
use super::{Inner, lock};
use crate::call::CallError;
use crate::entry::{Digester, Entry};
use crate::machine::{EntryRead, LacRead, Next, UnconfirmedRead};
use crate::metadata::{BookieId, LedgerMetadata, Segment};
use crate::net::Mailbox;
use crate::wire::{ReadRequest, ReadTarget, Request, Response, Status};

/// Entries asked for at a time.
const BATCH_MAX: usize = 32;
/// Entries asked for before it is known how large they are.
const BATCH_FIRST: usize = 4;

/// Answer of a bookie to a read of an entry.
type EntryAnswer = (BookieId, Result<Option<Entry>, CallError>);

/// Range of a read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) first: EntryId,
    pub(super) entries_max: usize,
    pub(super) bytes_max: usize,
}

fn fault(ledger: LedgerId, cause: impl std::fmt::Display) -> ReadError {
    ReadError::Fault(StorageFault::transient(format!("read ledger {ledger}"), cause))
}

/// As [`LedgerEngine::read`](pharos_ledger::LedgerEngine::read).
pub(super) async fn read(
    inner: Arc<Inner>,
    ledger: LedgerId,
    bounds: Bounds,
) -> Result<Vec<ReadEntry>, ReadError> {
    if let Some(known) = inner.known_of(ledger).filter(|known| bounds.first < known.end) {
        // Another writer's, whose bookies may have changed since.
        match read_batches(&inner, ledger, &known.metadata, known.end, bounds).await {
            Err(ReadError::Fault(_)) => drop(lock(&inner.followed).remove(&ledger)),
            other => return other,
        }
    }
    let (metadata, end) = look_up(&inner, ledger).await?;
    match read_batches(&inner, ledger, &metadata, end, bounds).await {
        // Auto-recovery may have moved the entries since the metadata was remembered.
        Err(ReadError::Fault(_)) if lock(&inner.closed).remove(&ledger).is_some() => {
            let (metadata, end) = look_up(&inner, ledger).await?;
            read_batches(&inner, ledger, &metadata, end, bounds).await
        }
        other => other,
    }
}

/// As [`LedgerEngine::read_unconfirmed`](pharos_ledger::LedgerEngine::read_unconfirmed).
pub(super) async fn read_unconfirmed(
    inner: Arc<Inner>,
    ledger: LedgerId,
    bounds: Bounds,
) -> Result<Vec<ReadEntry>, ReadError> {
    let (metadata, end) = look_up(&inner, ledger).await?;
    if bounds.first < end || sealed(&metadata).is_some() {
        return read_batches(&inner, ledger, &metadata, end, bounds).await;
    }
    let digester = Digester::new(ledger, metadata.digest, &metadata.password);
    let mut found: Vec<ReadEntry> = Vec::new();
    let mut bytes = 0usize;
    // From the confirmed end on, whichever entry is asked for: what follows a gap no recovery keeps.
    for next in end.0.. {
        let entry = read_unconfirmed_entry(&inner, ledger, &metadata, &digester, EntryId(next)).await?;
        let Some(entry) = entry else { break };
        if next < bounds.first.0 {
            continue;
        }
        bytes = bytes.saturating_add(entry.payload.len());
        if !found.is_empty() && (found.len() >= bounds.entries_max || bytes > bounds.bytes_max) {
            break;
        }
        found.push(ReadEntry {
            id: EntryId(next),
            payload: entry.payload,
        });
    }
    Ok(found)
}

/// An entry behind the confirmed part; `None`: there is none.
async fn read_unconfirmed_entry(
    inner: &Inner,
    ledger: LedgerId,
    metadata: &LedgerMetadata,
    digester: &Digester,
    entry: EntryId,
) -> Result<Option<Entry>, ReadError> {
    let segment = metadata.segment_of(entry);
    let segment = segment.ok_or_else(|| fault(ledger, "no bookies have the entry"))?;
    let answers = Arc::new(Mailbox::default());
    for position in metadata.quorum.write_set(entry) {
        let (answers, digester) = (Arc::clone(&answers), digester.clone());
        let reply = move |answer| answers.put(open(&digester, Some(entry), answer));
        let Some(bookie) = segment.ensemble.get(position) else {
            return Err(fault(ledger, "its ensemble is too small"));
        };
        let request = Request::Read(ReadRequest {
            ledger,
            target: ReadTarget::Entry(entry),
            fence: None,
            long_poll: None,
        });
        inner.call(bookie, &request, inner.options.read_timeout, Box::new(reply));
    }
    let mut read = UnconfirmedRead::new(metadata.quorum);
    loop {
        let answer = answers.take().await;
        if let Some(outcome) = read.on_answer(answer) {
            return outcome.map_err(|error| fault(ledger, error));
        }
    }
}

/// Reads a ledger's metadata and the end of its readable entries.
pub(super) async fn look_up(
    inner: &Arc<Inner>,
    ledger: LedgerId,
) -> Result<(Arc<LedgerMetadata>, EntryId), ReadError> {
    if let Some(closed) = lock(&inner.closed).get(&ledger).cloned() {
        let count = sealed(&closed).map_or(0, |sealed| sealed.entry_count);
        return Ok((closed, EntryId(count)));
    }
    let found = inner
        .store
        .read(ledger)
        .await
        .map_err(|error| fault(ledger, error))?;
    let (metadata, _) = found.ok_or(ReadError::NoSuchLedger(ledger))?;
    let metadata = Arc::new(metadata);
    if let Some(sealed) = sealed(&metadata) {
        inner.remember(ledger, Arc::clone(&metadata));
        return Ok((metadata, EntryId(sealed.entry_count)));
    }
    if let Some(writer) = inner.writer_of(ledger) {
        let (end, metadata) = writer.look();
        return Ok((Arc::new(metadata), end));
    }
    let lac = last_add_confirmed(inner, ledger, &metadata).await;
    let lac = lac.map_err(|error| fault(ledger, error))?;
    Ok((metadata, EntryId(lac.map_or(0, |lac| lac.0 + 1))))
}

/// Returns the last-add-confirmed of another writer's ledger, as far as its bookies know it.
async fn last_add_confirmed(
    inner: &Inner,
    ledger: LedgerId,
    metadata: &LedgerMetadata,
) -> Result<Option<EntryId>, CallError> {
    let Some(last) = metadata.last_segment() else {
        return Ok(None);
    };
    let before = last.first.0.checked_sub(1).map(EntryId);
    let mut read = LacRead::new(metadata.quorum, before);
    let answers = Arc::new(Mailbox::default());
    for (position, bookie) in last.ensemble.iter().enumerate() {
        let digester = Digester::new(ledger, metadata.digest, &metadata.password);
        let answers = Arc::clone(&answers);
        let reply = move |answer| answers.put((position, lac_in(&digester, answer)));
        let timeout = inner.options.read_timeout;
        inner.call(bookie, &Request::ReadLac { ledger }, timeout, Box::new(reply));
    }
    loop {
        let (position, answer) = answers.take().await;
        if let Some(outcome) = read.on_answer(position, answer) {
            return outcome;
        }
    }
}

fn lac_in(digester: &Digester, answer: Result<Response, CallError>) -> Result<Option<EntryId>, CallError> {
    match answer {
        Ok(Response::Lac { explicit, newest }) => {
            let explicit = explicit.filter(|body| !body.is_empty());
            let explicit = explicit
                .map(|body| digester.open_lac(&body))
                .transpose()?
                .flatten();
            let newest = newest.filter(|body| !body.is_empty());
            let newest = newest.map(|body| digester.open(None, &body)).transpose()?;
            Ok(explicit.max(newest.and_then(|entry| entry.header.lac)))
        }
        Ok(_) => Ok(None),
        Err(error) if error.is_missing() => Ok(None),
        Err(error) => Err(error),
    }
}

async fn read_batches(
    inner: &Arc<Inner>,
    ledger: LedgerId,
    metadata: &LedgerMetadata,
    end: EntryId,
    bounds: Bounds,
) -> Result<Vec<ReadEntry>, ReadError> {
    let digester = Digester::new(ledger, metadata.digest, &metadata.password);
    let mut found: Vec<ReadEntry> = Vec::new();
    let mut bytes = 0usize;
    let mut next = bounds.first.0;
    loop {
        let wanted = usize::try_from(end.0.saturating_sub(next)).unwrap_or(usize::MAX);
        let wanted = wanted.min(bounds.entries_max.max(1) - found.len());
        let batch = wanted.min(batch_size(&found, bytes, bounds.bytes_max));
        if batch == 0 {
            return Ok(found);
        }
        let reads = (next..).take(batch).map(|entry| {
            let segment = metadata.segment_of(EntryId(entry));
            read_entry(inner, ledger, metadata, segment, &digester, EntryId(entry))
        });
        for (entry, read) in (next..).zip(join_all(reads).await) {
            let payload = match read {
                Ok(read) => read.payload,
                Err(_) if !found.is_empty() => return Ok(found),
                Err(error) => return Err(error),
            };
            bytes = bytes.saturating_add(payload.len());
            if !found.is_empty() && bytes > bounds.bytes_max {
                return Ok(found);
            }
            found.push(ReadEntry {
                id: EntryId(entry),
                payload,
            });
        }
        next += batch as u64;
    }
}

/// As many as should fit in what is left, going by the entries so far.
fn batch_size(found: &[ReadEntry], bytes: usize, bytes_max: usize) -> usize {
    if found.is_empty() {
        return BATCH_FIRST;
    }
    let each = (bytes / found.len()).max(1);
    let left = bytes_max.saturating_sub(bytes);
    // One too many tells that no more fits; there may be smaller ones, so it is not an error to ask for it.
    (left / each).clamp(usize::from(left > 0), BATCH_MAX)
}

async fn read_entry(
    inner: &Arc<Inner>,
    ledger: LedgerId,
    metadata: &LedgerMetadata,
    segment: Option<&Segment>,
    digester: &Digester,
    entry: EntryId,
) -> Result<Entry, ReadError> {
    let segment = segment.ok_or_else(|| fault(ledger, "no bookies have the entry"))?;
    // The same bookie for all entries of a ledger where it has them all, another one from ledger to ledger.
    let preferred = usize::try_from(ledger.0).unwrap_or(0) % metadata.quorum.ensemble();
    let is_slow = |bookie: &BookieId| inner.directory.is_slow(bookie);
    let mut read = EntryRead::new(metadata.quorum, segment, entry, preferred, is_slow);
    let answers: Arc<Mailbox<EntryAnswer>> = Arc::new(Mailbox::default());
    let mark_slow = |bookie: &BookieId| inner.directory.mark_slow(bookie, inner.options.slow_bookie_time);
    // Who was asked and has not answered.
    let mut silent: Vec<BookieId> = Vec::new();
    let mut next = read.ask();
    loop {
        match next {
            Next::Ask(bookie) => {
                let request = Request::Read(ReadRequest {
                    ledger,
                    target: ReadTarget::Entry(entry),
                    fence: None,
                    long_poll: None,
                });
                let (answers, digester, from) = (Arc::clone(&answers), digester.clone(), bookie.clone());
                let reply = move |answer| answers.put((from, open(&digester, Some(entry), answer)));
                inner.call(&bookie, &request, inner.options.read_timeout, Box::new(reply));
                silent.push(bookie);
            }
            Next::Wait => {}
            Next::Failed(CallError::BadCopy(_)) => {
                let bookies: Vec<_> = segment.ensemble.iter().map(ToString::to_string).collect();
                return Err(ReadError::Damaged {
                    ledger,
                    entry,
                    file: format!("bookies {}", bookies.join(", ")),
                    byte_offset: 0,
                });
            }
            Next::Failed(error) => return Err(fault(ledger, error)),
        }
        let waited = tokio::time::timeout(inner.options.speculative_after, answers.take());
        next = match waited.await {
            Ok((_, Ok(Some(found)))) => return Ok(found),
            Ok((from, Ok(None))) => {
                silent.retain(|bookie| *bookie != from);
                read.on_error(CallError::Refused(Status::NoEntry))
            }
            Ok((from, Err(error))) => {
                silent.retain(|bookie| *bookie != from);
                if !matches!(error, CallError::BadCopy(_)) {
                    mark_slow(&from);
                }
                read.on_error(error)
            }
            Err(_) => {
                silent.iter().for_each(mark_slow);
                read.ask()
            }
        };
    }
}
