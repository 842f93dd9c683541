//! The large pieces of memory that bursts are read into, used again and again.
//!
//! ```text
//!   block   [ frame ][ frame ][ frame … ][ room ]     frames leave as slices that share the block
//!   used      block   block   block …                 filled to the end; free again when the last slice of it is gone
//! ```
//! What was published stays in memory until it is in the entry logs, so memory for it goes round: by hundreds of megabytes,
//! from the shard that reads to the thread that lets go. Given back to the system and taken anew, every page of it would be
//! cleared and mapped once more. So a thread keeps a handle on each block that it has filled, and takes the oldest whose
//! slices are all gone when it needs another.
//!
//! Always true: a block is written to only where no slice has been taken; free blocks that a second of reading did not need
//! are given back ([`trim`]), so a thread that reads nothing keeps none.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::time::Duration;

use bytes::BytesMut;

use pharos_runtime::spawn_local;

/// Size of a block: the beginning of a frame that does not end in it is copied to the next one, so it is several times the
/// usual large frame.
pub(crate) const BLOCK_BYTES: usize = 1 << 20;
/// With less room than this a block counts as filled.
const ROOM_BYTES_MIN: usize = BLOCK_BYTES / 4;
/// Handles kept on filled blocks; beyond that the oldest is let go, and the system has to give new memory for it.
const USED_MAX: usize = 1024;
/// Blocks that connections have at a time: a peer that stops within a frame keeps the one it has. The others read into
/// room that grows with what arrives.
const LENT_MAX: usize = 64;
/// Number of the oldest blocks to check for a free one: a slice that is kept for long must not hide the others.
const LOOK_MAX: usize = 8;
/// Interval at which free blocks are given back.
const TRIM_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Blocks {
    /// Has room left; of the connection that reads next.
    open: Option<BytesMut>,
    /// Filled, the oldest first. Each is empty and stands at the end of its block.
    used: VecDeque<BytesMut>,
    /// Number of blocks with connections.
    lent: usize,
    /// Number of blocks taken from `used` since the last [`trim`].
    taken: usize,
    /// A task trims until `used` is empty.
    trimming: bool,
}

thread_local! {
    static BLOCKS: RefCell<Blocks> = RefCell::default();
}

/// An empty buffer with room for at least `bytes`, which is not more than [`BLOCK_BYTES`]; mostly much more. `None`: too
/// many are out. The caller owes it to [`give`] or [`forfeit`].
pub(crate) fn take(bytes: usize) -> Option<BytesMut> {
    BLOCKS.with_borrow_mut(|blocks| {
        if blocks.lent >= LENT_MAX {
            return None;
        }
        blocks.lent += 1;
        match blocks.open.take() {
            Some(open) if open.capacity() >= bytes => return Some(open),
            Some(open) => blocks.keep(open),
            None => {}
        }
        let free = blocks.take_free();
        Some(free.unwrap_or_else(|| BytesMut::with_capacity(BLOCK_BYTES)))
    })
}

/// Takes a block back, whatever is left of its room. Bytes in it are dropped.
pub(crate) fn give(mut block: BytesMut) {
    block.clear();
    let trim = BLOCKS.with_borrow_mut(|blocks| {
        blocks.lent = blocks.lent.saturating_sub(1);
        if blocks.open.is_none() && block.capacity() >= ROOM_BYTES_MIN {
            blocks.open = Some(block);
        } else {
            blocks.keep(block);
        }
        !std::mem::replace(&mut blocks.trimming, true)
    });
    if trim {
        spawn_local(async {
            loop {
                tokio::time::sleep(TRIM_INTERVAL).await;
                if !self::trim() {
                    break;
                }
            }
        });
    }
}

/// Counts a block as back that its connection lets go. It may be called while the thread ends.
pub(crate) fn forfeit() {
    // Then there is nothing to count.
    let _ = BLOCKS.try_with(|blocks| {
        if let Ok(mut blocks) = blocks.try_borrow_mut() {
            blocks.lent = blocks.lent.saturating_sub(1);
        }
    });
}

/// Gives free blocks back, except as many as were taken since the last call. Returns whether there is any block left.
fn trim() -> bool {
    BLOCKS.with_borrow_mut(|blocks| {
        let mut keep = std::mem::take(&mut blocks.taken);
        if keep == 0 {
            blocks.open = None;
        }
        blocks.used.retain_mut(|block| {
            if !is_free(block) {
                return true;
            }
            let kept = keep > 0;
            keep = keep.saturating_sub(1);
            kept
        });
        blocks.trimming = blocks.open.is_some() || !blocks.used.is_empty();
        blocks.trimming
    })
}

impl Blocks {
    fn keep(&mut self, block: BytesMut) {
        if self.used.len() == USED_MAX {
            self.used.pop_front();
        }
        self.used.push_back(block);
    }

    fn take_free(&mut self) -> Option<BytesMut> {
        self.taken += 1;
        let look = self.used.len().min(LOOK_MAX);
        let at = self.used.iter_mut().take(look).position(is_free)?;
        self.used.remove(at)
    }
}

/// True if no slice of this block is left; if so, all of it is room again.
fn is_free(block: &mut BytesMut) -> bool {
    block.try_reclaim(BLOCK_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(block: &mut BytesMut) -> bytes::Bytes {
        block.resize(block.capacity(), 7);
        block.split().freeze()
    }

    /// Runs a test on a thread of its own, which has no blocks yet.
    fn on_a_shard(test: impl FnOnce() + Send + 'static) {
        let shard = pharos_runtime::spawn_shard("test".to_owned(), || async { test() });
        shard.unwrap().join().unwrap();
    }

    #[test]
    fn a_block_comes_back_when_its_last_slice_is_gone() {
        on_a_shard(block_comes_back);
    }

    fn block_comes_back() {
        let mut first = take(1).unwrap();
        let start = first.as_ptr();
        let slice = fill(&mut first);
        let (one, other) = (slice.slice(..10), slice.slice(10..));
        drop(slice);
        give(first);
        let second = take(1).unwrap();
        assert_ne!(second.as_ptr(), start);
        drop(one);
        let third = take(1).unwrap();
        assert_ne!(third.as_ptr(), start);
        assert!(other.iter().all(|byte| *byte == 7));
        drop(other);
        let fourth = take(1).unwrap();
        assert_eq!((fourth.as_ptr(), fourth.capacity()), (start, BLOCK_BYTES));
    }

    #[test]
    fn only_so_many_are_out_at_a_time() {
        on_a_shard(|| {
            let mut out: Vec<_> = std::iter::from_fn(|| take(BLOCK_BYTES)).collect();
            assert_eq!(out.len(), LENT_MAX);
            give(out.remove(0));
            assert!(take(1).is_some() && take(1).is_none());
        });
    }

    #[test]
    fn one_with_room_left_serves_the_next_and_idle_ones_are_given_back() {
        on_a_shard(room_is_used);
    }

    fn room_is_used() {
        let mut block = take(1).unwrap();
        block.extend_from_slice(&[1; 1000]);
        let slice = block.split().freeze();
        let end = slice.as_ptr_range().end;
        give(block);
        let mut block = take(1).unwrap();
        assert_eq!(block.as_ptr(), end);
        let kept = fill(&mut block);
        give(block);
        let mut other = take(1).unwrap();
        drop(fill(&mut other));
        give(other);
        assert!(trim(), "two were taken, so the free one may be needed");
        assert!(trim(), "one has a slice");
        drop((slice, kept));
        assert!(!trim());
    }
}
