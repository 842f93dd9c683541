//! The laws of the contract as checks that every engine runs.
//!
//! An engine's tests implement [`Subject`] and call [`run_all`]. Each check takes a fresh subject, panics with a
//! sentence when a law is broken, and can be called alone.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;

use pharos_types::{EntryId, LedgerId};

use crate::{
    AppendError, BoxFuture, CreateError, CreateOptions, DeleteError, Durability, FaultKind, LedgerEngine,
    LedgerWriter, OpenError, ReadError, Sealed, Tail,
};

mod follow;

pub use follow::followers_hear_of_what_is_durable;

/// Maximum wait for a tail to move before a check reports the engine as stuck.
const PATIENCE: Duration = Duration::from_secs(60);

/// An engine under test and what may happen to it.
pub trait Subject {
    /// The engine as it runs now.
    fn engine(&self) -> Arc<dyn LedgerEngine>;

    /// Crashes the process: what was not durable may be lost. Afterwards [`engine`](Self::engine) is the restarted
    /// one.
    fn crash(&mut self) -> BoxFuture<'_, ()>;

    /// True if the subject supports entries of the largest size; if not, that check is skipped.
    fn takes_large_entries(&self) -> bool {
        true
    }

    /// True if the restarted engine shows the whole durable part of a ledger that its dead writer left open; if not,
    /// only a recovery finds its end.
    fn knows_open_ledgers(&self) -> bool {
        true
    }

    /// Makes the next sync fail. `false` when the subject cannot do that; the check is then skipped.
    fn poison(&mut self) -> bool {
        false
    }
}

/// Runs every check on a fresh subject each, on a runtime of its own.
///
/// # Panics
/// When a law is broken.
pub fn run_all<S: Subject>(fresh: impl Fn() -> S) {
    block_on(ids_are_dense_and_entries_come_back(&fresh()));
    block_on(ids_of_ledgers_rise(&mut fresh()));
    block_on(reads_are_bounded(&fresh()));
    block_on(acknowledged_entries_survive_a_crash(&mut fresh()));
    block_on(many_ledgers_keep_apart(&mut fresh()));
    block_on(followers_hear_of_what_is_durable(&fresh()));
    block_on(fenced_writer_cannot_acknowledge(&fresh()));
    block_on(recovery_is_final(&mut fresh()));
    block_on(closed_ledger_takes_nothing_more(&mut fresh()));
    block_on(deleted_ledger_never_comes_back(&mut fresh()));
    block_on(unknown_ledgers_are_named_so(&fresh()));
    block_on(sizes_at_the_edges(&mut fresh()));
    block_on(async_ledgers_work_alike(&fresh()));
    block_on(bypass_ledgers_work_alike(&mut fresh()));
    block_on(a_crash_leaves_a_prefix_of_a_bypass_ledger(&mut fresh()));
    block_on(created_empty_ledgers_survive_a_crash(&mut fresh()));
    block_on(a_failed_sync_is_final(&mut fresh()));
    block_on(shutdown_finishes_what_is_queued(&mut fresh()));
}

fn block_on<T>(check: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime")
        .block_on(check)
}

/// Waits until the tail has reached `durable`, or has failed.
async fn tail_at(mut tail: watch::Receiver<Tail>, durable: u64) -> Tail {
    let reached = tail.wait_for(|tail| tail.durable >= durable || tail.failed.is_some());
    match tokio::time::timeout(PATIENCE, reached).await {
        Ok(Ok(tail)) => tail.clone(),
        Ok(Err(_)) => panic!("the engine dropped the tail before {durable} entries were durable"),
        Err(_) => panic!("the tail did not reach {durable}"),
    }
}

fn payload(ledger: LedgerId, entry: u64) -> Bytes {
    let text = format!("ledger {ledger} entry {entry} ");
    Bytes::from(text.repeat(1 + (entry as usize * 7) % 23))
}

/// Appends entries `writer.next..+count` of the standard pattern and waits for them.
async fn fill(writer: &dyn LedgerWriter, first: u64, count: u64) {
    for entry in first..first + count {
        let id = writer.append(payload(writer.id(), entry)).expect("append");
        assert_eq!(id, EntryId(entry), "ids are dense from 0 in call order");
    }
    let tail = tail_at(writer.tail(), first + count).await;
    assert!(tail.failed.is_none(), "{:?}", tail.failed);
}

async fn create(subject: &impl Subject) -> Arc<dyn LedgerWriter> {
    subject
        .engine()
        .create(CreateOptions::default())
        .await
        .expect("create")
}

