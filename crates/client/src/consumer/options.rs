//! Options of subscribing.

use pharos_wire::proto::command_subscribe::{InitialPosition, SubType};
use pharos_wire::proto::{CommandSubscribe, MessageIdData, Schema};
use pharos_wire::request;

use crate::message::pair;

/// Settings of a consumer.
#[derive(Clone, Debug)]
pub struct ConsumerOptions {
    /// The SUBSCRIBE command; topic and ids are filled in.
    pub command: CommandSubscribe,
    /// Messages the broker may send ahead; the client asks for more when half of them have been received. 0: only
    /// [`crate::Consumer::flow`] asks. Default 1000.
    pub receiver_queue_size: u32,
    /// Entries that may wait in memory; a full queue stops the reader of the whole connection. At least the receiver
    /// queue. Matters when `flow` asks for more than is received. Default 1000.
    pub queue_capacity: usize,
    /// True if members of a batch are acknowledged one by one. If false, the client waits for all of them and
    /// acknowledges the entry. Default false.
    pub batch_index_ack: bool,
    /// Maximum decompressed size of a payload, in bytes; a compressed batch is then delivered as its messages. A
    /// message that is larger, or does not decompress as declared, is `Malformed`. Encrypted ones stay as they are.
    /// Default none: payloads are not decompressed.
    pub decompress_bytes_max: Option<usize>,
    /// True if the topic is looked up first, which brokers of a cluster need. Default true.
    pub lookup: bool,
}

impl ConsumerOptions {
    /// On a subscription of any kind.
    #[must_use]
    pub fn new(subscription: &str, sub_type: SubType) -> Self {
        Self {
            command: request::subscribe("", subscription, sub_type, 0, 0),
            receiver_queue_size: 1000,
            queue_capacity: 1000,
            batch_index_ack: false,
            decompress_bytes_max: None,
            lookup: true,
        }
    }

    /// On an Exclusive subscription.
    #[must_use]
    pub fn exclusive(subscription: &str) -> Self {
        Self::new(subscription, SubType::Exclusive)
    }

    /// On a Shared subscription.
    #[must_use]
    pub fn shared(subscription: &str) -> Self {
        Self::new(subscription, SubType::Shared)
    }

    /// On a Failover subscription.
    #[must_use]
    pub fn failover(subscription: &str) -> Self {
        Self::new(subscription, SubType::Failover)
    }

    /// On a Key_Shared subscription.
    #[must_use]
    pub fn key_shared(subscription: &str) -> Self {
        Self::new(subscription, SubType::KeyShared)
    }

    /// With a consumer name.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.command.consumer_name = Some(name.to_owned());
        self
    }

    /// A new subscription begins at the first message there is, not after the last.
    #[must_use]
    pub fn from_earliest(mut self) -> Self {
        self.command.initial_position = Some(InitialPosition::Earliest as i32);
        self
    }

    /// A subscription that ends with its consumers, beginning at `start`.
    #[must_use]
    pub fn non_durable(mut self, start: MessageIdData) -> Self {
        self.command.durable = Some(false);
        self.command.start_message_id = Some(start);
        self
    }

    /// With one consumer property more.
    #[must_use]
    pub fn property(mut self, key: &str, value: &str) -> Self {
        self.command.metadata.push(pair(key, value));
        self
    }

    /// With one property more for the subscription, if this consumer makes it.
    #[must_use]
    pub fn subscription_property(mut self, key: &str, value: &str) -> Self {
        self.command.subscription_properties.push(pair(key, value));
        self
    }

    /// With a schema.
    #[must_use]
    pub fn schema(mut self, schema: Schema) -> Self {
        self.command.schema = Some(schema);
        self
    }

    /// With another receiver queue; 0 for manual flow.
    #[must_use]
    pub fn receiver_queue_size(mut self, messages: u32) -> Self {
        self.receiver_queue_size = messages;
        self
    }

    /// Gets what was compacted, as far as that goes, and then the log.
    #[must_use]
    pub fn read_compacted(mut self) -> Self {
        self.command.read_compacted = Some(true);
        self
    }

    /// Acknowledges members of a batch one by one.
    #[must_use]
    pub fn batch_index_ack(mut self) -> Self {
        self.batch_index_ack = true;
        self
    }

    pub(super) fn capacity(&self) -> usize {
        let messages = usize::try_from(self.receiver_queue_size).unwrap_or(usize::MAX);
        // Events take places too.
        self.queue_capacity.max(messages).saturating_add(16)
    }
}
