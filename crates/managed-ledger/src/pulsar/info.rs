//! A managed ledger's info in Pulsar's form.
//!
//! What Pulsar has no place for is in properties that begin with `pharos.`; its brokers carry them along, unread:
//!
//! | property | value |
//! | --- | --- |
//! | `pharos.epoch` | the writer's epoch |
//! | `pharos.first` | first ledger and its ordinal, `12:100`; `:100` without a ledger |
//! | `pharos.last` | last ledger and its ordinal, and `:open` while it is written |
//! | `pharos.ahead` | ledgers made ahead of need, empty |
//! | `pharos.cursors` | the ledger of the cursor log |
//! | `pharos.created` | milliseconds since 1970 |
//! | `pharos.deleting` | ledgers that were given up |
//! | `pharos.compacted` | the compacted ledger that the node of the cursor `__compaction` named when Pharos looked last |
//! | `pharos.compacting` | one that is being written, to be named there |
//!
//! When the ledgers are others than `pharos.first` and `pharos.last` say, a broker of Pulsar was at it since: ordinals follow from
//! what is left of the ledgers that were known.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::Message as _;

use super::proto::{self, Carried, KeyValue, StoredPosition};
use crate::info::{CompactionInfo, InfoError, LedgerInfo, ManagedLedgerInfo};

/// Beginning of the properties that are Pharos's.
const OURS: &str = "pharos.";
/// The property with that beginning that an operator gives a topic. It is carried along like those of others.
const DURABILITY: &str = "pharos.durability";
/// Beginning of a value that is compressed (`managedLedgerInfoCompressionType`).
const COMPRESSED: [u8; 2] = [0x47, 0x78];
/// More than a ledger has entries: where ordinals go on when none of the ledgers is left that they were counted by.
const BEYOND_A_LEDGER: u64 = 1 << 32;

/// An info as it was read.
pub(crate) struct InfoRead {
    pub(crate) info: ManagedLedgerInfo,
    /// True if Pharos did not make the last change of its ledgers.
    pub(crate) is_foreign: bool,
}

/// Writes an info.
pub(crate) fn encode(info: &ManagedLedgerInfo) -> Bytes {
    let open = info.ledgers.iter().position(|row| row.closed_at_ms.is_none());
    let (listed, ahead) = info
        .ledgers
        .split_at(open.map_or(info.ledgers.len(), |open| open + 1));
    let mut properties = info.properties.clone();
    properties.retain(|key, _| !is_ours(key));
    let mut set = |key: &str, value: String| properties.insert(format!("{OURS}{key}"), value);
    set("epoch", info.writer_epoch.to_string());
    set("created", info.created_ms.to_string());
    let first = listed
        .first()
        .map(|row| row.ledger_id.to_string())
        .unwrap_or_default();
    set("first", format!("{first}:{}", info.first_ordinal));
    if let [before @ .., last] = listed {
        let ordinal = before
            .iter()
            .fold(info.first_ordinal, |sum, row| sum + row.entries);
        let open = if last.closed_at_ms.is_none() { ":open" } else { "" };
        set("last", format!("{}:{ordinal}{open}", last.ledger_id));
    }
    if let Some(cursors) = info.cursor_ledger {
        set("cursors", cursors.to_string());
    }
    if !info.deleting.is_empty() {
        set("deleting", list(info.deleting.iter()));
    }
    if !ahead.is_empty() {
        set("ahead", list(ahead.iter().map(|row| &row.ledger_id)));
    }
    let compaction = info.compaction.unwrap_or_default();
    for (key, ledger) in [
        ("compacted", compaction.ledger),
        ("compacting", compaction.writing),
    ] {
        if let Some(ledger) = ledger {
            set(key, ledger.to_string());
        }
    }
    let stored = proto::StoredInfo {
        ledgers: listed.iter().map(|row| ledger(info, row)).collect(),
        terminated: info.terminated.then(|| last_position(listed)),
        properties: properties
            .into_iter()
            .map(|(key, value)| KeyValue { key, value })
            .collect(),
    };
    Bytes::from(stored.encode_to_vec())
}

/// True if a property is written here, and is no property of the topic.
fn is_ours(key: &str) -> bool {
    key.starts_with(OURS) && key != DURABILITY
}

