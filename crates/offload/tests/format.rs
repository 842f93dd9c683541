//! The two objects as bytes: what goes in comes out, Pulsar's way of reading finds the same, and no flipped byte passes.

#![expect(clippy::unwrap_used, reason = "a test that fails panics")]

use std::path::PathBuf;

use bytes::{Buf, Bytes};
use pharos_ledger::ReadEntry;
use pharos_offload::format::block::{BLOCK_MAGIC, HEADER_BYTES, SPAN_BYTES};
use pharos_offload::format::{Block, BlockBuilder, Index, records};
use pharos_types::EntryId;
use proptest::prelude::*;

/// Data object and index object of these payloads.
fn encode(payloads: &[Bytes], block_bytes: usize) -> (Bytes, Bytes) {
    let mut builder = BlockBuilder::new(block_bytes);
    let mut index = Index::new();
    let mut data = Vec::new();
    let mut take = |block: Option<Block>| {
        if let Some(block) = block {
            index.push(&block);
            let before = data.len();
            for piece in &block.pieces {
                data.extend_from_slice(piece);
            }
            assert_eq!((data.len() - before) as u64, block.length);
        }
    };
    for (id, payload) in payloads.iter().enumerate() {
        let entry = ReadEntry {
            id: EntryId(id as u64),
            payload: payload.clone(),
        };
        take(builder.push(&entry));
    }
    take(builder.finish());
    assert_eq!(builder.length(), data.len() as u64);
    let bytes = payloads.iter().map(|payload| payload.len() as u64).sum();
    (
        data.into(),
        index.encode(bytes, 1_700_000_000_000, "public/default/persistent/t"),
    )
}

/// All entries, read as the offloader does. The error is whichever check failed first.
fn decode(data: &Bytes, index: &Bytes, bytes_max: u64) -> Result<Vec<Bytes>, String> {
    let index = Index::decode(index).map_err(|fault| fault.to_string())?;
    if index.data_length() != data.len() as u64 {
        return Err("length".to_owned());
    }
    let mut payloads = Vec::new();
    while (payloads.len() as u64) < index.entries() {
        let run = index.run_from(EntryId(payloads.len() as u64), bytes_max);
        assert!(!run.is_empty());
        for span in run {
            let range = usize::try_from(span.offset).unwrap()..usize::try_from(span.end()).unwrap();
            let read = records(span, &data.slice(range)).map_err(|fault| fault.to_string())?;
            for entry in read {
                assert_eq!(entry.id.0, payloads.len() as u64);
                payloads.push(entry.payload);
            }
        }
    }
    assert!(index.run_from(EntryId(index.entries()), bytes_max).is_empty());
    Ok(payloads)
}

/// All entries, read as Pulsar's tools do: they know blocks and records, and neither spans nor checksums.
fn decode_like_the_field(data: &Bytes, index: &Bytes) -> Vec<Bytes> {
    let mut rest = index.clone();
    assert_eq!(rest.get_u32(), 0xDE47_DE47);
    let length = rest.get_u32() as usize;
    assert_eq!(rest.get_u64(), data.len() as u64);
    assert_eq!(rest.get_u64(), 128);
    let blocks = rest.get_u32() as usize;
    let metadata = rest.get_u32() as usize;
    rest.advance(metadata);
    assert_eq!(length, 32 + metadata + blocks * 20);
    let mut payloads: Vec<Bytes> = Vec::new();
    for part in 1..=blocks {
        assert_eq!(rest.get_u64(), payloads.len() as u64);
        assert_eq!(rest.get_u32() as usize, part);
        let mut at = data.slice(usize::try_from(rest.get_u64()).unwrap()..);
        let mut block = at.clone();
        assert_eq!(block.get_u32(), BLOCK_MAGIC);
        assert_eq!(block.get_u64(), 128);
        let length = usize::try_from(block.get_u64()).unwrap();
        assert_eq!(block.get_u64(), payloads.len() as u64);
        at.truncate(length);
        at.advance(HEADER_BYTES);
        // The first word of the padding is negative, which no length is.
        while at.len() >= 4 && i32::from_be_bytes(at[..4].try_into().unwrap()) >= 0 {
            let length = at.get_u32() as usize;
            assert_eq!(at.get_u64(), payloads.len() as u64);
            payloads.push(at.split_to(length));
        }
        assert!(
            at.iter()
                .zip(0xFEDC_DEAD_u32.to_be_bytes().iter().cycle())
                .all(|(one, two)| one == two)
        );
    }
    payloads
}

