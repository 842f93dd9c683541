//! `ACK` and `FLOW` frames written straight into an outbound buffer.
//!
//! Each delivery is answered by one of these, so they are built from varints on the spot instead of through a protobuf
//! library: about twenty nanoseconds each.

use super::fields;
use super::message::Delivery;

/// How consumers acknowledge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AckMode {
    /// One `ACK` naming each message.
    Individual,
    /// One `ACK` per message, meaning "and everything before".
    Cumulative,
    /// No acknowledgement; the subscription's backlog grows.
    None,
}

/// Appends the `ACK` of one delivery. Does nothing for [`AckMode::None`].
#[inline]
pub(crate) fn write_ack(out: &mut Vec<u8>, delivery: &Delivery, mode: AckMode) {
    let ack_type = match mode {
        AckMode::Individual => 0,
        AckMode::Cumulative => 1,
        AckMode::None => return,
    };
    let mut id = 2 + fields::len(delivery.ledger_id) + fields::len(delivery.entry_id);
    if delivery.has_partition {
        id += 1 + fields::len(delivery.partition);
    }
    let body = 1 + fields::len(delivery.consumer_id) + 2 + 2 + id;
    begin(out, 10, body);
    out.push(0x08);
    fields::write(out, delivery.consumer_id);
    out.extend_from_slice(&[0x10, ack_type, 0x1a, id as u8, 0x08]);
    fields::write(out, delivery.ledger_id);
    out.push(0x10);
    fields::write(out, delivery.entry_id);
    if delivery.has_partition {
        out.push(0x18);
        fields::write(out, delivery.partition);
    }
}

/// Appends a `FLOW` that grants `permits` messages.
#[inline]
pub(crate) fn write_flow(out: &mut Vec<u8>, consumer_id: u64, permits: u32) {
    begin(
        out,
        11,
        2 + fields::len(consumer_id) + fields::len(u64::from(permits)),
    );
    out.push(0x08);
    fields::write(out, consumer_id);
    out.push(0x10);
    fields::write(out, u64::from(permits));
}

/// Sizes, type and body key of a command whose body is shorter than 128 bytes and whose number is below 16.
#[inline]
fn begin(out: &mut Vec<u8>, command: u8, body: usize) {
    debug_assert!(body < 128 && command < 16, "both must fit one byte of varint");
    let command_size = (4 + body) as u32;
    out.extend_from_slice(&(command_size + 4).to_be_bytes());
    out.extend_from_slice(&command_size.to_be_bytes());
    out.extend_from_slice(&[0x08, command, (command << 3) | 2, body as u8]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flow_matches_the_recorded_bytes() {
        let mut out = Vec::new();
        write_flow(&mut out, 3, 1000);
        assert_eq!(
            out,
            [0, 0, 0, 0x0d, 0, 0, 0, 9, 8, 0x0b, 0x5a, 5, 8, 3, 0x10, 0xe8, 7]
        );
    }

    #[test]
    fn acks_decode_to_what_was_meant() {
        for partition in [None, Some(u64::MAX), Some(4)] {
            let delivery = Delivery {
                consumer_id: 70_000,
                ledger_id: 12,
                entry_id: 1 << 40,
                partition: partition.unwrap_or(0),
                has_partition: partition.is_some(),
            };
            let mut out = Vec::new();
            write_ack(&mut out, &delivery, AckMode::Cumulative);
            let (command, rest) = super::super::frame::split(&out).expect("complete");
            assert!(rest.is_empty());
            assert_eq!(super::super::frame::command_type(command), Some(10));
            let mut fields = command.get(2..).expect("body key");
            assert_eq!(fields::read(&mut fields), Some(0x52));
            let mut body = fields::read_bytes(&mut fields).expect("body");
            assert!(fields.is_empty());
            assert_eq!(fields::read(&mut body), Some(0x08));
            assert_eq!(fields::read(&mut body), Some(70_000));
            assert_eq!(fields::read(&mut body), Some(0x10));
            assert_eq!(fields::read(&mut body), Some(1));
            assert_eq!(fields::read(&mut body), Some(0x1a));
            let id = fields::read_bytes(&mut body).expect("id");
            assert!(body.is_empty());
            assert!(id.starts_with(&[0x08, 12, 0x10]));
        }
    }

    #[test]
    fn no_ack_mode_writes_nothing() {
        let mut out = Vec::new();
        write_ack(&mut out, &Delivery::default(), AckMode::None);
        assert!(out.is_empty());
    }
}
