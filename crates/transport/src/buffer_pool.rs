//! Memory for reading and writing that the connections of a thread hand on to each other.
//!
//! A connection needs it for some microseconds at a time. Handed on, the same few kilobytes serve thousands of
//! connections and stay in the cache, and an idle connection has none of its own.
//!
//! Always true: what is kept here is empty and small, and there are never many of it.

use std::cell::RefCell;

use bytes::BytesMut;

/// Pieces of each kind that are kept; more are needed only while sockets are full.
const KEPT_MAX: usize = 32;
/// A larger read buffer is not kept.
const INPUT_BYTES_MAX: usize = 32 << 10;

/// Something to read into or write from that may serve another connection when it is empty.
pub trait Reusable: Default {
    /// True if it is empty, and its memory is worth keeping and no more than others should get.
    fn is_worth_keeping(&self) -> bool;
}

/// Empty pieces of memory, of one thread.
#[derive(Debug)]
pub struct BufferPool<T> {
    kept: RefCell<Vec<T>>,
}

impl<T: Reusable> BufferPool<T> {
    /// An empty one, for a `thread_local`.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            kept: RefCell::new(Vec::new()),
        }
    }

    /// An empty piece.
    #[must_use]
    pub fn take(&self) -> T {
        self.kept.borrow_mut().pop().unwrap_or_default()
    }

    /// Takes a piece back, if it is worth that.
    pub fn give(&self, piece: T) {
        let mut kept = self.kept.borrow_mut();
        if kept.len() < KEPT_MAX && piece.is_worth_keeping() {
            kept.push(piece);
        }
    }
}

impl<T: Reusable> Default for BufferPool<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl Reusable for BytesMut {
    fn is_worth_keeping(&self) -> bool {
        self.is_empty() && (1..=INPUT_BYTES_MAX).contains(&self.capacity())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_empty_and_small_is_kept_and_not_much_of_it() {
        let pool = BufferPool::<BytesMut>::new();
        pool.give(BytesMut::from(&b"not empty"[..]));
        pool.give(BytesMut::new());
        pool.give(BytesMut::with_capacity(INPUT_BYTES_MAX + 1));
        assert_eq!(pool.take().capacity(), 0);
        for _ in 0..KEPT_MAX + 1 {
            pool.give(BytesMut::with_capacity(100));
        }
        let kept = std::iter::repeat_with(|| pool.take()).take_while(|piece| piece.capacity() > 0);
        assert_eq!(kept.count(), KEPT_MAX);
    }
}