fn payloads(lengths: &[usize]) -> Vec<Bytes> {
    let payload = |(index, length): (usize, &usize)| {
        let byte = |at: usize| u8::try_from((index * 31 + at * 7) % 251).unwrap();
        (0..*length).map(byte).collect()
    };
    lengths.iter().enumerate().map(payload).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_goes_in_comes_out_both_ways(
        lengths in prop::collection::vec(prop_oneof![8 => 1..400usize, 1 => 1..200_000usize], 1..120),
        block_bytes in 200..300_000usize,
        bytes_max in 0..400_000u64,
    ) {
        let payloads = payloads(&lengths);
        let (data, index) = encode(&payloads, block_bytes);
        prop_assert_eq!(&decode(&data, &index, bytes_max).unwrap(), &payloads);
        prop_assert_eq!(&decode_like_the_field(&data, &index), &payloads);
    }

    #[test]
    fn arbitrary_bytes_are_no_index_and_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(Index::decode(&Bytes::from(bytes)).is_err());
    }
}

#[test]
fn runs_do_not_cross_blocks_and_keep_to_their_size() {
    let payloads = payloads(&[SPAN_BYTES; 9]);
    let (data, bytes) = encode(&payloads, 4 * (SPAN_BYTES + 12) + HEADER_BYTES);
    let index = Index::decode(&bytes).unwrap();
    assert_eq!(index.data_length(), data.len() as u64);
    let count = |entry, bytes_max| index.run_from(EntryId(entry), bytes_max).len();
    assert_eq!(
        (
            count(0, 0),
            count(0, 1 << 20),
            count(3, 1 << 20),
            count(8, 1 << 20)
        ),
        (1, 4, 1, 1)
    );
    assert_eq!(count(0, 2 * (SPAN_BYTES as u64 + 12)), 2);
    assert_eq!(count(9, 1 << 20), 0);
}

fn flipped(bytes: &Bytes, at: usize, bit: usize) -> Bytes {
    let mut bytes = bytes.to_vec();
    bytes[at] ^= 1 << (bit % 8);
    bytes.into()
}

#[test]
fn no_flipped_or_missing_byte_passes() {
    let payloads = payloads(&[40, 3, 90, 1, 250, 60, 7, 300, 20]);
    let (data, index) = encode(&payloads, 420);
    assert_eq!(decode(&data, &index, 1 << 20).unwrap(), payloads);
    let mut harmless = 0;
    for at in 0..data.len() {
        match decode(&flipped(&data, at, at), &index, 1 << 20) {
            // Headers and padding: they are not read.
            Ok(read) => {
                assert_eq!(read, payloads, "byte {at}");
                harmless += 1;
            }
            Err(cause) => assert!(cause.contains("checksum"), "{cause}"),
        }
    }
    let records: usize = payloads.iter().map(|payload| payload.len() + 12).sum();
    assert_eq!(harmless, data.len() - records);
    for at in 0..index.len() {
        assert!(
            decode(&data, &flipped(&index, at, at), 1 << 20).is_err(),
            "byte {at} of the index"
        );
        assert!(Index::decode(&index.slice(..at)).is_err(), "index of {at} bytes");
    }
}

/// Objects of the first release: they must read back for ever, and what is written today must be the same.
#[test]
fn objects_of_the_first_release_are_still_these() {
    let fixtures = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/offload");
    let read = |name: &str| Bytes::from(std::fs::read(fixtures.join(name)).unwrap());
    let payloads = payloads(&[40, 3, 90, 1, 250, 60, 7, 300, 20]);
    let (data, index) = encode(&payloads, 420);
    if std::env::var_os("PHAROS_WRITE_FIXTURES").is_some() {
        std::fs::create_dir_all(&fixtures).unwrap();
        std::fs::write(fixtures.join("v1-ledger"), &data).unwrap();
        std::fs::write(fixtures.join("v1-ledger-index"), &index).unwrap();
    }
    assert_eq!((read("v1-ledger"), read("v1-ledger-index")), (data, index));
    let kept = decode(&read("v1-ledger"), &read("v1-ledger-index"), 1 << 20);
    assert_eq!(kept.unwrap(), payloads);
}
