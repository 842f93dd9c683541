//! The records of a cursor ledger as bytes; `docs/formats/cursor-log.md` draws them.
//!
//! ```text
//!   entry     version u8 = 1, part u8 (1 snapshot, 2 changes), records to the end
//!   record    kind u8, then
//!     1 subscription created   id, name, kind u8, properties, facts
//!     2 subscription changed   id, kind u8, properties, facts
//!     3 subscription removed   id
//!     4 cursor created         slot, subscription id, consumer name, facts, state
//!     5 cursor moved           slot, state
//!     6 cursor advanced        slot, increment of acked_to; neither state has holes
//!     7 cursor facts           slot, facts
//!     8 cursor removed         slot
//!     9 snapshot end           count of subscriptions, count of cursors; there are no system cursors
//!    10 system cursor put      name, position, count of properties + (name, value) each
//!    11 system cursor removed  name
//!    12 snapshot end           count of subscriptions, count of cursors, count of system cursors
//!    13 note                   key, value
//!    14 notes removed          prefix of their keys
//!   ids, slots, counts varint · names, facts, keys, values, prefixes length varint + bytes · properties count varint + (name, value) each
//!   values of a system cursor's properties are 8 bytes little-endian, signed
//!   state as in `cursor::codec`
//! ```
//!
//! Kinds are never used again. The engine guards entries by checksums, so there are none here.

use std::collections::BTreeMap;

use pharos_types::Ordinal;

use crate::cursor::{AckState, Malformed};
use crate::fields::{put_bytes, put_i64, put_u64};
use crate::fields::{take_bytes, take_i64, take_text, take_u8, take_u32, take_u64};

const VERSION: u8 = 1;
/// Beginning of an entry that is part of a snapshot.
pub(super) const SNAPSHOT: [u8; 2] = [VERSION, 1];
/// Beginning of an entry of changes.
pub(super) const CHANGES: [u8; 2] = [VERSION, 2];
/// Properties of one subscription.
const PROPERTIES_MAX: u64 = 10_000;

/// Number of a subscription within its topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubscriptionId(pub u32);

/// Number of a cursor within its topic: small, used again after removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u32);

/// A change of a topic's cursors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A new subscription, without cursors.
    SubscriptionCreated {
        /// Free until now.
        subscription: SubscriptionId,
        /// Its name.
        name: String,
        /// Kind of subscription; opaque here, defined by the broker.
        kind: u8,
        /// Its properties.
        properties: BTreeMap<String, String>,
        /// Further state that the broker restores; opaque here.
        facts: Vec<u8>,
    },
    /// New kind, properties and facts of a subscription.
    SubscriptionChanged {
        /// The subscription.
        subscription: SubscriptionId,
        /// Its kind.
        kind: u8,
        /// Its properties, replacing all.
        properties: BTreeMap<String, String>,
        /// Its facts, replacing all.
        facts: Vec<u8>,
    },
    /// A subscription and its cursors are gone.
    SubscriptionRemoved {
        /// The subscription.
        subscription: SubscriptionId,
    },
    /// A new cursor: the main one of a subscription, or of one consumer of a broadcast subscription.
    CursorCreated {
        /// Free until now.
        slot: Slot,
        /// Subscription of the cursor.
        subscription: SubscriptionId,
        /// Name of the consumer; empty for the subscription's main cursor.
        consumer: String,
        /// Further state that the broker restores; opaque here.
        facts: Vec<u8>,
        /// Initial acknowledgement state.
        acks: AckState,
    },
    /// A cursor's state, replacing the one before. Costs a few bytes when it only advanced and has no holes.
    CursorMoved {
        /// Slot of the cursor.
        slot: Slot,
        /// Acknowledgement state.
        acks: AckState,
    },
    /// New facts of a cursor.
    CursorFacts {
        /// Slot of the cursor.
        slot: Slot,
        /// Its facts, replacing all.
        facts: Vec<u8>,
    },
    /// A cursor is gone.
    CursorRemoved {
        /// Slot of the cursor.
        slot: Slot,
    },
    /// A new system cursor, or the new place and properties of one that is there.
    SystemCursorPut {
        /// Its name.
        name: String,
        /// Everything before this is processed.
        position: Ordinal,
        /// Properties that its owner restores, replacing all.
        properties: BTreeMap<String, i64>,
    },
    /// A system cursor is gone.
    SystemCursorRemoved {
        /// Its name.
        name: String,
    },
    /// Something that belongs to no cursor, replacing what was noted under the same key.
    Noted {
        /// Under which key; the broker's business.
        key: Vec<u8>,
        /// The value.
        value: Vec<u8>,
    },
    /// All notes are gone whose keys begin so.
    NotesRemoved {
        /// With which bytes.
        prefix: Vec<u8>,
    },
}

