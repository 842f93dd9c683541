//! Producers and consumers that end, by the broker's word or the client's.

use pharos_broker::ids::ConsumerKey;
use pharos_broker::shard::{ConnectionHandle as _, ProducerRef};
use pharos_cluster::BrokerAddresses;
use pharos_wire::answer;

use crate::connection::Connection;
use crate::consumer::{Attached, Consumer, ConsumerSlot};
use crate::listeners;
use crate::producer::{Producer, ProducerSlot};
use crate::stall::Stalling;

/// Closes producers and consumers on a connection that stays open.
pub(crate) struct Ending<'a>(pub(crate) &'a Connection);

impl Ending<'_> {
    /// The broker closed a producer.
    pub(crate) fn producer_closed(&self, of: ProducerRef, next: Option<&BrokerAddresses>) {
        let Some(mut producer) = self.0.producers.borrow_mut().close_by_broker(of) else {
            return;
        };
        self.forget_refused(&producer);
        let closed_by = producer.take_closed_by();
        if !closed_by.is_empty() {
            // The client wanted it closed, and waits for the answer; it is not to create the producer again.
            return self.answer_closes(closed_by);
        }
        if self.0.protocol_version() >= 5 {
            self.0.send(&answer::close_producer(
                of.id,
                listeners::urls_of_next(self.0, next),
            ));
        } else {
            self.0.close();
        }
    }

    /// The broker closed a consumer.
    pub(crate) fn consumer_closed(&self, consumer_id: u64, key: ConsumerKey, next: Option<&BrokerAddresses>) {
        if let Some(ConsumerSlot::Creating { closed, .. }) =
            self.0.consumers.borrow_mut().get_mut(&consumer_id)
        {
            *closed = Some(key);
            return;
        }
        if !self.0.consumer_is(consumer_id, key) {
            return;
        }
        Stalling(self.0).before_a_consumer_goes();
        let slot = self.0.consumers.borrow_mut().remove(&consumer_id);
        if let Some(ConsumerSlot::Ready(consumer)) = slot {
            self.0.send(&answer::close_consumer(
                consumer_id,
                listeners::urls_of_next(self.0, next),
            ));
            self.detach(consumer);
        }
    }

    /// Answers the sends of a producer that were refused here, as far as it is their turn.
    pub(crate) fn answer_refused(&self, producer_id: u64) {
        loop {
            let refused = match self.0.producers.borrow_mut().get_mut(producer_id) {
                Some(ProducerSlot::Ready(producer)) => producer.take_refused(),
                _ => None,
            };
            let Some(refused) = refused else { return };
            self.0.read_ahead.ended(0);
            self.0.send(&refused.answer(producer_id));
        }
    }

    /// A producer is gone, and with it the answers to its refused sends.
    pub(crate) fn forget_refused(&self, producer: &Producer) {
        for _ in 0..producer.refused() {
            self.0.read_ahead.ended(0);
        }
    }

    /// A producer that the client closed is answered once its last send is.
    pub(crate) fn finish_close(&self, producer_id: u64) {
        let closed_by = self.0.producers.borrow_mut().take_closed(producer_id);
        self.answer_closes(closed_by);
    }

    /// Answers CLOSE_PRODUCER requests that waited for the sends in flight.
    pub(crate) fn answer_closes(&self, requests: Vec<u64>) {
        for request_id in requests {
            // It counted as a send does, see `handle_close_producer`.
            self.0.read_ahead.ended(0);
            self.0.send(&answer::success(request_id));
        }
    }

    /// Gives a consumer's place back to its topic.
    pub(crate) fn detach(&self, consumer: Consumer) {
        let Consumer {
            topic, key, attached, ..
        } = consumer;
        let lease = match attached {
            Attached::Listening(handle) => handle.leave(),
            Attached::Dormant { .. } | Attached::Dispatched { .. } => None,
        };
        self.0.shard.detach(topic, key, lease);
    }
}
