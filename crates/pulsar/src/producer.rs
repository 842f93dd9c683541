//! The producers of one connection.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use pharos_broker::ids::{ProducerKey, TopicId};
use pharos_broker::shard::ProducerRef;
use pharos_runtime::{Nanos, clock};
use pharos_wire::answer::{self, Refusal};
use pharos_wire::command::Command;

use crate::limits::TenantHold;

/// Time during which sends to a producer that the broker closed are ignored instead of closing the connection.
const FORGIVEN_NANOS: u64 = 30_000_000_000;
/// Maximum number of such producers that are remembered.
const FORGIVEN_MAX: usize = 1024;

/// State of a producer id.
pub(crate) enum ProducerSlot {
    /// PRODUCER came and is not answered yet.
    Creating {
        /// Tells this attempt from a later one under the same id.
        attempt: u64,
        /// The last producer that the broker closed under this id meanwhile: it may be the one that comes.
        closed: Option<ProducerKey>,
    },
    /// The producer may send.
    Ready(Producer),
}

/// An attached producer.
pub(crate) struct Producer {
    pub(crate) topic: TopicId,
    pub(crate) key: ProducerKey,
    pub(crate) name: String,
    /// Schema version in PRODUCER_SUCCESS, for a repeated PRODUCER.
    pub(crate) schema_version: bytes::Bytes,
    /// Last sequence id in PRODUCER_SUCCESS, for a repeated PRODUCER.
    pub(crate) last_sequence_id: i64,
    /// Its count against the tenant's quota.
    pub(crate) counted: Option<TenantHold>,
    /// True if it waits for exclusive access.
    pub(crate) waiting: bool,
    /// Sends that went to the topic's home.
    sent: u64,
    /// Number of these that were answered.
    answered: u64,
    /// Sends that were refused here; they are answered in their turn.
    refused: VecDeque<Refused>,
    /// The client closed it with these requests; answered when nothing is in flight, or when the broker closes it.
    closed_by: Vec<u64>,
}

impl Producer {
    pub(crate) fn new(topic: TopicId, key: ProducerKey, name: String, schema_version: bytes::Bytes) -> Self {
        Self {
            topic,
            key,
            name,
            schema_version,
            last_sequence_id: -1,
            counted: None,
            waiting: false,
            sent: 0,
            answered: 0,
            refused: VecDeque::new(),
            closed_by: Vec::new(),
        }
    }

    /// True if a send is unanswered.
    fn is_busy(&self) -> bool {
        self.answered < self.sent || !self.refused.is_empty()
    }

    /// The next refused send whose turn it is to be answered.
    pub(crate) fn take_refused(&mut self) -> Option<Refused> {
        let answered = self.answered;
        self.refused.pop_front_if(|refused| refused.after <= answered)
    }

    /// The CLOSE_PRODUCER requests of the client that are not answered yet. Each is answered once.
    pub(crate) fn take_closed_by(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.closed_by)
    }

    /// Sends that were refused here and are not answered yet.
    pub(crate) fn refused(&self) -> usize {
        self.refused.len()
    }
}

/// A send that the connection refused itself, without asking the topic's home.
pub(crate) struct Refused {
    /// Number of sends to the home before it, since the producer was created.
    after: u64,
    sequence_id: u64,
    refusal: Refusal,
}

impl Refused {
    /// SEND_ERROR.
    pub(crate) fn answer(self, producer_id: u64) -> Command {
        answer::send_error(producer_id, self.sequence_id, self.refusal)
    }
}

/// The producers of one connection.
#[derive(Default)]
pub(crate) struct Producers {
    slots: HashMap<u64, ProducerSlot>,
    /// Closed by the broker a moment ago; their last sends may still be on the way.
    forgiven: VecDeque<(u64, Nanos)>,
}

/// Routing decision for a send.
pub(crate) enum SendTo {
    /// To this producer of this topic.
    Producer(TopicId, ProducerKey),
    /// Nowhere: the producer was closed by the broker, and the client will learn of it.
    Nowhere,
    /// The client breaks the protocol.
    Unknown,
}

impl Producers {
    pub(crate) fn get(&self, id: u64) -> Option<&ProducerSlot> {
        self.slots.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: u64) -> Option<&mut ProducerSlot> {
        self.slots.get_mut(&id)
    }

    pub(crate) fn insert(&mut self, id: u64, slot: ProducerSlot) {
        self.slots.insert(id, slot);
    }

