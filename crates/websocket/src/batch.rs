//! Messages of one partition that go to the broker together, as one entry. No I/O.
//!
//! ```text
//!   message ─► fits? ─► the open batch ─► full, or its time is over, or the next does not fit ─► one entry
//! ```
//! Always true: numbers rise within a batch, and all of them are either above every number that the producer has sent, or none is. A
//! broker that removes duplicates looks at the first number only, and would drop what is new behind what is not.

use bytes::Bytes;
use pharos_client::OutgoingMessage;
use pharos_wire::compression::{CompressionError, compress};
use pharos_wire::message::BatchBuilder;
use pharos_wire::proto::{CompressionType, MessageMetadata, SingleMessageMetadata};

/// Bytes of payloads and properties at which a batch is full.
const BYTES_MAX: usize = 128 << 10;

/// The batches of one partition, one after the other. `T`: what each message is to be answered with.
#[derive(Debug)]
pub(crate) struct Batches<T> {
    messages_max: usize,
    members: Vec<BatchMember<T>>,
    bytes: usize,
    /// The highest number that was sent.
    sent: Option<u64>,
}

/// A message in its batch.
#[derive(Debug)]
pub(crate) struct BatchMember<T> {
    sequence_id: u64,
    message: OutgoingMessage,
    pub(crate) answer: T,
}

impl<T> Batches<T> {
    /// `sent`: the highest number that the producer has sent before.
    pub(crate) fn new(messages_max: usize, sent: Option<u64>) -> Self {
        Self {
            messages_max: messages_max.max(1),
            members: Vec::new(),
            bytes: 0,
            sent,
        }
    }

    /// The number of a message for which none was chosen.
    pub(crate) fn next_sequence_id(&self) -> u64 {
        let waiting = self.members.last().map(|last| last.sequence_id);
        waiting.max(self.sent).map_or(0, |last| last.saturating_add(1))
    }

    pub(crate) fn is_full(&self) -> bool {
        self.members.len() >= self.messages_max || self.bytes >= BYTES_MAX
    }

    /// True if a message may join the waiting batch.
    pub(crate) fn fits(&self, sequence_id: u64, message: &OutgoingMessage) -> bool {
        let (Some(first), Some(last)) = (self.members.first(), self.members.last()) else {
            return true;
        };
        let is_new = |sequence_id: u64| self.sent.is_none_or(|sent| sequence_id > sent);
        let (ours, its) = (&first.message.metadata, &message.metadata);
        sequence_id > last.sequence_id
            && is_new(sequence_id) == is_new(first.sequence_id)
            && ours.replicate_to == its.replicate_to
            && ours.deliver_at_time.is_none()
            && its.deliver_at_time.is_none()
            && self.bytes.saturating_add(bytes_of(message)) <= BYTES_MAX
    }

    /// Puts a message behind the others; it must fit.
    pub(crate) fn push(&mut self, sequence_id: u64, message: OutgoingMessage, answer: T) {
        self.bytes = self.bytes.saturating_add(bytes_of(&message));
        self.members.push(BatchMember {
            sequence_id,
            message,
            answer,
        });
    }

    /// Takes the waiting messages, which count as sent.
    pub(crate) fn take(&mut self) -> Vec<BatchMember<T>> {
        self.bytes = 0;
        let last = self.members.last().map(|last| last.sequence_id);
        self.sent = self.sent.max(last);
        std::mem::take(&mut self.members)
    }
}

fn bytes_of(message: &OutgoingMessage) -> usize {
    let properties = message.metadata.properties.iter();
    let properties: usize = properties.map(|pair| pair.key.len() + pair.value.len()).sum();
    let key = message.metadata.partition_key.as_ref().map_or(0, String::len);
    message.payload.len() + properties + key
}

/// The entry of these messages, and its number: one message stays what it is.
///
/// # Errors
/// It cannot be compressed.
pub(crate) fn entry_of<T>(
    members: &[BatchMember<T>],
    compression: CompressionType,
) -> Result<(u64, OutgoingMessage), CompressionError> {
    let (first, last) = match members {
        [] => return Ok((0, OutgoingMessage::default())),
        [only] => return Ok((only.sequence_id, packed(only.message.clone(), compression)?)),
        [first, .., last] => (first, last),
    };
    let mut batch = BatchBuilder::new();
    for member in members {
        let metadata = &member.message.metadata;
        let single = SingleMessageMetadata {
            properties: metadata.properties.clone(),
            partition_key: metadata.partition_key.clone(),
            event_time: metadata.event_time,
            sequence_id: Some(member.sequence_id),
            ..SingleMessageMetadata::default()
        };
        batch.push(single, &member.message.payload);
    }
    let of_first = &first.message.metadata;
    let metadata = MessageMetadata {
        // Key_Shared deals whole batches, by the key of the first message.
        partition_key: of_first.partition_key.clone(),
        replicate_to: of_first.replicate_to.clone(),
        event_time: of_first.event_time,
        highest_sequence_id: Some(last.sequence_id),
        num_messages_in_batch: Some(batch.num_messages()),
        ..MessageMetadata::default()
    };
    let payload = batch.take();
    let entry = packed(OutgoingMessage { metadata, payload }, compression)?;
    Ok((first.sequence_id, entry))
}

