//! Writes commands as frames.
//!
//! [`encode_command_into`] serves every command. The functions below it write the per-message commands of a broker and of a
//! client without building a command first; see [`crate::header`] for MESSAGE.

use bytes::{BufMut, Bytes, BytesMut};
use prost::encoding::{encode_varint, encoded_len_varint};

use crate::command::{Command, CommandType};
use crate::proto::command_ack::AckType;
use crate::protobuf::Pen;

/// Encodes one command as a frame of its own.
pub fn encode_command(command: &Command) -> Bytes {
    let mut out = BytesMut::new();
    encode_command_into(command, &mut out);
    out.freeze()
}

/// Appends one command as a frame.
pub fn encode_command_into(command: &Command, out: &mut BytesMut) {
    encode_header_into(command, 0, out);
}

/// Appends a frame up to its payload part: the caller sends `payload_bytes` bytes after it.
///
/// For SEND and MESSAGE; `payload_bytes` counts everything after the command. At most 2^31 - 1, far over any frame limit.
pub fn encode_header_into(command: &Command, payload_bytes: usize, out: &mut BytesMut) {
    let body_bytes = command.body_bytes();
    let command_bytes = base_command_bytes(command.command_type(), body_bytes);
    out.reserve(8 + command_bytes);
    put_frame_start(command.command_type(), body_bytes, payload_bytes, out);
    command.write_body(out);
}

/// A whole frame with its payload part copied in; for tests and tools.
pub fn encode_frame(command: &Command, payload: &[u8]) -> Bytes {
    let mut out = BytesMut::new();
    encode_header_into(command, payload.len(), &mut out);
    out.extend_from_slice(payload);
    out.freeze()
}

/// Appends SEND_RECEIPT; all numbers as in `CommandSendReceipt`, partition and batch index unset as clients expect.
pub fn send_receipt_into(
    producer_id: u64,
    sequence_id: u64,
    highest_sequence_id: u64,
    ledger_id: u64,
    entry_id: u64,
    out: &mut BytesMut,
) {
    short_frame(CommandType::SendReceipt, 0, out, |pen| {
        pen.uint64(1, producer_id);
        pen.uint64(2, sequence_id);
        put_message_id(0x1a, ledger_id, entry_id, pen);
        pen.uint64(4, highest_sequence_id);
    });
}

/// Appends FLOW.
pub fn flow_into(consumer_id: u64, message_permits: u32, out: &mut BytesMut) {
    short_frame(CommandType::Flow, 0, out, |pen| {
        pen.uint64(1, consumer_id);
        pen.uint64(2, u64::from(message_permits));
    });
}

/// Appends ACK of one whole entry, without request id.
pub fn ack_into(consumer_id: u64, ack_type: AckType, ledger_id: u64, entry_id: u64, out: &mut BytesMut) {
    short_frame(CommandType::Ack, 0, out, |pen| {
        pen.uint64(1, consumer_id);
        pen.uint64(2, ack_type as u64);
        put_message_id(0x1a, ledger_id, entry_id, pen);
    });
}

/// Appends SEND up to its payload part, which the caller sends after it.
///
/// `highest_sequence_id` and `num_messages` are those of a batch; a single message has `None` and 1.
pub fn send_header_into(
    producer_id: u64,
    sequence_id: u64,
    highest_sequence_id: Option<u64>,
    num_messages: u32,
    payload_bytes: usize,
    out: &mut BytesMut,
) {
    short_frame(CommandType::Send, payload_bytes, out, |pen| {
        pen.uint64(1, producer_id);
        pen.uint64(2, sequence_id);
        if num_messages != 1 {
            pen.uint64(3, u64::from(num_messages));
        }
        if let Some(highest) = highest_sequence_id {
            pen.uint64(6, highest);
        }
    });
}

/// Bytes in front of a body shorter than 128: two lengths, the type, the body's tag and its length.
pub(crate) const SHORT_PREFIX_BYTES: usize = 12;

