//! Requests to a bookie, and their wire format.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use pharos_types::{EntryId, LedgerId};
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};

use super::{Frame, LENGTH_BYTES, VERSION_THREE, proto};
use crate::digest::MasterKey;
use crate::entry::PackedEntry;

/// The entry id that asks for the newest entry instead of a certain one.
const LAST_ADD_CONFIRMED: i64 = -1;

/// A request. Every one is answered by one [`Answer`](super::Answer) that carries the same number.
#[derive(Clone, Debug)]
pub enum Request {
    /// Stores an entry.
    Add(AddRequest),
    /// Reads an entry, fences, or waits for one.
    Read(ReadRequest),
    /// Asks for the explicit last-add-confirmed and for the newest entry.
    ReadLac {
        /// Id of the ledger.
        ledger: LedgerId,
    },
    /// Tells a bookie how far the ledger is confirmed, without an entry.
    WriteLac {
        /// Id of the ledger.
        ledger: LedgerId,
        /// Last confirmed entry.
        lac: EntryId,
        /// The ledger's key.
        key: MasterKey,
        /// The same with its digest: see [`crate::Digester::pack_lac`].
        body: Bytes,
    },
    /// Syncs everything of the ledger that was added with deferred sync.
    Force {
        /// Id of the ledger.
        ledger: LedgerId,
    },
    /// Asks for the room on a bookie's disks.
    Info,
    /// The first request of a connection: behind the answer TLS begins.
    StartTls,
    /// A step of authentication, before anything else is asked.
    Auth {
        /// Authentication plugin: `sasl`.
        plugin: String,
        /// Data of the plugin.
        payload: Bytes,
    },
    /// Asks which entries of the ledger a bookie has.
    Entries {
        /// Id of the ledger.
        ledger: LedgerId,
    },
}

/// Stores an entry.
#[derive(Clone, Debug)]
pub struct AddRequest {
    /// In which ledger.
    pub ledger: LedgerId,
    /// Under which id.
    pub entry: EntryId,
    /// The ledger's key; the first add of a ledger on a bookie sets it.
    pub key: MasterKey,
    /// Goes through when the ledger is fenced: only a recovery may ask for it.
    pub is_recovery: bool,
    /// Acknowledged before it is synced.
    pub is_deferred_sync: bool,
    /// Header, digest and payload.
    pub body: PackedEntry,
}

/// Entry to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadTarget {
    /// This one.
    Entry(EntryId),
    /// The newest that the bookie has; its header says what was confirmed when it was sent.
    Newest,
}

/// Reads an entry.
#[derive(Clone, Debug)]
pub struct ReadRequest {
    /// Id of the ledger.
    pub ledger: LedgerId,
    /// Entry to read.
    pub target: ReadTarget,
    /// With the ledger's key: from now on the bookie takes nothing more from the ledger's writer.
    pub fence: Option<MasterKey>,
    /// Waits until something is confirmed.
    pub long_poll: Option<LongPoll>,
}

/// Wait condition of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongPoll {
    /// Last confirmed entry that the reader knows; `None`: none. The bookie answers when it knows a later one.
    pub previous_lac: Option<EntryId>,
    /// Or when this time is over.
    pub timeout: Duration,
    /// The answer brings the entry of the request as well.
    pub with_entry: bool,
}

impl Request {
    /// The request as a frame, numbered `txn`.
    #[must_use]
    pub fn encode(&self, txn: u64) -> Frame {
        match self {
            Self::Add(add) => encode_add(add, txn),
            other => whole(&other.to_proto(txn)),
        }
    }

    fn to_proto(&self, txn: u64) -> proto::Request {
        let of = |ledger: &LedgerId| {
            Some(proto::OfLedger {
                ledger: signed(ledger.0),
            })
        };
        let request = |operation| proto::Request {
            header: header(operation, txn),
            ..proto::Request::default()
        };
        match self {
            // A frame of an add is made without copying its payload: see `encode_add`.
            Self::Add(_) => request(proto::operation::ADD_ENTRY),
            Self::Read(read) => proto::Request {
                read: Some(read.to_proto()),
                ..request(proto::operation::READ_ENTRY)
            },
            Self::ReadLac { ledger } => proto::Request {
                read_lac: of(ledger),
                ..request(proto::operation::READ_LAC)
            },
            Self::WriteLac {
                ledger,
                lac,
                key,
                body,
            } => proto::Request {
                write_lac: Some(proto::WriteLac {
                    ledger: signed(ledger.0),
                    lac: signed(lac.0),
                    master_key: key.to_bytes(),
                    body: body.clone(),
                }),
                ..request(proto::operation::WRITE_LAC)
            },
            Self::Force { ledger } => proto::Request {
                force: of(ledger),
                ..request(proto::operation::FORCE_LEDGER)
            },
            Self::Info => proto::Request {
                info: Some(proto::Info {
                    requested: Some(proto::TOTAL_AND_FREE),
                }),
                ..request(proto::operation::GET_BOOKIE_INFO)
            },
            Self::StartTls => proto::Request {
                start_tls: Some(proto::StartTls {}),
                ..request(proto::operation::START_TLS)
            },
            Self::Auth { plugin, payload } => proto::Request {
                auth: Some(proto::AuthMessage {
                    plugin: plugin.clone(),
                    payload: payload.clone(),
                }),
                ..request(proto::operation::AUTH)
            },
            Self::Entries { ledger } => proto::Request {
                entries: of(ledger),
                ..request(proto::operation::GET_LIST_OF_ENTRIES_OF_LEDGER)
            },
        }
    }
}

