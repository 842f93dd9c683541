//! Ledgers of ours and of the Java client of Apache BookKeeper: what one writes the other reads, recovers and fences. Run by
//! tests/bookkeeper/run.sh.

#![expect(clippy::unwrap_used, reason = "a test")]

mod servers;

use std::collections::BTreeMap;

use bytes::Bytes;
use pharos_bookkeeper::metadata::State;
use pharos_bookkeeper::{BookKeeper, BookieId, DigestType, Options};
use pharos_ledger::{AppendError, CreateOptions, LedgerEngine, LedgerWriter, Replication, Sealed};
use pharos_types::LedgerId;

use servers::{Java, bytes, durable, engine, eventually, holds, metadata, tail_at};

const PASSWORD: &str = "a-password";

/// As the Java client calls them.
const DIGESTS: [(DigestType, &str); 4] = [
    (DigestType::Crc32c, "CRC32C"),
    (DigestType::Crc32, "CRC32"),
    (DigestType::Mac, "MAC"),
    (DigestType::Dummy, "DUMMY"),
];

/// Ensemble, write quorum, ack quorum.
const SIZES: [(usize, usize, usize); 9] = [
    (3, 3, 3),
    (3, 3, 2),
    (3, 3, 1),
    (3, 2, 2),
    (3, 2, 1),
    (3, 1, 1),
    (2, 2, 2),
    (2, 2, 1),
    (1, 1, 1),
];

fn custom() -> BTreeMap<String, Bytes> {
    let pairs = [
        ("application", "pulsar"),
        ("pulsar/managed-ledger", "t/n/persistent/x"),
    ];
    pairs
        .map(|(key, value)| (key.to_owned(), Bytes::from(value)))
        .into()
}

const CUSTOM: &str = "application=pulsar,pulsar/managed-ledger=t/n/persistent/x";

async fn engine_with(digest: DigestType) -> BookKeeper {
    let password = Bytes::from(PASSWORD);
    engine(Options {
        digest,
        password,
        ..Options::default()
    })
    .await
}

async fn create(
    engine: &BookKeeper,
    (ensemble, write, ack): (usize, usize, usize),
) -> std::sync::Arc<dyn LedgerWriter> {
    let options = CreateOptions {
        replication: Some(Replication {
            ensemble,
            write_quorum: write,
            ack_quorum: ack,
        }),
        custom: custom(),
        ..CreateOptions::default()
    };
    engine.create(options).await.unwrap()
}

/// A ledger of the Java client. Versions of the protocol take turns.
fn created_there(java: &mut Java, (ensemble, write, ack): (usize, usize, usize), digest: &str) -> LedgerId {
    let client = if (ensemble + write + ack).is_multiple_of(2) {
        "v2"
    } else {
        "v3"
    };
    let pairs = CUSTOM.replace(',', " ");
    java.creates(&format!(
        "{client} {ensemble} {write} {ack} {digest} {PASSWORD} {pairs}"
    ))
}

