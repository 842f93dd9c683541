//! Counters of an offloader, for the metrics page.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use pharos_ledger::ReadEntry;
use pharos_runtime::Histogram;

/// Figures since the start.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Ledgers that were copied.
    pub offloaded: u64,
    /// Bytes sent for them, padding included.
    pub offloaded_bytes: u64,
    /// Attempts that failed, for whatever reason.
    pub offload_errors: u64,
    /// Requests of attempts that the store did not carry out.
    pub write_errors: u64,
    /// Attempts under way.
    pub uploading: u64,
    /// Bytes fetched.
    pub read_bytes: u64,
    /// Entries handed out, and their bytes.
    pub entries_read: u64,
    /// Payload bytes handed out.
    pub entries_read_bytes: u64,
    /// Reads answered without asking the store.
    pub buffer_hits: u64,
    /// Fetches that failed or brought damaged bytes.
    pub read_errors: u64,
    /// Attempts whose objects were deleted.
    pub deleted: u64,
    /// Deletions that failed.
    pub delete_errors: u64,
    /// Bytes kept for the next read.
    pub buffered_bytes: u64,
    /// Time to read from the ledger that is being copied.
    pub ledger_latency: Histogram,
    /// Time to fetch an index.
    pub index_latency: Histogram,
    /// Time to fetch entries.
    pub data_latency: Histogram,
}

/// The figures as they are counted, from any thread.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    offloaded: AtomicU64,
    offloaded_bytes: AtomicU64,
    offload_errors: AtomicU64,
    write_errors: AtomicU64,
    pub(crate) uploading: AtomicU64,
    read_bytes: AtomicU64,
    entries_read: AtomicU64,
    entries_read_bytes: AtomicU64,
    buffer_hits: AtomicU64,
    read_errors: AtomicU64,
    deleted: AtomicU64,
    delete_errors: AtomicU64,
    latencies: Mutex<Latencies>,
}

#[derive(Debug, Default)]
struct Latencies {
    ledger: Histogram,
    index: Histogram,
    data: Histogram,
}

fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

impl Counters {
    pub(crate) fn attempt_done(&self, is_ok: bool) {
        add(
            if is_ok {
                &self.offloaded
            } else {
                &self.offload_errors
            },
            1,
        );
    }

    pub(crate) fn uploaded(&self, bytes: u64) {
        add(&self.offloaded_bytes, bytes);
    }

    pub(crate) fn write_error(&self) {
        add(&self.write_errors, 1);
    }

    pub(crate) fn read_error(&self) {
        add(&self.read_errors, 1);
    }

    pub(crate) fn buffer_hit(&self) {
        add(&self.buffer_hits, 1);
    }

    pub(crate) fn entries_read(&self, entries: &[ReadEntry]) {
        add(&self.entries_read, entries.len() as u64);
        let bytes: usize = entries.iter().map(|entry| entry.payload.len()).sum();
        add(&self.entries_read_bytes, bytes as u64);
    }

    pub(crate) fn deleted(&self, is_ok: bool) {
        add(if is_ok { &self.deleted } else { &self.delete_errors }, 1);
    }

    pub(crate) fn ledger_read(&self, nanos: u64) {
        self.record(|latencies| latencies.ledger.record(nanos));
    }

    pub(crate) fn index_read(&self, nanos: u64) {
        self.record(|latencies| latencies.index.record(nanos));
    }

    pub(crate) fn data_read(&self, nanos: u64, bytes: usize) {
        add(&self.read_bytes, bytes as u64);
        self.record(|latencies| latencies.data.record(nanos));
    }

    fn record(&self, record: impl FnOnce(&mut Latencies)) {
        record(&mut self.latencies.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) fn stats(&self) -> Stats {
        let latencies = self.latencies.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            offloaded: of(&self.offloaded),
            offloaded_bytes: of(&self.offloaded_bytes),
            offload_errors: of(&self.offload_errors),
            write_errors: of(&self.write_errors),
            uploading: of(&self.uploading),
            read_bytes: of(&self.read_bytes),
            entries_read: of(&self.entries_read),
            entries_read_bytes: of(&self.entries_read_bytes),
            buffer_hits: of(&self.buffer_hits),
            read_errors: of(&self.read_errors),
            deleted: of(&self.deleted),
            delete_errors: of(&self.delete_errors),
            buffered_bytes: 0,
            ledger_latency: latencies.ledger.clone(),
            index_latency: latencies.index.clone(),
            data_latency: latencies.data.clone(),
        }
    }
}
