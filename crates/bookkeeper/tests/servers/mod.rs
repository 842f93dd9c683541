//! Apache's own servers, which tests/bookkeeper/run.sh started, and the Java client beside us.

#![allow(dead_code, reason = "each test uses its part")]
#![expect(
    clippy::unwrap_used,
    reason = "the world of a test; what is not there is a mistake in it"
)]

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pharos_bookkeeper::{BookKeeper, BookieId, LedgerMetadata, LedgerStore, Options};
use pharos_ledger::{LedgerEngine, LedgerWriter, Tail};
use pharos_metadata::MetadataStore;
use pharos_types::{EntryId, LedgerId};
use pharos_zookeeper::{ConnectOptions, ZooKeeper};

/// Time limit of a test for an expected event.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("no {name}: this test is run by tests/bookkeeper/run.sh"))
}

pub(crate) fn run<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap()
        .block_on(test)
}

/// Waits until `is_so`.
pub(crate) async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, waiting).await;
    waited.unwrap_or_else(|_| panic!("gave up waiting until {what}"));
}

pub(crate) async fn store() -> Arc<dyn MetadataStore> {
    let store = ZooKeeper::connect(
        &variable("ZOOKEEPER_ADDRESS"),
        Duration::from_secs(10),
        ConnectOptions::default(),
    )
    .await;
    Arc::new(store.unwrap())
}

/// The names that the servers' script has for bookies, with their addresses.
pub(crate) fn bookies() -> Vec<(String, BookieId)> {
    let addresses = variable("BOOKIES");
    let named = addresses.split_whitespace().enumerate();
    named
        .map(|(n, address)| (format!("bookie{}", n + 1), BookieId::new(address)))
        .collect()
}

/// An engine that knows of all bookies.
pub(crate) async fn engine(options: Options) -> BookKeeper {
    let engine = BookKeeper::start(options, store().await, "ledgers")
        .await
        .unwrap();
    // By hand: an async closure over the engine would bind the future to one thread.
    for _ in 0..PATIENCE.as_millis() / 20 {
        if engine.bookies() == bookies().len() {
            return engine;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{} bookies are known", engine.bookies());
}

/// Tells the servers' script: `kill bookie1`, `start 3`.
pub(crate) fn servers(command: &str, argument: &str) {
    let told = Command::new(variable("BOOKKEEPER_PEERS"))
        .args([command, &variable("BOOKKEEPER_DIR"), argument])
        .status();
    assert!(told.unwrap().success(), "{command} {argument}");
}

pub(crate) async fn metadata(ledger: LedgerId) -> LedgerMetadata {
    let store = LedgerStore::new(store().await, "ledgers");
    store.read(ledger).await.unwrap().unwrap().0
}

/// Returns the payload of an entry in these tests, here and in the Java client.
pub(crate) fn payload(ledger: LedgerId, entry: u64) -> Bytes {
    let text = format!("ledger {ledger} entry {entry} ");
    Bytes::from(text.repeat(1 + (entry as usize * 7) % 23))
}

/// Payload bytes of so many entries.
pub(crate) fn bytes(ledger: LedgerId, entries: u64) -> u64 {
    (0..entries)
        .map(|entry| payload(ledger, entry).len() as u64)
        .sum()
}

pub(crate) fn append(writer: &dyn LedgerWriter, entries: std::ops::Range<u64>) {
    for entry in entries {
        let id = writer.append(payload(writer.id(), entry)).unwrap();
        assert_eq!(id, EntryId(entry));
    }
}

/// Waits until the tail has reached `durable`, or has failed.
pub(crate) async fn tail_at(writer: &dyn LedgerWriter, durable: u64) -> Tail {
    let mut tail = writer.tail();
    let reached = tail.wait_for(|tail| tail.durable >= durable || tail.failed.is_some());
    let reached = tokio::time::timeout(PATIENCE, reached).await;
    reached.expect("the tail stands still").unwrap().clone()
}

pub(crate) async fn durable(writer: &dyn LedgerWriter, end: u64) {
    let tail = tail_at(writer, end).await;
    assert!(tail.failed.is_none() && tail.durable >= end, "{tail:?}");
}

/// The readable part of the ledger is these entries, and right.
pub(crate) async fn holds(engine: &dyn LedgerEngine, ledger: LedgerId, end: u64) {
    let mut next = 0;
    while next < end {
        let found = engine.read(ledger, EntryId(next), 100, 1 << 20).await.unwrap();
        assert!(!found.is_empty(), "entry {next} of {end} is missing");
        for entry in found {
            assert_eq!((entry.id, entry.payload), (EntryId(next), payload(ledger, next)));
            next += 1;
        }
    }
    assert!(engine.read(ledger, EntryId(end), 1, 1).await.unwrap().is_empty());
}

/// A process with the Java client: tests/bookkeeper/Peer.java says what it can be told.
pub(crate) struct Java {
    process: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Java {
    pub(crate) fn start() -> Self {
        let log = File::create(format!("{}/log/java-client.log", variable("BOOKKEEPER_DIR"))).unwrap();
        let mut process = Command::new("java")
            .args(["-Xmx256m", "-XX:MaxDirectMemorySize=256m", "-XX:+UseSerialGC"])
            .args([
                "-XX:TieredStopAtLevel=1",
                "-Djava.net.preferIPv4Stack=true",
                "-Dlog4j2.level=WARN",
            ])
            .args([
                "-cp",
                &variable("JAVA_PEER_CLASSPATH"),
                "Peer",
                &variable("ZOOKEEPER_ADDRESS"),
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let (commands, answers) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        Self {
            process,
            commands,
            answers: BufReader::new(answers),
        }
    }

    /// The words behind `ok`, or what stands behind `error`.
    pub(crate) fn ask(&mut self, command: &str) -> Result<Vec<String>, String> {
        writeln!(self.commands, "{command}").unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        let answer = answer.trim_end();
        match answer.split_once(' ').unwrap_or((answer, "")) {
            ("ok", words) => Ok(words.split(' ').map(ToOwned::to_owned).collect()),
            ("error", error) => Err(error.to_owned()),
            _ => panic!("{command}: {answer:?}"),
        }
    }

    /// As [`ask`](Self::ask), of what must go well.
    pub(crate) fn does(&mut self, command: &str) -> Vec<String> {
        let answer = self.ask(command);
        answer.unwrap_or_else(|error| panic!("{command}: {error}"))
    }

    /// A number that it answers with.
    pub(crate) fn number(&mut self, command: &str) -> i64 {
        self.does(command)[0].parse().unwrap()
    }

    pub(crate) fn creates(&mut self, what: &str) -> LedgerId {
        LedgerId(self.number(&format!("create {what}")).try_into().unwrap())
    }
}

impl Drop for Java {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
