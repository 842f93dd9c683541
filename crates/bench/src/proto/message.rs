//! The few numbers of a `MESSAGE` frame that a consumer needs, read where they lie.
//!
//! Nothing is allocated or copied; the payload is not touched beyond the bytes the caller asks for.

use super::fields;

const MESSAGE_FIELD: u64 = (9 << 3) | 2;
const BROKER_ENTRY_MAGIC: [u8; 2] = [0x0e, 0x02];
const CHECKSUM_MAGIC: [u8; 2] = [0x0e, 0x01];

/// Consumer and entry of a `MESSAGE`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Delivery {
    /// The id this client gave the consumer.
    pub(crate) consumer_id: u64,
    /// Ledger of the entry; -1 travels as 2^64-1.
    pub(crate) ledger_id: u64,
    /// Entry within the ledger.
    pub(crate) entry_id: u64,
    /// Partition of the topic, two's complement; 0 when the broker left it out, see `has_partition`.
    pub(crate) partition: u64,
    /// True if `partition` was present; an acknowledgement repeats it.
    pub(crate) has_partition: bool,
}

/// Reads the command of a `MESSAGE`; `None` if it is another command or damaged.
#[inline]
pub(crate) fn parse_command(mut command: &[u8]) -> Option<Delivery> {
    while !command.is_empty() {
        let key = fields::read(&mut command)?;
        if key == MESSAGE_FIELD {
            return parse_body(fields::read_bytes(&mut command)?);
        }
        fields::skip(&mut command, key)?;
    }
    None
}

fn parse_body(mut body: &[u8]) -> Option<Delivery> {
    let mut delivery = Delivery::default();
    let mut has_id = false;
    while !body.is_empty() {
        match fields::read(&mut body)? {
            0x08 => delivery.consumer_id = fields::read(&mut body)?,
            0x12 => {
                parse_id(fields::read_bytes(&mut body)?, &mut delivery)?;
                has_id = true;
            }
            key => fields::skip(&mut body, key)?,
        }
    }
    has_id.then_some(delivery)
}

fn parse_id(mut id: &[u8], delivery: &mut Delivery) -> Option<()> {
    while !id.is_empty() {
        match fields::read(&mut id)? {
            0x08 => delivery.ledger_id = fields::read(&mut id)?,
            0x10 => delivery.entry_id = fields::read(&mut id)?,
            0x18 => {
                delivery.partition = fields::read(&mut id)?;
                delivery.has_partition = true;
            }
            key => fields::skip(&mut id, key)?,
        }
    }
    Some(())
}

/// The payload part of a `MESSAGE`, as far as it has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Content<'a> {
    /// The CRC32-C sent with it, over everything in `covered`.
    pub(crate) checksum: Option<u32>,
    /// Metadata size, metadata and payload.
    pub(crate) covered: &'a [u8],
    /// `MessageMetadata`, undecoded.
    pub(crate) metadata: &'a [u8],
    /// The message's bytes, or a batch.
    pub(crate) payload: &'a [u8],
}

/// Takes the payload part apart; `None` while the metadata is incomplete or if it is damaged.
#[inline]
pub(crate) fn parse_content(mut part: &[u8]) -> Option<Content<'_>> {
    if part.first_chunk::<2>()? == &BROKER_ENTRY_MAGIC {
        let size = u32::from_be_bytes(*part.get(2..)?.first_chunk::<4>()?) as usize;
        part = part.get(6..)?.get(size..)?;
    }
    let mut checksum = None;
    if part.first_chunk::<2>()? == &CHECKSUM_MAGIC {
        checksum = Some(u32::from_be_bytes(*part.get(2..)?.first_chunk::<4>()?));
        part = part.get(6..)?;
    }
    let covered = part;
    let size = u32::from_be_bytes(*part.first_chunk::<4>()?) as usize;
    let (metadata, payload) = part.get(4..)?.split_at_checked(size)?;
    Some(Content {
        checksum,
        covered,
        metadata,
        payload,
    })
}

/// Fields of `MessageMetadata` that a consumer needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MetadataPeek {
    /// `num_messages_in_batch`; absent for a message that is not in a batch.
    pub(crate) batch: Option<u32>,
    /// `publish_time`, milliseconds since the epoch.
    pub(crate) publish_time_ms: u64,
    /// `compression`; 0 is none.
    pub(crate) compression: u64,
}

