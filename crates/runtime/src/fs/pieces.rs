//! Memory that a device reads into and many then look at, in pieces that come from huge pages.
//!
//! ```text
//!  a huge page  [ 512 KiB ][ 512 KiB ][ 512 KiB ][ 512 KiB ]     or   [ 16 × 128 KiB ]
//!                   │
//!                 taken ─► filled by one read ─► shared in slices ─► the last one is gone: taken again
//!                                                                    not needed for a while: given back
//! ```
//! Direct I/O hands the device one range of memory for each stretch of it that is contiguous, see
//! [`AlignedBuf`](super::AlignedBuf). A piece is one range, and what is in it need not be copied for those who share it: each
//! returns by itself, whatever becomes of its neighbours.
//!
//! One store serves all who read, and each says how much may be cut. The piece that was returned last is taken first, so the ones
//! that no reader needs stay at the other end, and [`Piece::give_back_unneeded`] unmaps those.

use std::sync::{Mutex, MutexGuard, PoisonError};

use mmap_rs::MmapMut;

use super::aligned::{HUGE_PAGE_BYTES, map_huge};

/// Length of a piece.
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
    /// There until the drop.
    memory: Option<MmapMut>,
}

/// Pieces of one size that no reader has.
#[derive(Debug)]
struct Free {
    /// The last one is taken first.
    pieces: Vec<MmapMut>,
    /// Lowest number since the last look.
    fewest: usize,
}

#[derive(Debug)]
struct Store {
    small: Free,
    large: Free,
    /// Bytes of all pieces, those that are taken among them.
    cut: usize,
}

static STORE: Mutex<Store> = Mutex::new(Store {
    small: Free::NONE,
    large: Free::NONE,
    cut: 0,
});

impl Piece {
    /// A piece that no other reader has; what is in it is left from earlier uses. `None`: there is none, and `cut_max` bytes were cut
    /// already, or the system gives no memory.
    #[must_use]
    pub fn take(size: PieceSize, cut_max: usize) -> Option<Self> {
        let mut store = lock();
        if let Some(memory) = store.free(size.bytes()).take() {
            return Some(Self { memory: Some(memory) });
        }
        if store.cut + HUGE_PAGE_BYTES > cut_max {
            return None;
        }
        let pieces = cut(huge_page()?, size.bytes());
        store.cut += pieces.iter().map(MmapMut::size).sum::<usize>();
        let free = store.free(size.bytes());
        free.pieces.extend(pieces);
        free.take().map(|memory| Self { memory: Some(memory) })
    }

    /// All of it, to write to.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.memory.as_deref_mut().unwrap_or_default()
    }

    /// Gives the system the pieces that lay there unused since the last call. Called every some seconds it leaves nothing when
    /// no one reads. Returns the bytes of the pieces that are left, free or taken.
    pub fn give_back_unneeded() -> usize {
        let mut store = lock();
        let mut unneeded = store.small.unneeded();
        unneeded.append(&mut store.large.unneeded());
        store.cut -= unneeded.iter().map(MmapMut::size).sum::<usize>();
        let left = store.cut;
        // The system takes its time for it, and readers need not wait for that.
        drop(store);
        drop(unneeded);
        left
    }
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        self.memory.as_deref().unwrap_or_default()
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            lock().free(memory.size()).pieces.push(memory);
        }
    }
}

impl Free {
    const NONE: Self = Self {
        pieces: Vec::new(),
        fewest: 0,
    };

    fn take(&mut self) -> Option<MmapMut> {
        let taken = self.pieces.pop();
        self.fewest = self.fewest.min(self.pieces.len());
        taken
    }

    /// Takes out what was not needed since the last call.
    fn unneeded(&mut self) -> Vec<MmapMut> {
        let unneeded = self.pieces.drain(..self.fewest).collect();
        self.fewest = self.pieces.len();
        unneeded
    }
}

impl Store {
    fn free(&mut self, bytes: usize) -> &mut Free {
        match bytes == PieceSize::Large.bytes() {
            true => &mut self.large,
            false => &mut self.small,
        }
    }
}

/// As much memory as a huge page has, in one if the system has any to give.
fn huge_page() -> Option<MmapMut> {
    // Of twice the length one half begins where a huge page does; what lies around it goes at once.
    let mut page = map_huge(2 * HUGE_PAGE_BYTES)?;
    let start = page.as_ptr().align_offset(HUGE_PAGE_BYTES);
    if start > 0 {
        drop(page.split_to(start).ok()?);
    }
    if page.size() > HUGE_PAGE_BYTES {
        drop(page.split_off(HUGE_PAGE_BYTES).ok()?);
    }
    Some(page)
}

/// Pieces of `bytes` each. What can't be cut is one longer piece.
fn cut(mut page: MmapMut, bytes: usize) -> Vec<MmapMut> {
    let mut pieces = Vec::with_capacity(page.size() / bytes);
    while page.size() > bytes
        && let Ok(piece) = page.split_to(bytes)
    {
        pieces.push(piece);
    }
    pieces.push(page);
    pieces
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
            let mut rest: Vec<Piece> = std::iter::from_fn(|| Piece::take(size, 0)).collect();
            assert!((39..100).contains(&rest.len()), "{}", rest.len());

            // Those that were not needed between two calls go, and those that are taken stay.
            let kept = rest.pop();
            drop((again, rest));
            let all = Piece::give_back_unneeded();
            assert!(all >= 40 * size.bytes());
            drop(Piece::take(size, 0).expect("none went yet"));
            assert_eq!(Piece::give_back_unneeded(), 2 * size.bytes());
            assert_eq!(Piece::give_back_unneeded(), size.bytes());
            assert!(Piece::take(size, 0).is_none());
            drop(kept);
            Piece::give_back_unneeded();
            assert_eq!(Piece::give_back_unneeded(), 0);
        }
    }
}
