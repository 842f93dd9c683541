//! Result of one read from a device, as pieces that are shared without copying.
//!
//! ```text
//!  extents      | 40 | 41 | 42 | 43 | 44 | 45 | 46 |
//!  a run          ....................................
//!  pieces       [ 40 ][      41 to 44     ][ 45 ][ 46 ]        one call of the system
//! ```
//! Four extents that lie within one run are one piece: in long pieces few records cross from one into the next, and
//! must be put together. At the start or end of a run its neighbour has a part of the extent and is evicted at
//! another time, so that is a piece of its own.
//!
//! A read of one extent, as beside a busy journal, is copied to memory of another kind: a huge page that is used for
//! the first time can keep a processor for milliseconds, which publishers would notice, and such reads are not what
//! makes a backlog fast.

use std::io::{self, IoSliceMut};
use std::ops::Range;

use bytes::Bytes;
use smallvec::SmallVec;

use pharos_runtime::fs::{AlignedBuf, Piece, PieceSize};
use pharos_storage_format::file::LogFile;

use super::extents::{EXTENT_BYTES, PIECE_EXTENTS_MAX};
use super::pace::{EXTENTS_MAX, Read};
use crate::shared::Shared;
use crate::stats::bump;

/// Target buffer of a read.
enum Target {
    Piece(Piece),
    /// There are no more pieces.
    Heap(AlignedBuf),
}

impl Target {
    fn take(shared: &Shared, size: PieceSize) -> Self {
        match Piece::take(size, shared.extents.memory_max()) {
            Some(piece) => Self::Piece(piece),
            None => Self::Heap(AlignedBuf::zeroed(size.bytes())),
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Piece(piece) => piece.bytes_mut(),
            Self::Heap(buf) => buf.bytes_mut(),
        }
    }
}

impl AsRef<[u8]> for Target {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Piece(piece) => piece.as_ref(),
            Self::Heap(buf) => buf.bytes(),
        }
    }
}

/// Reads `bytes` from the start of extent `number` on, or to the end of the file, in one call. `inside`: the extents that have
/// nothing but one run.
pub(super) fn read(
    shared: &Shared,
    file: &LogFile,
    number: u32,
    bytes: u64,
    inside: &Range<u32>,
) -> io::Result<Read> {
    if bytes <= EXTENT_BYTES {
        return read_one(shared, file, number, bytes);
    }
    let mut targets: SmallVec<[(u32, Target, usize); EXTENTS_MAX as usize]> = SmallVec::new();
    let mut next = number;
    let mut left = bytes.next_multiple_of(4096) as usize;
    while left > 0 {
        let large_end = next.saturating_add(PIECE_EXTENTS_MAX);
        let is_large = left >= PieceSize::Large.bytes() && inside.start <= next && large_end <= inside.end;
        let size = if is_large {
            PieceSize::Large
        } else {
            PieceSize::Small
        };
        let part = size.bytes().min(left);
        targets.push((next, Target::take(shared, size), part));
        next += (size.bytes() as u64 / EXTENT_BYTES) as u32;
        left -= part;
    }
    let mut slices: SmallVec<[IoSliceMut<'_>; EXTENTS_MAX as usize]> = targets
        .iter_mut()
        .map(|(_, target, part)| IoSliceMut::new(target.bytes_mut().get_mut(..*part).unwrap_or_default()))
        .collect();
    let start = u64::from(number) * EXTENT_BYTES;
    let mut count = file.file.read_vectored_at(&mut slices, start)?;
    drop(slices);
    note(shared, count);
    let mut found = Read::new();
    for (number, target, part) in targets {
        let part = part.min(count);
        count -= part;
        if part > 0 {
            found.push((number, Bytes::from_owner(target).slice(..part)));
        }
    }
    Ok(found)
}

/// Reads at most one extent.
fn read_one(shared: &Shared, file: &LogFile, number: u32, bytes: u64) -> io::Result<Read> {
    let mut target = Target::take(shared, PieceSize::Small);
    let wanted = bytes.next_multiple_of(4096) as usize;
    let room = target.bytes_mut().get_mut(..wanted).unwrap_or_default();
    let count = file.file.read_at(room, u64::from(number) * EXTENT_BYTES)?;
    note(shared, count);
    let found = target.as_ref().get(..count).filter(|found| !found.is_empty());
    let pool = shared.extents.pool();
    Ok(found
        .map(|found| (number, pool.extent(found)))
        .into_iter()
        .collect())
}

fn note(shared: &Shared, bytes: usize) {
    bump(&shared.counters.reads, 1);
    bump(&shared.counters.read_bytes, bytes as u64);
}
