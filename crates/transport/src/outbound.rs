//! What a connection has yet to write, as runs of bytes and references to shared payloads.
//!
//! ```text
//!   arena    [ answer answer header ][ header ][ header … ]      bytes made for this connection
//!   segments   Head(n)          Payload  Head(n) Payload  …      what the socket gets, in order
//! ```
//!
//! A large payload is never copied: its segment refers to the entry that all receivers share. A small one is copied
//! into the arena, where it joins its neighbours in one run, because many tiny pieces cost the kernel more than the
//! copy. A payload that only this connection refers to can be set aside while the socket takes nothing: the queue keeps its place,
//! and goes on there when it is back. The queue is filled up to [`ROOM_BYTES`] when the socket takes bytes.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use bytes::{Buf, Bytes, BytesMut};

use crate::stream::WriteHalf;

/// Queued bytes beyond which there is no room for more messages; a vectored write wants 128 to 512 KiB.
const ROOM_BYTES: usize = 384 << 10;
/// Queued pieces beyond which there is none either.
const ROOM_SEGMENTS: usize = 1024;
/// Pieces in one write.
const SLICES_MAX: usize = 64;
/// Payloads up to this size are copied.
const COPY_BYTES_MAX: usize = 1024;
/// The memory of a queue that grew beyond this is not kept when it runs empty.
const ARENA_KEPT_BYTES: usize = 64 << 10;
/// The same, in segments.
const SEGMENTS_KEPT: usize = ROOM_SEGMENTS * 2;

#[derive(Debug)]
enum Segment {
    /// The next bytes of the arena.
    Head(usize),
    /// A shared payload; what was written of it is advanced over.
    Payload(Bytes),
    /// A payload that can be set aside.
    Own {
        /// What is yet to be written; `None` while it is set aside.
        body: Option<Bytes>,
        /// Bytes that are yet to be written.
        left: usize,
    },
}

/// The queue.
#[derive(Debug, Default)]
pub struct Outbound {
    arena: BytesMut,
    segments: VecDeque<Segment>,
    queued_bytes: usize,
    /// Absolute offsets: what was ever queued, and what of it was written.
    queued_end: u64,
    written_end: u64,
}

