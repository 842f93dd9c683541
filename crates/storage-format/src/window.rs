//! Reading a journal segment forward, some pieces ahead of its reader.
//!
//! ```text
//!  device ─► piece ─► piece ─►│ end of the piece before │ piece │ ◄─ a group, in one stretch of memory
//!   a thread of its own       └ copied into the room before it
//! ```
//! So the device goes on while groups are checked and applied, and nothing is read again for a group that ends in another
//! piece.
//!
//! Always true: what is held is a few pieces, and the group that is looked at when that is larger. What the device cannot
//! read is zeros, and so becomes damage like any other.

use pharos_runtime::fs::{AlignedBuf, DIRECT_ALIGN};
use pharos_runtime::sync::mpsc::{Receiver, SyncSender, sync_channel};
use pharos_runtime::sync::thread::{self, Scope};

use crate::file::SegmentFile;

/// Size of a read, in bytes.
const PIECE_BYTES: usize = 4 << 20;
/// Room for the end of the piece before: the usual group is not larger.
const HEAD_BYTES: usize = 1 << 20;
/// Pieces in memory: one is looked at, one waits, one is read.
const PIECES: usize = 3;

/// A stretch of the file in memory.
#[derive(Debug, Default)]
struct Piece {
    buf: AlignedBuf,
    /// Offset of the stretch in the file.
    at: u64,
    /// Start and end of the stretch in the buffer.
    start: usize,
    end: usize,
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        self.buf.bytes().get(self.start..self.end).unwrap_or_default()
    }

    /// Returns the bytes of the file from `at` on that are in memory.
    fn from(&self, at: u64) -> &[u8] {
        let skip = at
            .checked_sub(self.at)
            .and_then(|skip| usize::try_from(skip).ok());
        skip.and_then(|skip| self.bytes().get(skip..)).unwrap_or_default()
    }
}

/// Reads piece after piece.
#[derive(Clone, Copy, Debug)]
struct Reader<'a> {
    file: &'a SegmentFile,
    /// Offsets of the next piece and of the end of reading.
    at: u64,
    end: u64,
}

impl Reader<'_> {
    /// The next piece, in a buffer that was used before or a new one. `None` at the end.
    fn next(&mut self, mut buf: AlignedBuf) -> Option<Piece> {
        let left = usize::try_from(self.end.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let wanted = left.min(PIECE_BYTES).next_multiple_of(DIRECT_ALIGN);
        if left == 0 {
            return None;
        }
        if buf.capacity() < HEAD_BYTES + wanted {
            // The last piece, mostly the only one, is not used as a buffer again.
            let make = if left > PIECE_BYTES {
                AlignedBuf::reusable
            } else {
                AlignedBuf::zeroed
            };
            buf = make(HEAD_BYTES + wanted);
        }
        let target = buf.bytes_mut().get_mut(HEAD_BYTES..HEAD_BYTES + wanted)?;
        let count = match self.file.file.read_at(target, self.at) {
            Ok(count) => count,
            Err(error) => {
                let file = self.file.path.display();
                tracing::error!(%error, %file, byte_offset = self.at, "cannot read, trying in parts");
                self.read_in_parts(target)
            }
        };
        let piece = Piece {
            buf,
            at: self.at,
            start: HEAD_BYTES,
            end: HEAD_BYTES + count,
        };
        self.at += count as u64;
        if count < wanted {
            // The file is shorter than it was known to be.
            self.end = self.at;
        }
        (count > 0).then_some(piece)
    }

    fn read_in_parts(&self, target: &mut [u8]) -> usize {
        let mut done = 0;
        for part in target.chunks_mut(DIRECT_ALIGN) {
            match self.file.file.read_at(part, self.at + done as u64) {
                Ok(count) if count < part.len() => return done + count,
                Ok(_) => {}
                Err(_) => part.fill(0),
            }
            done += part.len();
        }
        done
    }
}

/// Source of the pieces.
#[derive(Debug)]
enum Source<'a> {
    /// Read when they are wanted.
    Here(Reader<'a>),
    /// Read by a thread that gets the buffers back.
    Ahead {
        pieces: Receiver<Piece>,
        free: SyncSender<AlignedBuf>,
    },
}

