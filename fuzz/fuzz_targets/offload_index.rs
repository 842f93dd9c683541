//! The index of an offloaded ledger, with its checksum put right as well: never a panic, and its spans are where they can be.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use pharos_offload::format::{Index, records};
use pharos_types::EntryId;

fuzz_target!(|data: &[u8]| {
    check(Bytes::copy_from_slice(data));
    let content = data.get(..data.len().saturating_sub(4)).unwrap_or_default();
    let sum = crc_fast::crc32_iscsi(content).to_be_bytes();
    check([content, &sum[..]].concat().into());
});

fn check(object: Bytes) {
    let Ok(index) = Index::decode(&object) else { return };
    assert!(index.memory() <= 1024 + object.len() * 4);
    let mut next = 0;
    while next < index.entries() {
        let run = index.run_from(EntryId(next), 1 << 20);
        let last = run.last().expect("every entry has a span");
        assert!(last.end() <= index.data_length());
        next = last.first.0 + u64::from(last.entries);
        for span in run {
            // Whatever stands there, it is refused or taken apart.
            let bytes = object.slice(..object.len().min(span.length as usize));
            let span = pharos_offload::format::Span {
                length: bytes.len() as u32,
                crc: crc_fast::crc32_iscsi(&bytes),
                ..*span
            };
            drop(records(&span, &bytes));
        }
    }
}