    pub(crate) fn remove(&mut self, id: u64) -> Option<ProducerSlot> {
        self.slots.remove(&id)
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn ids(&self) -> Vec<u64> {
        self.slots.keys().copied().collect()
    }

    /// Returns the producers that are attached at their topic's home.
    pub(crate) fn ready(&self) -> Vec<(TopicId, ProducerKey)> {
        self.slots
            .values()
            .filter_map(|slot| match slot {
                ProducerSlot::Ready(producer) => Some((producer.topic, producer.key)),
                ProducerSlot::Creating { .. } => None,
            })
            .collect()
    }

    /// Returns the routing decision for a send.
    pub(crate) fn send_to(&mut self, id: u64) -> SendTo {
        match self.slots.get_mut(&id) {
            Some(ProducerSlot::Ready(producer)) if producer.closed_by.is_empty() => {
                SendTo::Producer(producer.topic, producer.key)
            }
            Some(_) => SendTo::Nowhere,
            None => {
                let now = clock::now();
                while self
                    .forgiven
                    .front()
                    .is_some_and(|(_, at)| now.since(*at) > FORGIVEN_NANOS)
                {
                    self.forgiven.pop_front();
                }
                let forgiven = self.forgiven.iter().any(|(known, _)| *known == id);
                if forgiven {
                    SendTo::Nowhere
                } else {
                    SendTo::Unknown
                }
            }
        }
    }

    /// A send goes to the topic's home.
    pub(crate) fn sent(&mut self, id: u64) {
        if let Some(ProducerSlot::Ready(producer)) = self.slots.get_mut(&id) {
            producer.sent += 1;
        }
    }

    /// The home answered a send. Returns the producer if it is still here to be told; after the answer, refused sends may
    /// have their turn.
    pub(crate) fn answered(&mut self, of: ProducerRef) -> Option<&mut Producer> {
        match self.slots.get_mut(&of.id) {
            Some(ProducerSlot::Ready(producer)) if producer.key == of.key => {
                producer.answered = producer.sent.min(producer.answered + 1);
                Some(producer)
            }
            _ => None,
        }
    }

    /// A send is refused here: the answer waits for those of the sends before it, see [`Producer::take_refused`].
    pub(crate) fn refuse(&mut self, id: u64, sequence_id: u64, refusal: Refusal) {
        if let Some(ProducerSlot::Ready(producer)) = self.slots.get_mut(&id) {
            producer.refused.push_back(Refused {
                after: producer.sent,
                sequence_id,
                refusal,
            });
        }
    }

    /// The client closes a producer. Returns its place at home when there is one, and whether to answer at once.
    pub(crate) fn close_by_client(
        &mut self,
        id: u64,
        request_id: u64,
    ) -> (Option<(TopicId, ProducerKey)>, bool) {
        match self.slots.get_mut(&id) {
            Some(ProducerSlot::Ready(producer)) => {
                let at_home = (producer.topic, producer.key);
                if producer.is_busy() {
                    producer.closed_by.push(request_id);
                    return (Some(at_home), false);
                }
                self.slots.remove(&id);
                (Some(at_home), true)
            }
            // Still being created: the late result is thrown away, because its attempt is no longer here.
            Some(ProducerSlot::Creating { .. }) => {
                self.slots.remove(&id);
                (None, true)
            }
            None => (None, true),
        }
    }

    /// The requests to answer now that nothing is in flight, if the client closed the producer; none otherwise.
    pub(crate) fn take_closed(&mut self, id: u64) -> Vec<u64> {
        match self.slots.get_mut(&id) {
            Some(ProducerSlot::Ready(producer)) if !producer.is_busy() && !producer.closed_by.is_empty() => {
                let requests = producer.take_closed_by();
                self.slots.remove(&id);
                requests
            }
            _ => Vec::new(),
        }
    }

    /// The broker closes a producer. Returns it, unless another has its id by now.
    pub(crate) fn close_by_broker(&mut self, of: ProducerRef) -> Option<Producer> {
        match self.slots.entry(of.id) {
            Entry::Occupied(mut slot) => match slot.get_mut() {
                ProducerSlot::Creating { closed, .. } => {
                    *closed = Some(of.key);
                    return None;
                }
                ProducerSlot::Ready(producer) if producer.key != of.key => return None,
                ProducerSlot::Ready(_) => {}
            },
            Entry::Vacant(_) => return None,
        }
        let Some(ProducerSlot::Ready(producer)) = self.slots.remove(&of.id) else {
            return None;
        };
        if self.forgiven.len() >= FORGIVEN_MAX {
            self.forgiven.pop_front();
        }
        self.forgiven.push_back((of.id, clock::now()));
        Some(producer)
    }
}

#[cfg(test)]
mod tests {
    use pharos_broker::ids::ShardId;

    use super::*;

    fn producers(key: u64) -> Producers {
        let mut producers = Producers::default();
        let topic = TopicId {
            home: ShardId(0),
            number: 1,
        };
        let producer = Producer::new(topic, ProducerKey(key), "p".to_owned(), bytes::Bytes::new());
        producers.insert(7, ProducerSlot::Ready(producer));
        producers
    }

    fn known_as(key: u64) -> ProducerRef {
        ProducerRef {
            id: 7,
            key: ProducerKey(key),
        }
    }

    #[test]
    fn nothing_of_a_predecessor_reaches_the_producer_that_took_its_id() {
        let mut producers = producers(2);
        producers.sent(7);
        assert!(producers.answered(known_as(1)).is_none());
        assert!(producers.close_by_broker(known_as(1)).is_none());
        assert!(matches!(producers.close_by_client(7, 3), (Some(_), false)));
        assert!(
            producers.take_closed(7).is_empty(),
            "its own send is not answered"
        );
        assert!(producers.answered(known_as(2)).is_some());
        assert_eq!(producers.take_closed(7), [3]);
    }

    #[test]
    fn every_close_of_a_producer_that_the_broker_closes_is_answered_once() {
        let mut producers = producers(2);
        producers.sent(7);
        assert!(matches!(producers.close_by_client(7, 3), (Some(_), false)));
        assert!(matches!(producers.close_by_client(7, 4), (Some(_), false)));
        let mut closed = producers.close_by_broker(known_as(2)).unwrap();
        assert_eq!(closed.take_closed_by(), [3, 4]);
        assert!(closed.take_closed_by().is_empty());
        assert!(producers.take_closed(7).is_empty());
    }

    #[test]
    fn a_close_that_comes_before_the_producer_is_kept_for_it() {
        let mut producers = Producers::default();
        producers.insert(
            7,
            ProducerSlot::Creating {
                attempt: 1,
                closed: None,
            },
        );
        assert!(producers.close_by_broker(known_as(2)).is_none());
        assert!(matches!(
            producers.get(7),
            Some(ProducerSlot::Creating {
                attempt: 1,
                closed: Some(ProducerKey(2))
            })
        ));
    }
}
