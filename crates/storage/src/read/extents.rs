//! The read cache: pieces of entry logs as they were read, shared by all who read the same data.
//!
//! An extent is 128 KiB of a log at a multiple of that (shorter at the end of a log that is still written), and a piece is one
//! extent or four, see [`stage`](super::stage). One lock. A piece has its own memory, so that a slice somewhere keeps nothing
//! else alive.
//!
//! A piece whose entries have all been handed out is spent and goes before one in which some wait for their reader: who reads a
//! backlog from front to back does not come back, but goes on where it stopped, and where one ledger's run ends another's begins. In
//! each of the two kinds the least recently used go first, and what waits for long goes as well. Those that are spent also have a
//! share of their own to keep to, see [`spent`](super::spent). What was not used for some time goes in any case, see
//! [`Extents::age`].

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::Bytes;

use pharos_runtime::Nanos;
use pharos_runtime::fs::{Piece, PieceSize};
use pharos_runtime::sync::atomic::{AtomicU64, Ordering};
use pharos_runtime::sync::{Mutex, MutexGuard};

use super::carries::{self, Carries};
use super::pool::Pool;
use super::spent::Spent;

/// Length of an extent: the largest read that does not hurt the journals on the same device.
pub(crate) const EXTENT_BYTES: u64 = 128 << 10;

/// Extents of a long piece.
pub(crate) const PIECE_EXTENTS_MAX: u32 = (PieceSize::Large.bytes() as u64 / EXTENT_BYTES) as u32;

const _: () = assert!(PieceSize::Small.bytes() as u64 == EXTENT_BYTES);

/// Memory that pieces may take beyond what the cache holds, in bytes: they are with those who read, or free.
const BEYOND_CACHE_BYTES: usize = 64 << 20;

/// Interval of the search for unused extents.
const LOOK_PAUSE: Duration = Duration::from_secs(10);

/// Extent: directory, log, number.
pub(crate) type Key = (u16, u32, u32);

/// Bytes of a spent piece that no reader may have been given: where two runs meet, each of them is waited for.
const SPENT_SLACK: u64 = 1024;

/// Share of the cache for starts of records: one part in this many.
const CARRIES_PART: u64 = 4;

/// Extra time in the cache for a piece that waits for its reader: this many uses for each extent that fits into the
/// cache. A piece that is read and handed out is about three uses.
const WAITS: u64 = 6;

#[derive(Debug)]
struct Held {
    bytes: Bytes,
    /// Its place in the order in which extents go.
    due: u64,
    /// The number of its last use.
    used: u64,
    /// Bytes of it that were handed out, some perhaps to more than one reader.
    handed_out: u64,
    /// True if it was used again after it was spent.
    is_wanted_again: bool,
}

impl Held {
    /// True if next to nothing of it is left unread.
    fn is_spent(&self) -> bool {
        self.handed_out + SPENT_SLACK >= self.bytes.len() as u64
    }
}

#[derive(Debug)]
struct HeldExtents {
    /// By the first extent.
    held: HashMap<Key, Held>,
    /// Eviction order: by the use at which a piece was put; pieces that wait for their reader later by a number of
    /// uses.
    order: BTreeSet<(u64, Key)>,
    /// Spent pieces, and their bytes.
    spent_order: BTreeSet<(u64, Key)>,
    spent_bytes: u64,
    spent: Spent,
    carries: Carries,
    clock: u64,
    /// Values of `clock` at the last look but one, and at the last, for [`Extents::age`]; and the time of the last
    /// look.
    marks: [u64; 2],
    looked_at: Nanos,
    bytes: u64,
}

/// The cache.
#[derive(Debug)]
pub(crate) struct Extents {
    state: Mutex<HeldExtents>,
    bytes_max: u64,
    /// Number of uses by which the eviction of a piece that waits for its reader is delayed.
    wait: u64,
    /// As the state says; for statistics.
    bytes: AtomicU64,
    pool: Arc<Pool>,
}