impl Outbound {
    /// Bytes not yet written.
    #[must_use]
    pub fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// Whether everything was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queued_bytes == 0
    }

    /// What was ever queued, as an offset in what the stream carries.
    #[must_use]
    pub fn queued_end(&self) -> u64 {
        self.queued_end
    }

    /// What of it was written.
    #[must_use]
    pub fn written_end(&self) -> u64 {
        self.written_end
    }

    /// Whether there is room for one more message.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.queued_bytes < ROOM_BYTES && self.segments.len() < ROOM_SEGMENTS
    }

    /// Appends bytes that `write` makes.
    pub fn push_with(&mut self, write: impl FnOnce(&mut BytesMut)) {
        let before = self.arena.len();
        write(&mut self.arena);
        self.grew(self.arena.len() - before);
    }

    fn grew(&mut self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        self.queued_bytes += bytes;
        self.queued_end += bytes as u64;
        if let Some(Segment::Head(head)) = self.segments.back_mut() {
            *head += bytes;
        } else {
            self.segments.push_back(Segment::Head(bytes));
        }
    }

    /// Appends a header of its own and a payload that others share.
    pub fn push_shared(&mut self, header: &[u8], payload: &Bytes) {
        if payload.len() <= COPY_BYTES_MAX {
            self.push_with(|arena| {
                arena.extend_from_slice(header);
                arena.extend_from_slice(payload);
            });
            return;
        }
        self.push_with(|arena| arena.extend_from_slice(header));
        self.queued_bytes += payload.len();
        self.queued_end += payload.len() as u64;
        self.segments.push_back(Segment::Payload(payload.clone()));
    }

    /// Appends a header and a payload that can be set aside. Returns whether it can: a small one is copied.
    pub fn push_own(&mut self, header: &[u8], payload: Bytes) -> bool {
        if payload.len() <= COPY_BYTES_MAX {
            self.push_shared(header, &payload);
            return false;
        }
        self.push_with(|arena| arena.extend_from_slice(header));
        let left = payload.len();
        self.queued_bytes += left;
        self.queued_end += left as u64;
        let body = Some(payload);
        self.segments.push_back(Segment::Own { body, left });
        true
    }

    /// Drops all payloads that can be set aside; their places stay.
    pub fn set_aside(&mut self) {
        for segment in &mut self.segments {
            if let Segment::Own { body, .. } = segment {
                *body = None;
            }
        }
    }

    /// Whether the next thing to be written is a payload that is set aside.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self.segments.front(), Some(Segment::Own { body: None, .. }))
    }

    /// Puts the payload back that is missing, the whole of it. Returns false if none is, or not this one.
    pub fn bring_back(&mut self, mut payload: Bytes) -> bool {
        match self.segments.front_mut() {
            Some(Segment::Own { body, left }) if body.is_none() && *left <= payload.len() => {
                payload.advance(payload.len() - *left);
                *body = Some(payload);
                true
            }
            _ => false,
        }
    }

    /// Writes once, up to the first payload that is set aside. Returns how many bytes the socket took.
    ///
    /// # Errors
    /// As the socket says; `WouldBlock` when it is full.
    pub fn write(&mut self, stream: &WriteHalf) -> io::Result<usize> {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let mut count = 0;
        let mut head_start = 0;
        for (slice, segment) in slices.iter_mut().zip(&self.segments) {
            let bytes = match segment {
                Segment::Head(length) => {
                    let bytes = self
                        .arena
                        .get(head_start..head_start + length)
                        .unwrap_or_default();
                    head_start += length;
                    bytes
                }
                Segment::Payload(payload) => payload,
                Segment::Own { body, .. } => match body {
                    Some(payload) => payload,
                    None => break,
                },
            };
            *slice = IoSlice::new(bytes);
            count += 1;
        }
        let written = stream.write_now(slices.get(..count).unwrap_or_default())?;
        self.advance(written);
        Ok(written)
    }

    fn advance(&mut self, written: usize) {
        self.queued_bytes -= written;
        self.written_end += written as u64;
        let mut left = written;
        while left > 0 {
            let Some(segment) = self.segments.front_mut() else {
                break;
            };
            let step = match segment {
                Segment::Head(length) => {
                    let step = left.min(*length);
                    self.arena.advance(step);
                    *length -= step;
                    if *length > 0 {
                        return;
                    }
                    step
                }
                Segment::Payload(payload) => {
                    let step = left.min(payload.len());
                    payload.advance(step);
                    if !payload.is_empty() {
                        return;
                    }
                    step
                }
                Segment::Own { body, left: of } => {
                    let step = left.min(*of);
                    if let Some(payload) = body {
                        payload.advance(step);
                    }
                    *of -= step;
                    if *of > 0 {
                        return;
                    }
                    step
                }
            };
            left -= step;
            self.segments.pop_front();
        }
    }

    /// Whether its memory is worth keeping.
    #[must_use]
    pub fn is_small(&self) -> bool {
        self.arena.capacity() <= ARENA_KEPT_BYTES && self.segments.capacity() <= SEGMENTS_KEPT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(out: &mut Outbound, step: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while !out.is_empty() && !out.is_missing() {
            all.extend(drain_up_to(out, step));
        }
        all
    }

    /// One write of at most so many bytes.
    fn drain_up_to(out: &mut Outbound, bytes: usize) -> Vec<u8> {
        let mut flat = Vec::new();
        let mut start = 0;
        for segment in &out.segments {
            match segment {
                Segment::Head(n) => {
                    flat.extend_from_slice(&out.arena[start..start + n]);
                    start += n;
                }
                Segment::Payload(payload) => flat.extend_from_slice(payload),
                Segment::Own { body, .. } => match body {
                    Some(payload) => flat.extend_from_slice(payload),
                    None => break,
                },
            }
        }
        flat.truncate(bytes);
        out.advance(flat.len());
        flat
    }

    #[test]
    fn bytes_leave_in_the_order_in_which_they_came_whatever_the_socket_takes() {
        let large = Bytes::from(vec![7; COPY_BYTES_MAX + 1]);
        let small = Bytes::from_static(b"small");
        let mut expected = b"answer".to_vec();
        for _ in 0..3 {
            expected.extend_from_slice(b"h1");
            expected.extend_from_slice(&large);
            expected.extend_from_slice(b"h2");
            expected.extend_from_slice(&small);
        }
        for step in [1, 2, 7, 1000, 1_000_000] {
            let mut out = Outbound::default();
            out.push_with(|arena| arena.extend_from_slice(b"answer"));
            for _ in 0..3 {
                out.push_shared(b"h1", &large);
                out.push_shared(b"h2", &small);
            }
            assert_eq!(drain(&mut out, step), expected, "in steps of {step}");
        }
    }

    #[test]
    fn a_payload_that_is_set_aside_goes_on_where_it_stopped_when_it_is_back() {
        let payloads = [2000, 5000, 10].map(|length| Bytes::from(vec![length as u8; length]));
        let mut expected = Vec::new();
        for payload in &payloads {
            expected.extend_from_slice(b"head");
            expected.extend_from_slice(payload);
        }
        for stop in [0, 3, 4, 1000, 2004, 2008, 2009, 7007] {
            let mut out = Outbound::default();
            let may_be_set_aside = payloads.clone().map(|payload| out.push_own(b"head", payload));
            assert_eq!(may_be_set_aside, [true, true, false]);
            let mut all = drain_up_to(&mut out, stop);
            out.set_aside();
            let mut missing = payloads.iter().skip(usize::from(stop >= 2004));
            while !out.is_empty() {
                all.extend(drain(&mut out, 700));
                if out.is_missing() {
                    assert!(!out.bring_back(Bytes::new()));
                    assert!(out.bring_back(missing.next().unwrap().clone()));
                    assert!(!out.bring_back(payloads[1].clone()));
                }
            }
            assert!(all == expected, "after {stop}");
            assert_eq!(missing.count(), 1, "after {stop}");
        }
    }
}
