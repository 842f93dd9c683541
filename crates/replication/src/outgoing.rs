//! Decision about an entry: it is sent to another cluster, or it is not.

use bytes::Bytes;
use pharos_types::Position;
use pharos_wire::message::{self, PartsRef, Relayed, ReplicateTo};
use pharos_wire::proto::CommandSend;

use crate::is_of_subscriptions;

/// Reason why an entry is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passed {
    /// No client's message: the end of a transaction, or no message at all.
    NoMessage,
    /// Replicated from another cluster.
    Replicated,
    /// Its producer named other clusters, or none.
    NotForThere,
    /// Older than the message TTL of its topic.
    Expired(u32),
}

/// Decision about an entry.
#[derive(Clone, Copy, Debug)]
pub enum Fate<'e> {
    /// The entry is not sent.
    Passed(Passed),
    /// The entry is sent, once its schema is known in the remote cluster.
    Sent(OutgoingEntry<'e>),
}

/// An entry that is sent.
#[derive(Clone, Copy, Debug)]
pub struct OutgoingEntry<'e> {
    parts: PartsRef<'e>,
    sequence_id: u64,
    /// Its messages.
    pub messages: u32,
    is_chunk: bool,
    is_marker: bool,
    /// The version of its schema here, if it has one.
    pub schema_version: Option<&'e [u8]>,
    /// Publish time set by its producer, in milliseconds since 1970.
    pub publish_time_ms: u64,
}

/// Decides about `entry` on its way to the cluster `remote`.
///
/// `expired_before_ms`: messages published before have expired, in milliseconds since 1970.
#[must_use]
pub fn outgoing<'e>(entry: &'e [u8], remote: &str, expired_before_ms: u64) -> Fate<'e> {
    let Ok(parts) = message::split_ref(entry) else {
        return Fate::Passed(Passed::NoMessage);
    };
    let Ok(facts) = message::peek(parts.metadata) else {
        return Fate::Passed(Passed::NoMessage);
    };
    let is_marker = facts.marker_type.is_some();
    if is_marker && !facts.marker_type.is_some_and(is_of_subscriptions) {
        return Fate::Passed(Passed::NoMessage);
    }
    if facts.replicated_from.is_some() {
        return Fate::Passed(Passed::Replicated);
    }
    let is_for_there = match facts.replicate_to {
        ReplicateTo::Default => true,
        ReplicateTo::LocalOnly => false,
        ReplicateTo::Listed => {
            message::replicate_to(parts.metadata).any(|cluster| cluster == remote.as_bytes())
        }
    };
    if !is_for_there {
        return Fate::Passed(Passed::NotForThere);
    }
    let messages = facts.num_messages();
    if facts.publish_time < expired_before_ms {
        return Fate::Passed(Passed::Expired(messages));
    }
    Fate::Sent(OutgoingEntry {
        parts,
        sequence_id: facts.sequence_id,
        messages,
        is_chunk: facts.chunk.is_some(),
        is_marker,
        schema_version: facts.schema_version.filter(|version| !version.is_empty()),
        publish_time_ms: facts.publish_time,
    })
}

impl OutgoingEntry<'_> {
    /// The number of its first message.
    #[must_use]
    pub fn sequence_id(&self) -> u64 {
        self.sequence_id
    }

    /// True if it is a marker, which is answered by its number everywhere.
    #[must_use]
    pub fn is_marker(&self) -> bool {
        self.is_marker
    }

    /// The command and the bytes that go there. `schema_version`: over there; empty without one. `None`: its metadata cannot be
    /// read.
    #[must_use]
    pub fn encode(
        &self,
        from: &str,
        position: Position,
        schema_version: &[u8],
    ) -> Option<(CommandSend, Bytes)> {
        let change = Relayed {
            from,
            position,
            schema_version,
        };
        let bytes = message::relayed(&self.parts, change).ok()?;
        let send = CommandSend {
            sequence_id: self.sequence_id,
            num_messages: i32::try_from(self.messages).ok(),
            is_chunk: self.is_chunk.then_some(true),
            marker: self.is_marker.then_some(true),
            ..CommandSend::default()
        };
        Some((send, bytes))
    }
}

#[cfg(test)]
mod tests {
    use pharos_wire::message::encode_entry;
    use pharos_wire::proto::MessageMetadata;

    use super::*;

    fn metadata() -> MessageMetadata {
        MessageMetadata {
            producer_name: "p".to_owned(),
            sequence_id: 4,
            publish_time: 1_000,
            num_messages_in_batch: Some(3),
            ..MessageMetadata::default()
        }
    }

    fn passed(metadata: &MessageMetadata) -> Option<Passed> {
        match outgoing(&encode_entry(metadata, b"x"), "west", 500) {
            Fate::Passed(why) => Some(why),
            Fate::Sent(_) => None,
        }
    }

    #[test]
    fn a_message_goes_where_it_is_meant_to_go() {
        let to = |clusters: &[&str]| MessageMetadata {
            replicate_to: clusters.iter().map(|&name| name.to_owned()).collect(),
            ..metadata()
        };
        assert_eq!(passed(&to(&[])), None);
        assert_eq!(passed(&to(&["west"])), None);
        assert_eq!(passed(&to(&["east", "west"])), None);
        for other in [&["east"][..], &["__local__"], &["east", "__local__"]] {
            assert_eq!(passed(&to(other)), Some(Passed::NotForThere), "{other:?}");
        }
    }

    #[test]
    fn what_is_no_message_of_here_stays() {
        let replicated = MessageMetadata {
            replicated_from: Some("east".to_owned()),
            ..metadata()
        };
        assert_eq!(passed(&replicated), Some(Passed::Replicated));
        let marker = MessageMetadata {
            marker_type: Some(21),
            ..metadata()
        };
        assert_eq!(passed(&marker), Some(Passed::NoMessage));
        let old = MessageMetadata {
            publish_time: 499,
            ..metadata()
        };
        assert_eq!(passed(&old), Some(Passed::Expired(3)));
        let none = outgoing(b"\xff\xff\xff\xff", "west", 0);
        assert!(matches!(none, Fate::Passed(Passed::NoMessage)));
    }

    #[test]
    fn what_is_sent_says_what_it_is() {
        let entry = encode_entry(&metadata(), b"x");
        let Fate::Sent(entry) = outgoing(&entry, "west", 0) else {
            panic!("it is for there");
        };
        let position = Position::new(5, 6);
        let (send, bytes) = entry.encode("east", position, b"").unwrap();
        assert_eq!((send.sequence_id, send.num_messages), (4, Some(3)));
        let parts = message::split_ref(&bytes).unwrap();
        assert_eq!(message::source_position(parts.metadata), Some((5, 6)));
    }
}