impl Extents {
    pub(crate) fn new(bytes_max: u64) -> Self {
        let state = HeldExtents {
            held: HashMap::new(),
            order: BTreeSet::new(),
            spent_order: BTreeSet::new(),
            spent_bytes: 0,
            spent: Spent::new(bytes_max),
            carries: Carries::new(bytes_max / CARRIES_PART),
            clock: 0,
            marks: [0; 2],
            looked_at: Nanos::default(),
            bytes: 0,
        };
        Self {
            state: Mutex::new(state),
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
        let held = state.held.get_mut(&first)?;
        if !reaches(first.2, &held.bytes, key.2, end) {
            return None;
        }
        held.is_wanted_again |= held.is_spent();
        let bytes = held.bytes.clone();
        state.put_off(first, self.wait);
        Some((first.2, bytes))
    }

    /// True if the extent is in the cache.
    pub(crate) fn has(&self, key: Key) -> bool {
        self.lock().first_of(key).is_some()
    }

    /// Returns the number of missing extents to read from this one on, at most `count`: up to the first that is
    /// present.
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
            let name = (key.0, key.1, key.2 + ahead);
            state.spent.was_read(name);
            if let Some(first) = state.first_of(name) {
                state.remove(first);
            }
        }
        state.bytes += bytes.len() as u64;
        let held = Held {
            bytes,
            due: 0,
            used: 0,
            handed_out: 0,
            is_wanted_again: false,
        };
        state.held.insert(key, held);
        state.put_off(key, self.wait);
        self.keep_within(&mut state);
    }

    /// Keeps the start of the record at a place, for who reads on there.
    pub(super) fn leave(&self, place: carries::CarryKey, start: Vec<u8>) {
        let mut state = self.lock();
        state.carries.put(place, start);
        self.keep_within(&mut state);
    }

    /// Takes the start of the record at a place.
    pub(super) fn resume(&self, place: carries::CarryKey) -> Option<Vec<u8>> {
        self.lock().carries.take(place)
    }

    fn keep_within(&self, state: &mut HeldExtents) {
        while state.all_bytes() > self.bytes_max
            && let Some((_, oldest)) = state.order.first().copied()
        {
            state.drop_piece(oldest);
        }
        self.bytes.store(state.all_bytes(), Ordering::Relaxed);
    }

    /// Records of so many bytes in the piece with this extent were handed out to a reader.
    pub(crate) fn handed_out(&self, key: Key, bytes: u64) {
        let mut state = self.lock();
        let first = state.first_of(key).unwrap_or(key);
        if let Some(held) = state.held.get_mut(&first) {
            held.handed_out += bytes;
            state.put_off(first, self.wait);
        }
        while state.spent_bytes > state.spent.share()
            && let Some((_, oldest)) = state.spent_order.first().copied()
        {
            state.drop_piece(oldest);
        }
        self.bytes.store(state.all_bytes(), Ordering::Relaxed);
    }

    /// Drops what was not used since the last look but one; says how long until the next look. So nothing stays for more than
    /// [`LOOK_PAUSE`] twice, and the time until the flusher gets to it, without being used.
    pub(crate) fn age(&self, now: Nanos) -> Duration {
        let mut state = self.lock();
        let left = LOOK_PAUSE.saturating_sub(Duration::from_nanos(now.since(state.looked_at)));
        if !left.is_zero() {
            return left;
        }
        state.looked_at = now;
        let (clock, since) = (state.clock, state.marks[0]);
        state.marks = [state.marks[1], clock];
        let held = state.held.iter();
        let unused = held.filter(|(_, held)| held.used <= since);
        let unused: Vec<Key> = unused.map(|(key, _)| *key).collect();
        for key in unused {
            state.remove(key);
        }
        if clock == since {
            state.carries.clear();
            state.held.shrink_to_fit();
            self.pool.clear();
        }
        self.bytes.store(state.all_bytes(), Ordering::Relaxed);
        drop(state);
        Piece::give_back_unneeded();
        LOOK_PAUSE
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
        state.spent.forget(dir, log);
        state.carries.forget(dir, log);
        self.bytes.store(state.all_bytes(), Ordering::Relaxed);
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The most that is held, in bytes.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Room for pieces that are not spent, in bytes.
    pub(crate) fn room(&self) -> u64 {
        self.bytes_max.saturating_sub(self.lock().spent.share())
    }

    /// The most memory that may be cut into pieces, in bytes.
    pub(crate) fn memory_max(&self) -> usize {
        usize::try_from(self.bytes_max)
            .unwrap_or(usize::MAX)
            .saturating_add(BEYOND_CACHE_BYTES)
    }

    /// Returns the pool of buffers.
    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    fn lock(&self) -> MutexGuard<'_, HeldExtents> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the number of extents in a piece; one at the end of a log may be short.
pub(crate) fn extents_in(piece: &Bytes) -> u32 {
    (piece.len() as u64).div_ceil(EXTENT_BYTES) as u32
}

/// True if a piece that begins with extent `first` has extent `number`, at least up to `end` counted from that one's
/// start.
pub(crate) fn reaches(first: u32, piece: &Bytes, number: u32, end: u64) -> bool {
    let before = number
        .checked_sub(first)
        .map(|count| u64::from(count) * EXTENT_BYTES);
    before.is_some_and(|before| before + end.max(1) <= piece.len() as u64)
}

impl HeldExtents {
    /// Returns the size of all that is held: pieces and starts of records.
    fn all_bytes(&self) -> u64 {
        self.bytes + self.carries.bytes()
    }

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
        let (before, bytes) = ((held.due, key), held.bytes.len() as u64);
        let is_spent = held.is_spent();
        held.used = self.clock;
        held.due = self.clock + if is_spent { 0 } else { wait };
        let now = (held.due, key);
        self.order.remove(&before);
        self.order.insert(now);
        if self.spent_order.remove(&before) {
            self.spent_bytes -= bytes;
        }
        if is_spent {
            self.spent_order.insert(now);
            self.spent_bytes += bytes;
        }
    }

    /// Room is needed.
    fn drop_piece(&mut self, key: Key) {
        if let Some(held) = self.held.get(&key).filter(|held| held.is_spent()) {
            let (extents, was_wanted) = (extents_in(&held.bytes), held.is_wanted_again);
            self.spent.dropped(key, extents, was_wanted);
        }
        self.remove(key);
    }

    fn remove(&mut self, key: Key) {
        if let Some(held) = self.held.remove(&key) {
            let (place, bytes) = ((held.due, key), held.bytes.len() as u64);
            self.order.remove(&place);
            if self.spent_order.remove(&place) {
                self.spent_bytes -= bytes;
            }
            self.bytes -= bytes;
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
        let extents = Extents::new(32 * EXTENT_BYTES);
        let put = |number| extents.put((0, 0, number), extent(EXTENT_BYTES as usize));
        (0..32).for_each(put);
        // Two runs share the second one, and the third.
        extents.handed_out((0, 0, 1), EXTENT_BYTES / 2);
        extents.handed_out((0, 0, 1), EXTENT_BYTES / 2);
        extents.handed_out((0, 0, 2), EXTENT_BYTES / 2);
        extents.handed_out((0, 0, 3), EXTENT_BYTES);
        put(32);
        assert!(extents.get((0, 0, 1), 1).is_none());
        put(33);
        assert!(extents.get((0, 0, 3), 1).is_none());
        assert!(extents.get((0, 0, 0), 1).is_some() && extents.get((0, 0, 2), 1).is_some());
        // It does not wait for ever.
        for number in 34..600 {
            put(number);
            extents.handed_out((0, 0, number), EXTENT_BYTES);
        }
        assert!(extents.bytes() <= 32 * EXTENT_BYTES);
        for number in 600..1200 {
            put(number);
        }
        assert!(extents.get((0, 0, 0), 1).is_none() && extents.get((0, 0, 2), 1).is_none());
        assert_eq!(extents.bytes(), 32 * EXTENT_BYTES);
    }

    #[test]
    fn what_was_handed_out_keeps_to_its_share_and_the_newest_of_it_stays() {
        let extents = Extents::new(32 * EXTENT_BYTES);
        let put = |number| extents.put((0, 0, number), extent(EXTENT_BYTES as usize));
        put(100);
        for number in 0..30 {
            put(number);
            extents.handed_out((0, 0, number), EXTENT_BYTES);
        }
        assert_eq!(extents.bytes(), 5 * EXTENT_BYTES);
        for number in [26, 27, 28, 29, 100] {
            assert!(extents.has((0, 0, number)), "{number}");
        }
        assert_eq!(extents.room(), 28 * EXTENT_BYTES);
        // A reader follows: those that were let go are read again, and more of them stay.
        for number in 0..2 {
            put(number);
        }
        assert_eq!(extents.room(), 12 * EXTENT_BYTES);
        for number in 0..30 {
            put(number);
            extents.handed_out((0, 0, number), EXTENT_BYTES);
        }
        assert_eq!(extents.bytes(), 31 * EXTENT_BYTES);
        // No reader follows any more.
        for number in 30..160 {
            put(number);
            extents.handed_out((0, 0, number), EXTENT_BYTES);
        }
        assert_eq!(extents.room(), 28 * EXTENT_BYTES);
        extents.forget(0, 0);
        assert_eq!(extents.bytes(), 0);
    }

    #[test]
    fn what_is_not_used_goes_after_some_time() {
        let second = |count: u64| Nanos(1_000_000_000 * count);
        let extents = Extents::new(1000);
        extents.age(second(100));
        extents.put((0, 0, 0), extent(100));
        extents.put((0, 0, 1), extent(100));
        drop(extents.pool().extent(&[1]));
        assert_eq!(extents.age(second(105)), Duration::from_secs(5));
        extents.age(second(110));
        assert!(extents.get((0, 0, 1), 100).is_some());
        extents.age(second(120));
        assert_eq!(extents.bytes(), 200, "not old enough yet");
        extents.age(second(130));
        assert_eq!(extents.bytes(), 100);
        assert!(extents.has((0, 0, 1)) && !extents.pool().is_empty());
        extents.age(second(140));
        extents.age(second(150));
        assert_eq!(extents.bytes(), 0);
        assert!(extents.pool().is_empty());
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
}
