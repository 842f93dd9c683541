//! The header of MESSAGE: what differs between a hundred thousand consumers of one entry.
//!
//! A [`MessageHeader`] is made once per entry; [`MessageHeader::write_for`] then makes the bytes in front of the shared payload for
//! one consumer. The frame is those bytes followed by the entry, sent together with a vectored write, so the entry itself is
//! never copied.
//!
//! ```text
//! totalSize · commandSize · type=MESSAGE · body{ consumer_id | message_id (shared) | redelivery_count · ack_set · epoch }
//! ```

use bytes::{BufMut, Bytes};

use crate::command::CommandType;
use crate::encode::{
    SHORT_PREFIX_BYTES, base_command_bytes, finish_short, put_frame_start, put_uint64, uint64_bytes,
};
use crate::protobuf::Pen;

/// Entries are never larger than this; far above every frame limit.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 30;

/// The header of any MESSAGE without an ack set has at most 75 bytes; the rest leaves room for one word of ack set.
const INLINE_BYTES: usize = 96;

/// Tag, length, and three numbers of up to ten bytes with their tags need 35; blocks of eight copy faster.
const MESSAGE_ID_BYTES_MAX: usize = 40;

/// An entry that no frame could carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an entry of {bytes} bytes is over {PAYLOAD_BYTES_MAX}")]
pub struct PayloadTooLarge {
    /// Size of the entry.
    pub bytes: usize,
}

/// The part of a MESSAGE command that all consumers of an entry share.
#[derive(Clone, Copy, Debug)]
pub struct MessageHeader {
    /// The `message_id` field with tag and length; the first `message_id_bytes` count.
    message_id: [u8; MESSAGE_ID_BYTES_MAX],
    message_id_bytes: usize,
    payload_bytes: usize,
}

impl MessageHeader {
    /// Prepares the header of one entry.
    ///
    /// `partition`: index of a partitioned topic's partition, `None` otherwise (clients read absent as -1). `payload_bytes`: all
    /// that follows the command in the frame. The broker never sets a batch index; partly acknowledged batches are told by the
    /// ack set of each consumer.
    ///
    /// # Errors
    /// The entry is larger than any frame.
    pub fn new(
        ledger_id: u64,
        entry_id: u64,
        partition: Option<u32>,
        payload_bytes: usize,
    ) -> Result<Self, PayloadTooLarge> {
        if payload_bytes > PAYLOAD_BYTES_MAX {
            return Err(PayloadTooLarge { bytes: payload_bytes });
        }
        let partition = partition.map(u64::from);
        let id_bytes = uint64_bytes(ledger_id) + uint64_bytes(entry_id) + partition.map_or(0, uint64_bytes);
        let mut message_id = [0; MESSAGE_ID_BYTES_MAX];
        let mut out = message_id.as_mut_slice();
        out.put_slice(&[0x12, id_bytes as u8]);
        put_uint64(1, ledger_id, &mut out);
        put_uint64(2, entry_id, &mut out);
        if let Some(partition) = partition {
            put_uint64(3, partition, &mut out);
        }
        Ok(Self {
            message_id,
            message_id_bytes: 2 + id_bytes,
            payload_bytes,
        })
    }

    /// Bytes of the entry that follows the header.
    pub fn payload_bytes(&self) -> usize {
        self.payload_bytes
    }

    /// Appends the header for one consumer to `out`.
    ///
    /// `redelivery_count` of 0, an empty `ack_set` and no epoch leave their fields out. `ack_set`: words of the batch indexes
    /// *not* yet acknowledged.
    pub fn write_for(
        &self,
        consumer_id: u64,
        redelivery_count: u32,
        ack_set: &[i64],
        consumer_epoch: Option<u64>,
        out: &mut HeaderBuf,
    ) {
        let redelivery_count = (redelivery_count > 0).then_some(u64::from(redelivery_count));
        if let Some(room) = out.whole_inline() {
            let mut pen = Pen::new(room, SHORT_PREFIX_BYTES);
            pen.uint64(1, consumer_id);
            pen.block(&self.message_id, self.message_id_bytes);
            if let Some(count) = redelivery_count {
                pen.uint64(3, count);
            }
            for word in ack_set {
                pen.uint64(4, *word as u64);
            }
            if let Some(epoch) = consumer_epoch {
                pen.uint64(5, epoch);
            }
            let end = pen.written();
            let end = end.and_then(|end| finish_short(CommandType::Message, self.payload_bytes, room, end));
            if let Some(end) = end {
                out.length = end;
                return;
            }
        }
        self.write_long(consumer_id, redelivery_count, ack_set, consumer_epoch, out);
    }

