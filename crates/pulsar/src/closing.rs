//! Producers and consumers that end, by the broker's word or the client's.

use pharos_broker::ids::ConsumerKey;
use pharos_broker::shard::{ConnectionHandle as _, ProducerRef};
use pharos_cluster::BrokerAddresses;
use pharos_wire::answer;

use crate::connection::Connection;
use crate::consumer::ConsumerSlot;
use crate::listeners;
use crate::producer::{Producer, ProducerSlot};

impl Connection {
    pub(crate) fn consumer_is(&self, consumer_id: u64, key: ConsumerKey) -> bool {
        matches!(self.consumers.borrow().get(&consumer_id), Some(ConsumerSlot::Ready(consumer)) if consumer.key == key)
    }

    pub(crate) fn on_producer_closed(&self, of: ProducerRef, next: Option<&BrokerAddresses>) {
        let Some(producer) = self.producers.borrow_mut().close_by_broker(of) else {
            return;
        };
        self.forget_refused(&producer);
        if self.protocol_version() >= 5 {
            self.send(&answer::close_producer(
                of.id,
                listeners::urls_of_next(self, next),
            ));
        } else {
            self.close();
        }
    }

    pub(crate) fn on_consumer_closed(
        &self,
        consumer_id: u64,
        key: ConsumerKey,
        next: Option<&BrokerAddresses>,
    ) {
        if let Some(ConsumerSlot::Creating { closed, .. }) = self.consumers.borrow_mut().get_mut(&consumer_id)
        {
            *closed = Some(key);
            return;
        }
        if !self.consumer_is(consumer_id, key) {
            return;
        }
        self.before_a_consumer_goes();
        let slot = self.consumers.borrow_mut().remove(&consumer_id);
        if let Some(ConsumerSlot::Ready(consumer)) = slot {
            self.send(&answer::close_consumer(
                consumer_id,
                listeners::urls_of_next(self, next),
            ));
            self.detach(consumer);
        }
    }

    /// Answers the sends of a producer that were refused here, as far as it is their turn.
    pub(crate) fn answer_refused(&self, producer_id: u64) {
        loop {
            let refused = match self.producers.borrow_mut().get_mut(producer_id) {
                Some(ProducerSlot::Ready(producer)) => producer.take_refused(),
                _ => None,
            };
            let Some(refused) = refused else { return };
            self.send_ended(0);
            self.send(&refused.answer(producer_id));
        }
    }

    /// A producer is gone, and with it the answers to its refused sends.
    pub(crate) fn forget_refused(&self, producer: &Producer) {
        for _ in 0..producer.refused() {
            self.send_ended(0);
        }
    }

    /// A producer that the client closed is answered once its last send is.
    pub(crate) fn finish_close(&self, producer_id: u64) {
        let request_id = self.producers.borrow_mut().take_closed(producer_id);
        if let Some(request_id) = request_id {
            self.send(&answer::success(request_id));
        }
    }
}
