//! The door to files: a small file-system trait, the real one behind it, and a faulty one for tests.
//!
//! Everything that must survive a crash goes through here, so that a test can lose what was not synced, tear a write,
//! refuse any call, fill the disk or have it lie (`FaultFs`, feature `test-util`).
//!
//! Two rules that callers live by:
//! - bytes are durable after [`FsFile::sync_data`] on the file;
//! - a name (created, renamed, removed) is durable after [`Fs::sync_dir`] on its directory.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;

mod aligned;
#[cfg(feature = "test-util")]
mod fault;
mod pieces;
mod real;

pub use aligned::AlignedBuf;
#[cfg(feature = "test-util")]
pub use fault::{Fault, FaultCounts, FaultFs, FaultOp, Plan, When};
pub use pieces::{Piece, PieceSize};
pub use real::RealFs;

/// Direct I/O wants file offsets, lengths and memory in multiples of this, in bytes. Holds for every device in use.
pub const DIRECT_ALIGN: usize = 4096;

/// Options for opening a file. It is always readable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenHow {
    /// Also opens for writing.
    pub write: bool,
    /// Make the file when it is not there.
    pub create: bool,
    /// Past the page cache where the file system can do that (see [`FsFile::is_direct`]).
    pub direct: bool,
}

impl OpenHow {
    /// For reading only.
    pub const READ: Self = Self {
        write: false,
        create: false,
        direct: false,
    };
    /// For reading and writing an existing file.
    pub const WRITE: Self = Self {
        write: true,
        ..Self::READ
    };
    /// For reading and writing, made when it is not there.
    pub const CREATE: Self = Self {
        create: true,
        ..Self::WRITE
    };

    /// Returns the same options with direct I/O on or off.
    #[must_use]
    pub const fn direct(self, direct: bool) -> Self {
        Self { direct, ..self }
    }
}

/// An open file. Shared freely; offsets are explicit, so there is no position to race for.
pub trait FsFile: fmt::Debug + Send + Sync {
    /// Reads up to `buf.len()` bytes at `byte_offset`; fewer only at the end of the file.
    ///
    /// # Errors
    /// The system's.
    fn read_at(&self, buf: &mut [u8], byte_offset: u64) -> io::Result<usize>;

    /// Reads into several buffers one after the other, in one call where the system has one.
    ///
    /// # Errors
    /// The system's.
    fn read_vectored_at(&self, bufs: &mut [IoSliceMut<'_>], byte_offset: u64) -> io::Result<usize> {
        read_one_by_one(self, bufs, byte_offset, 0)
    }

    /// Writes all of `buf` at `byte_offset`.
    ///
    /// # Errors
    /// The system's; any part of `buf` may have been written.
    fn write_all_at(&self, buf: &[u8], byte_offset: u64) -> io::Result<()>;

    /// Writes several buffers one after the other, in one call where the system has one.
    ///
    /// # Errors
    /// The system's; any part may have been written.
    fn write_vectored_all_at(&self, bufs: &[IoSlice<'_>], byte_offset: u64) -> io::Result<()> {
        let mut at = byte_offset;
        for buf in bufs {
            self.write_all_at(buf, at)?;
            at += buf.len() as u64;
        }
        Ok(())
    }

    /// Makes all bytes written so far, and the length, durable.
    ///
    /// # Errors
    /// The system's. What was not durable before may then be lost even when a later call succeeds, so a failed sync
    /// is final for every caller that depends on it.
    fn sync_data(&self) -> io::Result<()>;

    /// Cuts or extends (with zeros) the file.
    ///
    /// # Errors
    /// The system's.
    fn set_len(&self, bytes: u64) -> io::Result<()>;

    /// Reserves room for the first `bytes` of the file and extends it to that length, without writing.
    ///
    /// # Errors
    /// The system's; [`io::ErrorKind::StorageFull`] when there is no room.
    fn allocate(&self, bytes: u64) -> io::Result<()>;

    /// The length in bytes.
    ///
    /// # Errors
    /// The system's.
    fn len(&self) -> io::Result<u64>;

    /// True if the file is empty.
    ///
    /// # Errors
    /// The system's.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// True if buffers, offsets and lengths must be multiples of [`DIRECT_ALIGN`].
    fn is_direct(&self) -> bool;
}

/// Holds a lock on a file until dropped.
pub trait FsLock: fmt::Debug + Send + Sync {}

/// A file system.
pub trait Fs: fmt::Debug + Send + Sync {
    /// Makes a directory and its parents.
    ///
    /// # Errors
    /// The system's.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;

    /// Opens a file.
    ///
    /// # Errors
    /// The system's.
    fn open(&self, path: &Path, how: OpenHow) -> io::Result<Arc<dyn FsFile>>;

    /// Gives a file another name in the same directory, replacing what had it.
    ///
    /// # Errors
    /// The system's.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// The system's.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// The names in a directory, sorted.
    ///
    /// # Errors
    /// The system's.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    /// The system's.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Takes the exclusive lock on a file (made when it is not there); `None` when another process holds it.
    ///
    /// # Errors
    /// The system's.
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn FsLock>>>;
}

/// Reads into several buffers, a call for each, after the `done` bytes that are in them already.
fn read_one_by_one<F: FsFile + ?Sized>(
    file: &F,
    bufs: &mut [IoSliceMut<'_>],
    byte_offset: u64,
    done: usize,
) -> io::Result<usize> {
    let (mut skip, mut at) = (done, byte_offset);
    for buf in bufs {
        let before = skip.min(buf.len());
        skip -= before;
        let rest = buf.get_mut(before..).unwrap_or_default();
        let count = before
            + if rest.is_empty() {
                0
            } else {
                file.read_at(rest, at + before as u64)?
            };
        at += count as u64;
        if count < buf.len() {
            break;
        }
    }
    Ok((at - byte_offset) as usize)
}

/// True if an error says nothing about the device or its data: the same call may succeed when memory, file
/// descriptors or space are free again. A failed sync is final whatever its error says, see [`FsFile::sync_data`].
#[must_use]
pub fn is_transient(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, OutOfMemory, WouldBlock};
    // The library has no kind for these two: the process, or the machine, has all the files open that it may have.
    let files = [Errno::MFILE.raw_os_error(), Errno::NFILE.raw_os_error()];
    is_no_space(error)
        || matches!(error.kind(), Interrupted | OutOfMemory | WouldBlock)
        || error.raw_os_error().is_some_and(|number| files.contains(&number))
}

/// True if the device, or the user's quota on it, is full.
#[must_use]
pub fn is_no_space(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_is_told_from_what_stays() {
        let of = |errno: Errno| is_transient(&io::Error::from(errno));
        for passing in [
            Errno::MFILE,
            Errno::NFILE,
            Errno::NOSPC,
            Errno::DQUOT,
            Errno::NOMEM,
            Errno::AGAIN,
            Errno::INTR,
        ] {
            assert!(of(passing), "{passing}");
        }
        for staying in [Errno::IO, Errno::ROFS, Errno::BADF, Errno::ACCESS] {
            assert!(!of(staying), "{staying}");
        }
    }
}