/// Reads the whole ledger and compares it with the standard pattern.
async fn holds_pattern(engine: &dyn LedgerEngine, ledger: LedgerId, count: u64) {
    let mut next = 0;
    while next < count {
        let found = engine.read(ledger, EntryId(next), 10, 1000).await.expect("read");
        assert!(!found.is_empty(), "entry {next} of {count} is missing");
        for entry in found {
            assert_eq!(entry.id, EntryId(next));
            assert_eq!(entry.payload, payload(ledger, next), "entry {next}");
            next += 1;
        }
    }
    let beyond = engine
        .read(ledger, EntryId(count), 10, 1000)
        .await
        .expect("read at the end");
    assert!(beyond.is_empty(), "nothing at or beyond the end");
}

/// Law 1, and the plain half of law 2.
pub async fn ids_are_dense_and_entries_come_back(subject: &impl Subject) {
    let writer = create(subject).await;
    fill(&*writer, 0, 100).await;
    fill(&*writer, 100, 1).await;
    holds_pattern(&*subject.engine(), writer.id(), 101).await;
}

/// Ledger ids rise, also over deletes and crashes.
pub async fn ids_of_ledgers_rise(subject: &mut impl Subject) {
    let mut last = None;
    for _ in 0..3 {
        let writer = create(subject).await;
        assert!(Some(writer.id()) > last, "{:?} after {last:?}", writer.id());
        last = Some(writer.id());
        subject.engine().delete(writer.id()).await.expect("delete");
        drop(writer);
        subject.crash().await;
    }
}

/// Reads hold to their bounds, but always give one entry.
pub async fn reads_are_bounded(subject: &impl Subject) {
    let writer = create(subject).await;
    for _ in 0..10 {
        writer.append(Bytes::from(vec![7; 100])).expect("append");
    }
    tail_at(writer.tail(), 10).await;
    let engine = subject.engine();
    let count = async |first, entries_max, bytes_max| {
        let read = engine.read(writer.id(), EntryId(first), entries_max, bytes_max);
        read.await.expect("read").len()
    };
    assert_eq!(count(0, 3, usize::MAX).await, 3);
    assert_eq!(count(0, usize::MAX, 250).await, 2);
    assert_eq!(count(0, usize::MAX, 300).await, 3);
    assert_eq!(
        count(4, 10, 1).await,
        1,
        "one entry even when it is larger than asked for"
    );
    assert_eq!(count(7, usize::MAX, usize::MAX).await, 3);
    assert_eq!(count(10, 10, 1000).await, 0);
    assert_eq!(count(u64::MAX, 10, 1000).await, 0);
}

/// Laws 2 and 3.
pub async fn acknowledged_entries_survive_a_crash(subject: &mut impl Subject) {
    let writer = create(subject).await;
    let id = writer.id();
    fill(&*writer, 0, 50).await;
    for entry in 50..60 {
        writer.append(payload(id, entry)).expect("append");
    }
    drop(writer);
    subject.crash().await;
    let sealed = subject.engine().recover(id).await.expect("recover");
    assert!(
        (50..=60).contains(&sealed.entry_count),
        "a prefix that holds at least the durable tail, not {sealed:?}"
    );
    let bytes: usize = (0..sealed.entry_count).map(|e| payload(id, e).len()).sum();
    assert_eq!(sealed.bytes, bytes as u64);
    holds_pattern(&*subject.engine(), id, sealed.entry_count).await;
}

/// Interleaved ledgers do not mix, before and after a crash.
pub async fn many_ledgers_keep_apart(subject: &mut impl Subject) {
    let mut writers = Vec::new();
    for _ in 0..20 {
        writers.push(create(subject).await);
    }
    for round in 0..5 {
        for writer in &writers {
            writer.append(payload(writer.id(), round)).expect("append");
        }
    }
    let mut ids = Vec::new();
    for writer in &writers {
        tail_at(writer.tail(), 5).await;
        ids.push(writer.id());
    }
    drop(writers);
    assert_eq!(
        subject.engine().list().await.expect("list"),
        ids,
        "rising and complete"
    );
    subject.crash().await;
    let engine = subject.engine();
    for id in &ids {
        assert_eq!(engine.recover(*id).await.expect("recover").entry_count, 5);
        holds_pattern(&*engine, *id, 5).await;
    }
    assert_eq!(engine.list().await.expect("list"), ids);
}