/// A file that is looked at from front to back.
#[derive(Debug)]
pub(crate) struct Window<'a> {
    source: Source<'a>,
    piece: Piece,
    /// A group that is too large for a piece.
    wide: Vec<u8>,
}

impl<'a> Window<'a> {
    /// From `from` to `end` of a file, with a thread that reads ahead where that is more than a piece.
    pub(crate) fn new<'scope>(
        scope: &'scope Scope<'scope, 'a>,
        file: &'a SegmentFile,
        (from, end): (u64, u64),
    ) -> Self {
        let reader = Reader {
            file,
            at: from - from % DIRECT_ALIGN as u64,
            end,
        };
        Self {
            source: source(scope, reader),
            piece: Piece::default(),
            wide: Vec::new(),
        }
    }

    /// `bytes` bytes at `at`, fewer at the end of the file. `at` never goes back.
    pub(crate) fn get(&mut self, at: u64, bytes: usize) -> &[u8] {
        while self.piece.from(at).len() < bytes {
            let left = self.piece.from(at).len();
            if left > HEAD_BYTES {
                return self.gather(at, bytes);
            }
            let Some(mut next) = self.next() else { break };
            // Where something was skipped nothing of the old one is wanted, and nothing of the new one before `at`.
            if left > 0 {
                let head = HEAD_BYTES - left;
                if let Some(head) = next.buf.bytes_mut().get_mut(head..HEAD_BYTES) {
                    head.copy_from_slice(self.piece.from(at));
                }
                (next.start, next.at) = (head, at);
            }
            self.replace(next);
        }
        let found = self.piece.from(at);
        found.get(..bytes).unwrap_or(found)
    }

    /// Puts a large group together. The piece with its end stays.
    fn gather(&mut self, at: u64, bytes: usize) -> &[u8] {
        let mut wide = std::mem::take(&mut self.wide);
        wide.clear();
        wide.extend_from_slice(self.piece.from(at));
        while wide.len() < bytes
            && let Some(next) = self.next()
        {
            wide.extend_from_slice(next.bytes());
            self.replace(next);
        }
        wide.truncate(bytes);
        self.wide = wide;
        &self.wide
    }

    fn next(&mut self) -> Option<Piece> {
        match &mut self.source {
            Source::Here(reader) => reader.next(AlignedBuf::default()),
            Source::Ahead { pieces, .. } => pieces.recv().ok(),
        }
    }

    fn replace(&mut self, next: Piece) {
        let old = std::mem::replace(&mut self.piece, next);
        if let Source::Ahead { free, .. } = &self.source
            && old.buf.capacity() > 0
        {
            // The thread may have come to its end.
            let _ = free.try_send(old.buf);
        }
    }
}

