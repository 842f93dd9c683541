//! The read cache: pieces of entry logs as they were read, shared by everybody who reads the same data.
//!
//! An extent is 128 KiB of a log at a multiple of that (shorter at the end of a log that is still written), and a piece is one
//! extent or four, see [`stage`](super::stage). One lock. A piece has its own memory, so that a slice somewhere keeps nothing
//! else alive.
//!
//! A piece whose entries have all been handed out goes before one in which some wait for their reader: who reads a backlog
//! from front to back does not come back, but goes on where it stopped, and where one ledger's run ends another's begins. In
//! each of the two kinds the least recently used go first, and what waits for long goes as well.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use pharos_runtime::fs::PieceSize;

/// Length of an extent: the largest read that does not hurt the journals on the same device.
pub(crate) const EXTENT_BYTES: u64 = 128 << 10;

/// Extents of a long piece.
pub(crate) const PIECE_EXTENTS_MAX: u32 = (PieceSize::Large.bytes() as u64 / EXTENT_BYTES) as u32;

const _: () = assert!(PieceSize::Small.bytes() as u64 == EXTENT_BYTES);

/// Memory that pieces may take beyond what the cache holds, in bytes: they are with those who read, or free.
const BEYOND_CACHE_BYTES: usize = 64 << 20;

/// Buffers kept for the next extent or record.
const POOL_MAX: usize = 128;

/// Records of this size that cross from one piece into the next are put together in buffers of the pool. For shorter ones
/// such a buffer would be too much, longer ones are seldom.
const LARGE_BYTES: std::ops::RangeInclusive<usize> = EXTENT_BYTES as usize / 2..=EXTENT_BYTES as usize;

/// Which extent: directory, log, number.
pub(crate) type Key = (u16, u32, u32);

/// How much longer than others a piece stays that waits for its reader: so many uses for each extent that fits into the
/// cache. One that is read and handed out is about three uses.
const WAITS: u64 = 6;

#[derive(Debug)]
struct Held {
    bytes: Bytes,
    /// Its place in the order in which extents go.
    due: u64,
    /// Bytes of the runs in it whose readers have come to their ends here, or to the piece's.
    passed: u64,
}

impl Held {
    /// Whether next to nothing of it is left that nobody has read.
    fn is_passed(&self) -> bool {
        self.passed >= self.bytes.len() as u64 / 16 * 15
    }
}

#[derive(Debug, Default)]
struct State {
    /// By the first extent.
    held: HashMap<Key, Held>,
    /// Which goes when: by the use that it was put, and what waits for its reader later by so many uses.
    order: BTreeSet<(u64, Key)>,
    clock: u64,
    bytes: u64,
}

/// The cache.
#[derive(Debug)]
pub(crate) struct Extents {
    state: Mutex<State>,
    bytes_max: u64,
    /// How many uses later a piece goes that waits for its reader.
    wait: u64,
    /// As the state says; for statistics.
    bytes: AtomicU64,
    pool: Arc<Pool>,
}

