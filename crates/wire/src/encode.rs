//! Writes commands as frames.
//!
//! [`encode_command_into`] serves every command. The functions below it write the per-message commands of a broker and of a
//! client without building a command first; see [`crate::header`] for MESSAGE.

use bytes::{BufMut, Bytes, BytesMut};
use prost::encoding::{encode_varint, encoded_len_varint};

use crate::command::{Command, CommandType};
use crate::proto::command_ack::AckType;

/// One command as a frame of its own.
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
    let id_bytes = uint64_bytes(ledger_id) + uint64_bytes(entry_id);
    let body_bytes = uint64_bytes(producer_id)
        + uint64_bytes(sequence_id)
        + 2
        + id_bytes
        + uint64_bytes(highest_sequence_id);
    put_frame_start(CommandType::SendReceipt, body_bytes, 0, out);
    put_uint64(1, producer_id, out);
    put_uint64(2, sequence_id, out);
    out.put_slice(&[0x1a, id_bytes as u8]);
    put_uint64(1, ledger_id, out);
    put_uint64(2, entry_id, out);
    put_uint64(4, highest_sequence_id, out);
}

/// Appends FLOW.
pub fn flow_into(consumer_id: u64, message_permits: u32, out: &mut BytesMut) {
    let permits = u64::from(message_permits);
    put_frame_start(
        CommandType::Flow,
        uint64_bytes(consumer_id) + uint64_bytes(permits),
        0,
        out,
    );
    put_uint64(1, consumer_id, out);
    put_uint64(2, permits, out);
}

/// Appends ACK of one whole entry, without request id.
pub fn ack_into(consumer_id: u64, ack_type: AckType, ledger_id: u64, entry_id: u64, out: &mut BytesMut) {
    let id_bytes = uint64_bytes(ledger_id) + uint64_bytes(entry_id);
    put_frame_start(
        CommandType::Ack,
        uint64_bytes(consumer_id) + 2 + 2 + id_bytes,
        0,
        out,
    );
    put_uint64(1, consumer_id, out);
    out.put_slice(&[0x10, ack_type as u8, 0x1a, id_bytes as u8]);
    put_uint64(1, ledger_id, out);
    put_uint64(2, entry_id, out);
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
    let num_messages = u64::from(num_messages);
    let mut body_bytes = uint64_bytes(producer_id) + uint64_bytes(sequence_id);
    if num_messages != 1 {
        body_bytes += uint64_bytes(num_messages);
    }
    body_bytes += highest_sequence_id.map_or(0, uint64_bytes);
    put_frame_start(CommandType::Send, body_bytes, payload_bytes, out);
    put_uint64(1, producer_id, out);
    put_uint64(2, sequence_id, out);
    if num_messages != 1 {
        put_uint64(3, num_messages, out);
    }
    if let Some(highest) = highest_sequence_id {
        put_uint64(6, highest, out);
    }
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
