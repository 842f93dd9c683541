//! Lines to bytes, frames from bytes.

use std::io::Write as _;

use pharos_bench::load::FrameError;

/// A line is never longer than this.
const LINE_BYTES_MAX: usize = 8 << 10;
/// Nor is a message.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// Something that the server sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame<'a> {
    /// A message.
    Message {
        /// Its subject.
        subject: &'a str,
        /// The subscription it came for.
        sid: u64,
        /// Reply subject; empty if no reply is wanted.
        reply: &'a str,
        /// With the line that says the version; empty without headers.
        headers: &'a str,
        /// Its body.
        payload: &'a [u8],
    },
    /// Wants a PONG.
    Ping,
    /// Answers a PING.
    Pong,
    /// Something is wrong.
    Error(&'a str),
    /// Frame that needs no action.
    Other,
}

fn line_of(start: &[u8]) -> Result<Option<&str>, FrameError> {
    let seen = start.get(..LINE_BYTES_MAX.min(start.len())).unwrap_or_default();
    let Some(end) = seen.iter().position(|byte| *byte == b'\n') else {
        // The first line of a connection tells of the whole cluster and may be long.
        return match start.len() < LINE_BYTES_MAX {
            true => Ok(None),
            false => Err(FrameError::Malformed),
        };
    };
    let line = seen.get(..=end).unwrap_or_default();
    std::str::from_utf8(line)
        .map(Some)
        .map_err(|_| FrameError::Malformed)
}

/// Returns the length of the frame that begins with these bytes, once its first line is complete.
pub(super) fn whole_len(start: &[u8]) -> Result<Option<usize>, FrameError> {
    let Some(line) = line_of(start)? else {
        return Ok(None);
    };
    if !line.starts_with("MSG ") && !line.starts_with("HMSG ") {
        return Ok(Some(line.len()));
    }
    let size = line.split_ascii_whitespace().next_back();
    let size: usize = size
        .and_then(|word| word.parse().ok())
        .ok_or(FrameError::Malformed)?;
    if size > MESSAGE_BYTES_MAX {
        return Err(FrameError::Size(size));
    }
    Ok(Some(line.len() + size + 2))
}

/// Takes a whole frame apart.
pub(super) fn parse(whole: &[u8]) -> Result<Frame<'_>, FrameError> {
    let line = line_of(whole)?.ok_or(FrameError::Malformed)?;
    let body = whole.get(line.len()..).unwrap_or_default();
    let mut words = line.split_ascii_whitespace();
    let kind = words.next().unwrap_or_default();
    match kind {
        "MSG" | "HMSG" => message(kind == "HMSG", words, body),
        "PING" => Ok(Frame::Ping),
        "PONG" => Ok(Frame::Pong),
        "-ERR" => Ok(Frame::Error(line.trim())),
        _ => Ok(Frame::Other),
    }
}

fn message<'a>(
    has_headers: bool,
    words: impl Iterator<Item = &'a str>,
    body: &'a [u8],
) -> Result<Frame<'a>, FrameError> {
    let mut all = [""; 5];
    let mut count = 0;
    for (place, word) in all.iter_mut().zip(words) {
        (*place, count) = (word, count + 1);
    }
    let sizes = 1 + usize::from(has_headers);
    if count < 2 + sizes {
        return Err(FrameError::Malformed);
    }
    let number = |at: usize| all.get(at).and_then(|word| word.parse::<usize>().ok());
    let size = number(count - 1).ok_or(FrameError::Malformed)?;
    let head = if has_headers {
        number(count - 2).ok_or(FrameError::Malformed)?
    } else {
        0
    };
    let body = body.get(..size).ok_or(FrameError::Malformed)?;
    let (headers, payload) = body.split_at_checked(head).ok_or(FrameError::Malformed)?;
    Ok(Frame::Message {
        subject: all[0],
        sid: all[1].parse().map_err(|_| FrameError::Malformed)?,
        reply: if count > 2 + sizes { all[2] } else { "" },
        headers: std::str::from_utf8(headers).map_err(|_| FrameError::Malformed)?,
        payload,
    })
}

/// Appends the line of a `PUB`; the payload and a line end follow.
pub(super) fn publish_line(out: &mut Vec<u8>, subject: &str, reply: &str, size: usize) {
    let gap = if reply.is_empty() { "" } else { " " };
    // Writing to memory does not fail.
    let _ = write!(out, "PUB {subject} {reply}{gap}{size}\r\n");
}

/// Appends a whole `PUB`.
pub(super) fn publish(out: &mut Vec<u8>, subject: &str, reply: &str, payload: &[u8]) {
    publish_line(out, subject, reply, payload.len());
    out.extend_from_slice(payload);
    out.extend_from_slice(b"\r\n");
}

/// Appends a `SUB`.
pub(super) fn subscribe(out: &mut Vec<u8>, subject: &str, sid: u64) {
    let _ = write!(out, "SUB {subject} {sid}\r\n");
}

/// Appends what a client says first, and a PING.
pub(super) fn connect(out: &mut Vec<u8>) {
    let version = env!("CARGO_PKG_VERSION");
    let _ = write!(
        out,
        "CONNECT {{\"verbose\":false,\"pedantic\":false,\"headers\":true,\"no_responders\":true,\"protocol\":1,\
         \"lang\":\"rust\",\"name\":\"pharos-bench\",\"version\":\"{version}\"}}\r\nPING\r\n"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_whole_with_its_body() {
        let bytes = b"MSG b0.3 7 $JS.ACK.x 5\r\nhello\r\nPING\r\n";
        assert_eq!(whole_len(bytes), Ok(Some(31)));
        assert_eq!(
            parse(&bytes[..31]),
            Ok(Frame::Message {
                subject: "b0.3",
                sid: 7,
                reply: "$JS.ACK.x",
                headers: "",
                payload: b"hello"
            })
        );
        assert_eq!(whole_len(&bytes[31..]), Ok(Some(6)));
        assert_eq!(parse(&bytes[31..]), Ok(Frame::Ping));
    }

    #[test]
    fn headers_are_apart_from_the_body() {
        let bytes = b"HMSG in 1 12 14\r\nNATS/1.0\r\n\r\nhi\r\n";
        assert_eq!(whole_len(bytes), Ok(Some(bytes.len())));
        let Ok(Frame::Message {
            reply,
            headers,
            payload,
            ..
        }) = parse(bytes)
        else {
            panic!("a message")
        };
        assert_eq!((reply, headers, payload), ("", "NATS/1.0\r\n\r\n", &b"hi"[..]));
    }

    #[test]
    fn no_prefix_panics() {
        for bytes in [
            &b"HMSG in 1 re 12 14\r\nNATS/1.0\r\n\r\nhi\r\n"[..],
            b"MSG a 1 99\r\n",
            b"-ERR 'x'\r\n",
        ] {
            for end in 0..=bytes.len() {
                let _ = (whole_len(&bytes[..end]), parse(&bytes[..end]));
            }
        }
        assert!(whole_len(&[b'x'; 10_000]).is_err());
        assert!(whole_len(b"MSG a 1 x\r\n").is_err());
    }
}
