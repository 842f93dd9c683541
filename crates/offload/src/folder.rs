//! A folder of this machine as an object store: an object is a file of its name.
//!
//! An object is written beside its place, as `<name>#1`, and gets its name once all of its bytes are synced. So what has a name is
//! whole, and a crash leaves at most a file that [`Folder::remove_staged`] takes away.
//!
//! Always true: what [`Folder::put`] and [`Staged::complete`] answered is there after a power cut, and what [`Folder::delete`]
//! answered is not. The local copy of a ledger, and the row that speaks of an object, go on these answers.
//!
//! Every call goes to the file system on a thread apart, where it goes on when its caller is dropped. So a call that writes looks
//! whether the caller is still there, and a deletion waits for those that are at it: nothing comes back after it.

use std::io::{self, ErrorKind, IoSlice};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, Weak};

use bytes::Bytes;
use pharos_runtime::fs::{Fs, FsFile, OpenHow};
use pharos_runtime::run_blocking;

/// Pieces that one call of the system writes; it takes no more than 1024.
const PIECES_MAX: usize = 512;

/// Folder as an object store. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    fs: Arc<dyn Fs>,
    dir: Arc<Path>,
    /// The folder is there and so will be after a power cut.
    is_made: Arc<AtomicBool>,
    /// Held by calls that make names or give them; by a deletion alone.
    names: Arc<RwLock<()>>,
}

/// An object that is being written.
#[derive(Debug)]
pub(crate) struct Staged {
    folder: Folder,
    name: String,
    file: Arc<dyn FsFile>,
    bytes: u64,
    /// Goes with this: what is still to be done for it is not wanted then.
    wanted: Arc<()>,
}

impl Folder {
    pub(crate) fn new(fs: Arc<dyn Fs>, dir: PathBuf) -> Self {
        Self {
            fs,
            dir: dir.into(),
            is_made: Arc::default(),
            names: Arc::default(),
        }
    }

    /// Writes an object; it is durable when this returns.
    pub(crate) async fn put(&self, name: &str, pieces: Vec<Bytes>) -> io::Result<()> {
        let mut staged = self.begin(name).await?;
        let written = match staged.push(pieces).await {
            Ok(()) => staged.complete().await,
            Err(error) => Err(error),
        };
        if written.is_err() {
            // Whatever is left goes with the attempt.
            let _ = staged.abort().await;
        }
        written
    }

    /// Begins an object that is written in parts.
    pub(crate) async fn begin(&self, name: &str) -> io::Result<Staged> {
        let (me, beside) = (self.clone(), self.staged(name, 1));
        let wanted = Arc::new(());
        let is_wanted = Arc::downgrade(&wanted);
        let file = on_thread(move || {
            me.while_wanted(&is_wanted, || {
                me.make()?;
                let file = me.fs.open(&beside, OpenHow::CREATE)?;
                file.set_len(0)?;
                Ok(file)
            })
        });
        Ok(Staged {
            folder: self.clone(),
            name: name.to_owned(),
            file: file.await?,
            bytes: 0,
            wanted,
        })
    }

    /// The bytes of a range, fewer at the end of the object.
    pub(crate) async fn read(&self, name: &str, range: Range<u64>) -> io::Result<Bytes> {
        let (me, path) = (self.clone(), self.dir.join(name));
        on_thread(move || {
            let file = me.fs.open(&path, OpenHow::READ)?;
            // Not more than there is, whatever an index says.
            let end = range.end.min(file.len()?);
            let bytes = usize::try_from(end.saturating_sub(range.start)).unwrap_or(usize::MAX);
            let mut buf = vec![0; bytes];
            let count = file.read_at(&mut buf, range.start)?;
            buf.truncate(count);
            Ok(Bytes::from(buf))
        })
        .await
    }

    /// Length of an object in bytes.
    pub(crate) async fn length(&self, name: &str) -> io::Result<u64> {
        let (me, path) = (self.clone(), self.dir.join(name));
        on_thread(move || me.fs.open(&path, OpenHow::READ)?.len()).await
    }

