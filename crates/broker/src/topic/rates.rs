//! The counters of a topic, noted now and then for rates.

use pharos_managed_ledger::Forget;
use pharos_runtime::clock;

use super::State;
use crate::feed::Sent;

impl State {
    /// Notes the counters of publishing, and lets the log's cache go of what is old.
    pub(crate) fn sample(&mut self) {
        let total = Sent {
            messages: self.stored.publishing.counters.messages_in,
            bytes: self.stored.publishing.counters.bytes_in,
        };
        self.stored.publishing.rate_in.sample(clock::wall_ms(), total);
        self.follow_publish_rate();
        self.stored.log.ledger.forget(Forget::Aged);
    }
}
