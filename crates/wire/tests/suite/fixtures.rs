//! The checked-in frames that also seed the fuzzers: `fixtures/wire` at the root of the repository.

use std::path::{Path, PathBuf};

use crate::{decode_whole, golden, hex};
use pharos_wire::{encode, message};

fn directory(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures/wire")
        .join(name)
}

fn files(name: &str) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = std::fs::read_dir(directory(name))
        .unwrap()
        .map(|file| file.unwrap().path())
        .map(|path| {
            (
                path.file_stem().unwrap().to_str().unwrap().to_owned(),
                std::fs::read(&path).unwrap(),
            )
        })
        .collect();
    files.sort();
    files
}

/// Every frame with its file name.
pub(crate) fn frames() -> Vec<(String, Vec<u8>)> {
    files("frames")
}

#[test]
fn every_frame_decodes_and_encodes_to_itself() {
    assert!(frames().len() >= 30);
    for (name, bytes) in frames() {
        let frame = decode_whole(&bytes);
        let payload = frame.payload.unwrap_or_default();
        assert_eq!(encode::encode_frame(&frame.command, &payload), bytes, "{name}");
    }
}

#[test]
fn the_recorded_frames_are_among_them() {
    let all = frames();
    for (name, bytes, _) in golden::frames() {
        let name = format!("recorded-{name}");
        assert!(
            all.iter()
                .any(|(other, content)| *other == name && *content == bytes),
            "{name}"
        );
    }
}

#[test]
fn every_entry_comes_apart() {
    let all = files("entries");
    assert!(all.iter().any(|(_, bytes)| *bytes == hex(golden::ENTRY)));
    for (name, bytes) in all {
        let parts = message::split_ref(&bytes).expect(&name);
        assert!(parts.verify_checksum(), "{name}");
        message::peek(parts.metadata).expect(&name);
    }
}
