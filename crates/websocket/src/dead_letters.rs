//! Messages that were delivered too often, on their way to the dead letter topic.
//!
//! ```text
//!   message with more redeliveries than may be ─► waiting ─► one is carried: SEND ─► receipt ─► its message is acknowledged
//!                                                 └ bounded in number and bytes: then no message is taken
//! ```
//! Always true: a message is acknowledged only after the receipt of its letter. One that cannot be carried is given back, and
//! becomes a letter again. A session that ends in between leaves the message unacknowledged; there may be two letters of it then.

use std::collections::VecDeque;
use std::pin::Pin;

use pharos_client::{ClientError, Message, MessageId, OutgoingMessage, ProducerOptions};
use pharos_runtime::clock;
use pharos_types::{SubscriptionName, TopicName};
use pharos_wire::compression::compress;
use pharos_wire::proto::{CompressionType, KeyValue};

use crate::link::Link;
use crate::partitions::{Partitions, Routing};

/// Letters that may wait.
const LETTERS_MAX: usize = 64;
/// Bytes of payloads that may wait; one letter may always.
const LETTER_BYTES_MAX: usize = 8 << 20;

/// Policy for messages that were delivered too often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeadLetterPolicy {
    /// A message is delivered so often again, and no more.
    pub(crate) max_redeliver_count: u32,
    pub(crate) topic: TopicName,
    /// Subscription of the messages.
    pub(crate) subscription: SubscriptionName,
}

/// A message that goes to the dead letter topic.
#[derive(Debug)]
struct Letter {
    /// Source of the message.
    source: usize,
    id: MessageId,
    message: OutgoingMessage,
}

/// Result of one dead letter.
#[derive(Debug)]
pub(crate) struct CarriedLetter {
    pub(crate) source: usize,
    pub(crate) id: MessageId,
    /// True if it is stored in the dead letter topic.
    pub(crate) is_stored: bool,
}

type Carrying = Pin<Box<dyn Future<Output = (Courier, CarriedLetter)> + Send>>;

/// The letters of a session.
pub(crate) struct DeadLetters {
    policy: DeadLetterPolicy,
    waiting: VecDeque<Letter>,
    waiting_bytes: usize,
    /// Producer of the next letter; absent while one is being sent.
    courier: Option<Courier>,
    carrying: Option<Carrying>,
}

impl DeadLetters {
    /// `consumer_name`: what the caller calls its consumer.
    pub(crate) fn new(link: Link, policy: DeadLetterPolicy, topic: &TopicName, consumer_name: &str) -> Self {
        let suffix = clock::wall_ms() ^ (clock::now().0 << 20);
        let subscription = &policy.subscription;
        let courier = Courier {
            link,
            topic: policy.topic.clone(),
            producer_name: format!("{topic}-{subscription}-{consumer_name}-{suffix:x}-DLQ"),
            producers: None,
            is_failing: false,
        };
        Self {
            policy,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            courier: Some(courier),
            carrying: None,
        }
    }

    /// True if a message reached the maximum number of redeliveries.
    pub(crate) fn is_due(&self, message: &Message) -> bool {
        message.redelivery_count > self.policy.max_redeliver_count
    }

    /// True if another letter may wait.
    pub(crate) fn has_room(&self) -> bool {
        self.waiting.len() < LETTERS_MAX && self.waiting_bytes < LETTER_BYTES_MAX
    }

    /// Makes a letter of a message of this source, whose topic has this name.
    pub(crate) fn push(&mut self, source: usize, topic: &str, message: &Message) {
        let letter = letter_of(message, topic, self.policy.subscription.as_str());
        self.waiting_bytes = self.waiting_bytes.saturating_add(letter.payload.len());
        self.waiting.push_back(Letter {
            source,
            id: message.id.clone(),
            message: letter,
        });
    }

    /// Forgets what waits of a source: its messages come again by themselves.
    pub(crate) fn forget(&mut self, source: usize) {
        self.waiting.retain(|letter| letter.source != source);
        let waiting = self.waiting.iter();
        self.waiting_bytes = waiting.map(|letter| letter.message.payload.len()).sum();
    }

    /// Result of the next letter. Letters are sent one after the other, in the order of their arrival.
    ///
    /// Cancel safety: nothing is lost when the future is dropped.
    pub(crate) async fn next(&mut self) -> CarriedLetter {
        loop {
            if let Some(carrying) = &mut self.carrying {
                let (courier, carried) = carrying.as_mut().await;
                self.carrying = None;
                self.courier = Some(courier);
                return carried;
            }
            let Some(courier) = self.courier.take_if(|_| !self.waiting.is_empty()) else {
                return std::future::pending().await;
            };
            match self.waiting.pop_front() {
                Some(letter) => {
                    self.waiting_bytes = self.waiting_bytes.saturating_sub(letter.message.payload.len());
                    self.carrying = Some(Box::pin(courier.carry(letter)));
                }
                None => self.courier = Some(courier),
            }
        }
    }
}

