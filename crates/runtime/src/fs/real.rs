//! The real file system: std with a little rustix.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{FallocateFlags, FlockOperation, OFlags};
use rustix::io::Errno;

use super::{Fs, FsFile, FsLock, OpenHow};

/// The file system of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealFs;

#[derive(Debug)]
struct RealFile {
    file: File,
    direct: bool,
}

#[derive(Debug)]
struct RealLock {
    /// The lock ends when the last handle of this opening is closed, also when the process dies.
    _file: File,
}

impl FsLock for RealLock {}

impl Fs for RealFs {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        std::fs::create_dir_all(dir)
    }

    fn open(&self, path: &Path, how: OpenHow) -> io::Result<Arc<dyn FsFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(how.write).create(how.create);
        if how.direct {
            options.custom_flags(OFlags::DIRECT.bits().cast_signed());
            match options.open(path) {
                // Some file systems know no direct I/O and say so in this way; the page cache is then all there is.
                Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                    options.custom_flags(0);
                }
                opened => return opened.map(|file| shared(file, true)),
            }
        }
        options.open(path).map(|file| shared(file, false))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(dir)? {
            // A name that is no text is not one of ours.
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn FsLock>>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Box::new(RealLock { _file: file }))),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }
}

fn shared(file: File, direct: bool) -> Arc<dyn FsFile> {
    Arc::new(RealFile { file, direct })
}

impl FsFile for RealFile {
    fn read_at(&self, buf: &mut [u8], byte_offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(rest, byte_offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            // A short direct read that ends off the grid is the end of the file; the rest could not be asked for.
            if self.direct && done % super::DIRECT_ALIGN != 0 {
                break;
            }
        }
        Ok(done)
    }

    fn read_vectored_at(&self, bufs: &mut [IoSliceMut<'_>], byte_offset: u64) -> io::Result<usize> {
        let total: usize = bufs.iter().map(|buf| buf.len()).sum();
        let done = loop {
            match rustix::io::preadv(&self.file, bufs, byte_offset) {
                Ok(done) => break done,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        };
        // As in `read_at`: a direct read that ends off the grid was the end of the file.
        if done == total || self.direct && done % super::DIRECT_ALIGN != 0 {
            return Ok(done);
        }
        super::read_one_by_one(self, bufs, byte_offset, done)
    }

    fn write_all_at(&self, buf: &[u8], byte_offset: u64) -> io::Result<()> {
        self.file.write_all_at(buf, byte_offset)
    }

    fn write_vectored_all_at(&self, bufs: &[IoSlice<'_>], byte_offset: u64) -> io::Result<()> {
        let total: usize = bufs.iter().map(|buf| buf.len()).sum();
        let mut done = rustix::io::pwritev(&self.file, bufs, byte_offset)?;
        if done == total {
            return Ok(());
        }
        // The rare short write is finished buffer by buffer.
        let mut at = byte_offset;
        for buf in bufs {
            let skip = done.min(buf.len());
            done -= skip;
            self.write_all_at(buf.get(skip..).unwrap_or_default(), at + skip as u64)?;
            at += buf.len() as u64;
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, bytes) {
            Ok(()) => Ok(()),
            Err(Errno::OPNOTSUPP) => self.file.set_len(bytes),
            Err(errno) => Err(errno.into()),
        }
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn is_direct(&self) -> bool {
        self.direct
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::AlignedBuf;

    #[test]
    fn files_are_written_read_renamed_and_locked() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        let fs = RealFs;
        let file = fs.open(&a, OpenHow::CREATE.direct(true)).unwrap();
        file.allocate(8192).unwrap();
        assert_eq!(file.len().unwrap(), 8192);
        let mut buf = AlignedBuf::zeroed(4096);
        buf.bytes_mut().fill(7);
        file.write_all_at(buf.bytes(), 4096).unwrap();
        let (mut first, mut second) = (AlignedBuf::zeroed(8192), AlignedBuf::zeroed(8192));
        for from in [0, 4096] {
            first.bytes_mut().fill(1);
            second.bytes_mut().fill(1);
            let mut bufs = [
                IoSliceMut::new(&mut first.bytes_mut()[..4096]),
                IoSliceMut::new(second.bytes_mut()),
            ];
            // The second one reaches beyond the end.
            assert_eq!(
                file.read_vectored_at(&mut bufs, from).unwrap(),
                8192 - from as usize
            );
            assert_eq!(
                super::super::read_one_by_one(&*file, &mut bufs, from, 0).unwrap(),
                8192 - from as usize
            );
            assert_eq!(first.bytes()[0], if from == 0 { 0 } else { 7 });
            assert!(from > 0 || second.bytes()[0] == 7);
        }
        file.sync_data().unwrap();
        fs.rename(&a, &b).unwrap();
        fs.sync_dir(dir.path()).unwrap();
        let mut back = [1; 16];
        let reader = fs.open(&b, OpenHow::READ).unwrap();
        assert_eq!(reader.read_at(&mut back, 4088).unwrap(), 16);
        assert_eq!(back, [0, 0, 0, 0, 0, 0, 0, 0, 7, 7, 7, 7, 7, 7, 7, 7]);
        assert_eq!(fs.list(dir.path()).unwrap(), ["b"]);
        let held = fs.lock(&dir.path().join("LOCK")).unwrap();
        assert!(held.is_some());
        assert!(fs.lock(&dir.path().join("LOCK")).unwrap().is_none());
        drop(held);
        assert!(fs.lock(&dir.path().join("LOCK")).unwrap().is_some());
    }

    #[test]
    fn vectored_writes_land_one_after_the_other() {
        let dir = tempfile::tempdir().unwrap();
        let file = RealFs.open(&dir.path().join("v"), OpenHow::CREATE).unwrap();
        let parts = [IoSlice::new(b"ab"), IoSlice::new(b""), IoSlice::new(b"cde")];
        file.write_vectored_all_at(&parts, 1).unwrap();
        let mut back = [9; 8];
        assert_eq!(file.read_at(&mut back, 0).unwrap(), 6);
        assert_eq!(&back[..6], b"\0abcde");
    }
}