/// Bodies written with [`short_frame`] hold at most four numbers and a message id of two.
const SHORT_BODY_BYTES_MAX: usize = 4 * 11 + 2 + 2 * 11;

/// Varints are written eight bytes at a time.
const SLACK_BYTES: usize = 8;

const _: () = assert!(
    SHORT_BODY_BYTES_MAX < 128,
    "the length of a short body is one byte"
);

/// Appends a frame whose body is written before its length is known.
#[inline(always)]
fn short_frame(kind: CommandType, payload_bytes: usize, out: &mut BytesMut, body: impl FnOnce(&mut Pen<'_>)) {
    let mut room = [0; SHORT_PREFIX_BYTES + SHORT_BODY_BYTES_MAX + SLACK_BYTES];
    let mut pen = Pen::new(&mut room, SHORT_PREFIX_BYTES);
    body(&mut pen);
    let written = pen
        .written()
        .and_then(|end| finish_short(kind, payload_bytes, &mut room, end));
    debug_assert!(written.is_some(), "the room is large enough for every short body");
    out.extend_from_slice(room.get(..written.unwrap_or_default()).unwrap_or_default());
}

/// Fills in the prefix of a short frame that ends at `end` of `room`; `None` when its body is too long for that.
#[inline(always)]
pub(crate) fn finish_short(
    kind: CommandType,
    payload_bytes: usize,
    room: &mut [u8],
    end: usize,
) -> Option<usize> {
    let body_bytes = u8::try_from(end.checked_sub(SHORT_PREFIX_BYTES)?)
        .ok()
        .filter(|bytes| *bytes < 128)?;
    let tag = u8::try_from(body_tag(kind)).ok().filter(|tag| *tag < 128)?;
    let command_bytes = u32::from(body_bytes) + 4;
    let total = command_bytes + 4 + payload_bytes as u32;
    let [t0, t1, t2, t3] = total.to_be_bytes();
    let [c0, c1, c2, c3] = command_bytes.to_be_bytes();
    let prefix = room.first_chunk_mut::<SHORT_PREFIX_BYTES>()?;
    *prefix = [t0, t1, t2, t3, c0, c1, c2, c3, 0x08, kind as u8, tag, body_bytes];
    Some(end)
}

#[inline(always)]
fn put_message_id(tag: u8, ledger_id: u64, entry_id: u64, pen: &mut Pen<'_>) {
    pen.byte(tag);
    pen.byte((uint64_bytes(ledger_id) + uint64_bytes(entry_id)) as u8);
    pen.uint64(1, ledger_id);
    pen.uint64(2, entry_id);
}

/// Bytes of the `BaseCommand` around a body.
pub(crate) fn base_command_bytes(kind: CommandType, body_bytes: usize) -> usize {
    2 + encoded_len_varint(body_tag(kind)) + encoded_len_varint(body_bytes as u64) + body_bytes
}

/// Writes the two lengths, the type, and the tag and length of the body.
pub(crate) fn put_frame_start(
    kind: CommandType,
    body_bytes: usize,
    payload_bytes: usize,
    out: &mut impl BufMut,
) {
    let command_bytes = base_command_bytes(kind, body_bytes);
    debug_assert!(
        command_bytes + payload_bytes < i32::MAX as usize,
        "no frame is this large"
    );
    out.put_u32((4 + command_bytes + payload_bytes) as u32);
    out.put_u32(command_bytes as u32);
    // All command types are below 128, so the type is one byte.
    out.put_slice(&[0x08, kind as u8]);
    encode_varint(body_tag(kind), out);
    encode_varint(body_bytes as u64, out);
}

fn body_tag(kind: CommandType) -> u64 {
    ((kind as u64) << 3) | 2
}

/// Bytes of a varint field whose number is below 16.
pub(crate) fn uint64_bytes(value: u64) -> usize {
    1 + encoded_len_varint(value)
}

/// Writes a varint field whose number is below 16.
pub(crate) fn put_uint64(number: u8, value: u64, out: &mut impl BufMut) {
    out.put_u8(number << 3);
    encode_varint(value, out);
}
