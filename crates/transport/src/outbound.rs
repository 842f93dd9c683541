//! Write queue of a connection: runs of bytes and references to shared payloads.
//!
//! ```text
//!   arena    [ answer answer header ][ header ][ header … ]      bytes made for this connection
//!   segments   Head(n)          Payload  Head(n) Payload  …      what the socket gets, in order
//! ```
//!
//! A large payload is never copied: its segment refers to the entry that all receivers share. A small one is copied
//! into the arena, where it joins its neighbours in one run, because many tiny pieces cost the kernel more than the
//! copy. A payload that only this connection refers to can be set aside while the socket takes nothing: the queue
//! keeps its position, and continues there when it is back. Whole frames can be taken out again while nothing of them
//! is written ([`Outbound::take_frames`]). The queue is filled up to [`ROOM_BYTES`] when the socket takes bytes.

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
/// Number of segments beyond which the memory of an empty queue is not kept.
const SEGMENTS_KEPT: usize = ROOM_SEGMENTS * 2;

/// Bytes of a frame's beginning that are kept while the rest is written.
const BEGUN_BYTES_MAX: usize = 256;

/// Says of bytes at the beginning of a frame how many the whole frame has. A frame is a run of the arena, up to all of it, and at
/// most one payload.
pub type FrameBytes = fn(&[u8]) -> usize;

#[derive(Debug)]
enum Segment {
    /// The next bytes of the arena.
    Head(usize),
    /// A shared payload; what was written of it is advanced over.
    Payload(Bytes),
    /// A payload that can be set aside.
    Own {
        /// Rest of the payload; `None` while it is set aside.
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
    /// Rest of the partly written frame in bytes, and the beginning of that frame. Known without parsing frames as
    /// long as the socket takes everything.
    begun_left: usize,
    begun: Vec<u8>,
}

impl Outbound {
    /// Bytes not yet written.
    #[must_use]
    pub fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// Bytes not yet written, without payloads that can be set aside or are.
    #[must_use]
    pub fn bytes_apart(&self) -> usize {
        let own = |segment: &Segment| match segment {
            Segment::Own { left, .. } => *left,
            Segment::Head(_) | Segment::Payload(_) => 0,
        };
        self.queued_bytes - self.segments.iter().map(own).sum::<usize>()
    }

    /// True if everything was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queued_bytes == 0
    }

    /// End of everything ever queued, as an offset in the stream.
    #[must_use]
    pub fn queued_end(&self) -> u64 {
        self.queued_end
    }

    /// End of the written bytes, as an offset in the stream.
    #[must_use]
    pub fn written_end(&self) -> u64 {
        self.written_end
    }

    /// True if there is room for one more message.
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

    /// True if the next payload to write is set aside.
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
    pub fn write(&mut self, stream: &WriteHalf, frame_bytes: FrameBytes) -> io::Result<usize> {
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
        self.advance(written, frame_bytes);
        Ok(written)
    }

