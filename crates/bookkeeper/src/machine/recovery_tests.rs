use bytes::Bytes;

use super::*;
use crate::digest::DigestType;
use crate::entry::EntryHeader;
use crate::metadata::Segment;
use crate::quorum::Quorum;

struct NoOther;

impl Placement for NoOther {
    fn replace(&mut self, _: &[BookieId], _: usize, _: &[BookieId]) -> Option<BookieId> {
        None
    }
}

fn entry(id: u64) -> Entry {
    Entry {
        header: EntryHeader {
            entry: EntryId(id),
            lac: None,
            length: id + 1,
        },
        payload: Bytes::from_static(b"x"),
    }
}

fn begin(out: &mut Vec<RecoveryEffect>) -> Recovery {
    Recovery::begin(LedgerId(1), metadata(1), Version(1), out)
}

fn metadata(ack: usize) -> LedgerMetadata {
    LedgerMetadata {
        quorum: Quorum::new(2, 2, ack).unwrap(),
        state: State::InRecovery,
        segments: vec![Segment {
            first: EntryId(0),
            ensemble: ["a", "b"].map(BookieId::new).to_vec(),
        }],
        digest: DigestType::Crc32c,
        password: Bytes::new(),
        created_ms: None,
        custom: BTreeMap::new(),
        token: None,
    }
}

/// Both orders: a recovery that waits for an answer that does not come would never end.
#[test]
fn a_recovery_that_hears_of_too_few_bookies_ends_whatever_came_last() {
    let failed = Err(CallError::NoAnswer("time"));
    for answers in [[Ok(None), failed.clone()], [failed, Ok(None)]] {
        let mut out = Vec::new();
        let mut recovery = begin(&mut out);
        out.clear();
        for (position, answer) in answers.into_iter().enumerate() {
            recovery.on_newest(1, position, answer, &mut out);
        }
        assert!(
            matches!(out[..], [RecoveryEffect::Done(Err(RecoveryError::Undecided(_)))]),
            "{out:?}"
        );
    }
}

/// Rule 7; the simulation finds it in about one of a hundred thousand seeds.
#[test]
fn what_is_written_again_claims_no_more_than_was_confirmed_before() {
    let mut out = Vec::new();
    let mut recovery = begin(&mut out);
    for position in [0, 1] {
        recovery.on_newest(1, position, Ok(Some(entry(5))), &mut out);
    }
    let digester = recovery.digester().clone();
    for id in 0..6 {
        out.clear();
        recovery.on_read(1, 0, EntryId(id), Ok(Some(entry(id))), &mut out);
        let adds: Vec<_> = out
            .iter()
            .filter_map(|effect| match effect {
                RecoveryEffect::Add { add, .. } => Some(add.clone()),
                _ => None,
            })
            .collect();
        assert_eq!(adds.len(), 2);
        for add in adds {
            let stored = digester.open(Some(EntryId(id)), &add.body.to_bytes()).unwrap();
            assert_eq!(stored.header.lac, None, "entry {id}");
            let answer = AddAnswer {
                position: add.position,
                bookie: add.bookie,
                entry: EntryId(id),
                connection: 0,
                result: Ok(()),
            };
            recovery.on_add(1, &answer, &mut NoOther, &mut out);
        }
    }
}

/// An answer to a read of before, of an entry behind the end, is not the length of the last one.
#[test]
fn a_late_answer_does_not_count_for_another_read() {
    let mut out = Vec::new();
    let mut recovery = begin(&mut out);
    let newest = Entry {
        header: EntryHeader {
            lac: Some(EntryId(2)),
            ..entry(5).header
        },
        ..entry(5)
    };
    recovery.on_newest(1, 0, Ok(Some(newest)), &mut out);
    recovery.on_newest(1, 1, Ok(None), &mut out);
    for position in [0, 1] {
        recovery.on_read(1, position, EntryId(3), Ok(None), &mut out);
    }
    out.clear();
    recovery.on_read(1, 0, EntryId(5), Ok(Some(entry(5))), &mut out);
    assert!(out.is_empty(), "{out:?}");
    recovery.on_read(1, 0, EntryId(2), Ok(Some(entry(2))), &mut out);
    let [RecoveryEffect::PutMetadata { metadata, .. }] = &out[..] else {
        panic!("{out:?}");
    };
    assert_eq!(
        metadata.state,
        State::Closed {
            last: Some(EntryId(2)),
            length: 3
        }
    );
}

/// A recovery waits for the second of two bookies that had acknowledged an entry without a sync if the crashed one
/// answers first.
#[test]
fn a_recovery_of_a_ledger_with_deferred_sync_hears_those_who_may_have_what_others_lost() {
    let closes = |out: &[RecoveryEffect]| {
        let mut puts = out.iter().filter_map(|effect| match effect {
            RecoveryEffect::PutMetadata { metadata, .. } => Some(metadata.state),
            _ => None,
        });
        puts.next()
    };
    let empty = State::Closed {
        last: None,
        length: 0,
    };
    let silent = || Err(CallError::NoAnswer("time"));
    for (metadata, other, end) in [
        (metadata(2), None, Some(empty)),
        (metadata(2).with_deferred_sync(), Some(Ok(Some(entry(0)))), None),
        // There is none to wait for.
        (metadata(2).with_deferred_sync(), Some(Ok(None)), Some(empty)),
        (metadata(2).with_deferred_sync(), Some(silent()), Some(empty)),
    ] {
        let mut out = Vec::new();
        let mut recovery = Recovery::begin(LedgerId(1), metadata, Version(1), &mut out);
        recovery.on_newest(1, 0, Ok(None), &mut out);
        recovery.on_newest(1, 1, Ok(None), &mut out);
        out.clear();
        recovery.on_read(1, 0, EntryId(0), Ok(None), &mut out);
        if let Some(other) = other {
            assert_eq!(closes(&out), None, "it waits");
            recovery.on_read(1, 1, EntryId(0), other, &mut out);
        }
        assert_eq!(closes(&out), end);
        let writes_again = out
            .iter()
            .any(|effect| matches!(effect, RecoveryEffect::Add { .. }));
        assert_eq!(writes_again, end.is_none());
    }
}