fn ledger(info: &ManagedLedgerInfo, row: &LedgerInfo) -> proto::StoredLedger {
    let carried = info.carried.get(&row.ledger_id);
    let carried = carried.and_then(|bytes| Carried::decode(&**bytes).ok());
    let is_closed = row.closed_at_ms.is_some();
    proto::StoredLedger {
        ledger_id: signed(row.ledger_id),
        entries: is_closed.then(|| signed(row.entries)),
        size: is_closed.then(|| signed(row.bytes)),
        timestamp: Some(row.closed_at_ms.map_or(0, signed)),
        offload: None,
        properties: carried.unwrap_or_default().properties,
    }
}

/// Position of the last existing entry.
fn last_position(rows: &[LedgerInfo]) -> StoredPosition {
    let row = rows.iter().rev().find(|row| row.entries > 0).or(rows.last());
    row.map_or(
        StoredPosition {
            ledger_id: -1,
            entry_id: -1,
        },
        |row| StoredPosition {
            ledger_id: signed(row.ledger_id),
            entry_id: signed(row.entries) - 1,
        },
    )
}

fn list<'a>(ledgers: impl Iterator<Item = &'a u64>) -> String {
    let ledgers: Vec<String> = ledgers.map(u64::to_string).collect();
    ledgers.join(",")
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Reads an info.
///
/// # Errors
/// `Malformed`, also for what Pulsar may have and Pharos does not read.
pub(crate) fn parse(name: &str, value: &[u8]) -> Result<InfoRead, InfoError> {
    let malformed = |cause: &str| InfoError::Malformed {
        name: name.to_owned(),
        cause: cause.to_owned(),
    };
    if value.starts_with(&COMPRESSED) {
        return Err(malformed(
            "it is compressed: let Pulsar's brokers write it with managedLedgerInfoCompressionType=NONE first",
        ));
    }
    let stored = proto::StoredInfo::decode(value).map_err(|error| malformed(&error.to_string()))?;
    let is_offloaded = |row: &proto::StoredLedger| {
        let context = row.offload.unwrap_or_default();
        context.complete.is_some() || context.uid_msb.is_some()
    };
    if let Some(row) = stored.ledgers.iter().find(|row| is_offloaded(row)) {
        return Err(malformed(&format!(
            "ledger {} was offloaded by a broker of Pulsar, whose objects Pharos does not read",
            row.ledger_id
        )));
    }
    let (ours, theirs): (Vec<_>, Vec<_>) = stored
        .properties
        .into_iter()
        .map(|property| (property.key, property.value))
        .partition(|(key, _)| is_ours(key));
    let ours: BTreeMap<String, String> = ours.into_iter().collect();
    let known =
        Known::of(&ours).ok_or_else(|| malformed("a property that begins with pharos. is not readable"))?;
    let mut info = ManagedLedgerInfo {
        properties: theirs.into_iter().collect(),
        terminated: stored.terminated.is_some(),
        ..ManagedLedgerInfo::new(known.created_ms)
    };
    info.writer_epoch = known.epoch;
    info.cursor_ledger = known.cursors;
    info.deleting = known.deleting.clone();
    let has_compaction = known.compacted.is_some() || known.compacting.is_some();
    info.compaction = has_compaction.then(|| CompactionInfo {
        ledger: known.compacted,
        writing: known.compacting,
        ..CompactionInfo::default()
    });
    for row in stored.ledgers {
        let (ledger, carried) = row_of(row).ok_or_else(|| malformed("a number is negative"))?;
        if let Some(carried) = carried {
            info.carried.insert(ledger.ledger_id, carried);
        }
        info.ledgers.push(ledger);
    }
    let is_foreign = !known.is_of(&info.ledgers);
    info.first_ordinal = known
        .first_ordinal(&info.ledgers)
        .ok_or_else(|| malformed("ordinals do not fit the ledgers"))?;
    if is_foreign {
        // Nothing was appended to them: a broker of Pulsar goes on in a ledger of its own.
        let named = |ledger: &u64| info.ledgers.iter().any(|row| row.ledger_id == *ledger);
        let unused: Vec<u64> = known
            .ahead
            .iter()
            .filter(|ledger| !named(ledger))
            .copied()
            .collect();
        unused.into_iter().for_each(|ledger| info.give_up(ledger));
    } else {
        info.ledgers.extend(known.ahead.iter().map(|ledger| LedgerInfo {
            ledger_id: *ledger,
            ..LedgerInfo::default()
        }));
    }
    Ok(InfoRead {
        info: info.checked(name)?,
        is_foreign,
    })
}

/// A row, and what is carried along with it.
fn row_of(row: proto::StoredLedger) -> Option<(LedgerInfo, Option<Vec<u8>>)> {
    let number = |number: Option<i64>| u64::try_from(number.unwrap_or_default()).ok();
    let closed_at_ms = number(row.timestamp)?;
    let is_closed = closed_at_ms != 0 && row.entries.is_some();
    let ledger = LedgerInfo {
        ledger_id: number(Some(row.ledger_id))?,
        entries: if is_closed { number(row.entries)? } else { 0 },
        bytes: if is_closed { number(row.size)? } else { 0 },
        closed_at_ms: is_closed.then_some(closed_at_ms),
    };
    let carried = Carried {
        properties: row.properties,
    };
    let has_any = !carried.properties.is_empty();
    Some((ledger, has_any.then(|| carried.encode_to_vec())))
}

/// State that Pharos wrote last.
#[derive(Default)]
struct Known {
    epoch: u64,
    created_ms: u64,
    /// The first ledger, if there was one, and the first ordinal.
    first: Option<(Option<u64>, u64)>,
    /// The last ledger, its ordinal, and whether it was open.
    last: Option<(u64, u64, bool)>,
    ahead: Vec<u64>,
    cursors: Option<u64>,
    deleting: Vec<u64>,
    compacted: Option<u64>,
    compacting: Option<u64>,
}

impl Known {
    /// `None` of what is not written here.
    fn of(ours: &BTreeMap<String, String>) -> Option<Self> {
        let mut known = Self::default();
        for (key, value) in ours {
            match key.trim_start_matches(OURS) {
                "epoch" => known.epoch = value.parse().ok()?,
                "created" => known.created_ms = value.parse().ok()?,
                "cursors" => known.cursors = Some(value.parse().ok()?),
                "compacted" => known.compacted = Some(value.parse().ok()?),
                "compacting" => known.compacting = Some(value.parse().ok()?),
                "deleting" => known.deleting = numbers(value)?,
                "ahead" => known.ahead = numbers(value)?,
                "first" => {
                    let (ledger, ordinal) = value.split_once(':')?;
                    let ledger = (!ledger.is_empty()).then(|| ledger.parse()).transpose();
                    known.first = Some((ledger.ok()?, ordinal.parse().ok()?));
                }
                "last" => {
                    let (value, is_open) = match value.strip_suffix(":open") {
                        Some(value) => (value, true),
                        None => (value.as_str(), false),
                    };
                    let (ledger, ordinal) = value.split_once(':')?;
                    known.last = Some((ledger.parse().ok()?, ordinal.parse().ok()?, is_open));
                }
                // Of a later release: not carried along, as it may be about what changes now.
                _ => {}
            }
        }
        Some(known)
    }

    /// True if these are the ledgers that were written with it.
    fn is_of(&self, rows: &[LedgerInfo]) -> bool {
        let first = rows.first().map(|row| row.ledger_id);
        let last = rows.last().map(|row| (row.ledger_id, row.closed_at_ms.is_none()));
        self.first.is_some_and(|(ledger, _)| ledger == first)
            && self.last.map(|(ledger, _, is_open)| (ledger, is_open)) == last
    }

    /// First ordinal of these ledgers; `None` if it cannot be derived.
    fn first_ordinal(&self, rows: &[LedgerInfo]) -> Option<u64> {
        let Some((first, ordinal)) = self.first else {
            return Some(0);
        };
        if first == rows.first().map(|row| row.ledger_id) || first.is_none() {
            return Some(ordinal);
        }
        let (last, ordinal, _) = self.last?;
        match rows.iter().position(|row| row.ledger_id == last) {
            Some(place) => {
                let before = rows
                    .iter()
                    .take(place)
                    .try_fold(0, |sum: u64, row| sum.checked_add(row.entries));
                ordinal.checked_sub(before?)
            }
            None => ordinal.checked_add(BEYOND_A_LEDGER),
        }
    }
}

fn numbers(text: &str) -> Option<Vec<u64>> {
    text.split(',').map(|number| number.parse().ok()).collect()
}
