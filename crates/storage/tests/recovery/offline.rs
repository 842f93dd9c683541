//! Looking at a store that is not open says what opening it would say, changes nothing, and repairs what it promises.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use pharos_ledger::Durability;
use pharos_runtime::fs::{FaultFs, OpenHow};
use pharos_storage::manual::Manual;
use pharos_storage::offline::{Access, Effect, Offline, OfflineError, Remedy, Report};
use pharos_types::LedgerId;

use crate::{Store, checkpoint, dir, index, journal, ledgers, log, options, payload, segment};

const BYTES: usize = 40;

/// A store and how many entries its ledgers have; none for one that was deleted.
struct Built {
    fs: FaultFs,
    content: Vec<(LedgerId, Option<u64>)>,
}

/// Ledgers of all kinds, entries in the logs and in the journal.
fn build(clean: bool) -> Built {
    let mut store = Store::new();
    let (sealed, open, gone) = (store.create(), store.create(), store.create());
    let relaxed = store.create_with(Durability::Async);
    let bypass = store.create_with(Durability::Bypass);
    for writer in [&sealed, &open, &relaxed, &bypass, &gone] {
        for _ in 0..2 {
            store.append(&**writer, BYTES);
        }
    }
    store.flush();
    store.recover(sealed.id()).unwrap();
    let young = store.create();
    for writer in [&open, &relaxed, &young, &gone] {
        store.append(&**writer, BYTES);
    }
    // Several records in one group as well.
    for writer in [&open, &young] {
        for more in 0..2 {
            let entry = writer.tail().borrow().durable + more;
            writer.append(payload(writer.id(), entry, BYTES)).unwrap();
        }
    }
    store.manual.settle();
    store.delete(gone.id());
    store.recover(young.id()).unwrap();
    // Everything is synced, and said to be.
    for _ in 0..2 {
        store.manual.pass(2_000_000_000);
        store.manual.step_journal(0);
    }
    let content = vec![
        (sealed.id(), Some(2)),
        (open.id(), Some(5)),
        (relaxed.id(), Some(3)),
        (bypass.id(), Some(2)),
        (young.id(), Some(3)),
        (gone.id(), None),
    ];
    let fs = if clean { store.stop() } else { store.kill() };
    Built { fs, content }
}

fn offline(fs: &FaultFs, access: Access) -> Result<Offline, OfflineError> {
    Offline::open_with(fs.mount(), &dir(), &options(), access)
}

/// Checks, and makes sure that nothing was written.
fn check(fs: &FaultFs) -> Result<Report, OfflineError> {
    let steps = fs.steps();
    let report = offline(fs, Access::Look).and_then(|offline| offline.check(&mut |_| {}));
    assert_eq!(fs.steps(), steps, "a check writes nothing");
    report
}

/// Answers of an open store about the same files.
#[derive(Debug, Default, PartialEq, Eq)]
struct Engine {
    opens: bool,
    /// Entries that answer with an error.
    lost: BTreeSet<(u64, u64)>,
    unknown_ends: BTreeSet<u64>,
    /// Ledgers or entries that are not there at all, and no check says so.
    absent: bool,
}

fn ask_engine(built: &Built, fs: FaultFs, what: &str) -> Engine {
    let mut engine = Engine::default();
    let Ok(manual) = Manual::open(fs.mount(), &dir(), options()) else {
        return engine;
    };
    let mut store = Store { fs, manual };
    engine.opens = true;
    let listed = store.list();
    for (id, count) in &built.content {
        if listed.contains(id) != count.is_some() {
            engine.absent = true;
            continue;
        }
        let Some(count) = *count else { continue };
        match store.recover(*id) {
            Ok(sealed) => engine.absent |= sealed.entry_count != count,
            Err(_) => drop(engine.unknown_ends.insert(id.0)),
        }
        for entry in 0..count {
            match store.read(*id, entry) {
                Ok(Some(found)) => assert_eq!(found, payload(*id, entry, BYTES), "{what}: {id} {entry}"),
                Ok(None) => engine.absent = true,
                Err(_) => drop(engine.lost.insert((id.0, entry))),
            }
        }
    }
    engine
}

