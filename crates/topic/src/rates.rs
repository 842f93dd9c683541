//! The counters of a topic, noted now and then for rates.

use pharos_feed::Sent;
use pharos_managed_ledger::Forget;
use pharos_runtime::clock;

use super::Topic;

impl Topic {
    /// Notes the counters of publishing, and lets the log's cache go of what is old.
    pub fn sample(&self) {
        let state = &mut *self.state.borrow_mut();
        let total = Sent {
            messages: state.stored.publishing.counters.messages_in,
            bytes: state.stored.publishing.counters.bytes_in,
        };
        state.stored.publishing.rate_in.sample(clock::wall_ms(), total);
        state.follow_publish_rate();
        state.stored.log.ledger.forget(Forget::Aged);
    }
}
