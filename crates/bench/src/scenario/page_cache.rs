//! Getting stored data out of the operating system's memory, so that reading it means reading the device.

use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, fadvise};

use crate::units::show_bytes;

/// Drops what the page cache holds of all files under `dirs`, and says in words what was done.
///
/// Pages that are not written yet cannot be dropped, so each file is synced first. Needs no privilege. With a broker that
/// is not the run's own there are no directories to go through: the whole cache is then dropped if the system lets us.
pub fn drop_cache(dirs: &[PathBuf]) -> String {
    if dirs.is_empty() {
        return match std::fs::write("/proc/sys/vm/drop_caches", "1") {
            Ok(()) => "page cache of the whole machine dropped".to_owned(),
            Err(error) => format!("page cache NOT dropped: {error}"),
        };
    }
    let (mut files, mut bytes, mut failed) = (0u64, 0, 0u64);
    for dir in dirs {
        each_file(dir, &mut |path| match drop_file(path) {
            Ok(length) => (files, bytes) = (files + 1, bytes + length),
            Err(_) => failed += 1,
        });
    }
    let mut said = format!(
        "page cache of {files} files of the store dropped ({}, posix_fadvise)",
        show_bytes(bytes)
    );
    if failed > 0 {
        said.push_str(&format!("; {failed} files could not be"));
    }
    said
}

fn drop_file(path: &Path) -> std::io::Result<u64> {
    let file = File::open(path)?;
    file.sync_data()?;
    fadvise(&file, 0, None, Advice::DontNeed)?;
    Ok(file.metadata()?.len())
}

fn each_file(dir: &Path, visit: &mut impl FnMut(&Path)) {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return;
    };
    for entry in entries.map_while(Result::ok) {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => each_file(&entry.path(), visit),
            Ok(kind) if kind.is_file() => visit(&entry.path()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_below_are_found() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(dir.path().join("inner")).expect("made");
        std::fs::write(dir.path().join("inner/a"), [0; 2048]).expect("written");
        std::fs::write(dir.path().join("b"), [0; 2048]).expect("written");
        let said = drop_cache(&[dir.path().to_owned()]);
        assert!(said.contains("2 files") && said.contains("4.0 KiB"), "{said}");
    }
}