/// The check and the engine say the same. Returns whether everything is well.
fn agree(built: &Built, fs: &FaultFs, what: &str) -> bool {
    let checked = check(fs);
    let engine = ask_engine(built, fs.snapshot(), what);
    let Ok(report) = checked else {
        assert!(!engine.opens, "{what}: {checked:?} and yet it opens");
        return false;
    };
    let blocked = report
        .findings
        .iter()
        .any(|found| found.effect == Effect::DoesNotOpen);
    assert_eq!(engine.opens, !blocked, "{what}: {report:#?}");
    if !engine.opens {
        assert!(!report.is_clean());
        return false;
    }
    let one = |lost: &pharos_storage::offline::LostEntries| {
        let id = lost.ledger.0;
        (lost.first..lost.first + lost.count).map(move |entry| (id, entry))
    };
    let known: BTreeSet<u64> = built
        .content
        .iter()
        .filter(|row| row.1.is_some())
        .map(|row| row.0.0)
        .collect();
    let lost: BTreeSet<_> = report
        .lost
        .iter()
        .flat_map(one)
        .filter(|lost| known.contains(&lost.0))
        .collect();
    let unknown_ends: BTreeSet<_> = report
        .unknown_ends
        .iter()
        .map(|id| id.0)
        .filter(|id| known.contains(id))
        .collect();
    assert_eq!(lost, engine.lost, "{what}: {report:#?}");
    assert_eq!(unknown_ends, engine.unknown_ends, "{what}: {report:#?}");
    if report.is_clean() {
        assert!(!engine.absent, "{what}: clean, but something is not there");
    }
    if engine.absent {
        let may_hide = report
            .findings
            .iter()
            .any(|found| found.effect == Effect::MayHide);
        assert!(may_hide, "{what}: {report:#?}");
    }
    report.is_clean()
}

/// All files of the store.
fn files(fs: &FaultFs) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for dir in [journal(), ledgers()] {
        let names = fs.mount().list(&dir).unwrap();
        all.extend(
            names
                .iter()
                .filter(|name| *name != "LOCK")
                .map(|name| dir.join(name)),
        );
    }
    all
}

fn cut(fs: &FaultFs, path: &Path, bytes: u64) {
    let file = fs.mount().open(path, OpenHow::WRITE).unwrap();
    file.set_len(bytes).unwrap();
}

#[test]
fn a_sound_store_is_clean() {
    for clean in [false, true] {
        let built = build(clean);
        assert!(agree(&built, &built.fs, "sound"));
        let report = check(&built.fs).unwrap();
        assert_eq!((report.totals.ledgers, report.totals.entries), (5, 15));
        assert!(report.lost.is_empty() && report.totals.bytes > 0);
    }
}

#[test]
fn every_flipped_byte_is_judged_as_the_engine_judges_it() {
    for clean in [false, true] {
        let built = build(clean);
        let mut hurt = 0;
        for path in files(&built.fs) {
            let content = built.fs.bytes_of(&path).unwrap();
            let end = content
                .iter()
                .rposition(|byte| *byte != 0)
                .map_or(0, |last| last + 1);
            // Zeros between blocks are all alike.
            let told = |at: &usize| {
                content[*at] != 0 || at.is_multiple_of(8) && content[*at..].iter().take(8).any(|b| *b != 0)
            };
            for at in (0..end).filter(told) {
                let fs = built.fs.snapshot();
                assert!(fs.flip(&path, at, 0x41));
                let what = format!("{} byte {at}, clean stop: {clean}", path.display());
                hurt += usize::from(!agree(&built, &fs, &what));
            }
        }
        assert!(hurt > 200, "only {hurt} flips mattered");
    }
}

#[test]
fn every_missing_or_shortened_file_is_judged_as_the_engine_judges_it() {
    for clean in [false, true] {
        let built = build(clean);
        for path in files(&built.fs) {
            if !clean && path == segment(2) {
                // The end of a journal looks like this after a crash as well: nothing in the store says that there was
                // more. A file that knows how many entries there were says so.
                continue;
            }
            let fs = built.fs.snapshot();
            fs.mount().remove(&path).unwrap();
            agree(
                &built,
                &fs,
                &format!("no {}, clean stop: {clean}", path.display()),
            );
            let bytes = built.fs.bytes_of(&path).unwrap().len() as u64;
            for at in [0, 1, 600, bytes / 3, bytes / 2, bytes.saturating_sub(9)] {
                let fs = built.fs.snapshot();
                cut(&fs, &path, at.min(bytes));
                agree(
                    &built,
                    &fs,
                    &format!("{} cut at {at}, clean stop: {clean}", path.display()),
                );
            }
        }
    }
}

#[test]
fn a_torn_last_write_is_harmless_and_said() {
    let mut store = Store::new();
    let writer = store.create();
    for bytes in [100, 1500] {
        store.append(&*writer, bytes);
    }
    let fs = store.kill();
    let content = fs.bytes_of(&segment(1)).unwrap();
    let last = content.iter().rposition(|byte| *byte != 0).unwrap();
    fs.flip(&segment(1), last - 100, 0xff);
    let report = check(&fs).unwrap();
    assert!(report.is_clean(), "{report:#?}");
    assert!(
        report
            .findings
            .iter()
            .any(|found| found.what.contains("torn") && found.remedy == Remedy::Start)
    );
}

