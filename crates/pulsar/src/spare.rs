//! Memory for reading and writing that the connections of a thread hand on to each other.
//!
//! A connection needs it for some microseconds at a time. Handed on, the same few kilobytes serve thousands of
//! connections and stay in the cache, and an idle connection has none of its own.
//!
//! Always true: what is kept here is empty and small, and there are never many of it.

use std::cell::RefCell;

use bytes::BytesMut;

use crate::outbound::Outbound;

/// Pieces of each kind that are kept; more are needed only while sockets are full.
const KEPT_MAX: usize = 32;
/// A larger read buffer is not kept.
const INPUT_BYTES_MAX: usize = 32 << 10;

#[derive(Default)]
struct Spare {
    inputs: Vec<BytesMut>,
    outbounds: Vec<Outbound>,
}

thread_local! {
    static SPARE: RefCell<Spare> = RefCell::default();
}

/// An empty buffer to read into.
pub(crate) fn take_input() -> BytesMut {
    SPARE.with_borrow_mut(|spare| spare.inputs.pop().unwrap_or_default())
}

/// Takes an empty buffer back.
pub(crate) fn give_input(input: BytesMut) {
    if input.is_empty() && (1..=INPUT_BYTES_MAX).contains(&input.capacity()) {
        SPARE.with_borrow_mut(|spare| {
            if spare.inputs.len() < KEPT_MAX {
                spare.inputs.push(input);
            }
        });
    }
}

/// An empty queue to write from.
pub(crate) fn take_outbound() -> Outbound {
    SPARE.with_borrow_mut(|spare| spare.outbounds.pop().unwrap_or_default())
}

/// Takes an idle queue back.
pub(crate) fn give_outbound(outbound: Outbound) {
    if outbound.is_idle() && outbound.is_small() {
        SPARE.with_borrow_mut(|spare| {
            if spare.outbounds.len() < KEPT_MAX {
                spare.outbounds.push(outbound);
            }
        });
    }
}
