//! Reading offloaded ledgers: indexes and fetched runs of spans are kept for the next read, within bounds.
//!
//! Always true: nothing is handed out, or kept, whose checksum was not right; locks are held for a look or a change only, never
//! over an await. Payloads are copied out of the buffer: a slow consumer of one message must not hold on to a megabyte.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use pharos_ledger::ReadEntry;
use pharos_ledger::offload::{OffloadError, OffloadId, OffloadedLedger};
use pharos_runtime::clock;
use pharos_types::EntryId;
use tokio::sync::{OnceCell, Semaphore};

use crate::format::{Index, Span, records};
use crate::options::Options;
use crate::stats::Counters;
use crate::store::Store;

/// The largest index object that is read, in bytes: some forty times what the largest ledger has.
const INDEX_BYTES_MAX: u64 = 64 << 20;
/// Memory for indexes of all ledgers together, in bytes.
const INDEXES_MEMORY: usize = 32 << 20;
/// Ledgers whose index is kept.
const INDEXES_MAX: usize = 1024;
/// Number of fetches if the checksum is wrong: one retry, in case the transfer and not the object is damaged.
const FETCHES: usize = 2;

type IndexCell = Arc<OnceCell<Arc<Index>>>;

/// A fetched and checked run of entries.
struct Chunk {
    id: OffloadId,
    entries: Vec<ReadEntry>,
    bytes: usize,
}

impl Chunk {
    fn position_of(&self, id: OffloadId, entry: EntryId) -> Option<usize> {
        let first = self.entries.first().filter(|_| self.id == id)?;
        let index = usize::try_from(entry.0.checked_sub(first.id.0)?).ok()?;
        (index < self.entries.len()).then_some(index)
    }
}

#[derive(Default)]
struct Kept {
    /// With the time each was last used, by `clock`.
    indexes: HashMap<OffloadId, (IndexCell, u64)>,
    clock: u64,
    /// Newest use last.
    chunks: VecDeque<Arc<Chunk>>,
    chunk_bytes: usize,
}

/// All reads of an offloader.
pub(crate) struct Reads {
    kept: Mutex<Kept>,
    fetches: Semaphore,
    fetch_bytes: Semaphore,
    fetch_bytes_max: u32,
    read_bytes: u64,
    buffer_bytes_max: usize,
}

impl Reads {
    pub(crate) fn new(options: &Options) -> Self {
        let fetch_bytes_max = options.fetch_bytes_max.max(1);
        Self {
            kept: Mutex::default(),
            fetches: Semaphore::new(options.reads_max.max(1)),
            fetch_bytes: Semaphore::new(usize::try_from(fetch_bytes_max).unwrap_or(usize::MAX >> 3)),
            fetch_bytes_max,
            read_bytes: options.read_bytes,
            buffer_bytes_max: options.buffer_bytes_max,
        }
    }

    /// Entries from `first` on; see the contract.
    pub(crate) async fn read(
        &self,
        store: &Store,
        object: &OffloadedLedger,
        first: EntryId,
        limits: (usize, usize),
        counters: &Counters,
    ) -> Result<Vec<ReadEntry>, OffloadError> {
        let (entries_max, bytes_max) = limits;
        let kept = self.lock().chunk(object.id, first);
        let chunk = match kept {
            Some(chunk) => {
                counters.buffer_hit();
                chunk
            }
            None => {
                let index = self.index(store, object, counters).await?;
                // Searches look at one entry here and one there: then a span is enough.
                let wanted = if entries_max <= 1 { 0 } else { self.read_bytes };
                let run = index.run_from(first, wanted);
                if run.is_empty() {
                    return Ok(Vec::new());
                }
                self.fetch(store, object, run, counters).await?
            }
        };
        let Some(at) = chunk.position_of(object.id, first) else {
            return Ok(Vec::new());
        };
        let mut bytes = 0usize;
        let mut found = Vec::new();
        for entry in chunk.entries.iter().skip(at) {
            bytes = bytes.saturating_add(entry.payload.len());
            if !found.is_empty() && (found.len() >= entries_max || bytes > bytes_max) {
                break;
            }
            found.push(ReadEntry {
                id: entry.id,
                payload: Bytes::copy_from_slice(&entry.payload),
            });
        }
        counters.entries_read(&found);
        Ok(found)
    }

    /// Asks the store whether the attempt is whole.
    pub(crate) async fn check(
        &self,
        store: &Store,
        object: &OffloadedLedger,
        entries: u64,
        counters: &Counters,
    ) -> Result<(), OffloadError> {
        let index = load_index(store, object, counters).await?;
        if index.entries() != entries {
            let cause = format!("it has {} entries where {entries} are recorded", index.entries());
            return Err(store.damaged(&object.index_name(), 0, cause));
        }
        let (name, expected) = (object.data_name(), index.data_length());
        let length = store.length(&name).await?;
        if length == expected {
            return Ok(());
        }
        let cause = format!("it has {length} bytes where its index says {expected}");
        Err(store.damaged(&name, length.min(expected), cause))
    }

    /// Forgets what is kept of an attempt.
    pub(crate) fn forget(&self, id: OffloadId) {
        let mut kept = self.lock();
        kept.indexes.remove(&id);
        kept.chunks.retain(|chunk| chunk.id != id);
        kept.chunk_bytes = kept.chunks.iter().map(|chunk| chunk.bytes).sum();
    }

