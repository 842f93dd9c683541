//! What a connection has yet to write, as runs of bytes and references to shared payloads.
//!
//! ```text
//!   arena    [ answer answer header ][ header ][ header … ]      bytes made for this connection
//!   segments   Head(n)          Payload  Head(n) Payload  …      what the socket gets, in order
//! ```
//!
//! A large payload is never copied: its segment refers to the entry that all receivers share. A small one is copied
//! into the arena, where it joins its neighbours in one run, because many tiny pieces cost the kernel more than the
//! copy. The queue is filled up to [`ROOM_BYTES`] when the socket takes bytes.

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

    /// Writes once. Returns how many bytes the socket took.
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
        while !out.is_empty() {
            let mut flat = Vec::new();
            let mut start = 0;
            for segment in &out.segments {
                match segment {
                    Segment::Head(n) => {
                        flat.extend_from_slice(&out.arena[start..start + n]);
                        start += n;
                    }
                    Segment::Payload(payload) => flat.extend_from_slice(payload),
                }
            }
            let step = step.min(flat.len());
            all.extend_from_slice(&flat[..step]);
            out.advance(step);
        }
        all
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
}
