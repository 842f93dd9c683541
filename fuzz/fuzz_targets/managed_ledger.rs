//! The info of a managed ledger and its cursor log as another program may have written them: opening, using and closing them
//! never panics.
//!
//! Input: length of the info (2 bytes), the info, then entries of the cursor ledger, each after its length (1 byte). The ledgers
//! 0 to 2 hold entries, ledger 3 is the cursor ledger.

#![no_main]

use std::sync::Arc;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use pharos_ledger::memory::MemoryEngine;
use pharos_ledger::{CreateOptions, LedgerEngine};
use pharos_managed_ledger::cursor_log::CursorLogOptions;
use pharos_managed_ledger::{CursorLog, INFO_PREFIX, ManagedLedger, ManagedLedgerInfo, OpenMode, Options};
use pharos_metadata::{Expect, Memory, MetadataStore};

const NAME: &str = "t";

fuzz_target!(|data: &[u8]| {
    let Some((length, rest)) = data.split_first_chunk::<2>() else { return };
    let length = usize::from(u16::from_le_bytes(*length)).min(rest.len());
    let (info, entries) = rest.split_at(length);
    if let Ok(known) = ManagedLedgerInfo::parse(NAME, info) {
        let _ = (known.ledger_ids().count(), known.objects().count());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(open(info, entries));
});

async fn open(info: &[u8], mut entries: &[u8]) {
    let engine = Arc::new(MemoryEngine::new());
    for _ in 0..3 {
        let writer = engine.create(CreateOptions::default()).await.unwrap();
        for _ in 0..5 {
            writer.append(Bytes::from_static(b"entry")).unwrap();
        }
        writer.close().await.unwrap();
    }
    let cursors = engine.create(CreateOptions::default()).await.unwrap();
    while let Some((length, rest)) = entries.split_first() {
        let (entry, rest) = rest.split_at(usize::from(*length).min(rest.len()));
        cursors.append(Bytes::copy_from_slice(entry)).unwrap();
        entries = rest;
    }
    cursors.close().await.unwrap();
    let metadata = Arc::new(Memory::default());
    let info = Bytes::copy_from_slice(info);
    let put = metadata.put(&format!("{INFO_PREFIX}{NAME}"), info, Expect::Absent);
    put.await.unwrap();
    let ledger = ManagedLedger::open(NAME, engine, metadata, Options::default(), OpenMode::Existing, 1);
    let Ok(mut ledger) = ledger.await else { return };
    if let Ok(cursors) = CursorLog::open(&ledger, CursorLogOptions::default(), 1).await {
        drop(cursors.close(1).await);
    }
    let _ = ledger.read(ledger.first(), 10, 1000).await;
    let _ = ledger.append(Bytes::from_static(b"more"));
}