#[test]
fn a_store_in_use_is_refused_and_an_absent_one_is_named() {
    let real = tempfile::tempdir().unwrap();
    let options = pharos_storage::Options::default();
    let storage = pharos_storage::Storage::open(real.path(), options.clone()).unwrap();
    for access in [Access::Look, Access::Change] {
        let refused = Offline::open(real.path(), &options, access).err().unwrap();
        assert!(matches!(refused, OfflineError::Locked(_)), "{refused}");
    }
    let file = real.path().join("ledgers/VERSION");
    let refused = Offline::decode_file(&file, false, &mut |_| {}).err().unwrap();
    assert!(matches!(refused, OfflineError::Locked(_)), "{refused}");
    drop(storage);
    let offline = Offline::open(real.path(), &options, Access::Look).unwrap();
    assert!(offline.check(&mut |_| {}).unwrap().is_clean());
    let refused = pharos_storage::Storage::open(real.path(), options.clone()).err();
    assert!(refused.is_some(), "no broker opens it meanwhile");
    let empty = tempfile::tempdir().unwrap();
    let refused = Offline::open(empty.path(), &options, Access::Look).err().unwrap();
    assert!(matches!(refused, OfflineError::NoStore(_)), "{refused}");
    assert_eq!(std::fs::read_dir(empty.path()).unwrap().count(), 0);
}

/// Repairs and says how many actions that were.
fn repair(fs: &FaultFs) -> usize {
    let offline = offline(fs, Access::Change).unwrap();
    let plan = offline.plan(&mut |_| {}).unwrap();
    let mut done = 0;
    offline.repair(&plan, &mut |_| done += 1).unwrap();
    assert_eq!(done, plan.actions.len());
    done
}

#[test]
fn what_a_repair_promises_is_whole_afterwards() {
    type Hurt = fn(&FaultFs);
    let hurts: [(&str, Hurt); 8] = [
        ("index gone", |fs| fs.mount().remove(&index(0)).unwrap()),
        ("index damaged", |fs| assert!(fs.flip(&index(0), 50, 1))),
        ("journal's VERSION gone", |fs| {
            fs.mount().remove(&journal().join("VERSION")).unwrap()
        }),
        ("ledgers' VERSION gone", |fs| {
            fs.mount().remove(&ledgers().join("VERSION")).unwrap()
        }),
        ("both VERSION files gone", |fs| {
            for dir in [journal(), ledgers()] {
                fs.mount().remove(&dir.join("VERSION")).unwrap();
            }
        }),
        ("VERSION damaged twice", |fs| {
            for at in [5, 517] {
                fs.flip(&ledgers().join("VERSION"), at, 1);
            }
        }),
        ("checkpoint damaged once", |fs| {
            assert!(fs.flip(&checkpoint(), 40, 1))
        }),
        ("checkpoint not renamed", |fs| {
            let tmp = ledgers().join("CHECKPOINT.tmp");
            fs.mount().rename(&checkpoint(), &tmp).unwrap();
        }),
    ];
    for clean in [false, true] {
        let built = build(clean);
        for (what, hurt) in hurts {
            let fs = built.fs.snapshot();
            hurt(&fs);
            if clean && what.starts_with("journal's") {
                // Nothing is in it after a clean stop, so it is made again as if it were new.
                assert!(agree(&built, &fs, what));
                continue;
            }
            let what = format!("{what}, clean stop: {clean}");
            let report = check(&fs).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(
                report.findings.iter().any(|found| found.remedy == Remedy::Repair),
                "{what}: {report:#?}"
            );
            assert!(repair(&fs) > 0, "{what}");
            let after = check(&fs).unwrap();
            assert!(after.is_clean(), "{what}: {after:#?}");
            assert!(
                after.findings.iter().all(|found| found.remedy != Remedy::Repair),
                "{what}: {after:#?}"
            );
            assert!(agree(&built, &fs, &what));
            assert_eq!(repair(&fs), 0, "{what}: nothing is left to do");
        }
    }
}

