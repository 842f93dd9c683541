//! A real process, really killed: what it said was durable is there.
//!
//! The test starts itself again as the child; the child appends to a few ledgers and prints every entry once its tail
//! has passed it. The parent kills it at some line, opens the directory and compares.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use bytes::Bytes;

use pharos_ledger::{CreateOptions, LedgerEngine};
use pharos_storage::{Options, Storage};
use pharos_types::{EntryId, LedgerId};

const CHILD_DIR: &str = "PHAROS_KILL_TEST_DIR";
const ROUNDS: usize = 5;
const LEDGERS: usize = 4;

fn options() -> Options {
    Options {
        segment_bytes_first: 1 << 20,
        segment_bytes: 4 << 20,
        entry_bytes_max: 1 << 20,
        ..Options::default()
    }
}

fn payload(ledger: u64, entry: u64) -> Bytes {
    let bytes = 1 + (ledger * 131 + entry * 977) % 4000;
    (0..bytes)
        .map(|i| (ledger + entry * 3 + i * 7) as u8)
        .collect::<Vec<_>>()
        .into()
}

#[tokio::test(flavor = "current_thread")]
async fn child_that_appends_until_it_is_killed() {
    let Ok(dir) = std::env::var(CHILD_DIR) else {
        return;
    };
    let storage = Storage::open(Path::new(&dir), options()).unwrap();
    let mut writers = Vec::new();
    for _ in 0..LEDGERS {
        writers.push(storage.create(CreateOptions::default()).await.unwrap());
    }
    let mut said = vec![0; LEDGERS];
    let mut out = std::io::stdout().lock();
    for entry in 0u64.. {
        for writer in &writers {
            writer.append(payload(writer.id().0, entry)).unwrap();
        }
        // A few in flight, so that groups hold several.
        let wanted = entry.saturating_sub(3);
        for (writer, said) in writers.iter().zip(&mut said) {
            let durable = writer
                .tail()
                .wait_for(|tail| tail.durable >= wanted)
                .await
                .unwrap()
                .durable;
            while *said < durable {
                writeln!(out, "durable {} {}", writer.id(), said).unwrap();
                *said += 1;
            }
        }
        out.flush().unwrap();
    }
}

/// Runs a child, kills it after `lines` lines and says how many entries of each ledger it called durable.
fn run_child(dir: &Path, lines: usize) -> BTreeMap<u64, u64> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_that_appends_until_it_is_killed", "--nocapture"])
        .env(CHILD_DIR, dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut durable = BTreeMap::new();
    let mut seen = 0;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        let Some(rest) = line.split("durable ").nth(1) else {
            continue;
        };
        let Some((ledger, entry)) = rest.split_once(' ') else {
            continue;
        };
        // The very last line may have been cut off by the kill.
        let (Ok(ledger), Ok(entry)) = (ledger.parse::<u64>(), entry.parse::<u64>()) else {
            continue;
        };
        if seen <= lines {
            durable.insert(ledger, entry + 1);
        }
        seen += 1;
        if seen == lines {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    assert!(seen >= lines, "the child ended by itself after {seen} lines");
    durable
}

#[tokio::test(flavor = "current_thread")]
async fn a_killed_process_loses_nothing_it_called_durable() {
    let dir = tempfile::tempdir().unwrap();
    let mut all = BTreeMap::new();
    for round in 0..ROUNDS {
        all.extend(run_child(dir.path(), 50 + round * 700));
        let storage = Storage::open(dir.path(), options()).unwrap();
        assert_eq!(storage.stats().damages, 0);
        for (ledger, durable) in &mut all {
            let ledger = LedgerId(*ledger);
            let sealed = storage.recover(ledger).await.unwrap();
            assert!(
                sealed.entry_count >= *durable,
                "ledger {ledger}: {sealed:?}, {durable} were durable"
            );
            *durable = sealed.entry_count;
            let mut next = 0;
            while next < sealed.entry_count {
                for entry in storage.read(ledger, EntryId(next), 1000, 1 << 20).await.unwrap() {
                    assert_eq!(
                        entry.payload,
                        payload(ledger.0, next),
                        "ledger {ledger} entry {next}"
                    );
                    next += 1;
                }
            }
        }
        storage.shutdown().await;
    }
    assert_eq!(all.len(), ROUNDS * LEDGERS);
}