/// Law 4.
pub async fn fenced_writer_cannot_acknowledge(subject: &impl Subject) {
    let old = create(subject).await;
    let id = old.id();
    fill(&*old, 0, 3).await;
    old.append(payload(id, 3)).expect("append");
    let sealed = subject.engine().recover(id).await.expect("recover");
    assert!((3..=4).contains(&sealed.entry_count), "{sealed:?}");
    let late = old.append(Bytes::from_static(b"late"));
    assert!(
        matches!(late, Err(AppendError::Fenced { ledger }) if ledger == id),
        "{late:?}"
    );
    assert!(matches!(old.close().await, Err(AppendError::Fenced { .. })));
    assert!(old.tail().borrow().durable <= sealed.entry_count);
    // Where its waiters are told, they are told why: a fault that passes would have them take the ledger back.
    if let Some(fault) = &old.tail().borrow().failed {
        assert_eq!(fault.kind(), FaultKind::Fenced, "{fault}");
    }
    holds_pattern(&*subject.engine(), id, sealed.entry_count).await;
    assert_eq!(subject.engine().recover(id).await.expect("again"), sealed);
}

/// Result of a recovery never changes.
pub async fn recovery_is_final(subject: &mut impl Subject) {
    let writer = create(subject).await;
    let id = writer.id();
    let empty = create(subject).await.id();
    fill(&*writer, 0, 7).await;
    drop(writer);
    subject.crash().await;
    let engine = subject.engine();
    let (one, two) = futures_util::future::join(engine.recover(id), engine.recover(id)).await;
    let sealed = one.expect("recover");
    assert_eq!(two.expect("recover at the same time"), sealed);
    assert_eq!(sealed.entry_count, 7);
    let nothing = Sealed {
        entry_count: 0,
        bytes: 0,
    };
    assert_eq!(engine.recover(empty).await.expect("recover"), nothing);
    drop(engine);
    subject.crash().await;
    assert_eq!(subject.engine().recover(id).await.expect("recover"), sealed);
    assert_eq!(subject.engine().recover(empty).await.expect("recover"), nothing);
    holds_pattern(&*subject.engine(), id, 7).await;
}

/// Closing waits for all appends, is idempotent and survives.
pub async fn closed_ledger_takes_nothing_more(subject: &mut impl Subject) {
    let writer = create(subject).await;
    let id = writer.id();
    for entry in 0..9 {
        writer.append(payload(id, entry)).expect("append");
    }
    writer.close().await.expect("close");
    writer.close().await.expect("close again");
    assert_eq!(writer.tail().borrow().durable, 9);
    let late = writer.append(Bytes::from_static(b"late"));
    assert!(
        matches!(late, Err(AppendError::Closed { ledger }) if ledger == id),
        "{late:?}"
    );
    assert_eq!(
        subject.engine().recover(id).await.expect("recover").entry_count,
        9
    );
    drop(writer);
    subject.crash().await;
    assert_eq!(
        subject.engine().recover(id).await.expect("recover").entry_count,
        9
    );
    holds_pattern(&*subject.engine(), id, 9).await;
}

/// Law 6.
pub async fn deleted_ledger_never_comes_back(subject: &mut impl Subject) {
    let (open, closed, kept) = (
        create(subject).await,
        create(subject).await,
        create(subject).await,
    );
    for writer in [&open, &closed, &kept] {
        fill(&**writer, 0, 5).await;
    }
    closed.close().await.expect("close");
    let engine = subject.engine();
    for id in [open.id(), closed.id(), open.id()] {
        engine.delete(id).await.expect("delete");
    }
    let late = open.append(Bytes::from_static(b"late"));
    assert!(matches!(late, Err(AppendError::Fenced { .. })), "{late:?}");
    let (gone, kept_id) = ([open.id(), closed.id()], kept.id());
    drop((open, closed, kept, engine));
    for _ in 0..2 {
        let engine = subject.engine();
        for id in gone {
            let read = engine.read(id, EntryId(0), 1, 1).await;
            assert!(matches!(read, Err(ReadError::NoSuchLedger(_))), "{read:?}");
            assert!(matches!(
                engine.recover(id).await,
                Err(OpenError::NoSuchLedger(_))
            ));
        }
        assert_eq!(engine.list().await.expect("list"), [kept_id]);
        drop(engine);
        subject.crash().await;
    }
    if !subject.knows_open_ledgers() {
        subject.engine().recover(kept_id).await.expect("recover");
    }
    holds_pattern(&*subject.engine(), kept_id, 5).await;
}