    /// Bytes that are kept, fetched entries only.
    pub(crate) fn buffered_bytes(&self) -> usize {
        self.lock().chunk_bytes
    }

    /// The index, loaded once however many ask.
    async fn index(
        &self,
        store: &Store,
        object: &OffloadedLedger,
        counters: &Counters,
    ) -> Result<Arc<Index>, OffloadError> {
        let cell = self.lock().index_cell(object.id);
        let load = || async {
            let _permit = self.fetches.acquire().await.map_err(|_| OffloadError::Stopped)?;
            load_index(store, object, counters).await.map(Arc::new)
        };
        let index = cell.get_or_try_init(load).await?.clone();
        self.lock().evict_indexes(object.id);
        Ok(index)
    }

    /// Fetches, checks and keeps a run of spans.
    async fn fetch(
        &self,
        store: &Store,
        object: &OffloadedLedger,
        run: &[Span],
        counters: &Counters,
    ) -> Result<Arc<Chunk>, OffloadError> {
        let (Some(first), Some(last)) = (run.first(), run.last()) else {
            return Err(OffloadError::Stopped);
        };
        let bytes = u32::try_from(last.end() - first.offset).unwrap_or(u32::MAX);
        let stopped = |_| OffloadError::Stopped;
        let _one = self.fetches.acquire().await.map_err(stopped)?;
        let _bytes = self
            .fetch_bytes
            .acquire_many(bytes.min(self.fetch_bytes_max))
            .await;
        let _bytes = _bytes.map_err(stopped)?;
        let name = object.data_name();
        let mut outcome = Err(OffloadError::Stopped);
        for _ in 0..FETCHES {
            let began = clock::now();
            let fetched = store.get_range(&name, first.offset..last.end()).await;
            let fetched = fetched.inspect_err(|_| counters.read_error())?;
            counters.data_read(clock::now().since(began), fetched.len());
            outcome = parse(run, first.offset, &fetched)
                .map_err(|(byte_offset, fault)| store.damaged(&name, byte_offset, fault));
            if outcome.is_ok() {
                break;
            }
            counters.read_error();
        }
        let chunk = Arc::new(Chunk {
            id: object.id,
            entries: outcome?,
            bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
        });
        self.lock().keep(chunk.clone(), self.buffer_bytes_max);
        Ok(chunk)
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn index_cell(&mut self, id: OffloadId) -> IndexCell {
        self.clock += 1;
        let slot = self.indexes.entry(id).or_default();
        slot.1 = self.clock;
        slot.0.clone()
    }

    /// Gives up the indexes that were not used for longest, `newest` excepted.
    fn evict_indexes(&mut self, newest: OffloadId) {
        let memory = |cell: &IndexCell| cell.get().map_or(0, |index| index.memory());
        let mut used: usize = self.indexes.values().map(|(cell, _)| memory(cell)).sum();
        while self.indexes.len() > INDEXES_MAX || used > INDEXES_MEMORY {
            let others = self.indexes.iter().filter(|(id, _)| **id != newest);
            let Some(oldest) = others.min_by_key(|(_, (_, at))| *at).map(|(id, _)| *id) else {
                return;
            };
            if let Some((cell, _)) = self.indexes.remove(&oldest) {
                used -= memory(&cell).min(used);
            }
        }
    }

    /// The chunk that holds an entry, which is thereby the newest.
    fn chunk(&mut self, id: OffloadId, entry: EntryId) -> Option<Arc<Chunk>> {
        let at = self
            .chunks
            .iter()
            .position(|chunk| chunk.position_of(id, entry).is_some())?;
        let chunk = self.chunks.remove(at)?;
        self.chunks.push_back(chunk.clone());
        Some(chunk)
    }

    fn keep(&mut self, chunk: Arc<Chunk>, bytes_max: usize) {
        self.chunk_bytes += chunk.bytes;
        self.chunks.push_back(chunk);
        while self.chunk_bytes > bytes_max {
            let Some(oldest) = self.chunks.pop_front() else {
                return;
            };
            self.chunk_bytes -= oldest.bytes;
        }
    }
}

async fn load_index(
    store: &Store,
    object: &OffloadedLedger,
    counters: &Counters,
) -> Result<Index, OffloadError> {
    let name = object.index_name();
    let began = clock::now();
    let bytes = store.get(&name, INDEX_BYTES_MAX).await;
    let bytes = bytes.inspect_err(|_| counters.read_error())?;
    counters.index_read(clock::now().since(began));
    Index::decode(&bytes).map_err(|fault| {
        counters.read_error();
        store.damaged(&name, fault.byte_offset, fault)
    })
}

/// Takes a fetched run apart. The error says where in the data object.
fn parse(run: &[Span], offset: u64, bytes: &Bytes) -> Result<Vec<ReadEntry>, (u64, String)> {
    let mut entries = Vec::new();
    for span in run {
        let at = |byte: u64| usize::try_from(byte - offset).unwrap_or(usize::MAX);
        let (from, to) = (at(span.offset), at(span.end()));
        if to > bytes.len() || from > to {
            return Err((span.offset, "the fetched bytes end before it".to_owned()));
        }
        let records = records(span, &bytes.slice(from..to));
        entries.extend(records.map_err(|fault| (span.offset, fault.to_string()))?);
    }
    Ok(entries)
}