/// Producer of dead letters.
struct Courier {
    link: Link,
    topic: TopicName,
    producer_name: String,
    /// Made for the first letter, and again when they have gone.
    producers: Option<Partitions>,
    is_failing: bool,
}

impl Courier {
    async fn carry(mut self, letter: Letter) -> (Self, CarriedLetter) {
        let outcome = self.publish(letter.message).await;
        match &outcome {
            Ok(()) => self.is_failing = false,
            // Said once, not for each message.
            Err(error) if !self.is_failing => {
                self.is_failing = true;
                tracing::warn!(topic = %self.topic, %error, "a dead letter is not stored; its message stays where it is");
            }
            Err(error) => tracing::debug!(topic = %self.topic, %error, "a dead letter is not stored"),
        }
        let carried = CarriedLetter {
            source: letter.source,
            id: letter.id,
            is_stored: outcome.is_ok(),
        };
        (self, carried)
    }

    async fn publish(&mut self, message: OutgoingMessage) -> Result<(), ClientError> {
        self.producers.take_if(|known| known.end_reason().is_some());
        let producers = match &mut self.producers {
            Some(known) => known,
            None => {
                let options = ProducerOptions::default().name(&self.producer_name);
                let made =
                    Partitions::open(&mut self.link, &self.topic, &options, Routing::default()).await?;
                self.producers.insert(made)
            }
        };
        let partition = producers.of_message(message.metadata.partition_key.as_deref());
        let none = || ClientError::Address(format!("{} has no partition {partition}", self.topic));
        producers
            .producer(partition)
            .ok_or_else(none)?
            .send(message)
            .await?;
        Ok(())
    }
}

/// The message as it goes to the dead letter topic: as it was, and where it came from as Pulsar's clients say it.
fn letter_of(message: &Message, topic: &str, subscription: &str) -> OutgoingMessage {
    let origin = id_text(&message.id, topic);
    let mut properties = message.properties();
    for (key, value) in [
        ("REAL_TOPIC", topic),
        ("REAL_SUBSCRIPTION", subscription),
        ("ORIGIN_MESSAGE_ID", &origin),
        // The same for programs that know the name that it had first.
        ("ORIGIN_MESSAGE_IDY_TIME", &origin),
    ] {
        properties.entry(key).or_insert(value);
    }
    let mut letter = OutgoingMessage::new(message.payload.clone());
    let to = &mut letter.metadata;
    to.properties = properties
        .into_iter()
        .map(|(key, value)| KeyValue {
            key: key.to_owned(),
            value: value.to_owned(),
        })
        .collect();
    match &message.single {
        Some(from) => {
            to.partition_key.clone_from(&from.partition_key);
            to.partition_key_b64_encoded = from.partition_key_b64_encoded;
            to.ordering_key.clone_from(&from.ordering_key);
            to.event_time = from.event_time;
            to.null_value = from.null_value;
            to.null_partition_key = from.null_partition_key;
        }
        None => {
            let from = &message.metadata;
            to.partition_key.clone_from(&from.partition_key);
            to.partition_key_b64_encoded = from.partition_key_b64_encoded;
            to.ordering_key.clone_from(&from.ordering_key);
            to.event_time = from.event_time;
            to.null_value = from.null_value;
            to.null_partition_key = from.null_partition_key;
        }
    }
    // What fits only when it is compressed goes as it came.
    let compression = message.metadata.compression();
    if compression != CompressionType::None
        && let Ok(packed) = compress(&letter.payload, compression)
    {
        to.compression = Some(compression as i32);
        to.uncompressed_size = u32::try_from(letter.payload.len()).ok();
        letter.payload = packed.into();
    }
    letter
}

/// An id as Pulsar's Java client prints it: `ledger:entry:partition`, and the place in the batch.
fn id_text(id: &MessageId, topic: &str) -> String {
    let of_topic = topic
        .parse::<TopicName>()
        .ok()
        .and_then(|topic| topic.partition());
    let partition = of_topic.map_or(-1, i64::from);
    let (ledger, entry) = (id.ledger_id, id.entry_id);
    match id.batch_index.filter(|index| *index >= 0) {
        Some(index) => format!("{ledger}:{entry}:{partition}:{index}"),
        None => format!("{ledger}:{entry}:{partition}"),
    }
}
