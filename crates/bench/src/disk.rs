//! Disk usage of directories.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Bytes of a block as `stat` counts them.
const BLOCK_BYTES: u64 = 512;

/// Returns the disk usage of directories, in bytes. Files removed meanwhile are not counted.
pub fn disk_bytes(dirs: &[PathBuf]) -> u64 {
    dirs.iter().map(|dir| taken(dir)).sum()
}

fn taken(dir: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return 0;
    };
    let sizes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(facts) if facts.is_dir() => taken(&entry.path()),
        Ok(facts) => facts.blocks() * BLOCK_BYTES,
        Err(_) => 0,
    });
    sizes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_counted_whole() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(dir.path().join("a")).expect("made");
        std::fs::write(dir.path().join("a/b"), vec![1; 100_000]).expect("written");
        assert!(disk_bytes(&[dir.path().to_owned()]) >= 100_000);
        assert_eq!(disk_bytes(&[dir.path().join("none")]), 0);
    }
}
