//! Packets to bytes and from bytes.

use pharos_bench::load::FrameError;

/// Kinds of packets, with their flags.
pub(super) const CONNECT_ANSWER: u8 = 0x20;
const CONNECT: u8 = 0x10;
const PUBLISH: u8 = 0x30;
const QOS_1: u8 = 0x02;
const PUBLISH_ANSWER: u8 = 0x40;
const SUBSCRIBE: u8 = 0x82;
pub(super) const SUBSCRIBE_ANSWER: u8 = 0x90;
/// Bytes of the answers to connecting and to one subscription.
pub(super) const CONNECT_ANSWER_BYTES: usize = 4;
pub(super) const SUBSCRIBE_ANSWER_BYTES: usize = 5;
/// A length has at most so many bytes.
const LENGTH_BYTES_MAX: usize = 4;

/// Something that the server sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packet<'a> {
    /// A message; with a number when it wants an acknowledgement.
    Message {
        /// Topic of the message.
        topic: &'a str,
        /// For the acknowledgement.
        number: Option<u16>,
        /// Its body.
        payload: &'a [u8],
    },
    /// The acknowledgement of a message.
    Receipt(u16),
    /// Packet that needs no action.
    Other,
}

/// The length behind the first byte: its value and how many bytes it has, once they are there.
fn length(bytes: &[u8]) -> Result<Option<(usize, usize)>, FrameError> {
    let mut value = 0;
    for (place, byte) in bytes.iter().take(LENGTH_BYTES_MAX).enumerate() {
        value |= usize::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return Ok(Some((value, place + 1)));
        }
    }
    match bytes.len() < LENGTH_BYTES_MAX {
        true => Ok(None),
        false => Err(FrameError::Malformed),
    }
}

/// Returns the length of the packet that begins with these bytes, once it is known.
pub(super) fn whole_len(start: &[u8]) -> Result<Option<usize>, FrameError> {
    let found = length(start.get(1..).unwrap_or_default())?;
    Ok(found.map(|(value, bytes)| 1 + bytes + value))
}

/// Takes a whole packet apart.
pub(super) fn parse(whole: &[u8]) -> Result<Packet<'_>, FrameError> {
    let (_, bytes) = length(whole.get(1..).unwrap_or_default())?.ok_or(FrameError::Malformed)?;
    let kind = *whole.first().ok_or(FrameError::Malformed)?;
    let body = whole.get(1 + bytes..).ok_or(FrameError::Malformed)?;
    match kind & 0xf0 {
        PUBLISH => {
            let (topic_bytes, body) = number(body)?;
            let (topic, mut payload) = body
                .split_at_checked(usize::from(topic_bytes))
                .ok_or(FrameError::Malformed)?;
            let mut wanted = None;
            if kind & QOS_1 != 0 {
                let (packet, rest) = number(payload)?;
                (wanted, payload) = (Some(packet), rest);
            }
            Ok(Packet::Message {
                topic: std::str::from_utf8(topic).map_err(|_| FrameError::Malformed)?,
                number: wanted,
                payload,
            })
        }
        PUBLISH_ANSWER => Ok(Packet::Receipt(number(body)?.0)),
        _ => Ok(Packet::Other),
    }
}

fn number(bytes: &[u8]) -> Result<(u16, &[u8]), FrameError> {
    let (head, rest) = bytes.split_first_chunk::<2>().ok_or(FrameError::Malformed)?;
    Ok((u16::from_be_bytes(*head), rest))
}

/// Begins a packet of a known length.
fn begin(out: &mut Vec<u8>, kind: u8, mut bytes: usize) {
    out.push(kind);
    loop {
        let byte = (bytes & 0x7f) as u8;
        bytes >>= 7;
        out.push(if bytes > 0 { byte | 0x80 } else { byte });
        if bytes == 0 {
            return;
        }
    }
}

fn string(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&(text.len() as u16).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// Appends what a client says first: version 3.1.1, a clean session, no keep-alive.
pub(super) fn connect(out: &mut Vec<u8>, client: &str) {
    begin(out, CONNECT, 12 + client.len());
    string(out, "MQTT");
    out.extend_from_slice(&[4, 0x02, 0, 0]);
    string(out, client);
}

/// Appends a subscription at QoS 1.
pub(super) fn subscribe(out: &mut Vec<u8>, filter: &str) {
    begin(out, SUBSCRIBE, 5 + filter.len());
    out.extend_from_slice(&1_u16.to_be_bytes());
    string(out, filter);
    out.push(1);
}

/// Appends the head of a message at QoS 1; a payload of `size` bytes follows.
pub(super) fn publish_head(out: &mut Vec<u8>, topic: &str, number: u16, size: usize) {
    begin(out, PUBLISH | QOS_1, 4 + topic.len() + size);
    string(out, topic);
    out.extend_from_slice(&number.to_be_bytes());
}

/// Appends the acknowledgement of a message.
pub(super) fn receipt(out: &mut Vec<u8>, number: u16) {
    begin(out, PUBLISH_ANSWER, 2);
    out.extend_from_slice(&number.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_comes_back_as_it_was_written() {
        let mut bytes = Vec::new();
        publish_head(&mut bytes, "b0/3", 700, 300);
        bytes.extend_from_slice(&[7; 300]);
        let length = bytes.len();
        receipt(&mut bytes, 700);
        assert_eq!(whole_len(&bytes), Ok(Some(length)));
        assert_eq!(
            parse(&bytes[..length]),
            Ok(Packet::Message {
                topic: "b0/3",
                number: Some(700),
                payload: &[7; 300]
            })
        );
        assert_eq!(parse(&bytes[length..]), Ok(Packet::Receipt(700)));
    }

    #[test]
    fn no_prefix_panics() {
        let mut bytes = Vec::new();
        publish_head(&mut bytes, "b0/3", 1, 200);
        bytes.extend_from_slice(&[0; 200]);
        for end in 0..=bytes.len() {
            let _ = (whole_len(&bytes[..end]), parse(&bytes[..end]));
        }
        assert_eq!(whole_len(&[0x30, 0xff]), Ok(None));
        assert!(whole_len(&[0x30, 0xff, 0xff, 0xff, 0xff]).is_err());
    }
}
