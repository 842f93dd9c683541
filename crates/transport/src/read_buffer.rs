//! Read buffer of a connection.
//!
//! An idle connection holds no memory: it borrows some when there is something to read, and in a burst a large block
//! (`blocks`), which frames leave as slices.

use std::io;

use bytes::{BufMut as _, BytesMut};

use crate::blocks;
use crate::buffer_pool::BufferPool;
use crate::stream::ReadHalf;

/// The first read of a burst.
const READ_BYTES_MIN: usize = 16 << 10;
/// In a burst that keeps filling its buffer reads are doubled this often, to [`READ_BYTES_MAX`].
const DOUBLINGS_MAX: u32 = 4;
/// The most that one read takes.
const READ_BYTES_MAX: usize = READ_BYTES_MIN << DOUBLINGS_MAX;
/// From this size on reads go to a block.
const BLOCK_READ_BYTES_MIN: usize = 64 << 10;
/// A larger frame gets memory of its own.
const BLOCK_FRAME_BYTES_MAX: usize = blocks::BLOCK_BYTES / 2;

thread_local! {
    static POOL: BufferPool<BytesMut> = const { BufferPool::new() };
}

/// Bytes read and not yet handled, of one connection.
#[derive(Debug, Default)]
pub struct ReadBuffer {
    bytes: BytesMut,
    /// The memory is one of [`blocks`].
    is_block: bool,
    /// Full reads one after the other: how often the next one is doubled.
    doubled: u32,
}

impl Drop for ReadBuffer {
    fn drop(&mut self) {
        if self.is_block {
            blocks::forfeit();
        }
    }
}

/// Result of a read.
#[derive(Debug)]
pub enum Read {
    /// Bytes came. After they were handled, [`ReadBuffer::handled`] says so.
    Some(Filled),
    /// There was nothing.
    Nothing,
    /// The peer has closed.
    Closed,
    /// The stream is finished.
    Broken(io::Error),
}

/// A read that brought something.
#[derive(Debug)]
#[must_use = "the buffer adapts to it"]
pub struct Filled {
    all_room: bool,
}

impl ReadBuffer {
    /// Begins with what was read elsewhere.
    pub fn begin_with(&mut self, bytes: BytesMut) {
        self.bytes = bytes;
    }

    /// Unhandled bytes, in memory of their own.
    #[must_use]
    pub fn into_rest(self) -> BytesMut {
        BytesMut::from(&self.bytes[..])
    }

    /// Unhandled bytes. Whole frames are split off the front.
    pub fn bytes(&mut self) -> &mut BytesMut {
        &mut self.bytes
    }

