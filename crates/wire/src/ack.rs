//! The ACK command in a form that costs no allocation when it names one entry.
//!
//! Every consumer sends one per message (or per few), so a fan-out broker reads more of these than of anything else.

use std::ops::Deref;

use prost::Message as _;
use prost::bytes::BufMut;
use prost::encoding;

use crate::proto::command_ack::AckType;
use crate::proto::{CommandAck, KeyLongValue, MessageIdData};

/// `CommandAck`, field for field.
#[derive(Clone, Debug, PartialEq)]
pub struct Ack {
    /// The consumer on this connection.
    pub consumer_id: u64,
    /// Individual, or cumulative (then exactly one id is meaningful).
    pub ack_type: AckType,
    /// The entries acknowledged. An id with an `ack_set` acknowledges part of a batch; its bits are what *remains*.
    pub message_ids: MessageIds,
    /// Set when the consumer threw the message away; a `command_ack::ValidationError` number.
    pub validation_error: Option<i32>,
    /// Kept with the cursor when the ack is cumulative.
    pub properties: Vec<KeyLongValue>,
    /// Low half of the transaction id; a transaction is meant when both halves are present.
    pub txnid_least_bits: Option<u64>,
    /// High half of the transaction id.
    pub txnid_most_bits: Option<u64>,
    /// Present when the client waits for ACK_RESPONSE.
    pub request_id: Option<u64>,
}

impl Ack {
    /// A plain ack without transaction, properties or request id.
    pub fn new(consumer_id: u64, ack_type: AckType, message_ids: impl Into<MessageIds>) -> Self {
        Self {
            consumer_id,
            ack_type,
            message_ids: message_ids.into(),
            validation_error: None,
            properties: Vec::new(),
            txnid_least_bits: None,
            txnid_most_bits: None,
            request_id: None,
        }
    }

    pub(crate) fn encoded_len(&self) -> usize {
        let optional = |tag, value: &Option<u64>| {
            value
                .as_ref()
                .map_or(0, |v| encoding::uint64::encoded_len(tag, v))
        };
        encoding::uint64::encoded_len(1, &self.consumer_id)
            + encoding::int32::encoded_len(2, &(self.ack_type as i32))
            + encoding::message::encoded_len_repeated(3, &self.message_ids)
            + self
                .validation_error
                .as_ref()
                .map_or(0, |v| encoding::int32::encoded_len(4, v))
            + encoding::message::encoded_len_repeated(5, &self.properties)
            + optional(6, &self.txnid_least_bits)
            + optional(7, &self.txnid_most_bits)
            + optional(8, &self.request_id)
    }

    pub(crate) fn encode_raw(&self, out: &mut impl BufMut) {
        encoding::uint64::encode(1, &self.consumer_id, out);
        encoding::int32::encode(2, &(self.ack_type as i32), out);
        for id in self.message_ids.iter() {
            encoding::message::encode(3, id, out);
        }
        if let Some(error) = &self.validation_error {
            encoding::int32::encode(4, error, out);
        }
        for property in &self.properties {
            encoding::message::encode(5, property, out);
        }
        for (tag, value) in [
            (6, &self.txnid_least_bits),
            (7, &self.txnid_most_bits),
            (8, &self.request_id),
        ] {
            if let Some(value) = value {
                encoding::uint64::encode(tag, value, out);
            }
        }
    }
}

impl From<CommandAck> for Ack {
    fn from(ack: CommandAck) -> Self {
        Self {
            consumer_id: ack.consumer_id,
            ack_type: ack.ack_type(),
            message_ids: ack.message_id.into(),
            validation_error: ack.validation_error,
            properties: ack.properties,
            txnid_least_bits: ack.txnid_least_bits,
            txnid_most_bits: ack.txnid_most_bits,
            request_id: ack.request_id,
        }
    }
}

/// The ids of one ACK: a slice that keeps a single id inline.
#[derive(Clone)]
pub struct MessageIds(Held);

#[derive(Clone)]
enum Held {
    One(MessageIdData),
    Many(Vec<MessageIdData>),
}

impl Deref for MessageIds {
    type Target = [MessageIdData];

    fn deref(&self) -> &[MessageIdData] {
        match &self.0 {
            Held::One(id) => std::slice::from_ref(id),
            Held::Many(ids) => ids,
        }
    }
}

impl MessageIds {
    /// No id at all; legal on the wire, acknowledges nothing.
    pub fn none() -> Self {
        Self(Held::Many(Vec::new()))
    }

    /// Adds ids at the end.
    pub(crate) fn extend(&mut self, more: Vec<MessageIdData>) {
        if more.is_empty() {
            return;
        }
        let mut ids = match std::mem::replace(&mut self.0, Held::Many(Vec::new())) {
            Held::One(first) => vec![first],
            Held::Many(ids) => ids,
        };
        ids.extend(more);
        self.0 = Held::Many(ids);
    }
}

impl From<MessageIdData> for MessageIds {
    fn from(id: MessageIdData) -> Self {
        Self(Held::One(id))
    }
}

impl From<Vec<MessageIdData>> for MessageIds {
    fn from(ids: Vec<MessageIdData>) -> Self {
        Self(Held::Many(ids))
    }
}

impl PartialEq for MessageIds {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl std::fmt::Debug for MessageIds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// The bytes of one id, as tools print and exchange them.
pub fn message_id_bytes(id: &MessageIdData) -> Vec<u8> {
    id.encode_to_vec()
}
