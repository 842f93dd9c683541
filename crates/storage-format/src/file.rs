//! Open files of the two kinds that hold records, and reading from them.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use pharos_runtime::fs::{AlignedBuf, DIRECT_ALIGN, FsFile};

/// An open segment file.
#[derive(Debug)]
pub struct SegmentFile {
    /// Its number, which is in its name.
    pub id: u32,
    /// The mark that everything in it carries.
    pub salt: u32,
    /// Path of the file, for messages.
    pub path: PathBuf,
    /// The file itself.
    pub file: Arc<dyn FsFile>,
}

impl SegmentFile {
    /// Reads `bytes` bytes, or fewer at the end of the file.
    ///
    /// # Errors
    /// The device's.
    pub fn read_up_to(&self, byte_offset: u64, bytes: usize) -> io::Result<Bytes> {
        read_up_to(&*self.file, byte_offset, bytes)
    }
}

/// Reads `bytes` bytes at any place of a file, or fewer at its end.
///
/// # Errors
/// The device's.
pub fn read_up_to(file: &dyn FsFile, byte_offset: u64, bytes: usize) -> io::Result<Bytes> {
    if !file.is_direct() {
        let mut buf = vec![0; bytes];
        let count = file.read_at(&mut buf, byte_offset)?;
        buf.truncate(count);
        return Ok(buf.into());
    }
    let before = (byte_offset % DIRECT_ALIGN as u64) as usize;
    let mut buf = AlignedBuf::zeroed((before + bytes).next_multiple_of(DIRECT_ALIGN));
    let count = file.read_at(buf.bytes_mut(), byte_offset - before as u64)?;
    let (from, to) = (before.min(count), (before + bytes).min(count));
    Ok(Bytes::from_owner(buf).slice(from..to))
}

/// An open entry log. Shared by its readers and its writer; removing the log does not close it for them.
#[derive(Debug)]
pub struct LogFile {
    /// The number of its ledger directory.
    pub dir: u16,
    /// Its number, which is in its name.
    pub id: u32,
    /// The mark that everything in it carries.
    pub salt: u32,
    /// Path of the file.
    pub path: PathBuf,
    /// The file itself.
    pub file: Arc<dyn FsFile>,
}