/// Ledgers that were not created.
pub async fn unknown_ledgers_are_named_so(subject: &impl Subject) {
    let engine = subject.engine();
    let id = LedgerId(4711);
    assert!(matches!(engine.recover(id).await, Err(OpenError::NoSuchLedger(l)) if l == id));
    let read = engine.read(id, EntryId(0), 1, 1).await;
    assert!(matches!(read, Err(ReadError::NoSuchLedger(l)) if l == id));
    engine
        .delete(id)
        .await
        .expect("deleting what is not there is fine");
    assert!(engine.list().await.expect("list").is_empty());
}

/// The smallest and the largest entry, and one too large.
pub async fn sizes_at_the_edges(subject: &mut impl Subject) {
    if !subject.takes_large_entries() {
        return;
    }
    let writer = create(subject).await;
    let id = writer.id();
    let large = Bytes::from((0..16 << 20).map(|i: u32| (i >> 8) as u8).collect::<Vec<_>>());
    let refused = writer.append(Bytes::from(vec![0; (16 << 20) + 1]));
    assert!(
        matches!(refused, Err(AppendError::TooLarge { .. })),
        "{refused:?}"
    );
    assert_eq!(
        writer.append(Bytes::from_static(b"x")).expect("append"),
        EntryId(0)
    );
    assert_eq!(writer.append(large.clone()).expect("append"), EntryId(1));
    assert_eq!(
        writer.append(Bytes::from_static(b"y")).expect("append"),
        EntryId(2)
    );
    tail_at(writer.tail(), 3).await;
    drop(writer);
    subject.crash().await;
    let engine = subject.engine();
    assert_eq!(engine.recover(id).await.expect("recover").entry_count, 3);
    let mut found = Vec::new();
    while found.len() < 3 {
        // A call may bring fewer, and goes on behind them.
        let next = EntryId(found.len() as u64);
        let more = engine.read(id, next, 3, usize::MAX).await.expect("read");
        assert!(!more.is_empty() && more[0].id == next);
        found.extend(more);
    }
    assert_eq!(found.len(), 3);
    assert!(found[1].payload == large, "16 MiB come back byte for byte");
    assert_eq!(
        (&found[0].payload[..], &found[2].payload[..]),
        (&b"x"[..], &b"y"[..])
    );
}

/// A ledger with the weaker durability obeys everything else.
pub async fn async_ledgers_work_alike(subject: &impl Subject) {
    let options = CreateOptions {
        durability: Durability::Async,
        ..CreateOptions::default()
    };
    let engine = subject.engine();
    let (writer, strict) = (
        engine.create(options).await.expect("create"),
        create(subject).await,
    );
    fill(&*writer, 0, 20).await;
    fill(&*strict, 0, 20).await;
    fill(&*writer, 20, 20).await;
    holds_pattern(&*engine, writer.id(), 40).await;
    writer.close().await.expect("close");
    assert_eq!(
        engine.recover(writer.id()).await.expect("recover").entry_count,
        40
    );
    holds_pattern(&*engine, strict.id(), 20).await;
}

/// Law 8: a ledger that bypasses the journal obeys everything else, and what is sealed is durable.
pub async fn bypass_ledgers_work_alike(subject: &mut impl Subject) {
    let options = CreateOptions {
        durability: Durability::Bypass,
        ..CreateOptions::default()
    };
    let engine = subject.engine();
    let closed = engine.create(options.clone()).await.expect("create");
    let recovered = engine.create(options.clone()).await.expect("create");
    let empty = engine.create(options.clone()).await.expect("create");
    let deleted = engine.create(options).await.expect("create");
    let strict = create(subject).await;
    for writer in [&closed, &strict, &recovered, &deleted] {
        fill(&**writer, 0, 20).await;
    }
    fill(&*closed, 20, 20).await;
    holds_pattern(&*engine, closed.id(), 40).await;
    engine.delete(deleted.id()).await.expect("delete");
    for entry in 40..45 {
        closed.append(payload(closed.id(), entry)).expect("append");
    }
    closed.close().await.expect("close");
    closed.close().await.expect("close again");
    let late = closed.append(Bytes::from_static(b"late"));
    assert!(matches!(late, Err(AppendError::Closed { .. })), "{late:?}");
    let sealed = engine.recover(recovered.id()).await.expect("recover");
    assert_eq!(sealed.entry_count, 20);
    assert!(matches!(
        recovered.append(Bytes::from_static(b"late")),
        Err(AppendError::Fenced { .. })
    ));
    empty.close().await.expect("close an empty one");
    let ids = [closed.id(), recovered.id(), empty.id(), strict.id()];
    drop((closed, recovered, empty, deleted, strict, engine));
    subject.crash().await;
    let engine = subject.engine();
    assert_eq!(engine.list().await.expect("list"), ids);
    for (id, count) in ids.into_iter().zip([45, 20, 0, 20]) {
        assert_eq!(engine.recover(id).await.expect("recover").entry_count, count);
        holds_pattern(&*engine, id, count).await;
    }
}

