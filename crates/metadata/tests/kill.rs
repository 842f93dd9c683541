//! A real process, really killed: what it said was durable is there.
//!
//! The test starts itself again as the child; the child puts and deletes keys, a few at a time, and prints each answer. The
//! parent kills it at some line, opens the directory and compares. Among them are keys of a session, of which nothing may be left.

#![expect(clippy::unwrap_used, reason = "a test that fails panics")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use pharos_metadata::{Embedded, Expect, MetadataStore, Options};

const CHILD_DIR: &str = "PHAROS_METADATA_KILL_TEST_DIR";
const ROUNDS: usize = 8;
/// Keys that take turns.
const KEYS: u64 = 40;

/// A small reserve, so that copies are written again many times a round.
fn options() -> Options {
    Options {
        reserve_bytes: 16 << 10,
        ..Options::default()
    }
}

fn value(turn: u64) -> Bytes {
    let bytes = (turn * 97) % 900;
    Bytes::from(format!("{turn} ").into_bytes().repeat(1 + bytes as usize / 8))
}

#[tokio::test(flavor = "current_thread")]
async fn child_that_writes_until_it_is_killed() {
    let Ok(dir) = std::env::var(CHILD_DIR) else {
        return;
    };
    let store = Embedded::open(Path::new(&dir), &options()).unwrap();
    let first = store.get("turn").await.unwrap().map_or(0, |found| {
        String::from_utf8(found.value.to_vec())
            .unwrap()
            .parse::<u64>()
            .unwrap()
            + 1
    });
    let session = store.open_session(Duration::from_mins(60)).await.unwrap();
    let mut out = std::io::stdout().lock();
    for turn in first.. {
        let key = format!("key/{}", turn % KEYS);
        let gone = format!("key/{}", (turn + KEYS / 2) % KEYS);
        writeln!(out, "begin {turn}").unwrap();
        let ephemeral = format!("ephemeral/{}", turn % KEYS);
        let (held, put, deleted, said) = tokio::join!(
            session.put(&ephemeral, value(turn), Expect::Any),
            store.put(&key, value(turn), Expect::Any),
            store.delete(&gone, Expect::Any),
            store.put("turn", Bytes::from(turn.to_string()), Expect::Any),
        );
        held.unwrap();
        put.unwrap();
        deleted.unwrap();
        said.unwrap();
        writeln!(out, "done {turn}").unwrap();
        out.flush().unwrap();
    }
}

/// Runs a child and kills it after `lines` lines. Says the first and last turn it answered, if any.
fn run_child(dir: &Path, lines: usize) -> Option<u64> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_that_writes_until_it_is_killed", "--nocapture"])
        .env(CHILD_DIR, dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut done = None;
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut count = 0;
    while count < lines {
        let line = said.next().expect("the child ended by itself").unwrap();
        if let Some(turn) = line.strip_prefix("done ") {
            done = Some(turn.parse().unwrap());
            count += 1;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    // What it said before it died was said.
    for line in said.map_while(Result::ok) {
        if let Some(turn) = line.strip_prefix("done ") {
            done = Some(turn.parse().unwrap());
        }
    }
    done
}

/// Expected keys after all turns up to `last`.
fn expected(last: u64) -> BTreeMap<String, Bytes> {
    let mut all = BTreeMap::new();
    for turn in 0..=last {
        all.insert(format!("key/{}", turn % KEYS), value(turn));
        all.remove(&format!("key/{}", (turn + KEYS / 2) % KEYS));
    }
    all
}

#[test]
fn what_was_acknowledged_survives_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for round in 0..ROUNDS {
        let done = run_child(dir.path(), 20 + round * 37).unwrap();
        runtime.block_on(async {
            let store = Embedded::open(dir.path(), &options()).unwrap();
            assert!(store.list("ephemeral/").await.unwrap().is_empty());
            let found: BTreeMap<String, Bytes> = store
                .scan("key/")
                .await
                .unwrap()
                .into_iter()
                .map(|item| (item.key, item.value))
                .collect();
            // The turn that was under way may have happened, in parts: its three changes are one by one.
            let (before, after) = (expected(done), expected(done + 1));
            for key in (0..KEYS).map(|number| format!("key/{number}")) {
                let is = found.get(&key);
                assert!(
                    is == before.get(&key) || is == after.get(&key),
                    "round {round}, {key}"
                );
            }
            // The next child goes on from a whole turn.
            for (key, value) in &after {
                store.put(key, value.clone(), Expect::Any).await.unwrap();
            }
            for key in found.keys().filter(|key| !after.contains_key(*key)) {
                store.delete(key, Expect::Any).await.unwrap();
            }
            let turn = Bytes::from((done + 1).to_string());
            store.put("turn", turn, Expect::Any).await.unwrap();
            store.shutdown().await;
        });
    }
}
