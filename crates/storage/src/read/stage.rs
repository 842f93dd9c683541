//! Where a device puts what a thread reads.
//!
//! ```text
//!  device ─► stage, one stretch of memory ─► extents, each with a buffer of its own
//! ```
//! The copy costs a tenth of what it saves: read into the extents themselves, a piece is up to 256 ranges of memory for the
//! device, from huge pages it is one ([`AlignedBuf`]). And an extent that somebody keeps keeps nothing else.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;

use pharos_runtime::fs::AlignedBuf;

use super::extents::{EXTENT_BYTES, Pool};
use super::pace::EXTENTS_MAX;
use crate::logs::LogFile;
use crate::shared::Shared;
use crate::stats::bump;

/// Extents that were read at once.
pub(super) type Read = SmallVec<[Bytes; EXTENTS_MAX as usize]>;

/// Memory for the reads of one thread.
#[derive(Debug, Default)]
pub(crate) struct Stage {
    buf: AlignedBuf,
    /// The least that it holds from the first read on, in bytes.
    least: usize,
}

impl Stage {
    /// One that is used again and again.
    pub(super) fn for_a_thread() -> Self {
        Self {
            buf: AlignedBuf::default(),
            least: EXTENTS_MAX as usize * EXTENT_BYTES as usize,
        }
    }

    /// Gives the memory back.
    pub(super) fn rest(&mut self) {
        self.buf = AlignedBuf::default();
    }

    /// Whether it holds memory.
    pub(super) fn is_used(&self) -> bool {
        self.buf.capacity() > 0
    }

    /// Reads at least `bytes`, which are at most [`EXTENTS_MAX`] extents, or to the end of the file, in one call. Returns how
    /// many bytes there were.
    pub(super) fn read(
        &mut self,
        shared: &Shared,
        file: &LogFile,
        start: u64,
        bytes: u64,
    ) -> io::Result<usize> {
        let wanted = bytes.next_multiple_of(4096) as usize;
        self.buf.reserve(wanted.max(self.least));
        let target = self.buf.bytes_mut().get_mut(..wanted).unwrap_or_default();
        let count = file.file.read_at(target, start)?;
        bump(&shared.counters.reads, 1);
        bump(&shared.counters.read_bytes, count as u64);
        Ok(count)
    }

    /// The first `count` bytes of what was read, as extents. Not done while the next read has to wait.
    pub(super) fn extents(&self, pool: &Arc<Pool>, count: usize) -> Read {
        let bytes = self.buf.bytes().get(..count).unwrap_or_default();
        let extents = bytes.chunks(EXTENT_BYTES as usize);
        extents.map(|extent| pool.extent(extent)).collect()
    }
}