/// Law 3 for a ledger that bypasses the journal.
pub async fn a_crash_leaves_a_prefix_of_a_bypass_ledger(subject: &mut impl Subject) {
    let options = CreateOptions {
        durability: Durability::Bypass,
        ..CreateOptions::default()
    };
    let writer = subject.engine().create(options).await.expect("create");
    let id = writer.id();
    fill(&*writer, 0, 60).await;
    drop(writer);
    subject.crash().await;
    let engine = subject.engine();
    let sealed = engine.recover(id).await.expect("recover");
    assert!(sealed.entry_count <= 60, "{sealed:?}");
    holds_pattern(&*engine, id, sealed.entry_count).await;
    drop(engine);
    subject.crash().await;
    assert_eq!(subject.engine().recover(id).await.expect("recover"), sealed);
    holds_pattern(&*subject.engine(), id, sealed.entry_count).await;
}

/// Law 7.
pub async fn created_empty_ledgers_survive_a_crash(subject: &mut impl Subject) {
    let mut ids = Vec::new();
    for durability in [Durability::Sync, Durability::Async, Durability::Bypass] {
        for _ in 0..2 {
            let created = subject
                .engine()
                .create(CreateOptions {
                    durability,
                    ..CreateOptions::default()
                })
                .await;
            ids.push(created.expect("create").id());
        }
    }
    for _ in 0..2 {
        subject.crash().await;
        assert_eq!(subject.engine().list().await.expect("list"), ids);
    }
    let engine = subject.engine();
    for id in ids {
        assert_eq!(engine.recover(id).await.expect("recover").entry_count, 0);
        holds_pattern(&*engine, id, 0).await;
    }
}

/// Law 5.
pub async fn a_failed_sync_is_final(subject: &mut impl Subject) {
    let writer = create(subject).await;
    let idle = create(subject).await;
    let id = writer.id();
    fill(&*writer, 0, 4).await;
    if !subject.poison() {
        return;
    }
    // Either already refused, or taken and then never durable.
    let _ = writer.append(payload(id, 4));
    let tail = tail_at(writer.tail(), u64::MAX).await;
    assert!(tail.failed.is_some());
    // The sync that failed need not have been the one of this append.
    assert!((4..=5).contains(&tail.durable), "{tail:?}");
    assert!(
        tail_at(idle.tail(), u64::MAX).await.failed.is_some(),
        "every writer hears of it"
    );
    assert!(matches!(
        writer.append(payload(id, 5)),
        Err(AppendError::Poisoned(_))
    ));
    assert!(matches!(writer.close().await, Err(AppendError::Poisoned(_))));
    let engine = subject.engine();
    let create = engine.create(CreateOptions::default()).await;
    assert!(matches!(create.err(), Some(CreateError::Poisoned(_))));
    assert!(matches!(engine.recover(id).await, Err(OpenError::Fault(_))));
    assert!(matches!(engine.delete(id).await, Err(DeleteError::Poisoned(_))));
    assert_eq!(
        writer.tail().borrow().durable,
        tail.durable,
        "the tail never moves again"
    );
    let kept = engine.read(id, EntryId(3), 1, 1).await.expect("reads go on");
    assert_eq!(kept[0].payload, payload(id, 3));
    drop(engine);
    subject.crash().await;
    assert!(subject.engine().recover(id).await.expect("recover").entry_count >= 4);
}

/// After a shutdown everything queued is durable, and nothing more is taken.
pub async fn shutdown_finishes_what_is_queued(subject: &mut impl Subject) {
    let writer = create(subject).await;
    let id = writer.id();
    for entry in 0..30 {
        writer.append(payload(id, entry)).expect("append");
    }
    subject.engine().shutdown().await;
    assert_eq!(writer.tail().borrow().durable, 30);
    assert!(matches!(
        writer.append(payload(id, 30)),
        Err(AppendError::Poisoned(_))
    ));
    drop(writer);
    subject.crash().await;
    assert_eq!(
        subject.engine().recover(id).await.expect("recover").entry_count,
        30
    );
    holds_pattern(&*subject.engine(), id, 30).await;
}