    /// Deletes objects, and what unfinished writing left of them. That none is there is fine.
    pub(crate) async fn delete(&self, names: &[String]) -> io::Result<()> {
        let (me, names) = (self.clone(), names.to_vec());
        on_thread(move || {
            let _alone = me.names.write().unwrap_or_else(PoisonError::into_inner);
            for name in &names {
                me.remove(&me.dir.join(name))?;
                me.remove_staged(name)?;
            }
            match me.fs.sync_dir(&me.dir) {
                // Nothing was ever written there.
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
                synced => synced,
            }
        })
        .await
    }

    /// Does what makes a name or gives it, unless the caller is gone.
    fn while_wanted<T>(&self, wanted: &Weak<()>, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let _others = self.names.read().unwrap_or_else(PoisonError::into_inner);
        match wanted.strong_count() {
            0 => Err(stopped()),
            _ => work(),
        }
    }

    /// Files beside an object; earlier releases numbered them.
    fn remove_staged(&self, name: &str) -> io::Result<()> {
        for number in 1u32.. {
            if !self.remove(&self.staged(name, number))? {
                break;
            }
        }
        Ok(())
    }

    /// Removes a file. Returns whether there was one.
    fn remove(&self, path: &Path) -> io::Result<bool> {
        match self.fs.remove(path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn staged(&self, name: &str, number: u32) -> PathBuf {
        self.dir.join(format!("{name}#{number}"))
    }

    /// Makes the folder. One that is there may have been made a moment before the last power cut: its name is synced all the same,
    /// once, with those of the folders above it.
    fn make(&self) -> io::Result<()> {
        if self.is_made.load(Ordering::Acquire) {
            return Ok(());
        }
        self.fs.create_dir_all(&self.dir)?;
        for dir in self.dir.ancestors().skip(1) {
            match self.fs.sync_dir(dir) {
                // Not ours to look into, so it was not made here.
                Err(error) if error.kind() == ErrorKind::PermissionDenied => {}
                synced => synced?,
            }
        }
        self.is_made.store(true, Ordering::Release);
        Ok(())
    }
}

impl Staged {
    /// Appends bytes.
    pub(crate) async fn push(&mut self, pieces: Vec<Bytes>) -> io::Result<()> {
        let (file, start) = (self.file.clone(), self.bytes);
        let end = on_thread(move || {
            let mut at = start;
            for some in pieces.chunks(PIECES_MAX) {
                let slices: Vec<_> = some.iter().map(|piece| IoSlice::new(piece)).collect();
                file.write_vectored_all_at(&slices, at)?;
                at += some.iter().map(|piece| piece.len() as u64).sum::<u64>();
            }
            Ok(at)
        });
        self.bytes = end.await?;
        Ok(())
    }

    /// Gives the object its name. First its bytes are synced: what has the name is whole. Then the name is.
    pub(crate) async fn complete(&self) -> io::Result<()> {
        let (folder, file) = (self.folder.clone(), self.file.clone());
        let (beside, place) = (folder.staged(&self.name, 1), folder.dir.join(&self.name));
        let is_wanted = Arc::downgrade(&self.wanted);
        on_thread(move || {
            file.sync_data()?;
            folder.while_wanted(&is_wanted, || {
                folder.fs.rename(&beside, &place)?;
                folder.fs.sync_dir(&folder.dir)
            })
        })
        .await
    }

    /// Gives it up.
    pub(crate) async fn abort(&self) -> io::Result<()> {
        let (folder, name) = (self.folder.clone(), self.name.clone());
        on_thread(move || folder.remove_staged(&name)).await
    }
}

async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    run_blocking(work).await.unwrap_or_else(|| Err(stopped()))
}

fn stopped() -> io::Error {
    io::Error::other("the caller, or the offloader, is gone")
}