impl Extents {
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self {
            state: Mutex::default(),
            bytes_max,
            wait: bytes_max / EXTENT_BYTES * WAITS,
            bytes: AtomicU64::new(0),
            pool: Arc::default(),
        }
    }

    /// The piece that has an extent, at least up to `end` counted from that one's start; and the number of its first extent.
    pub(crate) fn get(&self, key: Key, end: u64) -> Option<(u32, Bytes)> {
        let mut state = self.lock();
        let first = state.first_of(key)?;
        let bytes = state.held.get(&first)?.bytes.clone();
        if !reaches(first.2, &bytes, key.2, end) {
            return None;
        }
        state.put_off(first, self.wait);
        Some((first.2, bytes))
    }

    /// Whether anything is known of an extent.
    pub(crate) fn has(&self, key: Key) -> bool {
        self.lock().first_of(key).is_some()
    }

    /// How many extents to read from one on that is not here, at most `count`: up to the first that is.
    pub(crate) fn missing(&self, (dir, log, number): Key, count: u32) -> u32 {
        let state = self.lock();
        let here = |ahead: &u32| {
            let key = (dir, log, number.saturating_add(*ahead));
            state.first_of(key).is_some()
        };
        (1..count).find(here).unwrap_or(count)
    }

    /// Keeps a piece that was read, in place of all that had any of its extents.
    pub(crate) fn put(&self, key: Key, bytes: Bytes) {
        let mut state = self.lock();
        for ahead in 0..extents_in(&bytes) {
            if let Some(first) = state.first_of((key.0, key.1, key.2 + ahead)) {
                state.remove(first);
            }
        }
        state.bytes += bytes.len() as u64;
        let held = Held {
            bytes,
            due: 0,
            passed: 0,
        };
        state.held.insert(key, held);
        state.put_off(key, self.wait);
        while state.bytes > self.bytes_max
            && let Some((_, oldest)) = state.order.pop_first()
        {
            state.remove(oldest);
        }
        self.bytes.store(state.bytes, Ordering::Relaxed);
    }

    /// Somebody is through with the part that a run has of the piece with this extent, so many bytes.
    pub(crate) fn passed(&self, key: Key, bytes: u64) {
        let mut state = self.lock();
        let first = state.first_of(key).unwrap_or(key);
        if let Some(held) = state.held.get_mut(&first) {
            held.passed += bytes;
            state.put_off(first, self.wait);
        }
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

    /// The most memory that may be cut into pieces, in bytes.
    pub(crate) fn memory_max(&self) -> usize {
        usize::try_from(self.bytes_max)
            .unwrap_or(usize::MAX)
            .saturating_add(BEYOND_CACHE_BYTES)
    }

    /// Where buffers come from.
    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many extents a piece has; one at the end of a log may be short.
pub(crate) fn extents_in(piece: &Bytes) -> u32 {
    (piece.len() as u64).div_ceil(EXTENT_BYTES) as u32
}

/// Whether a piece that begins with extent `first` has extent `number`, at least up to `end` counted from that one's start.
pub(crate) fn reaches(first: u32, piece: &Bytes, number: u32, end: u64) -> bool {
    let before = number
        .checked_sub(first)
        .map(|count| u64::from(count) * EXTENT_BYTES);
    before.is_some_and(|before| before + end.max(1) <= piece.len() as u64)
}

impl State {
    /// The piece that has any of an extent.
    fn first_of(&self, (dir, log, number): Key) -> Option<Key> {
        let firsts =
            (0..PIECE_EXTENTS_MAX).filter_map(|before| Some((dir, log, number.checked_sub(before)?)));
        firsts
            .map(|first| (first, self.held.get(&first)))
            .find(|(first, held)| held.is_some_and(|held| reaches(first.2, &held.bytes, number, 1)))
            .map(|(first, _)| first)
    }

    /// A piece was used: others go before it.
    fn put_off(&mut self, key: Key, wait: u64) {
        self.clock += 1;
        let Some(held) = self.held.get_mut(&key) else {
            return;
        };
        self.order.remove(&(held.due, key));
        held.due = self.clock + if held.is_passed() { 0 } else { wait };
        self.order.insert((held.due, key));
    }

    fn remove(&mut self, key: Key) {
        if let Some(held) = self.held.remove(&key) {
            self.order.remove(&(held.due, key));
            self.bytes -= held.bytes.len() as u64;
        }
    }
}

/// Buffers of an extent's size that wait for their next use.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    free: Mutex<Vec<Vec<u8>>>,
}

impl Pool {
    /// A shared copy of `bytes`, which are an extent or the end of one.
    pub(crate) fn extent(self: &Arc<Self>, bytes: &[u8]) -> Bytes {
        let mut buf = self.take();
        buf.extend_from_slice(bytes);
        self.share(buf)
    }

    /// An empty buffer with room for a record of so many bytes.
    pub(crate) fn record(&self, bytes: usize) -> Vec<u8> {
        match LARGE_BYTES.contains(&bytes) {
            true => self.take(),
            false => Vec::with_capacity(bytes),
        }
    }

    fn take(&self) -> Vec<u8> {
        let free = self.lock().pop();
        free.unwrap_or_else(|| Vec::with_capacity(EXTENT_BYTES as usize))
    }

