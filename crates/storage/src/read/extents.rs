//! The read cache: pieces of entry logs as they were read, shared by everybody who reads the same data.
//!
//! An extent is 128 KiB of a log at a multiple of that (shorter at the end of a log that is still written). One lock;
//! the least recently used go first. Each extent has a buffer of its own, so that a slice somewhere keeps no more than
//! 128 KiB alive. Buffers come from a small pool and return to it when nobody holds a slice of them.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use pharos_runtime::fs::AlignedBuf;

/// Length of an extent: the largest read that does not hurt the journals on the same device.
pub(crate) const EXTENT_BYTES: u64 = 128 << 10;

/// Buffers kept for the next read.
const POOL_MAX: usize = 64;

/// Which extent: directory, log, number.
pub(crate) type Key = (u16, u32, u32);

#[derive(Debug)]
struct Held {
    bytes: Bytes,
    used: u64,
}

#[derive(Debug, Default)]
struct State {
    held: HashMap<Key, Held>,
    /// By when they were last used.
    order: BTreeMap<u64, Key>,
    clock: u64,
    bytes: u64,
}

/// The cache.
#[derive(Debug)]
pub(crate) struct Extents {
    state: Mutex<State>,
    bytes_max: u64,
    /// As the state says; for statistics.
    bytes: AtomicU64,
    pool: Arc<Pool>,
}

impl Extents {
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self {
            state: Mutex::default(),
            bytes_max,
            bytes: AtomicU64::new(0),
            pool: Arc::default(),
        }
    }

    /// What is known of an extent, when that reaches at least to `end`, counted from its start.
    pub(crate) fn get(&self, key: Key, end: u64) -> Option<Bytes> {
        let mut state = self.lock();
        let state = &mut *state;
        state.clock += 1;
        let held = state.held.get_mut(&key)?;
        if (held.bytes.len() as u64) < end {
            return None;
        }
        state.order.remove(&held.used);
        held.used = state.clock;
        state.order.insert(held.used, key);
        Some(held.bytes.clone())
    }

    /// Whether anything is known of an extent.
    pub(crate) fn has(&self, key: Key) -> bool {
        self.lock().held.contains_key(&key)
    }

    /// Keeps what was read.
    pub(crate) fn put(&self, key: Key, bytes: Bytes) {
        let mut state = self.lock();
        state.remove(key);
        state.clock += 1;
        let used = state.clock;
        state.bytes += bytes.len() as u64;
        state.order.insert(used, key);
        state.held.insert(key, Held { bytes, used });
        while state.bytes > self.bytes_max
            && let Some((_, oldest)) = state.order.pop_first()
        {
            state.remove(oldest);
        }
        self.bytes.store(state.bytes, Ordering::Relaxed);
    }

    /// Drops what is known of a log that is gone.
    pub(crate) fn forget(&self, dir: u16, log: u32) {
        let mut state = self.lock();
        let gone: Vec<Key> = state
            .held
            .keys()
            .filter(|key| (key.0, key.1) == (dir, log))
            .copied()
            .collect();
        for key in gone {
            state.remove(key);
        }
        self.bytes.store(state.bytes, Ordering::Relaxed);
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The most that is held, in bytes.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// A buffer for one extent.
    pub(crate) fn buffer(&self) -> AlignedBuf {
        self.pool.take()
    }

    /// The first `count` bytes of a buffer; it returns to the pool when all slices of them are gone.
    pub(crate) fn share(&self, buf: AlignedBuf, count: usize) -> Bytes {
        Bytes::from_owner(Pooled {
            buf,
            count,
            pool: Arc::clone(&self.pool),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn remove(&mut self, key: Key) {
        if let Some(held) = self.held.remove(&key) {
            self.order.remove(&held.used);
            self.bytes -= held.bytes.len() as u64;
        }
    }
}

/// Buffers that wait for the next read.
#[derive(Debug, Default)]
struct Pool {
    free: Mutex<Vec<AlignedBuf>>,
}

impl Pool {
    fn take(&self) -> AlignedBuf {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        free.unwrap_or_else(|| AlignedBuf::zeroed(EXTENT_BYTES as usize))
    }
}

/// A buffer on loan.
#[derive(Debug)]
struct Pooled {
    buf: AlignedBuf,
    count: usize,
    pool: Arc<Pool>,
}

impl AsRef<[u8]> for Pooled {
    fn as_ref(&self) -> &[u8] {
        self.buf.bytes().get(..self.count).unwrap_or_default()
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        let mut free = self.pool.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < POOL_MAX {
            free.push(std::mem::take(&mut self.buf));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(bytes: usize) -> Bytes {
        Bytes::from(vec![1; bytes])
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let extents = Extents::new(300);
        for number in 0..3 {
            extents.put((0, 0, number), extent(100));
        }
        assert!(extents.get((0, 0, 0), 100).is_some());
        extents.put((0, 1, 0), extent(100));
        assert!(extents.get((0, 0, 1), 1).is_none());
        assert!(extents.get((0, 0, 0), 1).is_some() && extents.get((0, 1, 0), 1).is_some());
        assert_eq!(extents.bytes(), 300);
        extents.forget(0, 0);
        assert_eq!(extents.bytes(), 100);
    }

    #[test]
    fn a_short_extent_is_no_answer_for_what_came_later() {
        let extents = Extents::new(1000);
        extents.put((0, 0, 0), extent(100));
        assert!(extents.get((0, 0, 0), 101).is_none());
        extents.put((0, 0, 0), extent(200));
        assert_eq!(extents.get((0, 0, 0), 101).unwrap().len(), 200);
        assert_eq!(extents.bytes(), 200);
    }

    #[test]
    fn a_buffer_returns_when_its_last_slice_is_gone() {
        let extents = Extents::new(0);
        let shared = extents.share(extents.buffer(), 5000);
        let slice = shared.slice(10..20);
        drop(shared);
        assert_eq!(extents.pool.free.lock().unwrap().len(), 0);
        drop(slice);
        assert_eq!(extents.pool.free.lock().unwrap().len(), 1);
        assert_eq!(extents.buffer().capacity() as u64, EXTENT_BYTES);
        assert_eq!(extents.pool.free.lock().unwrap().len(), 0);
    }
}
