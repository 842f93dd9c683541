//! Interface between a topic and its home shard for unloading.

use std::time::Duration;

use pharos_runtime::clock;

use super::Topic;

/// A loaded topic, as the home that holds it sees it.
pub struct Staying<'a>(pub &'a Topic);

impl Staying<'_> {
    /// True if the topic is closing: it refuses every request.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.0.state.borrow().stored.closing
    }

    /// From now on it is.
    pub fn begin_to_close(&self) {
        self.0.state.borrow_mut().stored.closing = true;
    }

    /// Cancels the closing.
    pub fn reopen(&self) {
        self.0.state.borrow_mut().stored.reopen();
        self.0.catch_up_policies();
    }

    /// Notes that it was asked for.
    pub fn touch(&self) {
        self.0.used_ms.set(clock::wall_ms());
    }

    /// Clears the time of the last request: the topic may be unloaded as soon as nothing is in progress.
    pub fn forget_touch(&self) {
        self.0.used_ms.set(0);
    }

    /// Time of the last use, as of the last check; in milliseconds since 1970.
    #[must_use]
    pub fn last_used_ms(&self) -> u64 {
        self.0.state.borrow().stored.last_used_ms
    }

    /// Sets the time of the last use before the topic was loaded.
    pub fn set_last_used_ms(&self, used_ms: u64) {
        self.0.state.borrow_mut().stored.last_used_ms = used_ms;
    }

    /// True if it has not been used for `idle_after` and nothing is in progress.
    #[must_use]
    pub fn may_rest(&self, idle_after: Duration) -> bool {
        let state = self.0.state.borrow();
        state.may_rest(self.0.used_ms.get(), clock::wall_ms(), idle_after)
    }

    /// True if retention, expiry or absent consumers may need it later.
    #[must_use]
    pub fn holds_something(&self) -> bool {
        self.0.state.borrow().holds_something()
    }

    /// True if there are subscriptions.
    #[must_use]
    pub fn has_subscriptions(&self) -> bool {
        !self.0.state.borrow().attached.subscriptions.is_empty()
    }

    /// True if producers or consumers are attached or wait to be attached.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        self.0.state.borrow().is_in_use()
    }

    /// True if the topic is inactive for as long as the policies require for its deletion.
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
