//! Buffers of an extent's size: copies of extents, and records that cross from one piece into the next.

use std::sync::{Arc, PoisonError};

use bytes::Bytes;

use pharos_runtime::sync::{Mutex, MutexGuard};

use super::extents::EXTENT_BYTES;

/// Buffers kept for the next extent or record.
const POOL_MAX: usize = 128;

/// Records of this size that cross from one piece into the next are put together in buffers of the pool. For shorter ones
/// such a buffer would be too much, longer ones are seldom.
const LARGE_BYTES: std::ops::RangeInclusive<usize> = EXTENT_BYTES as usize / 2..=EXTENT_BYTES as usize;

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

    /// Shares the content of a buffer; the buffer returns to the pool, if it came from there, when all slices are
    /// gone.
    pub(crate) fn share(self: &Arc<Self>, buf: Vec<u8>) -> Bytes {
        if buf.capacity() != EXTENT_BYTES as usize {
            return buf.into();
        }
        Bytes::from_owner(Lent {
            buf,
            pool: Arc::clone(self),
        })
    }

    /// Gives the buffers back that are not in use.
    pub(super) fn clear(&self) {
        drop(std::mem::take(&mut *self.lock()));
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.lock().is_empty()
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
