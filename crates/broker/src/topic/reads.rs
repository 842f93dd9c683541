//! Reads of a topic's log that wait for the store: for searches, for dispatchers, for people who look into it.

use std::cell::RefCell;

use super::{State, TopicContext};

/// The log of a topic, to be read. A read that waits borrows nothing of the topic's state meanwhile.
pub(crate) struct LogReads<'a> {
    pub(super) cx: &'a TopicContext,
    pub(super) state: &'a RefCell<State>,
}

impl<'a> LogReads<'a> {
    pub(super) fn new(cx: &'a TopicContext, state: &'a RefCell<State>) -> Self {
        Self { cx, state }
    }
}