fn source<'scope, 'a>(scope: &'scope Scope<'scope, 'a>, reader: Reader<'a>) -> Source<'a> {
    if reader.end.saturating_sub(reader.at) <= PIECE_BYTES as u64 {
        return Source::Here(reader);
    }
    let (full, pieces) = sync_channel(PIECES);
    let (free, empty) = sync_channel(PIECES);
    let mut ahead = reader;
    let read = move || {
        let mut made = 0;
        loop {
            let buf = match made {
                PIECES => empty.recv().ok(),
                _ => Some(AlignedBuf::default()),
            };
            made = PIECES.min(made + 1);
            let Some(piece) = buf.and_then(|buf| ahead.next(buf)) else {
                return;
            };
            if full.send(piece).is_err() {
                return;
            }
        }
    };
    match thread::spawn_scoped(scope, "journal-read", read) {
        Ok(_) => Source::Ahead { pieces, free },
        Err(error) => {
            tracing::warn!(%error, "no thread to read a journal ahead");
            Source::Here(reader)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::ops::Range;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use pharos_runtime::fs::FsFile;

    use super::*;

    /// A file of numbers, some of which cannot be read.
    #[derive(Debug)]
    struct Numbers {
        bytes: u64,
        bad: Range<u64>,
        read: Arc<AtomicU64>,
    }

    impl Numbers {
        fn at(&self, byte_offset: u64) -> u8 {
            let is_bad = self.bad.contains(&byte_offset);
            if is_bad { 0 } else { (byte_offset / 7 % 251) as u8 }
        }
    }

    impl FsFile for Numbers {
        fn read_at(&self, buf: &mut [u8], byte_offset: u64) -> io::Result<usize> {
            let end = self.bytes.min(byte_offset + buf.len() as u64);
            if byte_offset < self.bad.end && end > self.bad.start {
                return Err(io::Error::other("bad"));
            }
            let count = end.saturating_sub(byte_offset);
            for (at, byte) in (byte_offset..end).zip(buf) {
                *byte = self.at(at);
            }
            self.read.fetch_add(count, Ordering::Relaxed);
            Ok(count as usize)
        }

        fn write_all_at(&self, _: &[u8], _: u64) -> io::Result<()> {
            Err(io::ErrorKind::Unsupported.into())
        }

        fn sync_data(&self) -> io::Result<()> {
            Ok(())
        }

        fn set_len(&self, _: u64) -> io::Result<()> {
            Err(io::ErrorKind::Unsupported.into())
        }

        fn allocate(&self, _: u64) -> io::Result<()> {
            Err(io::ErrorKind::Unsupported.into())
        }

        fn len(&self) -> io::Result<u64> {
            Ok(self.bytes)
        }

        fn is_direct(&self) -> bool {
            true
        }
    }

    /// Goes through a file of so many bytes in steps, as a sweep does, and says how many bytes were read for that.
    fn go_through(bytes: u64, end: u64, bad: Range<u64>, steps: &[usize]) -> u64 {
        let read = Arc::new(AtomicU64::new(0));
        let numbers = Numbers {
            bytes,
            bad: bad.clone(),
            read: Arc::clone(&read),
        };
        let expected = Numbers {
            bytes,
            bad,
            read: Arc::default(),
        };
        let file = SegmentFile {
            id: 1,
            salt: 1,
            path: "numbers".into(),
            file: Arc::new(numbers),
        };
        pharos_runtime::sync::thread::scope(|scope| {
            let mut at = 512;
            let mut window = Window::new(scope, &file, (at, end));
            let mut steps = steps.iter().cycle();
            while at < end {
                assert_eq!(
                    window.get(at, 32).first(),
                    Some(&expected.at(at)).filter(|_| at < bytes)
                );
                let step = *steps.next().unwrap();
                let wanted = step.min((end - at) as usize);
                let found = window.get(at, wanted);
                assert_eq!(found.len() as u64, (wanted as u64).min(bytes.saturating_sub(at)));
                assert!((at..).zip(found).all(|(at, byte)| *byte == expected.at(at)));
                // What is no group is stepped over, groups are gone through.
                at += (step as u64).next_multiple_of(512);
            }
        });
        read.load(Ordering::Relaxed)
    }

    const MIB: usize = 1 << 20;

    #[test]
    fn groups_of_any_size_come_whole_and_each_byte_is_read_once() {
        let steps = [700_000, 512, MIB + 1, 3 * MIB, 512, 40_000, 13 * MIB, 9_000];
        for bytes in [4096, 3 * MIB as u64, 30 * MIB as u64] {
            let read = go_through(bytes, bytes, 0..0, &steps);
            assert_eq!(read, bytes);
        }
    }

    #[test]
    fn a_file_that_is_shorter_than_known_ends_early() {
        let bytes = 9 * MIB as u64 + 5000;
        assert_eq!(go_through(bytes, bytes + 6 * MIB as u64, 0..0, &[300_000]), bytes);
    }

    #[test]
    fn what_cannot_be_read_is_zeros_and_the_rest_is_there() {
        let bad = 5 * MIB as u64..5 * MIB as u64 + 3 * 4096;
        let read = go_through(12 * MIB as u64, 12 * MIB as u64, bad, &[MIB - 99]);
        assert_eq!(read, 12 * MIB as u64 - 3 * 4096);
    }
}
