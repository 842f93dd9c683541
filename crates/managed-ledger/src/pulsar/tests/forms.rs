//! Names, infos and states in Pulsar's form.

use super::*;

#[test]
fn names_are_those_of_java() {
    for (plain, encoded) in [
        ("t1", "t1"),
        ("a b*c", "a+b*c"),
        ("ü/1", "%C3%BC%2F1"),
        ("a~b", "a%7Eb"),
    ] {
        assert_eq!(name::encode(plain), encoded);
        assert_eq!(name::decode(encoded).as_deref(), Some(plain));
    }
    assert_eq!(name::decode("%G0"), None);
    assert_eq!(name::decode("%F"), None);
}

/// Infos written by a 4.2.4 cluster are read: a topic whose only ledger is being written, and one that was created
/// and never opened.
#[test]
fn an_info_that_a_broker_of_pulsar_wrote_is_read() {
    let read = info::parse("t1", &bytes("0a0408032000")).unwrap();
    assert!(read.is_foreign);
    let [row] = read.info.ledgers.as_slice() else {
        panic!("{:?}", read.info);
    };
    assert_eq!(
        (row.ledger_id, row.closed_at_ms, read.info.first_ordinal),
        (3, None, 0)
    );
    assert!(info::parse("p", b"").unwrap().info.ledgers.is_empty());
    let compressed = info::parse("t1", &bytes("477800000004"));
    assert!(compressed.is_err_and(|error| error.to_string().contains("managedLedgerInfoCompressionType")));
}

fn row(id: u64, first: u64, entries: u64) -> LedgerRow {
    LedgerRow {
        id: LedgerId(id),
        first: Ordinal(first),
        entries,
        bytes: 0,
        closed_at_ms: None,
    }
}

#[test]
fn a_state_is_the_same_in_each_of_its_forms() {
    let table = LedgerTable::new(
        &[row(12, 100, 4), row(17, 104, 3), row(20, 107, 2)],
        Ordinal(100),
        true,
        1,
    );
    let end = Ordinal(120);
    let mut acks = AckState::new(Ordinal(101));
    acks.ack_range(Ordinal(102), Ordinal(105));
    acks.ack_range(Ordinal(109), Ordinal(112));
    acks.ack_batch(Ordinal(115), &[0b101]);
    let state = state_of(&acks, &table).unwrap();
    assert_eq!(state.mark_delete, (12, 0));
    let range = |lower, upper| MessageRange { lower, upper };
    assert_eq!(
        state.ranges,
        [
            range(at(12, 1), at(12, 3)),
            range(at(17, -1), at(17, 0)),
            range(at(20, 1), at(20, 4))
        ]
    );
    assert_eq!(state.batches[0].position, at(20, 8));
    assert_eq!(CursorState::from(state.entry(Vec::new())).acks(&table, end), acks);
    assert!(
        !state.fits_node(&[]),
        "Pulsar's brokers read no parts of batches there"
    );
    let mut whole = acks.clone();
    whole.ack(Ordinal(115));
    let state_whole = state_of(&whole, &table).unwrap();
    assert!(state_whole.fits_node(&[]));
    assert_eq!(
        CursorState::from(&state_whole.node(None)).acks(&table, end),
        whole
    );
    let entry = CursorEntry {
        ledger_id: 12,
        entry_id: 0,
        sets: vec![
            EntrySet {
                ledger_id: 12,
                words: vec![0b1100],
            },
            EntrySet {
                ledger_id: 17,
                words: vec![1],
            },
            EntrySet {
                ledger_id: 20,
                words: vec![0b11100],
            },
        ],
        batches: state.batches.clone(),
        ..CursorEntry::default()
    };
    assert_eq!(CursorState::from(entry).acks(&table, end), acks);
}

#[test]
fn positions_that_are_no_entries_acknowledge_nothing() {
    let table = LedgerTable::new(&[row(12, 100, 4)], Ordinal(100), true, 1);
    let state = CursorState {
        mark_delete: (3, 7),
        ranges: vec![MessageRange {
            lower: at(1, 0),
            upper: at(2, 9),
        }],
        sets: vec![EntrySet {
            ledger_id: -5,
            words: vec![-1; 3],
        }],
        batches: vec![
            BatchIndexes {
                position: at(3, 1),
                words: vec![1],
            },
            BatchIndexes {
                position: at(12, 9),
                words: vec![1],
            },
        ],
    };
    assert_eq!(state.acks(&table, Ordinal(104)), AckState::new(Ordinal(100)));
}

#[test]
fn a_compacted_ledger_says_whose_it_is_as_one_of_pulsar_does() {
    use crate::pulsar::compacted::{custom, partition_of};
    assert_eq!(partition_of(NAME), None);
    let name = "public/default/persistent/a+b-partition-3";
    assert_eq!(partition_of(name), Some(3));
    let said = custom(name, Some(pharos_types::Position::new(7, 5)));
    let text = |key: &str| String::from_utf8(said[key].to_vec()).unwrap();
    assert_eq!(
        (text("application"), text("component")),
        ("pulsar".to_owned(), "compacted-ledger".to_owned())
    );
    assert_eq!(
        text("pulsar/compactedTopic"),
        "persistent://public/default/a b-partition-3"
    );
    assert_eq!(said["pulsar/compactedTo"], &b"\x08\x07\x10\x05\x18\x03"[..]);
}
