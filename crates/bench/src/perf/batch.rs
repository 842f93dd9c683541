//! Messages to send, built by patching a template.
//!
//! All messages of a load are equally long, so a batch of `n` is the first `n` strides of one prepared buffer in which
//! only the payloads change. That, one copy and one checksum are the cost of a batch. The buffer is shared by all producers
//! of a thread: ten thousand of them cost what one costs.

use bytes::BytesMut;
use pharos_wire::proto::MessageMetadata;
use pharos_wire::{encode, message};

use crate::proto::fields;
use crate::proto::payload::{Bodies, Stamp, pattern};

/// Builds the `SEND` frames of all producers of a thread.
pub(crate) struct BatchTemplate {
    template: Vec<u8>,
    /// From one message to the next.
    stride: usize,
    /// From a message's start to its payload.
    header: usize,
    bodies: Bodies,
    /// Most messages in one batch; 1 means that messages are not batched.
    pub(crate) capacity: u32,
    metadata: MessageMetadata,
    entry: BytesMut,
    head: BytesMut,
}

/// Producer of a batch.
#[derive(Clone, Debug)]
pub(crate) struct Author {
    /// The producer's number on its connection.
    pub(crate) producer_id: u64,
    /// Its number within the run.
    pub(crate) source: u32,
    /// Its name.
    pub(crate) name: String,
}

/// Due times of the messages of a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Due {
    /// The first one, monotonic nanoseconds.
    pub first_ns: u64,
    /// From one to the next, nanoseconds; 0 when not paced.
    pub step_ns: f64,
}

impl Due {
    /// Returns the due time of message `index` of the batch.
    pub fn at(&self, index: u32) -> u64 {
        self.first_ns + (f64::from(index) * self.step_ns) as u64
    }
}

impl BatchTemplate {
    /// For messages of `size` bytes in batches of at most `messages` and `bytes`.
    pub(crate) fn new(size: usize, messages: u32, bytes: usize) -> Self {
        let payload = pattern(size);
        let single_metadata = 1 + fields::len(payload.len() as u64);
        let header = 4 + single_metadata;
        let fitting = u32::try_from(bytes / (header + payload.len())).unwrap_or(u32::MAX);
        let capacity = messages.min(fitting).max(1);
        let mut one = Vec::new();
        if capacity > 1 {
            one.extend_from_slice(&(single_metadata as u32).to_be_bytes());
            one.push(0x18);
            fields::write(&mut one, payload.len() as u64);
        }
        let header = one.len();
        one.extend_from_slice(&payload);
        Self {
            stride: one.len(),
            header,
            bodies: Bodies::default(),
            template: one.repeat(capacity as usize),
            capacity,
            metadata: MessageMetadata::default(),
            entry: BytesMut::new(),
            head: BytesMut::new(),
        }
    }

    /// Appends the `SEND` of `count` messages numbered from `sequence`; `wall_ns` turns a due time into a stamp.
    pub(crate) fn write(
        &mut self,
        author: &Author,
        out: &mut Vec<u8>,
        sequence: u64,
        count: u32,
        due: Due,
        wall_ns: impl Fn(u64) -> u64,
    ) {
        for index in 0..count {
            let start = index as usize * self.stride;
            let stamp = Stamp {
                sequence: sequence + u64::from(index),
                sent_ns: wall_ns(due.at(index)),
                source: author.source,
            };
            if let Some(payload) = self.template.get_mut(start + self.header..start + self.stride) {
                self.bodies.write(&stamp, payload);
            }
        }
        let payload = self
            .template
            .get(..count as usize * self.stride)
            .unwrap_or_default();
        let batched = self.capacity > 1;
        self.metadata.producer_name.clone_from(&author.name);
        self.metadata.sequence_id = sequence;
        self.metadata.publish_time = wall_ns(due.first_ns) / 1_000_000;
        self.metadata.num_messages_in_batch = batched.then_some(count as i32);
        self.metadata.uncompressed_size = batched.then_some(payload.len() as u32);
        self.metadata.highest_sequence_id = batched.then_some(sequence + u64::from(count) - 1);
        self.entry.clear();
        message::encode_entry_into(&self.metadata, payload, &mut self.entry);
        self.head.clear();
        let highest = (count > 1).then_some(sequence + u64::from(count) - 1);
        encode::send_header_into(
            author.producer_id,
            sequence,
            highest,
            count,
            self.entry.len(),
            &mut self.head,
        );
        out.extend_from_slice(&self.head);
        out.extend_from_slice(&self.entry);
    }
}

#[cfg(test)]
mod tests {
    use pharos_wire::command::Command;
    use pharos_wire::frame;

    use super::*;
    use crate::proto::message::next_in_batch;

    fn decode(out: &[u8]) -> (pharos_wire::proto::CommandSend, bytes::Bytes) {
        let mut stream = BytesMut::from(out);
        let frame = frame::decode(&mut stream, 1 << 20)
            .expect("decodes")
            .expect("whole");
        assert!(stream.is_empty());
        match (frame.command, frame.payload) {
            (Command::Send(send), Some(payload)) => (send, payload),
            other => panic!("{other:?}"),
        }
    }

    fn author(producer_id: u64, source: u32) -> Author {
        Author {
            producer_id,
            source,
            name: "p".to_owned(),
        }
    }

    #[test]
    fn a_batch_carries_its_stamps_and_a_right_checksum() {
        let mut template = BatchTemplate::new(300, 100, 128 << 10);
        let mut out = Vec::new();
        let due = Due {
            first_ns: 1_000,
            step_ns: 10.0,
        };
        template.write(&author(3, 9), &mut out, 50, 7, due, |ns| ns + 5);
        let (send, entry) = decode(&out);
        assert_eq!(
            (send.producer_id, send.sequence_id, send.num_messages()),
            (3, 50, 7)
        );
        assert_eq!(send.highest_sequence_id(), 56);
        let parts = message::split(&entry).expect("splits");
        assert!(parts.verify_checksum());
        let mut rest = &parts.payload[..];
        for index in 0..7 {
            let payload = next_in_batch(&mut rest).expect("a message");
            assert_eq!(payload.len(), 300);
            let stamp = Stamp {
                sequence: 50 + index,
                sent_ns: 1_005 + 10 * index,
                source: 9,
            };
            assert_eq!(Stamp::read(payload), Some(stamp));
            assert!(template.bodies.is_right(&stamp, payload));
        }
        assert!(rest.is_empty());
    }

    #[test]
    fn alone_a_message_is_no_batch() {
        let mut template = BatchTemplate::new(1000, 1, 1);
        let mut out = Vec::new();
        template.write(
            &author(0, 0),
            &mut out,
            8,
            1,
            Due {
                first_ns: 0,
                step_ns: 0.0,
            },
            |ns| ns,
        );
        let (send, entry) = decode(&out);
        assert_eq!((send.sequence_id, send.highest_sequence_id), (8, None));
        let parts = message::split(&entry).expect("splits");
        assert_eq!(parts.payload.len(), 1000);
        assert_eq!(Stamp::read(&parts.payload).expect("stamped").sequence, 8);
    }

    #[test]
    fn bytes_bound_a_batch_as_well() {
        assert_eq!(BatchTemplate::new(1000, 1000, 10_240).capacity, 10);
        assert_eq!(BatchTemplate::new(1000, 5, 10_240).capacity, 5);
    }
}