#[test]
fn a_checkpoint_is_made_again_only_while_the_journals_have_everything() {
    let mut store = Store::new();
    let writer = store.create();
    let id = writer.id();
    for _ in 0..4 {
        store.append(&*writer, 100);
    }
    store.flush();
    store.append(&*writer, 100);
    let whole = store.fs.snapshot();
    while store.fs.bytes_of(&segment(1)).is_some() {
        store.append(&*writer, 900);
        store.flush();
    }
    let trimmed = store.kill();
    whole.restart();
    for fs in [&whole, &trimmed] {
        for at in [9, fs.bytes_of(&checkpoint()).unwrap().len() / 2 + 9] {
            fs.flip(&checkpoint(), at, 1);
        }
        assert!(!check(fs).unwrap().complete);
        assert!(Manual::open(fs.snapshot().mount(), &dir(), options()).is_err());
    }
    assert!(repair(&whole) >= 2, "the checkpoint, and the log put aside");
    assert!(check(&whole).unwrap().is_clean());
    let kept = ledgers().join("00000000.log.before-repair");
    assert!(whole.bytes_of(&kept).is_some());
    let mut store = Store::open(whole);
    for entry in 0..5 {
        assert_eq!(store.read(id, entry).unwrap().unwrap(), payload(id, entry, 100));
    }
    let plan = offline(&trimmed, Access::Look)
        .unwrap()
        .plan(&mut |_| {})
        .unwrap();
    assert!(plan.actions.is_empty(), "{plan:#?}");
    assert!(plan.refused[0].why.contains("beginning"), "{plan:#?}");
}

#[test]
fn a_repair_of_damaged_records_loses_nothing_more() {
    let built = build(true);
    let content = built.fs.bytes_of(&log(0)).unwrap();
    let fs = built.fs.snapshot();
    fs.flip(&log(0), 4096 + 12, 1);
    fs.mount().remove(&index(0)).unwrap();
    assert!(!agree(&built, &fs, "hurt"));
    let lost = check(&fs).unwrap().lost;
    assert_eq!(lost.iter().map(|lost| lost.count).sum::<u64>(), 1);
    repair(&fs);
    assert_eq!(check(&fs).unwrap().totals.entries_lost, 1);
    agree(&built, &fs, "repaired");
    // Garbage goes aside and is kept.
    let tail = fs.mount().open(&log(0), OpenHow::WRITE).unwrap();
    tail.write_all_at(b"garbage", content.len() as u64).unwrap();
    let stray = ledgers().join("000000ff.log");
    fs.mount()
        .open(&stray, OpenHow::CREATE)
        .unwrap()
        .write_all_at(b"stray", 0)
        .unwrap();
    assert_eq!(repair(&fs), 2);
    assert_eq!(fs.bytes_of(&log(0)).unwrap().len(), content.len());
    let kept = |name: &str| fs.bytes_of(&ledgers().join(name)).unwrap();
    assert_eq!(kept("00000000.log.tail.before-repair"), b"garbage");
    assert_eq!(kept("000000ff.log.before-repair"), b"stray");
    assert!(fs.bytes_of(&stray).is_none());
    agree(&built, &fs, "tidied");
}

#[test]
fn entries_are_read_from_logs_and_journals_in_order() {
    for clean in [false, true] {
        let built = build(clean);
        let offline = offline(&built.fs, Access::Look).unwrap();
        let overview = offline.overview(&mut |_| {}).unwrap();
        assert_eq!(overview.ledgers().count(), 5);
        for (id, count) in &built.content {
            let mut found = Vec::new();
            let there = overview.entries(*id, 0, u64::MAX, &mut |view| {
                assert_eq!(view.payload.unwrap(), payload(*id, view.entry, BYTES));
                let bytes = built.fs.bytes_of(view.file).unwrap();
                let at = view.byte_offset as usize + 32;
                assert_eq!(&bytes[at..at + BYTES], view.payload.unwrap());
                found.push(view.entry);
            });
            assert_eq!(there, count.is_some());
            assert_eq!(found, (0..count.unwrap_or(0)).collect::<Vec<_>>(), "{id}");
            if let Some(view) = overview.ledger(*id) {
                assert_eq!(view.entries, count.unwrap());
                let in_logs: u64 = overview.runs(*id).iter().map(|run| run.count).sum();
                assert_eq!(in_logs + view.in_journal, view.entries);
            }
        }
    }
}

#[test]
fn every_file_of_a_store_can_be_decoded() {
    let built = build(false);
    for path in files(&built.fs) {
        let mut items = Vec::new();
        Offline::decode_file_with(&*built.fs.mount(), &path, true, &mut |item| items.push(item)).unwrap();
        let name = path.display();
        assert!(items.iter().all(|item| item.whole), "{name}: {items:#?}");
        let kinds: BTreeSet<_> = items.iter().map(|item| item.kind).collect();
        let expected = match path.extension().and_then(|ending| ending.to_str()) {
            Some("seg") if path == segment(1) => {
                vec!["segment header", "group", "entry", "created", "sealed"]
            }
            Some("log") => vec!["log header", "entry"],
            Some("idx") => vec!["batch", "run"],
            Some("seg") => continue,
            _ if path.ends_with("VERSION") => vec!["superblock"],
            _ => vec!["checkpoint", "mark", "log", "ledger"],
        };
        assert!(
            expected.iter().all(|kind| kinds.contains(kind)),
            "{name}: {kinds:?}"
        );
    }
}
