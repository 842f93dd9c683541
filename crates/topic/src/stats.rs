//! Numbers of a topic for people and dashboards.

use pharos_feed::ids::ConsumerKey;
use pharos_requests::error::CursorError;
use pharos_types::Ordinal;

use super::{Attached, State, Stored, Topic};

/// Numbers of one consumer that only its topic's home knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConsumerNumbers {
    /// Messages delivered and not acknowledged.
    pub unacked_messages: u64,
    /// True if it is blocked because of them.
    pub is_blocked: bool,
    /// Entries of its subscription that are not acknowledged.
    pub backlog: u64,
}

impl Attached {
    /// End of the acknowledged entries of a consumer's subscription, as far as known here.
    pub(super) fn acked_to(&self, stored: &Stored, key: ConsumerKey) -> Option<Ordinal> {
        let consumer = self.consumers.get(&key)?;
        let subscription = self.subscriptions.get(&consumer.subscription)?;
        subscription.body.kind().acked_to(&stored.cursors, &consumer.name)
    }
}

impl State {
    /// Numbers of one consumer.
    fn consumer_numbers(
        &self,
        key: ConsumerKey,
        listening: Option<Ordinal>,
    ) -> Result<ConsumerNumbers, CursorError> {
        let consumer = self.attached.consumers.get(&key).ok_or(CursorError::NoConsumer)?;
        let end = self.stored.log.ledger.durable_end();
        let subscription = self
            .attached
            .subscriptions
            .get(&consumer.subscription)
            .ok_or(CursorError::NoConsumer)?;
        if let Some(numbers) = subscription.body.kind().numbers(key, end) {
            return Ok(numbers);
        }
        let acked_to = listening
            .or_else(|| self.attached.acked_to(&self.stored, key))
            .unwrap_or(end);
        Ok(ConsumerNumbers {
            unacked_messages: 0,
            is_blocked: false,
            backlog: acked_to.count_to(end),
        })
    }
}

impl Topic {
    /// Numbers of one consumer. `listening`: how far it has acknowledged, if its cursor is handed over.
    ///
    /// # Errors
    /// `NoConsumer`.
    pub fn consumer_numbers(
        &self,
        key: ConsumerKey,
        listening: Option<Ordinal>,
    ) -> Result<ConsumerNumbers, CursorError> {
        self.state.borrow().consumer_numbers(key, listening)
    }
}