/// Reads those fields; `None` on damage.
#[inline]
pub(crate) fn peek_metadata(mut metadata: &[u8]) -> Option<MetadataPeek> {
    let mut peek = MetadataPeek::default();
    while !metadata.is_empty() {
        match fields::read(&mut metadata)? {
            0x18 => peek.publish_time_ms = fields::read(&mut metadata)?,
            0x40 => peek.compression = fields::read(&mut metadata)?,
            0x58 => peek.batch = Some(u32::try_from(fields::read(&mut metadata)?).ok()?),
            key => fields::skip(&mut metadata, key)?,
        }
    }
    Some(peek)
}

/// The next message of an uncompressed batch, moving `batch` past it; `None` at its end or on damage.
#[inline]
pub(crate) fn next_in_batch<'a>(batch: &mut &'a [u8]) -> Option<&'a [u8]> {
    let size = u32::from_be_bytes(*batch.first_chunk::<4>()?) as usize;
    let (mut metadata, rest) = batch.get(4..)?.split_at_checked(size)?;
    let mut payload_size = 0usize;
    while !metadata.is_empty() {
        match fields::read(&mut metadata)? {
            0x18 => payload_size = usize::try_from(fields::read(&mut metadata)?).ok()?,
            key => fields::skip(&mut metadata, key)?,
        }
    }
    let (payload, rest) = rest.split_at_checked(payload_size)?;
    *batch = rest;
    Some(payload)
}

#[cfg(test)]
mod tests {
    use super::super::frame;
    use super::*;

    /// MESSAGE consumer 3 id 12:34 partition -1 redelivery 2, payload "hello", from a 4.2.4 broker's classes.
    const MESSAGE: &str = "0000003a0000001908094a150803120f080c102218ffffffffffffffffff0118020e01153dc3010000000e\
                           0a03702d3110051880d095ffbc3168656c6c6f";

    fn unhex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        digits
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).expect("ascii"), 16).expect("hex"))
            .collect()
    }

    #[test]
    fn a_recorded_message_gives_its_numbers() {
        let bytes = unhex(MESSAGE);
        let (command, part) = frame::split(&bytes).expect("complete");
        let delivery = parse_command(command).expect("a message");
        assert_eq!(
            (delivery.consumer_id, delivery.ledger_id, delivery.entry_id),
            (3, 12, 34)
        );
        assert!(delivery.has_partition);
        assert_eq!(delivery.partition, u64::MAX);
        let content = parse_content(part).expect("content");
        assert_eq!(content.payload, b"hello");
        assert_eq!(content.checksum, Some(0x153d_c301));
        let peek = peek_metadata(content.metadata).expect("metadata");
        assert_eq!(
            peek,
            MetadataPeek {
                batch: None,
                publish_time_ms: 1_700_000_000_000,
                compression: 0
            }
        );
    }

    #[test]
    fn a_broker_entry_block_is_stepped_over() {
        let bytes = unhex(MESSAGE);
        let (_, part) = frame::split(&bytes).expect("complete");
        let mut with_block = vec![0x0e, 0x02, 0, 0, 0, 2, 0x08, 0x01];
        with_block.extend_from_slice(part);
        assert_eq!(parse_content(&with_block).expect("content").payload, b"hello");
    }

    #[test]
    fn no_prefix_of_a_message_panics() {
        let bytes = unhex(MESSAGE);
        for end in 0..bytes.len() {
            if let Some((command, part)) = frame::split(&bytes[..end]) {
                let _ = parse_command(command);
                let _ = parse_content(part);
            }
            let _ = parse_command(&bytes[8.min(end)..end]);
        }
    }

    #[test]
    fn a_batch_is_walked_message_by_message() {
        let batch = [0, 0, 0, 2, 0x18, 2, b'h', b'i', 0, 0, 0, 2, 0x18, 1, b'x'];
        let mut rest = &batch[..];
        assert_eq!(next_in_batch(&mut rest), Some(&b"hi"[..]));
        assert_eq!(next_in_batch(&mut rest), Some(&b"x"[..]));
        assert_eq!(next_in_batch(&mut rest), None);
    }
}