    /// Unhandled bytes, read only.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes
    }

    /// True if the next read may take more than the first of a burst.
    #[must_use]
    pub fn reads_much(&self) -> bool {
        self.doubled > 0
    }

    /// Lets the next read be a small one.
    pub fn slow_down(&mut self) {
        self.doubled = 0;
    }

    /// Reads what has come, without waiting.
    ///
    /// `missing`: how many bytes the frame lacks with which the buffer begins; `None` while its length is not known. Room for
    /// them is made as they really arrive.
    ///
    /// Cancel safety: it never waits.
    pub async fn read(&mut self, stream: &mut ReadHalf, missing: Option<usize>) -> Read {
        let room = self.make_room(missing);
        match stream.read_now(&mut (&mut self.bytes).limit(room)).await {
            None => {
                self.rest();
                Read::Nothing
            }
            Some(Ok(0)) => Read::Closed,
            Some(Ok(bytes)) => Read::Some(Filled {
                all_room: bytes == room,
            }),
            Some(Err(error)) => Read::Broken(error),
        }
    }

    /// Marks the bytes of a read as handled as far as possible: the next read is larger if this one filled all the
    /// room.
    pub fn handled(&mut self, filled: Filled) {
        if filled.all_room {
            self.doubled = (self.doubled + 1).min(DOUBLINGS_MAX);
        } else {
            self.rest();
        }
    }

    /// Gives the memory back if nothing is in it: the socket has no more for now.
    pub fn rest(&mut self) {
        if self.bytes.is_empty() {
            self.doubled = 0;
            let bytes = std::mem::take(&mut self.bytes);
            if std::mem::take(&mut self.is_block) {
                blocks::give(bytes);
            } else {
                POOL.with(|pool| pool.give(bytes));
            }
        }
    }

    /// Makes room for the next read and returns how much.
    fn make_room(&mut self, missing: Option<usize>) -> usize {
        let want = READ_BYTES_MIN << self.doubled;
        let frame = self.bytes.len() + missing.unwrap_or(0);
        if want < BLOCK_READ_BYTES_MIN || frame > BLOCK_FRAME_BYTES_MAX {
            self.make_own_room(want, missing);
        } else if !self.has_room_in_block(missing) {
            match blocks::take(frame.max(BLOCK_READ_BYTES_MIN)) {
                Some(block) => self.move_to(block),
                None => self.make_own_room(want, missing),
            }
        }
        (self.bytes.capacity() - self.bytes.len()).min(READ_BYTES_MAX)
    }

    fn has_room_in_block(&self, missing: Option<usize>) -> bool {
        let room = self.bytes.capacity() - self.bytes.len();
        // A frame that ends in this block is read to its end there, even in a small read; any other one moves.
        let ends_here = missing.is_some_and(|missing| missing <= room);
        self.is_block && (ends_here || room >= BLOCK_READ_BYTES_MIN)
    }

    fn move_to(&mut self, mut block: BytesMut) {
        block.extend_from_slice(&self.bytes);
        let old = std::mem::replace(&mut self.bytes, block);
        if std::mem::replace(&mut self.is_block, true) {
            blocks::give(old);
        }
    }

    /// Room that no other connection reads into: never much more than has already come, whatever a frame promises.
    fn make_own_room(&mut self, want: usize, missing: Option<usize>) {
        let hint = missing.unwrap_or(0).min(self.bytes.len());
        let room = want.max(hint);
        if std::mem::take(&mut self.is_block) {
            let mut own = BytesMut::with_capacity(self.bytes.len() + room);
            own.extend_from_slice(&self.bytes);
            blocks::give(std::mem::replace(&mut self.bytes, own));
        } else {
            if self.bytes.capacity() == 0 {
                self.bytes = POOL.with(BufferPool::take);
            }
            self.bytes.reserve(room);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use bytes::Bytes;

    use super::*;

    /// A frame: its length in four bytes, then `bytes` bytes that are all the same.
    fn frame(bytes: usize, fill: u8) -> Vec<u8> {
        let mut frame = u32::try_from(bytes).unwrap().to_be_bytes().to_vec();
        frame.resize(4 + bytes, fill);
        frame
    }

    fn missing(bytes: &[u8]) -> Option<usize> {
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        Some((u32::from_be_bytes(*length) as usize).saturating_sub(rest.len()))
    }

    fn decode(bytes: &mut BytesMut) -> Option<Bytes> {
        if missing(bytes)? > 0 {
            return None;
        }
        let length = u32::from_be_bytes(bytes.split_to(4)[..].try_into().unwrap()) as usize;
        Some(bytes.split_to(length).freeze())
    }

    /// Frames of these sizes, read in pieces of at most `pieces` bytes in turn; the last 4 MB stay in use.
    fn read(sizes: &[usize], pieces: &[usize]) {
        let frames = (0..)
            .zip(sizes)
            .map(|(number, bytes)| frame(*bytes, number as u8));
        let stream = frames.collect::<Vec<_>>().concat();
        let (mut input, mut at, mut found) = (ReadBuffer::default(), 0, 0);
        let (mut held, mut held_bytes) = (VecDeque::<(Bytes, u8)>::new(), 0);
        for piece in pieces.iter().cycle() {
            let room = input.make_room(missing(input.as_slice()));
            assert!(room > 0);
            let bytes = room.min(*piece).min(stream.len() - at);
            input.bytes().extend_from_slice(&stream[at..at + bytes]);
            at += bytes;
            while let Some(payload) = decode(input.bytes()) {
                assert_eq!(payload.len(), sizes[found]);
                held_bytes += payload.len();
                held.push_back((payload, found as u8));
                found += 1;
            }
            while held_bytes > 4_000_000 {
                let (payload, fill) = held.pop_front().unwrap();
                held_bytes -= payload.len();
                assert!(
                    payload.iter().all(|byte| *byte == fill),
                    "nothing was written over it"
                );
            }
            input.handled(Filled {
                all_room: bytes == room,
            });
            if at == stream.len() {
                break;
            }
        }
        assert_eq!(found, sizes.len());
        assert!(
            held.iter()
                .all(|(payload, fill)| payload.iter().all(|byte| byte == fill))
        );
    }

    #[test]
    fn frames_of_all_sizes_come_out_as_they_went_in_whatever_the_reads_bring() {
        let shard = pharos_runtime::spawn_shard("test".to_owned(), || async {
            let mixed = [
                5, 131_000, 20_000, 700_000, 100, 300_000, 3_000_000, 131_000, 524_000, 525_000, 0, 1,
            ];
            let mixed: Vec<usize> = mixed.iter().cycle().take(60).copied().collect();
            for sizes in [&mixed[..], &[131_072; 80], &[30_000; 300], &[1_048_570; 12]] {
                for pieces in [
                    &[usize::MAX][..],
                    &[usize::MAX, 200_000, 37],
                    &[70_000, 999_999],
                    &[usize::MAX, 3],
                ] {
                    read(sizes, pieces);
                }
            }
        });
        shard.unwrap().join().unwrap();
    }
}
