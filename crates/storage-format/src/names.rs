//! File names: `0000001a.seg` and the like.

/// The file that says what a directory is.
pub const VERSION: &str = "VERSION";
/// The file that is locked while a store has the directory open.
pub const LOCK: &str = "LOCK";
/// The newest checkpoint, in the first ledger directory.
pub const CHECKPOINT: &str = "CHECKPOINT";
/// A checkpoint that is being written.
pub const CHECKPOINT_TMP: &str = "CHECKPOINT.tmp";

/// Room kept back for a full device.
pub const RESERVE: &str = "RESERVE";
/// Name of the reserve until its room is allocated.
pub const RESERVE_TMP: &str = "RESERVE.tmp";

/// A journal segment.
pub const SEGMENT: &str = "seg";
/// The file of an old segment, to be written again.
pub const SPARE: &str = "spare";
/// An entry log.
pub const LOG: &str = "log";
/// The index of an entry log.
pub const INDEX: &str = "idx";

/// The name of the file with this id and ending.
#[must_use]
pub fn file_name(id: u32, ending: &str) -> String {
    format!("{id:08x}.{ending}")
}

/// The id of the file with this name, when it has that ending and is written as we write it.
#[must_use]
pub fn parse(name: &str, ending: &str) -> Option<u32> {
    let (stem, found) = name.split_once('.')?;
    let plain = stem.len() == 8 && stem.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let id = u32::from_str_radix(stem, 16).ok()?;
    // The last id has none after it.
    (plain && found == ending && id < u32::MAX).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_strictly() {
        assert_eq!(parse(&file_name(0x1f, SEGMENT), SEGMENT), Some(0x1f));
        assert_eq!(parse(&file_name(7, INDEX), INDEX), Some(7));
        assert_eq!(parse(&file_name(7, INDEX), LOG), None);
        for name in [
            "LOCK",
            "00000001.tmp",
            "1.seg",
            "+0000001.seg",
            "00000001.seg.tmp",
            "0000000G.seg",
            "ffffffff.seg",
        ] {
            assert_eq!(parse(name, SEGMENT), None, "{name}");
        }
    }
}