    /// What was put into a buffer; it returns to the pool, if it came from there, when all slices are gone.
    pub(crate) fn share(self: &Arc<Self>, buf: Vec<u8>) -> Bytes {
        if buf.capacity() != EXTENT_BYTES as usize {
            return buf.into();
        }
        Bytes::from_owner(Lent {
            buf,
            pool: Arc::clone(self),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A buffer on loan.
#[derive(Debug)]
struct Lent {
    buf: Vec<u8>,
    pool: Arc<Pool>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.buf
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut buf = std::mem::take(&mut self.buf);
        buf.clear();
        let mut free = self.pool.lock();
        if free.len() < POOL_MAX {
            free.push(buf);
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
    fn what_was_handed_out_goes_before_what_waits() {
        let extents = Extents::new(4 * EXTENT_BYTES);
        let put = |number| extents.put((0, 0, number), extent(EXTENT_BYTES as usize));
        (0..4).for_each(put);
        // Two runs share the second one, and the third.
        extents.passed((0, 0, 1), EXTENT_BYTES / 2);
        extents.passed((0, 0, 1), EXTENT_BYTES / 2);
        extents.passed((0, 0, 2), EXTENT_BYTES / 2);
        extents.passed((0, 0, 3), EXTENT_BYTES);
        put(4);
        assert!(extents.get((0, 0, 1), 1).is_none());
        put(5);
        assert!(extents.get((0, 0, 3), 1).is_none());
        assert!(extents.get((0, 0, 0), 1).is_some() && extents.get((0, 0, 2), 1).is_some());
        // It does not wait for ever.
        for number in 6..200 {
            put(number);
            extents.passed((0, 0, number), EXTENT_BYTES);
        }
        assert!(extents.get((0, 0, 0), 1).is_none() && extents.get((0, 0, 2), 1).is_none());
        assert_eq!(extents.bytes(), 4 * EXTENT_BYTES);
    }

    #[test]
    fn what_is_here_is_not_read_again() {
        let extents = Extents::new(1000);
        extents.put((0, 7, 13), extent(1));
        assert_eq!(extents.missing((0, 7, 10), 8), 3);
        assert_eq!(extents.missing((0, 7, 10), 3), 3);
        assert_eq!(extents.missing((0, 7, 13), 8), 8);
        assert_eq!(extents.missing((0, 8, 10), 8), 8);
    }

    #[test]
    fn a_short_extent_is_no_answer_for_what_came_later() {
        let extents = Extents::new(1000);
        extents.put((0, 0, 0), extent(100));
        assert!(extents.get((0, 0, 0), 101).is_none());
        extents.put((0, 0, 0), extent(200));
        assert_eq!(extents.get((0, 0, 0), 101).unwrap().1.len(), 200);
        assert_eq!(extents.bytes(), 200);
    }

    #[test]
    fn a_long_piece_is_found_by_each_of_its_extents_and_goes_as_one() {
        let extents = Extents::new(64 * EXTENT_BYTES);
        let size = EXTENT_BYTES as usize;
        extents.put((0, 0, 8), extent(4 * size));
        extents.put((0, 0, 12), extent(100));
        for number in 8..12 {
            assert_eq!(extents.get((0, 0, number), EXTENT_BYTES).unwrap().0, 8);
            assert!(extents.get((0, 0, number), EXTENT_BYTES + 1).is_some() == (number < 11));
        }
        assert!(extents.get((0, 0, 7), 1).is_none() && extents.get((0, 1, 9), 1).is_none());
        assert_eq!(extents.missing((0, 0, 4), 8), 4);
        assert_eq!(extents.get((0, 0, 12), 100).unwrap().0, 12);
        // The end of the log was read again, with what came before it.
        extents.put((0, 0, 11), extent(size));
        extents.put((0, 0, 12), extent(size));
        assert_eq!(extents.bytes(), 2 * EXTENT_BYTES);
        assert!(!extents.has((0, 0, 10)) && extents.has((0, 0, 11)));
    }

    #[test]
    fn a_buffer_returns_when_its_last_slice_is_gone() {
        let pool = Arc::<Pool>::default();
        let shared = pool.extent(&[7; 5000]);
        let slice = shared.slice(4990..);
        drop(shared);
        assert_eq!((pool.lock().len(), &slice[..]), (0, &[7; 10][..]));
        drop(slice);
        assert_eq!(pool.lock().len(), 1);
        let again = pool.extent(&[8]);
        assert_eq!((pool.lock().len(), &again[..]), (0, &[8][..]));
    }

    #[test]
    fn large_records_are_put_together_in_buffers_of_the_pool() {
        let pool = Arc::<Pool>::default();
        for (bytes, kept) in [
            (1000, 0),
            (100_000, 1),
            (EXTENT_BYTES as usize + 1, 1),
            (70_000, 1),
        ] {
            let mut record = pool.record(bytes);
            assert!(record.is_empty() && record.capacity() >= bytes);
            record.resize(bytes, 7);
            let shared = pool.share(record);
            let slice = shared.slice(bytes - 1..);
            drop(shared);
            assert_eq!(slice[..], [7]);
            drop(slice);
            assert_eq!(pool.lock().len(), kept);
        }
    }
}