/// A record as stored.
#[derive(Debug)]
pub(super) enum Stored {
    Record(Record),
    Advanced {
        slot: Slot,
        by: u64,
    },
    SnapshotEnd {
        subscriptions: u64,
        cursors: u64,
        system_cursors: u64,
    },
}

/// Appends `record`. `before`: the state that a `CursorMoved` replaces.
pub(super) fn encode(record: &Record, before: Option<&AckState>, out: &mut Vec<u8>) {
    match record {
        Record::SubscriptionCreated {
            subscription,
            name,
            kind,
            properties,
            facts,
        } => {
            encode_subscription(*subscription, name, *kind, properties, facts, out);
        }
        Record::SubscriptionChanged {
            subscription,
            kind,
            properties,
            facts,
        } => {
            put_head(2, subscription.0, out);
            put_subscription_body(*kind, properties, facts, out);
        }
        Record::SubscriptionRemoved { subscription } => put_head(3, subscription.0, out),
        Record::CursorCreated {
            slot,
            subscription,
            consumer,
            facts,
            acks,
        } => {
            encode_cursor(*slot, *subscription, consumer, facts, acks, out);
        }
        Record::CursorMoved { slot, acks } => match before {
            Some(before)
                if !before.has_holes() && !acks.has_holes() && before.acked_to() <= acks.acked_to() =>
            {
                put_head(6, slot.0, out);
                put_u64(out, before.acked_to().count_to(acks.acked_to()));
            }
            _ => {
                put_head(5, slot.0, out);
                acks.encode(out);
            }
        },
        Record::CursorFacts { slot, facts } => {
            put_head(7, slot.0, out);
            put_bytes(out, facts);
        }
        Record::CursorRemoved { slot } => put_head(8, slot.0, out),
        Record::SystemCursorPut {
            name,
            position,
            properties,
        } => encode_system_cursor(name, *position, properties, out),
        Record::SystemCursorRemoved { name } => {
            out.push(11);
            put_bytes(out, name.as_bytes());
        }
        Record::Noted { key, value } => encode_note(key, value, out),
        Record::NotesRemoved { prefix } => {
            out.push(14);
            put_bytes(out, prefix);
        }
    }
}

/// Appends a `SystemCursorPut`.
pub(super) fn encode_system_cursor(
    name: &str,
    position: Ordinal,
    properties: &BTreeMap<String, i64>,
    out: &mut Vec<u8>,
) {
    out.push(10);
    put_bytes(out, name.as_bytes());
    put_u64(out, position.0);
    put_u64(out, properties.len() as u64);
    for (name, value) in properties {
        put_bytes(out, name.as_bytes());
        put_i64(out, *value);
    }
}

/// Appends a `SubscriptionCreated`.
pub(super) fn encode_subscription(
    subscription: SubscriptionId,
    name: &str,
    kind: u8,
    properties: &BTreeMap<String, String>,
    facts: &[u8],
    out: &mut Vec<u8>,
) {
    put_head(1, subscription.0, out);
    put_bytes(out, name.as_bytes());
    put_subscription_body(kind, properties, facts, out);
}

/// Appends a `CursorCreated`.
pub(super) fn encode_cursor(
    slot: Slot,
    subscription: SubscriptionId,
    consumer: &str,
    facts: &[u8],
    acks: &AckState,
    out: &mut Vec<u8>,
) {
    put_head(4, slot.0, out);
    put_u64(out, u64::from(subscription.0));
    put_bytes(out, consumer.as_bytes());
    put_bytes(out, facts);
    acks.encode(out);
}

/// Appends a `Noted`.
pub(super) fn encode_note(key: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.push(13);
    put_bytes(out, key);
    put_bytes(out, value);
}

/// Appends the record that ends a snapshot. Without system cursors it is the one that older releases know.
pub(super) fn encode_snapshot_end(
    subscriptions: usize,
    cursors: usize,
    system_cursors: usize,
    out: &mut Vec<u8>,
) {
    out.push(if system_cursors == 0 { 9 } else { 12 });
    put_u64(out, subscriptions as u64);
    put_u64(out, cursors as u64);
    if system_cursors > 0 {
        put_u64(out, system_cursors as u64);
    }
}

