//! Memory that a device reads into and many then look at, in pieces that come from huge pages.
//!
//! ```text
//!  a huge page  [ 512 KiB ][ 512 KiB ][ 512 KiB ][ 512 KiB ]     or   [ 16 × 128 KiB ]
//!                   │
//!                 taken ─► filled by one read ─► shared in slices ─► the last one is gone: taken again
//! ```
//! Direct I/O hands the device one range of memory for each stretch of it that is contiguous, see
//! [`AlignedBuf`](super::AlignedBuf). A piece is one range, and what is in it need not be copied for those who share it: each
//! returns by itself, whatever becomes of its neighbours.
//!
//! Memory that was cut into pieces cannot be put together again without unsafe code. So it is the process's for good, one store
//! serves all who read, and each says how much may be cut.

use std::sync::{Mutex, MutexGuard, PoisonError};

use memmap2::{Advice, MmapMut};

use super::aligned::HUGE_PAGE_BYTES;

/// How long a piece is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PieceSize {
    /// 128 KiB.
    Small,
    /// 512 KiB.
    Large,
}

impl PieceSize {
    /// In bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Small => 128 << 10,
            Self::Large => 512 << 10,
        }
    }
}

/// A piece of memory that starts at a multiple of its length. It returns to the store when it is dropped.
#[derive(Debug)]
pub struct Piece {
    memory: &'static mut [u8],
}

/// Pieces that nobody has.
#[derive(Debug, Default)]
struct Store {
    small: Vec<&'static mut [u8]>,
    large: Vec<&'static mut [u8]>,
    /// Bytes that were cut into pieces.
    cut: usize,
}

static STORE: Mutex<Store> = Mutex::new(Store {
    small: Vec::new(),
    large: Vec::new(),
    cut: 0,
});

impl Piece {
    /// A piece that nobody else has; what is in it is left from earlier uses. `None`: there is none, and `cut_max` bytes were cut
    /// already, or the system gives no memory.
    #[must_use]
    pub fn take(size: PieceSize, cut_max: usize) -> Option<Self> {
        let mut store = lock();
        if let Some(memory) = store.free(size.bytes()).pop() {
            return Some(Self { memory });
        }
        if store.cut + HUGE_PAGE_BYTES > cut_max {
            return None;
        }
        let page = huge_page()?;
        store.cut += HUGE_PAGE_BYTES;
        let free = store.free(size.bytes());
        free.extend(page.chunks_exact_mut(size.bytes()));
        free.pop().map(|memory| Self { memory })
    }

    /// All of it, to write to.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.memory
    }
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        self.memory
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let memory = std::mem::take(&mut self.memory);
        lock().free(memory.len()).push(memory);
    }
}

impl Store {
    fn free(&mut self, bytes: usize) -> &mut Vec<&'static mut [u8]> {
        match bytes == PieceSize::Large.bytes() {
            true => &mut self.large,
            false => &mut self.small,
        }
    }
}

/// As much memory as a huge page has, in one if the system has any to give.
fn huge_page() -> Option<&'static mut [u8]> {
    // Only what is written to counts, and of twice the length one half begins where a huge page does.
    let map = Box::leak(Box::new(MmapMut::map_anon(2 * HUGE_PAGE_BYTES).ok()?));
    let _ = map.advise(Advice::HugePage);
    let start = map.as_ptr().align_offset(HUGE_PAGE_BYTES);
    map.get_mut(start..)?.get_mut(..HUGE_PAGE_BYTES)
}

fn lock() -> MutexGuard<'static, Store> {
    STORE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_aligned_and_taken_again() {
        let cut_max = 64 << 20;
        for size in [PieceSize::Small, PieceSize::Large] {
            let mut pieces: Vec<Piece> = (0..40)
                .map(|_| Piece::take(size, cut_max).expect("memory"))
                .collect();
            let mut starts: Vec<usize> = pieces
                .iter()
                .map(|piece| piece.as_ref().as_ptr() as usize)
                .collect();
            assert!(starts.iter().all(|start| start % size.bytes() == 0));
            for (piece, fill) in pieces.iter_mut().zip(1..) {
                assert_eq!(piece.bytes_mut().len(), size.bytes());
                piece.bytes_mut().fill(fill);
            }
            // None of them shares memory with another.
            for (piece, fill) in pieces.iter().zip(1..) {
                assert!(piece.as_ref().iter().all(|byte| *byte == fill));
            }
            starts.sort_unstable();
            starts.dedup();
            assert_eq!(starts.len(), 40);
            drop(pieces);
            let again = Piece::take(size, 0).expect("one that came back");
            assert!(starts.contains(&(again.as_ref().as_ptr() as usize)));
            // Without leave to cut more there are these and no others.
            let rest: Vec<Piece> = std::iter::from_fn(|| Piece::take(size, 0)).collect();
            assert!((39..100).contains(&rest.len()), "{}", rest.len());
        }
    }
}
