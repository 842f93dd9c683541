//! A byte buffer whose start is aligned in memory, as direct I/O wants it, without unsafe code.

use std::sync::atomic::{AtomicBool, Ordering};

use mmap_rs::{MmapFlags, MmapMut, MmapOptions};

use super::DIRECT_ALIGN;

/// From this size on a buffer that is used again and again is asked for in huge pages.
///
/// Direct I/O hands the device one range of memory for each stretch of it that is contiguous, and the memory of a machine that
/// has run for a while is not: a write of 1 MiB from pages of 4 KiB is 256 ranges, more than fit into a request of a common
/// virtual disk, and one such request fills its queue. From a huge page it is one range.
const HUGE_BYTES_MIN: usize = 256 << 10;

/// Size and alignment of a huge page; where the system's are larger, it does without.
pub(super) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Bytes that start at a multiple of [`DIRECT_ALIGN`] in memory. Grows by replacing, never by moving what is in it.
#[derive(Debug, Default)]
pub struct AlignedBuf {
    memory: Memory,
    /// Offset of the first byte in `memory`.
    start: usize,
    capacity: usize,
}

#[derive(Debug)]
enum Memory {
    /// Up to `DIRECT_ALIGN - 1` bytes longer than needed, so that an aligned start is inside.
    Heap(Vec<u8>),
    /// Memory map with huge pages; only pages that were written to count.
    Mapped(MmapMut),
}

impl Default for Memory {
    fn default() -> Self {
        Self::Heap(Vec::new())
    }
}

impl AlignedBuf {
    /// A buffer of `bytes` zeros, for one use.
    #[must_use]
    pub fn zeroed(bytes: usize) -> Self {
        let raw = vec![0; bytes + DIRECT_ALIGN - 1];
        let start = raw.as_ptr().align_offset(DIRECT_ALIGN).min(DIRECT_ALIGN - 1);
        Self {
            memory: Memory::Heap(raw),
            start,
            capacity: bytes,
        }
    }

    /// A buffer of `bytes` zeros that will be used again and again. With 256 KiB or more it takes a multiple of 2 MiB of memory
    /// from when it is first written to, which costs milliseconds, and its reads and writes are cheaper for the device.
    #[must_use]
    pub fn reusable(bytes: usize) -> Self {
        let huge = (bytes >= HUGE_BYTES_MIN).then(|| Self::huge(bytes)).flatten();
        huge.unwrap_or_else(|| Self::zeroed(bytes))
    }

    /// A buffer of `bytes` zeros in huge pages, if the system gives them out.
    fn huge(bytes: usize) -> Option<Self> {
        let map = map_huge(bytes.next_multiple_of(HUGE_PAGE_BYTES) + HUGE_PAGE_BYTES)?;
        let start = map.as_ptr().align_offset(HUGE_PAGE_BYTES);
        (start < HUGE_PAGE_BYTES).then_some(Self {
            memory: Memory::Mapped(map),
            start,
            capacity: bytes,
        })
    }

    /// Makes sure that it holds at least `bytes`, as a [`reusable`](Self::reusable) one. What was in it is gone when it had to
    /// grow.
    pub fn reserve(&mut self, bytes: usize) {
        if self.capacity < bytes {
            // The old memory goes first, so that the two are never held together.
            *self = Self::default();
            *self = Self::reusable(bytes.next_power_of_two().max(DIRECT_ALIGN));
        }
    }

    /// Returns the capacity, in bytes.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// All of it.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        let raw: &[u8] = match &self.memory {
            Memory::Heap(raw) => raw,
            Memory::Mapped(map) => map,
        };
        raw.get(self.start..self.start + self.capacity)
            .unwrap_or_default()
    }

    /// All of it, to write to.
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let raw: &mut [u8] = match &mut self.memory {
            Memory::Heap(raw) => raw,
            Memory::Mapped(map) => map,
        };
        raw.get_mut(self.start..self.start + self.capacity)
            .unwrap_or_default()
    }
}

/// Memory of the system, zeros, in huge pages where they fit and if it has any. Only what is written to counts.
pub(super) fn map_huge(bytes: usize) -> Option<MmapMut> {
    /// A system without huge pages is asked once: the crate keeps the addresses of a mapping that it could not advise.
    static HAS_NONE: AtomicBool = AtomicBool::new(false);

    if !HAS_NONE.load(Ordering::Relaxed) {
        let flags = MmapFlags::TRANSPARENT_HUGE_PAGES;
        match MmapOptions::new(bytes).ok()?.with_flags(flags).map_mut() {
            Ok(map) => return Some(map),
            Err(_) => HAS_NONE.store(true, Ordering::Relaxed),
        }
    }
    MmapOptions::new(bytes).ok()?.map_mut().ok()
}

impl AsRef<[u8]> for AlignedBuf {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_is_aligned_at_every_size() {
        for bytes in [
            0,
            1,
            4096,
            5000,
            HUGE_BYTES_MIN - 1,
            HUGE_BYTES_MIN,
            (2 << 20) + 1,
        ] {
            for mut buf in [AlignedBuf::zeroed(bytes), AlignedBuf::reusable(bytes)] {
                assert_eq!(buf.bytes().len(), bytes);
                assert_eq!(buf.bytes().as_ptr() as usize % DIRECT_ALIGN, 0);
                assert!(buf.bytes().iter().all(|byte| *byte == 0));
                buf.reserve(bytes + 1);
                assert!(buf.bytes_mut().len() > bytes);
                assert_eq!(buf.bytes().as_ptr() as usize % DIRECT_ALIGN, 0);
            }
        }
    }

    #[test]
    fn a_large_one_begins_with_a_huge_page() {
        let mut buf = AlignedBuf::reusable(1 << 20);
        assert_eq!(buf.bytes().as_ptr() as usize % HUGE_PAGE_BYTES, 0);
        buf.bytes_mut().fill(7);
        assert_eq!((buf.bytes()[0], buf.bytes()[(1 << 20) - 1]), (7, 7));
    }
}