/// A message, compressed.
///
/// # Errors
/// It cannot be.
pub(crate) fn packed(
    mut message: OutgoingMessage,
    compression: CompressionType,
) -> Result<OutgoingMessage, CompressionError> {
    if compression != CompressionType::None {
        let payload = compress(&message.payload, compression)?;
        message.metadata.compression = Some(compression as i32);
        message.metadata.uncompressed_size = u32::try_from(message.payload.len()).ok();
        message.payload = Bytes::from(payload);
    }
    Ok(message)
}

#[cfg(test)]
mod tests {
    use pharos_wire::message::BatchIter;

    use super::*;

    fn batches(sent: Option<u64>) -> Batches<()> {
        Batches::new(3, sent)
    }

    fn message(text: &str) -> OutgoingMessage {
        OutgoingMessage::new(text.to_owned())
    }

    #[test]
    fn a_batch_is_full_by_number_and_by_bytes() {
        let mut open = batches(None);
        for text in ["a", "b", "c"] {
            assert!(!open.is_full());
            let id = open.next_sequence_id();
            assert!(open.fits(id, &message(text)));
            open.push(id, message(text), ());
        }
        assert!(open.is_full());
        assert_eq!(open.take().len(), 3);
        assert_eq!((open.take().len(), open.next_sequence_id()), (0, 3));
        let large = message(&"x".repeat(BYTES_MAX));
        assert!(open.fits(3, &large), "one message is never too large to be alone");
        open.push(3, large, ());
        assert!(open.is_full() && !open.fits(4, &message("a")));
    }

    #[test]
    fn what_may_be_a_duplicate_is_never_with_what_is_none() {
        let mut open = batches(Some(10));
        open.push(9, message("again"), ());
        assert!(open.fits(10, &message("again")));
        assert!(
            !open.fits(11, &message("new")),
            "it would be dropped with the first"
        );
        open.take();
        // What the producer said it sent before is still the highest.
        assert_eq!(open.next_sequence_id(), 11);
        open.push(11, message("new"), ());
        assert!(open.fits(20, &message("new")) && !open.fits(11, &message("new")));
        open.take();
        open.push(5, message("again"), ());
        assert!(!open.fits(12, &message("new")));
    }

    #[test]
    fn messages_that_differ_in_what_belongs_to_an_entry_go_apart() {
        let mut open = batches(None);
        open.push(0, message("a"), ());
        let mut elsewhere = message("b");
        elsewhere.metadata.replicate_to = vec!["west".to_owned()];
        assert!(!open.fits(1, &elsewhere));
        assert!(!open.fits(1, &message("b").deliver_at(5)));
        assert!(open.fits(1, &message("b").key("k").property("a", "b")));
    }

    #[test]
    fn an_entry_has_its_messages_and_one_message_is_none() {
        let mut open = batches(Some(4));
        open.push(5, message("a").key("k"), ());
        let (id, entry) = entry_of(&open.take(), CompressionType::None).unwrap();
        assert_eq!((id, entry.metadata.num_messages_in_batch), (5, None));
        open.push(6, message("a").key("k"), ());
        open.push(8, message("b").property("x", "y"), ());
        let (id, entry) = entry_of(&open.take(), CompressionType::None).unwrap();
        let metadata = &entry.metadata;
        assert_eq!(
            (id, metadata.highest_sequence_id, metadata.num_messages_in_batch),
            (6, Some(8), Some(2))
        );
        let members: Vec<_> = BatchIter::new(entry.payload, 2).map(Result::unwrap).collect();
        let seen: Vec<_> = members
            .iter()
            .map(|member| (member.metadata.sequence_id, &member.payload[..]))
            .collect();
        assert_eq!(seen, [(Some(6), &b"a"[..]), (Some(8), &b"b"[..])]);
    }
}