    fn advance(&mut self, written: usize, frame_bytes: FrameBytes) {
        if written == self.queued_bytes {
            self.begun_left = 0;
        } else {
            self.follow(written, frame_bytes);
        }
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

    /// Goes over the frames that are written, to know where the next one begins.
    fn follow(&mut self, written: usize, frame_bytes: FrameBytes) {
        let (mut left, mut head_start) = (written, 0);
        let mut begun = None;
        for segment in &self.segments {
            if left == 0 {
                break;
            }
            let length = match segment {
                Segment::Head(length) => *length,
                Segment::Payload(payload) => payload.len(),
                Segment::Own { left, .. } => *left,
            };
            let step = left.min(length);
            left -= step;
            if !matches!(segment, Segment::Head(_)) {
                self.begun_left = self.begun_left.saturating_sub(step);
                continue;
            }
            let (head_end, mut at) = (head_start + length, head_start);
            let written_end = head_start + step;
            while at < written_end {
                if self.begun_left == 0 {
                    let head = self.arena.get(at..head_end).unwrap_or_default();
                    self.begun_left = frame_bytes(head).max(1);
                    begun = Some(at..head_end.min(at + self.begun_left.min(BEGUN_BYTES_MAX)));
                }
                let of_frame = self.begun_left.min(written_end - at);
                self.begun_left -= of_frame;
                at += of_frame;
            }
            head_start = head_end;
        }
        if let Some(range) = begun.filter(|_| self.begun_left > 0) {
            self.begun.clear();
            let head = self.arena.get(range).unwrap_or_default();
            self.begun.extend_from_slice(head);
        }
    }

    /// The beginning of the frame that is written in part, if its payload is shared and is yet to be written.
    #[must_use]
    pub fn begun(&self) -> Option<&[u8]> {
        self.shared_of_begun().map(|_| self.begun.as_slice())
    }

    /// Index of the segment of that payload.
    fn shared_of_begun(&self) -> Option<usize> {
        if self.begun_left == 0 {
            return None;
        }
        // The rest of its header, if there is any, ends where the payload begins.
        let at = usize::from(matches!(self.segments.front(), Some(Segment::Head(_))));
        let is_its_own = at == 0
            || matches!(self.segments.front(), Some(Segment::Head(length)) if *length < self.begun_left);
        (is_its_own && matches!(self.segments.get(at), Some(Segment::Payload(_)))).then_some(at)
    }

    /// Sets the shared payload of the frame aside that is written in part. Returns where it ends in what the stream carries.
    pub fn set_begun_aside(&mut self) -> Option<u64> {
        let at = self.shared_of_begun()?;
        let segment = self.segments.get_mut(at)?;
        let Segment::Payload(payload) = segment else {
            return None;
        };
        let left = payload.len();
        *segment = Segment::Own { body: None, left };
        Some(self.written_end + self.begun_left as u64)
    }

    /// Takes out whole frames of which nothing is written: those of which `takes` says so, asked with their bytes in the arena and
    /// their shared payload. What can be set aside stays. Returns where each that was taken ended, and its bytes.
    pub fn take_frames(
        &mut self,
        frame_bytes: FrameBytes,
        mut takes: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Vec<(u64, usize)> {
        let mut arena = std::mem::take(&mut self.arena);
        let mut segments = std::mem::take(&mut self.segments);
        (self.queued_bytes, self.queued_end) = (0, self.written_end);
        let (mut end, mut taken) = (self.written_end, Vec::new());
        let mut begun_left = self.begun_left;
        while let Some(segment) = segments.pop_front() {
            let Segment::Head(length) = segment else {
                // The rest of a frame whose header is written.
                let bytes = self.put(segment);
                begun_left = begun_left.saturating_sub(bytes);
                end += bytes as u64;
                continue;
            };
            let is_begun = begun_left > 0;
            let whole = match is_begun {
                true => std::mem::take(&mut begun_left),
                false => frame_bytes(arena.get(..length).unwrap_or_default()).max(1),
            };
            let head = arena.split_to(whole.min(length));
            if length > head.len() {
                segments.push_front(Segment::Head(length - head.len()));
            }
            let body = (whole > head.len()).then(|| segments.pop_front()).flatten();
            let shared: Option<&[u8]> = match &body {
                None => Some(&[]),
                Some(Segment::Payload(payload)) => Some(payload),
                Some(Segment::Head(_) | Segment::Own { .. }) => None,
            };
            end += whole as u64;
            if !is_begun && shared.is_some_and(|shared| takes(&head, shared)) {
                taken.push((end, whole));
                continue;
            }
            self.push_with(|arena| arena.extend_from_slice(&head));
            if let Some(body) = body {
                self.put(body);
            }
        }
        taken
    }

    /// Appends a payload as it was. Returns its bytes.
    fn put(&mut self, segment: Segment) -> usize {
        let bytes = match &segment {
            Segment::Head(_) => 0,
            Segment::Payload(payload) => payload.len(),
            Segment::Own { left, .. } => *left,
        };
        self.queued_bytes += bytes;
        self.queued_end += bytes as u64;
        self.segments.push_back(segment);
        bytes
    }

    /// True if its memory is small enough to keep.
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

    /// Writes once, at most this number of bytes.
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
        out.advance(flat.len(), frame_bytes);
        flat
    }

    /// A frame of the tests says in its first byte how long its header is, and in the next two how long its payload.
    fn frame_bytes(head: &[u8]) -> usize {
        let byte = |at: usize| usize::from(head.get(at).copied().unwrap_or_default());
        byte(0) + byte(1) * 256 + byte(2)
    }

    fn frame(number: u8, payload: usize) -> (Vec<u8>, Bytes) {
        let length = u16::try_from(payload).unwrap().to_be_bytes();
        let header = vec![8, length[0], length[1], number, 0, 0, 0, 0];
        (header, Bytes::from(vec![number; payload]))
    }

    #[test]
    fn whole_frames_are_taken_out_and_the_one_that_is_begun_stays() {
        let sizes = [10, 3000, 0, 5000, 700, 2000];
        let frames: Vec<_> = (0..)
            .zip(sizes)
            .map(|(number, size)| frame(number, size))
            .collect();
        let whole = |(header, payload): &(Vec<u8>, Bytes)| [&header[..], payload].concat();
        let all: Vec<u8> = frames.iter().flat_map(whole).collect();
        for stop in 0..all.len() {
            let mut out = Outbound::default();
            for (number, (header, payload)) in (0..).zip(&frames) {
                match number {
                    3 => assert!(out.push_own(header, payload.clone())),
                    _ => out.push_shared(header, payload),
                }
            }
            // In two writes, so that what is known of a frame goes on.
            let mut written = drain_up_to(&mut out, stop / 2);
            written.extend(drain_up_to(&mut out, stop - stop / 2));
            let mut asked = Vec::new();
            let taken = out.take_frames(frame_bytes, |head, shared| {
                assert_eq!(frame_bytes(head), head.len() + shared.len());
                asked.push(head[3]);
                head[3] % 2 == 1 || head[3] == 0
            });
            let (mut at, mut expected, mut ends) = (0, written.clone(), Vec::new());
            let mut may_be_taken = Vec::new();
            for (number, frame) in (0u8..).zip(&frames) {
                let frame = whole(frame);
                let (begin, end) = (at, at + frame.len());
                at = end;
                if begin >= stop && number != 3 {
                    may_be_taken.push(number);
                }
                if begin >= stop && number != 3 && (number % 2 == 1 || number == 0) {
                    ends.push((end as u64, frame.len()));
                } else if end > stop {
                    expected.extend(&frame[stop.saturating_sub(begin)..]);
                }
            }
            assert_eq!((asked, &taken), (may_be_taken, &ends), "after {stop}");
            assert_eq!(out.queued_end(), expected.len() as u64, "after {stop}");
            let mut got = written;
            got.extend(drain(&mut out, 777));
            assert!(got == expected, "after {stop}");
        }
    }

    #[test]
    fn the_shared_payload_of_a_frame_that_is_begun_can_be_set_aside() {
        let (header, payload) = frame(1, 5000);
        for stop in 0..=5010 {
            let mut out = Outbound::default();
            out.push_shared(&header, &payload);
            out.push_with(|arena| arena.extend_from_slice(&frame(2, 10).0));
            let mut all = drain_up_to(&mut out, stop);
            let is_begun = (1..5008).contains(&stop);
            assert_eq!(out.bytes_apart(), 5016_usize.saturating_sub(stop), "after {stop}");
            assert_eq!(out.begun(), is_begun.then_some(&header[..]), "after {stop}");
            assert_eq!(out.set_begun_aside(), is_begun.then_some(5008), "after {stop}");
            assert!(!is_begun || out.bytes_apart() <= 16, "after {stop}");
            all.extend(drain(&mut out, 100));
            if is_begun {
                assert!(out.is_missing() && out.bring_back(payload.clone()));
                all.extend(drain(&mut out, 100));
            }
            let expected = [&header[..], &payload, &frame(2, 10).0].concat();
            assert!(all == expected, "after {stop}");
        }
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
