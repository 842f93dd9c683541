//! Whether a topic stays loaded: what the home that holds it must know of it, and tells it.

use std::time::Duration;

use pharos_runtime::clock;

use super::Topic;

/// A loaded topic, as the home that holds it sees it.
pub struct Staying<'a>(pub &'a Topic);

impl Staying<'_> {
    /// Whether it is on its way out: it refuses every request.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.0.state.borrow().stored.closing
    }

    /// From now on it is.
    pub fn begin_to_close(&self) {
        self.0.state.borrow_mut().stored.closing = true;
    }

    /// It is not closed after all.
    pub fn reopen(&self) {
        self.0.state.borrow_mut().stored.reopen();
        self.0.catch_up_policies();
    }

    /// Notes that it was asked for.
    pub fn touch(&self) {
        self.0.used_ms.set(clock::wall_ms());
    }

    /// It was not asked for: it may rest as soon as nothing is under way.
    pub fn forget_touch(&self) {
        self.0.used_ms.set(0);
    }

    /// When it was last used, as of the last look; in milliseconds since 1970.
    #[must_use]
    pub fn last_used_ms(&self) -> u64 {
        self.0.state.borrow().stored.last_used_ms
    }

    /// It was last used at this time, before it was loaded.
    pub fn set_last_used_ms(&self, used_ms: u64) {
        self.0.state.borrow_mut().stored.last_used_ms = used_ms;
    }

    /// Whether it has not been used for `idle_after` and nothing is under way.
    #[must_use]
    pub fn may_rest(&self, idle_after: Duration) -> bool {
        let state = self.0.state.borrow();
        state.may_rest(self.0.used_ms.get(), clock::wall_ms(), idle_after)
    }

    /// Whether retention, expiry or absent consumers may have work in it one day.
    #[must_use]
    pub fn holds_something(&self) -> bool {
        self.0.state.borrow().holds_something()
    }

    /// Whether there are subscriptions.
    #[must_use]
    pub fn has_subscriptions(&self) -> bool {
        !self.0.state.borrow().attached.subscriptions.is_empty()
    }

    /// Whether producers, or consumers, are attached or wait to be.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        self.0.state.borrow().is_in_use()
    }

    /// Whether it is not used and was not for as long as the policies ask.
    #[must_use]
    pub fn is_given_up(&self, now_ms: u64) -> bool {
        self.0.state.borrow().is_given_up(now_ms)
    }

    /// Notes whether it is used. Returns true when it was not for as long as the policies ask and retention does not keep it either.
    #[must_use]
    pub fn is_to_be_given_up(&self, now_ms: u64) -> bool {
        let mut state = self.0.state.borrow_mut();
        !state.stored.closing && state.is_to_be_given_up(now_ms)
    }
}
