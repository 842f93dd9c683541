//! Files of dead entry logs and old journal segments, which get shorter step by step before they go.
//!
//! ```text
//!  0000001a.log ─► 0000001a.gone.tmp ─► 8 MiB shorter ─► … ─► removed
//!                       └ a start removes what is left of it, as every file with that ending
//! ```
//! A file system that tells its device what is free (`discard`) does so while it removes a file, and the device does nothing else
//! meanwhile: a log of 1 GiB would hold up the journals for a sixth of a second. With gigabytes on their way out the steps are longer, so that
//! what is removed keeps up with what is written.
//!
//! Always true: a file that gets shorter has lost its name, and no reader has it.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pharos_runtime::Nanos;
use pharos_runtime::fs::{Fs, FsFile};
use pharos_storage_format::file::LogFile;
use pharos_storage_format::file::SegmentFile;

use crate::options::Options;

/// With two of these on their way out a step is twice as long, with three of them three times, and so on.
const MANY_BYTES: u64 = 1 << 30;

/// Time after which a file that is still read is removed as a whole: it stays readable for those who have it open.
const PATIENCE: Duration = Duration::from_secs(10);

/// An open file that may have to go. Its readers hold it too.
pub(crate) trait Removable {
    /// Its name while it was needed.
    fn path(&self) -> &Path;
    fn file(&self) -> &dyn FsFile;
}

impl Removable for LogFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn file(&self) -> &dyn FsFile {
        &*self.file
    }
}

impl Removable for SegmentFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn file(&self) -> &dyn FsFile {
        &*self.file
    }
}

/// A file on its way out.
#[derive(Debug)]
struct Removal<F> {
    file: Arc<F>,
    /// Its name now.
    path: PathBuf,
    bytes: u64,
    since: Nanos,
}

/// The files on their way out, the first one getting shorter.
#[derive(Debug)]
pub(crate) struct Removals<F> {
    files: VecDeque<Removal<F>>,
    /// Earliest time of the next step.
    due: Nanos,
}

impl<F> Default for Removals<F> {
    fn default() -> Self {
        Self {
            files: VecDeque::new(),
            due: Nanos(0),
        }
    }
}

impl<F: Removable> Removals<F> {
    /// Begins to remove a file that is not needed any more.
    ///
    /// # Errors
    /// As the file system says; then it is there as before.
    pub(crate) fn begin(
        &mut self,
        fs: &dyn Fs,
        options: &Options,
        file: &Arc<F>,
        now: Nanos,
    ) -> io::Result<()> {
        let bytes = file.file().len().unwrap_or(0);
        if bytes <= options.removal_step_bytes {
            return fs.remove(file.path());
        }
        let path = file.path().with_extension("gone.tmp");
        fs.rename(file.path(), &path)?;
        self.files.push_back(Removal {
            file: Arc::clone(file),
            path,
            bytes,
            since: now,
        });
        Ok(())
    }

    /// Does one step when it is time, and says how long until the next; nothing when there is none.
    pub(crate) fn step(&mut self, fs: &dyn Fs, options: &Options, now: Nanos) -> Option<Duration> {
        if self.files.is_empty() {
            return None;
        }
        if now < self.due {
            return Some(Duration::from_nanos(self.due.since(now)));
        }
        self.due = Nanos(now.0 + options.removal_pause.as_nanos() as u64);
        let step_bytes = self.step_bytes(options);
        let mut first = self.files.pop_front()?;
        let left = first.bytes.saturating_sub(step_bytes);
        let is_read = Arc::strong_count(&first.file) > 1;
        let is_late = now.since(first.since) >= PATIENCE.as_nanos() as u64;
        if is_read && !is_late {
            self.files.push_back(first);
        } else if is_read || left == 0 || first.file.file().set_len(left).is_err() {
            remove(fs, &first.path);
        } else {
            first.bytes = left;
            self.files.push_front(first);
        }
        (!self.files.is_empty()).then_some(options.removal_pause)
    }

    /// Longer with each [`MANY_BYTES`] that wait, or a store that writes faster than short steps go would fill its device with them.
    fn step_bytes(&self, options: &Options) -> u64 {
        let waiting: u64 = self.files.iter().map(|file| file.bytes).sum();
        options
            .removal_step_bytes
            .saturating_mul((waiting / MANY_BYTES).max(1))
    }

    /// Removes all of them at once, because the room is needed or there is no thread for further steps; whether there were any.
    pub(crate) fn finish(&mut self, fs: &dyn Fs) -> bool {
        let any = !self.files.is_empty();
        for file in self.files.drain(..) {
            remove(fs, &file.path);
        }
        any
    }
}

fn remove(fs: &dyn Fs, path: &Path) {
    if let Err(error) = fs.remove(path) {
        tracing::warn!(%error, path = %path.display(), "cannot remove what is left of a file");
    }
}