    /// As `write_for`, for headers that do not fit or do not begin at the front of the buffer.
    #[cold]
    fn write_long(
        &self,
        consumer_id: u64,
        redelivery_count: Option<u64>,
        ack_set: &[i64],
        consumer_epoch: Option<u64>,
        out: &mut HeaderBuf,
    ) {
        let body_bytes = uint64_bytes(consumer_id)
            + self.message_id_bytes
            + redelivery_count.map_or(0, uint64_bytes)
            + ack_set
                .iter()
                .map(|word| uint64_bytes(*word as u64))
                .sum::<usize>()
            + consumer_epoch.map_or(0, uint64_bytes);
        let header_bytes = 8 + base_command_bytes(CommandType::Message, body_bytes);
        let write = |mut room: &mut [u8]| {
            let room = &mut room;
            put_frame_start(CommandType::Message, body_bytes, self.payload_bytes, room);
            put_uint64(1, consumer_id, room);
            room.put_slice(self.message_id.get(..self.message_id_bytes).unwrap_or_default());
            if let Some(count) = redelivery_count {
                put_uint64(3, count, room);
            }
            for word in ack_set {
                put_uint64(4, *word as u64, room);
            }
            if let Some(epoch) = consumer_epoch {
                put_uint64(5, epoch, room);
            }
        };
        out.append(header_bytes, write);
    }
}

/// A small buffer for one header, reused from consumer to consumer; long ack sets spill to the heap.
///
/// Always true: the bytes are in `inline[..length]` while `spill` is empty, and in `spill` alone once it is not.
#[derive(Clone)]
pub struct HeaderBuf {
    inline: [u8; INLINE_BYTES],
    length: usize,
    spill: Vec<u8>,
}

impl HeaderBuf {
    /// An empty buffer.
    pub const fn new() -> Self {
        Self {
            inline: [0; INLINE_BYTES],
            length: 0,
            spill: Vec::new(),
        }
    }

    /// Forgets what is inside, keeping the room.
    pub fn clear(&mut self) {
        self.length = 0;
        self.spill.clear();
    }

    /// The bytes written since the last [`HeaderBuf::clear`].
    pub fn as_slice(&self) -> &[u8] {
        if self.spill.is_empty() {
            self.inline.get(..self.length).unwrap_or_default()
        } else {
            &self.spill
        }
    }

    /// A copy to keep, for a header that could not be sent at once.
    pub fn to_bytes(&self) -> Bytes {
        Bytes::copy_from_slice(self.as_slice())
    }

    /// All of the room inside, while nothing is written yet.
    #[inline(always)]
    fn whole_inline(&mut self) -> Option<&mut [u8; INLINE_BYTES]> {
        (self.length == 0 && self.spill.is_empty()).then_some(&mut self.inline)
    }

    /// Lets `write` fill exactly `bytes` bytes of new room.
    fn append(&mut self, bytes: usize, write: impl FnOnce(&mut [u8])) {
        let end = self.length + bytes;
        if self.spill.is_empty()
            && let Some(room) = self.inline.get_mut(self.length..end)
        {
            write(room);
            self.length = end;
            return;
        }
        if self.spill.is_empty() {
            self.spill
                .extend_from_slice(self.inline.get(..self.length).unwrap_or_default());
        }
        let start = self.spill.len();
        self.spill.resize(start + bytes, 0);
        if let Some(room) = self.spill.get_mut(start..) {
            write(room);
        }
    }
}

impl Default for HeaderBuf {
    fn default() -> Self {
        Self::new()
    }
}

impl std::ops::Deref for HeaderBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl std::fmt::Debug for HeaderBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("HeaderBuf").field(&self.as_slice()).finish()
    }
}