impl ReadRequest {
    fn to_proto(&self) -> proto::Read {
        let piggyback = self.long_poll.is_some_and(|poll| poll.with_entry);
        proto::Read {
            ledger: signed(self.ledger.0),
            entry: match self.target {
                ReadTarget::Entry(entry) => signed(entry.0),
                ReadTarget::Newest => LAST_ADD_CONFIRMED,
            },
            master_key: self.fence.as_ref().map(MasterKey::to_bytes),
            previous_lac: self
                .long_poll
                .map(|poll| poll.previous_lac.map_or(-1, |lac| signed(lac.0))),
            timeout_ms: self
                .long_poll
                .map(|poll| i64::try_from(poll.timeout.as_millis()).unwrap_or(i64::MAX)),
            flag: match (&self.fence, piggyback) {
                (Some(_), _) => Some(proto::FENCE_LEDGER),
                (None, true) => Some(proto::ENTRY_PIGGYBACK),
                (None, false) => None,
            },
        }
    }
}

fn header(operation: i32, txn_id: u64) -> proto::Header {
    proto::Header {
        version: VERSION_THREE,
        operation,
        txn_id,
    }
}

/// Ids are 63 bits wide; see [`crate::LedgerMetadata`], which takes no larger one.
fn signed(id: u64) -> i64 {
    i64::try_from(id).unwrap_or(i64::MAX)
}

fn add_head(add: &AddRequest) -> proto::AddHead {
    proto::AddHead {
        ledger: signed(add.ledger.0),
        entry: signed(add.entry.0),
        master_key: add.key.to_bytes(),
        write_flags: add.is_deferred_sync.then_some(proto::DEFERRED_SYNC),
        flag: add.is_recovery.then_some(proto::RECOVERY_ADD),
    }
}

fn whole(request: &proto::Request) -> Frame {
    let bytes = request.encoded_len();
    let mut head = BytesMut::with_capacity(LENGTH_BYTES + bytes);
    head.put_u32(frame_length(bytes));
    head.extend_from_slice(&request.encode_to_vec());
    Frame {
        head: head.freeze(),
        tail: Bytes::new(),
    }
}

/// The body field is written last and by hand, so that the payload stays where it is.
fn encode_add(add: &AddRequest, txn: u64) -> Frame {
    const BODY_TAG: u32 = 4;
    const ADD_TAG: u32 = 101;
    let header = header(proto::operation::ADD_ENTRY, txn);
    let fields = add_head(add);
    let fields_bytes = fields.encoded_len();
    let body_bytes = add.body.bytes();
    let add_bytes = fields_bytes + key_len(BODY_TAG) + encoded_len_varint(body_bytes as u64) + body_bytes;
    let header_bytes = header.encoded_len();
    let bytes = key_len(1)
        + encoded_len_varint(header_bytes as u64)
        + header_bytes
        + key_len(ADD_TAG)
        + encoded_len_varint(add_bytes as u64)
        + add_bytes;
    let mut head = BytesMut::with_capacity(LENGTH_BYTES + bytes - add.body.payload.len());
    head.put_u32(frame_length(bytes));
    encode_key(1, WireType::LengthDelimited, &mut head);
    encode_varint(header_bytes as u64, &mut head);
    header.encode_raw(&mut head);
    encode_key(ADD_TAG, WireType::LengthDelimited, &mut head);
    encode_varint(add_bytes as u64, &mut head);
    fields.encode_raw(&mut head);
    encode_key(BODY_TAG, WireType::LengthDelimited, &mut head);
    encode_varint(body_bytes as u64, &mut head);
    head.extend_from_slice(&add.body.head);
    Frame {
        head: head.freeze(),
        tail: add.body.payload.clone(),
    }
}

/// Entries are refused long before a frame could be this large.
fn frame_length(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}