/// Takes the head of an entry: whether it is part of a snapshot.
pub(super) fn take_part(input: &mut &[u8]) -> Result<bool, Malformed> {
    let head = [take_u8(input)?, take_u8(input)?];
    match head {
        SNAPSHOT => Ok(true),
        CHANGES => Ok(false),
        _ => Err(Malformed("entry of a version or part that is not known")),
    }
}

/// Takes one record.
pub(super) fn decode(input: &mut &[u8]) -> Result<Stored, Malformed> {
    let kind = take_u8(input)?;
    match kind {
        9 | 12 => {
            return Ok(Stored::SnapshotEnd {
                subscriptions: take_u64(input)?,
                cursors: take_u64(input)?,
                system_cursors: if kind == 12 { take_u64(input)? } else { 0 },
            });
        }
        10 | 11 => {
            let name = take_text(input)?.to_owned();
            return Ok(Stored::Record(match kind {
                10 => {
                    let position = Ordinal(take_u64(input)?);
                    let properties = take_system_properties(input)?;
                    Record::SystemCursorPut {
                        name,
                        position,
                        properties,
                    }
                }
                _ => Record::SystemCursorRemoved { name },
            }));
        }
        _ => {}
    }
    if kind == 13 {
        return Ok(Stored::Record(Record::Noted {
            key: take_bytes(input)?.to_vec(),
            value: take_bytes(input)?.to_vec(),
        }));
    }
    if kind == 14 {
        let prefix = take_bytes(input)?.to_vec();
        return Ok(Stored::Record(Record::NotesRemoved { prefix }));
    }
    let id = take_u32(input)?;
    if id == u32::MAX {
        return Err(Malformed("the last id is never given out"));
    }
    let (subscription, slot) = (SubscriptionId(id), Slot(id));
    Ok(Stored::Record(match kind {
        1 => {
            let name = take_text(input)?.to_owned();
            let (kind, properties, facts) = take_subscription_body(input)?;
            Record::SubscriptionCreated {
                subscription,
                name,
                kind,
                properties,
                facts,
            }
        }
        2 => {
            let (kind, properties, facts) = take_subscription_body(input)?;
            Record::SubscriptionChanged {
                subscription,
                kind,
                properties,
                facts,
            }
        }
        3 => Record::SubscriptionRemoved { subscription },
        4 => Record::CursorCreated {
            slot,
            subscription: SubscriptionId(take_u32(input)?),
            consumer: take_text(input)?.to_owned(),
            facts: take_bytes(input)?.to_vec(),
            acks: AckState::decode(input)?,
        },
        5 => Record::CursorMoved {
            slot,
            acks: AckState::decode(input)?,
        },
        6 => {
            return Ok(Stored::Advanced {
                slot,
                by: take_u64(input)?,
            });
        }
        7 => Record::CursorFacts {
            slot,
            facts: take_bytes(input)?.to_vec(),
        },
        8 => Record::CursorRemoved { slot },
        _ => return Err(Malformed("record of a kind that is not known")),
    }))
}

fn put_head(kind: u8, id: u32, out: &mut Vec<u8>) {
    out.push(kind);
    put_u64(out, u64::from(id));
}

fn put_subscription_body(kind: u8, properties: &BTreeMap<String, String>, facts: &[u8], out: &mut Vec<u8>) {
    out.push(kind);
    put_u64(out, properties.len() as u64);
    for (name, value) in properties {
        put_bytes(out, name.as_bytes());
        put_bytes(out, value.as_bytes());
    }
    put_bytes(out, facts);
}

/// Their count is bounded by the bytes that are there.
fn take_system_properties(input: &mut &[u8]) -> Result<BTreeMap<String, i64>, Malformed> {
    let mut properties = BTreeMap::new();
    for _ in 0..take_u64(input)? {
        let name = take_text(input)?.to_owned();
        properties.insert(name, take_i64(input)?);
    }
    Ok(properties)
}

type SubscriptionBody = (u8, BTreeMap<String, String>, Vec<u8>);

fn take_subscription_body(input: &mut &[u8]) -> Result<SubscriptionBody, Malformed> {
    let kind = take_u8(input)?;
    let count = take_u64(input)?;
    if count > PROPERTIES_MAX {
        return Err(Malformed("too many properties"));
    }
    let mut properties = BTreeMap::new();
    for _ in 0..count {
        let name = take_text(input)?.to_owned();
        properties.insert(name, take_text(input)?.to_owned());
    }
    Ok((kind, properties, take_bytes(input)?.to_vec()))
}
