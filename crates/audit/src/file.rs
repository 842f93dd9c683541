//! The file, and those before it.
//!
//! Always true: the file holds whole lines; one that could not be written whole is cut off or written over.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pharos_runtime::fs::{Fs, FsFile, OpenHow};

/// A file that makes room for a new one when it is full.
pub(crate) struct RotatedFile {
    fs: Arc<dyn Fs>,
    path: PathBuf,
    bytes_max: u64,
    /// Earlier files that are kept.
    files_max: u32,
    /// The one that is written, and how much of it is whole.
    open: Option<(Arc<dyn FsFile>, u64)>,
}

impl RotatedFile {
    /// Opens it, to go on behind what is there.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn open(fs: Arc<dyn Fs>, path: &Path, bytes_max: u64, files_max: u32) -> io::Result<Self> {
        let mut file = Self {
            fs,
            path: path.to_owned(),
            bytes_max,
            files_max,
            open: None,
        };
        if let Some(dir) = path.parent() {
            file.fs.create_dir_all(dir)?;
        }
        file.opened()?;
        Ok(file)
    }

    /// Writes lines, all in one file.
    ///
    /// # Errors
    /// The system's; nothing of them is in the file then, or what is will be written over.
    pub(crate) fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        let (_, len) = self.opened()?;
        if len > 0 && len + lines.len() as u64 > self.bytes_max {
            self.rotate()?;
        }
        let (file, len) = self.opened()?;
        if let Err(error) = file.write_all_at(lines, len) {
            // Best effort: the next line goes to the same place.
            let _ = file.set_len(len);
            return Err(error);
        }
        self.open = Some((file, len + lines.len() as u64));
        Ok(())
    }

    /// Makes what is written durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.open.as_ref().map_or(Ok(()), |(file, _)| file.sync_data())
    }

    fn opened(&mut self) -> io::Result<(Arc<dyn FsFile>, u64)> {
        if let Some((file, len)) = &self.open {
            return Ok((file.clone(), *len));
        }
        let file = self.fs.open(&self.path, OpenHow::CREATE)?;
        let mut len = file.len()?;
        // What a crash left of a line stays, on a line of its own.
        let mut last = [b'\n'];
        if len > 0 && file.read_at(&mut last, len - 1)? == 1 && last != *b"\n" {
            file.write_all_at(b"\n", len)?;
            len += 1;
        }
        if let Some(dir) = self.path.parent() {
            self.fs.sync_dir(dir)?;
        }
        self.open = Some((file.clone(), len));
        Ok((file, len))
    }

    /// Gives the file the next name, and each earlier one the name after that; the last goes.
    fn rotate(&mut self) -> io::Result<()> {
        self.sync()?;
        for number in (1..self.files_max).rev() {
            self.move_on(&self.numbered(number), number + 1)?;
        }
        self.move_on(&self.path, 1)?;
        self.open = None;
        Ok(())
    }

    fn move_on(&self, from: &Path, number: u32) -> io::Result<()> {
        match self.fs.rename(from, &self.numbered(number)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            outcome => outcome,
        }
    }

    fn numbered(&self, number: u32) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        name.into()
    }
}