/// Every digest with every size.
fn table() -> impl Iterator<Item = ((DigestType, &'static str), (usize, usize, usize))> {
    let with_sizes = |digest| SIZES.into_iter().map(move |sizes| (digest, sizes));
    DIGESTS.into_iter().flat_map(with_sizes)
}

#[test]
fn what_java_wrote_is_read_here() {
    servers::run(async {
        let mut java = Java::start();
        let engine = engine_with(DigestType::Crc32c).await;
        for ((digest, name), sizes) in table() {
            let ledger = created_there(&mut java, sizes, name);
            java.does(&format!("append {ledger} 40"));
            java.does(&format!("close {ledger}"));
            let sealed = Sealed {
                entry_count: 40,
                bytes: bytes(ledger, 40),
            };
            assert_eq!(engine.recover(ledger).await.unwrap(), sealed, "{name} {sizes:?}");
            holds(&engine, ledger, 40).await;
            let metadata = metadata(ledger).await;
            assert_eq!((metadata.digest, metadata.custom), (digest, custom()));
        }
        let empty = created_there(&mut java, (3, 2, 2), "CRC32C");
        java.does(&format!("close {empty}"));
        assert_eq!(engine.recover(empty).await.unwrap().entry_count, 0);
        engine.delete(empty).await.unwrap();
        let gone = java.ask(&format!("recover v3 {empty} CRC32C {PASSWORD}"));
        assert!(
            gone.unwrap_err().starts_with("BKNoSuchLedgerExists"),
            "it was deleted here"
        );
    });
}

#[test]
fn what_was_written_here_is_read_by_java() {
    servers::run(async {
        let mut java = Java::start();
        for (digest, name) in DIGESTS {
            let engine = engine_with(digest).await;
            for sizes in SIZES {
                let writer = create(&engine, sizes).await;
                let ledger = writer.id();
                servers::append(&*writer, 0..40);
                writer.close().await.unwrap();
                let read = |client| format!("recover {client} {ledger} {name} {PASSWORD}");
                for client in ["v3", "v2"] {
                    let expected = format!("39 {} {CUSTOM}", bytes(ledger, 40));
                    assert_eq!(java.does(&read(client)).join(" "), expected, "{name} {sizes:?}");
                }
            }
            // The password stands in the metadata, and the client insists on it.
            let writer = create(&engine, (1, 1, 1)).await;
            servers::append(&*writer, 0..1);
            writer.close().await.unwrap();
            let ledger = writer.id();
            let refused = java.ask(&format!("recover v3 {ledger} {name} another"));
            assert!(refused.unwrap_err().starts_with("BKUnauthorizedAccess"));
            let empty = create(&engine, (3, 2, 2)).await;
            empty.close().await.unwrap();
            let read = java.does(&format!("recover v3 {} {name} {PASSWORD}", empty.id()));
            assert_eq!(read[..2], ["-1", "0"]);
            java.does(&format!("delete v3 {}", empty.id()));
            assert!(
                engine
                    .list()
                    .await
                    .unwrap()
                    .iter()
                    .all(|ledger| *ledger != empty.id())
            );
        }
    });
}

#[test]
fn an_open_ledger_of_java_is_recovered_and_fenced_here() {
    servers::run(async {
        let mut java = Java::start();
        let engine = engine_with(DigestType::Crc32c).await;
        for ((_, name), sizes) in table() {
            let ledger = created_there(&mut java, sizes, name);
            java.does(&format!("append {ledger} 30"));
            let sealed = engine.recover(ledger).await.unwrap();
            assert_eq!((sealed.entry_count, sealed.bytes), (30, bytes(ledger, 30)));
            let late = java.ask(&format!("append {ledger} 1"));
            assert!(
                late.as_ref()
                    .is_err_and(|error| error.starts_with("BKLedgerFenced")),
                "{late:?}"
            );
            holds(&engine, ledger, 30).await;
            let there = java.does(&format!("recover v2 {ledger} {name} {PASSWORD}"));
            assert_eq!(there[..2], ["29".to_owned(), sealed.bytes.to_string()]);
        }
    });
}

#[test]
fn an_open_ledger_of_ours_is_recovered_and_fenced_by_java() {
    servers::run(async {
        let mut java = Java::start();
        for (digest, name) in DIGESTS {
            let engine = engine_with(digest).await;
            for (number, sizes) in SIZES.into_iter().enumerate() {
                let client = if number.is_multiple_of(2) { "v2" } else { "v3" };
                let writer = create(&engine, sizes).await;
                let ledger = writer.id();
                servers::append(&*writer, 0..30);
                durable(&*writer, 30).await;
                let there = java.does(&format!("recover {client} {ledger} {name} {PASSWORD}"));
                assert_eq!(
                    there[..2],
                    ["29".to_owned(), bytes(ledger, 30).to_string()],
                    "{name} {sizes:?}"
                );
                // The first that comes late may be taken; none is confirmed.
                let _ = writer.append(Bytes::from_static(b"late"));
                let tail = tail_at(&*writer, 31).await;
                assert!(
                    tail.durable == 30 && tail.failed.as_ref().is_some_and(|fault| fault.is_fenced()),
                    "{tail:?}"
                );
                let late = writer.append(Bytes::from_static(b"late"));
                assert!(matches!(late, Err(AppendError::Fenced { .. })), "{late:?}");
                holds(&engine, ledger, 30).await;
            }
        }
    });
}

/// The end is the same for both, and behind everything that its writer was told of.
async fn agree(java: &mut Java, engine: &BookKeeper, ledger: LedgerId, confirmed: u64) {
    let here = engine.recover(ledger).await.unwrap();
    assert!(
        here.entry_count >= confirmed,
        "{confirmed} were confirmed: {here:?}"
    );
    let there = java.does(&format!("recover v3 {ledger} CRC32C {PASSWORD}"));
    let last = i64::try_from(here.entry_count).unwrap() - 1;
    assert_eq!(there[..2], [last.to_string(), here.bytes.to_string()]);
    holds(engine, ledger, here.entry_count).await;
}

/// Appends until it is refused; how many were confirmed.
async fn flood(writer: &dyn LedgerWriter) -> u64 {
    let mut entry = 0;
    loop {
        let tail = tail_at(writer, entry.max(50) - 50).await;
        if tail.failed.is_some() {
            return tail.durable;
        }
        if writer.append(servers::payload(writer.id(), entry)).is_ok() {
            entry += 1;
        }
    }
}

/// The writer there shuts its ledger when a bookie says that it is fenced. What it adds from then on is refused because it is shut,
/// and with an ack quorum of 1 all before may be acknowledged by a bookie that has not heard of the fence.
fn is_shut_by_a_fence(error: &str) -> bool {
    ["BKLedgerFencedException", "BKLedgerClosedException"].contains(&error)
}

#[test]
fn a_ledger_that_is_being_written_is_fenced_by_the_other() {
    servers::run(async {
        let mut java = Java::start();
        let mut other = Java::start();
        let engine = engine_with(DigestType::Crc32c).await;
        for sizes in SIZES {
            let ledger = created_there(&mut java, sizes, "CRC32C");
            java.does(&format!("flood {ledger}"));
            java.does(&format!("reached {ledger} 200"));
            engine.recover(ledger).await.unwrap();
            let end = java.does(&format!("flooded {ledger}"));
            assert!(is_shut_by_a_fence(&end[1]), "{sizes:?}: {end:?}");
            agree(&mut java, &engine, ledger, end[0].parse().unwrap()).await;

            let writer = create(&engine, sizes).await;
            let ledger = writer.id();
            let recovering = async {
                durable(&*writer, 200).await;
                // In a thread of its own: the writer must go on.
                let (tell, told) = tokio::sync::oneshot::channel();
                std::thread::spawn(move || {
                    let last = other.number(&format!("recover v3 {ledger} CRC32C {PASSWORD}"));
                    let _ = tell.send((other, last));
                });
                told.await.unwrap()
            };
            let (confirmed, (back, last)) = futures_util::future::join(flood(&*writer), recovering).await;
            other = back;
            assert!(last + 1 >= i64::try_from(confirmed).unwrap(), "{sizes:?}");
            let failed = writer.tail().borrow().failed.clone().unwrap();
            assert!(failed.is_fenced(), "{failed}");
            agree(&mut java, &engine, ledger, confirmed).await;
        }
    });
}

#[test]
fn open_ledgers_are_read_as_far_as_they_tell() {
    servers::run(async {
        let mut java = Java::start();
        let engine = engine_with(DigestType::Crc32c).await;
        // Entry 9 tells that 8 is confirmed; nothing tells of 9.
        let theirs = created_there(&mut java, (3, 3, 2), "CRC32C");
        for _ in 0..10 {
            java.does(&format!("append {theirs} 1"));
        }
        holds(&engine, theirs, 9).await;
        let ours = create(&engine, (3, 3, 2)).await;
        for entry in 0..10 {
            servers::append(&*ours, entry..entry + 1);
            durable(&*ours, entry + 1).await;
        }
        let read = format!("read v3 {} CRC32C {PASSWORD}", ours.id());
        assert_eq!(java.does(&read), ["8", "false"]);
        // One that tells without an entry.
        let telling = java.creates(&format!("lac 3 3 2 CRC32C {PASSWORD}"));
        java.does(&format!("append {telling} 10"));
        eventually("the last entry is known to be confirmed", async || {
            let last = engine.read(telling, pharos_types::EntryId(9), 1, 1).await;
            !last.unwrap().is_empty()
        })
        .await;
        holds(&engine, telling, 10).await;
        let options = Options {
            password: Bytes::from(PASSWORD),
            explicit_lac_interval: Some(std::time::Duration::from_millis(50)),
            ..Options::default()
        };
        let engine = servers::engine(options).await;
        let ours = create(&engine, (3, 3, 2)).await;
        servers::append(&*ours, 0..10);
        durable(&*ours, 10).await;
        let read = format!("lac {} CRC32C {PASSWORD}", ours.id());
        eventually("Java sees our last entry", async || java.does(&read) == ["9"]).await;
    });
}

/// An open ledger with `bookie` in its ensemble.
async fn with_bookie(bookie: &BookieId, mut create: impl AsyncFnMut() -> LedgerId) -> LedgerId {
    loop {
        let ledger = create().await;
        let metadata = metadata(ledger).await;
        if metadata.last_segment().unwrap().ensemble.contains(bookie) {
            return ledger;
        }
    }
}

#[test]
fn ledgers_whose_bookie_was_killed_go_on_and_are_recovered_by_the_other() {
    servers::run(async {
        let mut java = Java::start();
        let engine = engine_with(DigestType::Crc32c).await;
        let (name, bookie) = servers::bookies().remove(1);
        let theirs = with_bookie(&bookie, async || created_there(&mut java, (2, 2, 2), "CRC32C")).await;
        let mut writer = create(&engine, (2, 2, 2)).await;
        while !metadata(writer.id()).await.segments[0].ensemble.contains(&bookie) {
            writer = create(&engine, (2, 2, 2)).await;
        }
        // There is no other bookie for this one.
        let of_all = create(&engine, (3, 3, 2)).await;
        java.does(&format!("append {theirs} 50"));
        servers::append(&*writer, 0..50);
        servers::append(&*of_all, 0..50);
        durable(&*writer, 50).await;
        durable(&*of_all, 50).await;
        servers::servers("kill", &name);
        java.does(&format!("append {theirs} 50"));
        servers::append(&*writer, 50..100);
        servers::append(&*of_all, 50..100);
        durable(&*writer, 100).await;
        durable(&*of_all, 100).await;
        for ledger in [theirs, writer.id()] {
            let metadata = metadata(ledger).await;
            assert_eq!((metadata.segments.len(), metadata.state), (2, State::Open));
            assert!(!metadata.last_segment().unwrap().ensemble.contains(&bookie));
        }
        let sealed = engine.recover(theirs).await.unwrap();
        assert_eq!(sealed.entry_count, 100);
        // The Java client does not recover a ledger of three bookies while there are two.
        let there = java.does(&format!("recover v3 {} CRC32C {PASSWORD}", writer.id()));
        assert_eq!(there[..2], ["99".to_owned(), bytes(writer.id(), 100).to_string()]);
        servers::servers("start", "4");
        let there = java.does(&format!("recover v3 {} CRC32C {PASSWORD}", of_all.id()));
        assert_eq!(there[..2], ["99".to_owned(), bytes(of_all.id(), 100).to_string()]);
        for ledger in [theirs, writer.id(), of_all.id()] {
            agree(&mut java, &engine, ledger, 100).await;
        }
    });
}