#[cfg(test)]
mod tests {
    use pharos_runtime::fs::{OpenHow, RealFs};

    use super::*;

    const STEP: u64 = 1000;
    const MS: u64 = 1_000_000;

    fn options() -> Options {
        Options {
            removal_step_bytes: STEP,
            ..Options::default()
        }
    }

    fn log(dir: &Path, id: u32, bytes: u64) -> Arc<LogFile> {
        let path = dir.join(format!("{id:08x}.log"));
        let how = OpenHow {
            write: true,
            create: true,
            ..OpenHow::READ
        };
        let file = RealFs.open(&path, how).expect("a new file");
        file.set_len(bytes).expect("room");
        Arc::new(LogFile {
            dir: 0,
            id,
            salt: 0,
            path,
            file,
        })
    }

    /// Names and lengths.
    fn files(dir: &Path) -> Vec<(String, u64)> {
        let names = RealFs.list(dir).expect("a directory");
        let with_length = |name: String| {
            let bytes = std::fs::metadata(dir.join(&name)).expect("there").len();
            (name, bytes)
        };
        let mut all: Vec<_> = names.into_iter().map(with_length).collect();
        all.sort();
        all
    }

    #[test]
    fn a_long_log_loses_its_name_at_once_and_its_bytes_step_by_step() {
        let dir = tempfile::tempdir().expect("room");
        let mut removals = Removals::default();
        for (id, bytes) in [(1, STEP), (2, 5 * STEP / 2), (3, 2 * STEP)] {
            let file = log(dir.path(), id, bytes);
            let begun = removals.begin(&RealFs, &options(), &file, Nanos(0));
            begun.expect("removed");
        }
        let gone = |id: u32, bytes: u64| (format!("{id:08x}.gone.tmp"), bytes);
        assert_eq!(files(dir.path()), [gone(2, 2500), gone(3, 2000)]);
        let mut step = |ms: u64| removals.step(&RealFs, &options(), Nanos(ms * MS));
        let pause = Some(options().removal_pause);
        assert_eq!(step(0), pause);
        assert_eq!(files(dir.path()), [gone(2, 1500), gone(3, 2000)]);
        assert_eq!(step(3), Some(Duration::from_millis(5)));
        assert_eq!(files(dir.path()), [gone(2, 1500), gone(3, 2000)]);
        assert_eq!((step(8), step(16)), (pause, pause));
        assert_eq!(files(dir.path()), [gone(3, 2000)]);
        assert_eq!((step(24), step(32)), (pause, None));
        assert_eq!(files(dir.path()), []);
        assert_eq!(step(40), None);
    }

    #[test]
    fn steps_are_longer_with_gigabytes_on_their_way_out() {
        let dir = tempfile::tempdir().expect("room");
        let mut removals = Removals::default();
        for id in 0..3 {
            let file = log(dir.path(), id, MANY_BYTES); // Sparse: it takes no room.
            let begun = removals.begin(&RealFs, &options(), &file, Nanos(0));
            begun.expect("removed");
        }
        let mut shorter = |ms: u64| {
            removals.step(&RealFs, &options(), Nanos(ms * MS));
            3 * MANY_BYTES - files(dir.path()).iter().map(|(_, bytes)| bytes).sum::<u64>()
        };
        assert_eq!(shorter(0), 3 * STEP);
        // A little less than three of them is two.
        assert_eq!(shorter(8), 5 * STEP);
    }

    #[test]
    fn what_is_still_read_stays_whole_for_who_reads_it() {
        let dir = tempfile::tempdir().expect("room");
        let mut removals = Removals::default();
        let (reader, free) = (log(dir.path(), 1, 5000), log(dir.path(), 2, 5000));
        for file in [&reader, &free] {
            removals
                .begin(&RealFs, &options(), file, Nanos(0))
                .expect("removed");
        }
        drop(free);
        for ms in 0..20 {
            removals.step(&RealFs, &options(), Nanos(ms * 8 * MS));
        }
        assert_eq!(files(dir.path()), [("00000001.gone.tmp".to_owned(), 5000)]);
        let left = removals.step(&RealFs, &options(), Nanos(10_001 * MS));
        assert_eq!((left, files(dir.path())), (None, Vec::new()));
        assert_eq!(reader.file.len().expect("open"), 5000);
    }

    #[test]
    fn when_room_is_needed_all_of_it_is_given_back() {
        let dir = tempfile::tempdir().expect("room");
        let mut removals = Removals::default();
        assert!(!removals.finish(&RealFs));
        for id in 0..3 {
            let file = log(dir.path(), id, 5000);
            removals
                .begin(&RealFs, &options(), &file, Nanos(0))
                .expect("removed");
        }
        assert!(removals.finish(&RealFs));
        assert_eq!(removals.step(&RealFs, &options(), Nanos(0)), None);
        assert_eq!(files(dir.path()), []);
    }
}
