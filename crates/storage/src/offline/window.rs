//! Reading a file forward in large pieces, whatever state it is in.

use bytes::Bytes;

use pharos_runtime::fs::FsFile;
use pharos_storage_format::file::read_up_to;

/// Size of a read, in bytes.
const CHUNK_BYTES: usize = 1 << 20;

/// Size of the steps in which an unreadable range is skipped, in bytes.
const STEP_BYTES: usize = 4096;

/// A piece of a file in memory. What the device cannot read is zeros, and so becomes damage like any other.
pub(super) struct Window<'a> {
    file: &'a dyn FsFile,
    chunk: Bytes,
    chunk_at: u64,
    /// Offset and error of the first failed read.
    pub(super) refused: Option<(u64, std::io::Error)>,
}

impl<'a> Window<'a> {
    pub(super) fn new(file: &'a dyn FsFile) -> Self {
        Self {
            file,
            chunk: Bytes::new(),
            chunk_at: 0,
            refused: None,
        }
    }

    /// `bytes` bytes at `at`, fewer at the end of the file.
    pub(super) fn get(&mut self, at: u64, bytes: usize) -> Bytes {
        let inside = at >= self.chunk_at && at + bytes as u64 <= self.chunk_at + self.chunk.len() as u64;
        if !inside {
            self.chunk = self.read(at, bytes.max(CHUNK_BYTES));
            self.chunk_at = at;
        }
        let from =
            usize::try_from(at - self.chunk_at).map_or(self.chunk.len(), |from| from.min(self.chunk.len()));
        let to = from.saturating_add(bytes).min(self.chunk.len());
        self.chunk.slice(from..to)
    }

    fn read(&mut self, at: u64, bytes: usize) -> Bytes {
        match read_up_to(self.file, at, bytes) {
            Ok(found) => found,
            Err(error) => {
                self.refused.get_or_insert((at, error));
                self.read_in_steps(at, bytes)
            }
        }
    }

    fn read_in_steps(&self, at: u64, bytes: usize) -> Bytes {
        let mut all = Vec::with_capacity(bytes);
        while all.len() < bytes {
            match read_up_to(self.file, at + all.len() as u64, STEP_BYTES) {
                Ok(part) if part.is_empty() => break,
                Ok(part) => all.extend_from_slice(&part),
                Err(_) => all.resize(all.len() + STEP_BYTES, 0),
            }
        }
        all.into()
    }
}
