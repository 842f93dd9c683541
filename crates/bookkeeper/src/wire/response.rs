//! Answers of a bookie.

use bytes::Bytes;
use pharos_types::EntryId;
use prost::Message;

use super::{DecodeError, VERSION_THREE, proto};

/// Status of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Status {
    /// Done.
    #[error("ok")]
    Ok,
    /// The bookie has nothing of the ledger.
    #[error("no such ledger")]
    NoLedger,
    /// The bookie does not have the entry.
    #[error("no such entry")]
    NoEntry,
    /// The bookie does not understand the request.
    #[error("bad request")]
    BadRequest,
    /// Its disk failed.
    #[error("i/o error")]
    Io,
    /// The key is wrong, or the connection is not let in.
    #[error("not authorized")]
    Unauthorized,
    /// The bookie does not support this protocol version.
    #[error("bad version")]
    BadVersion,
    /// The ledger is fenced: only recoveries write to it.
    #[error("fenced")]
    Fenced,
    /// The bookie accepts no writes, because its disks are full or an operator made it read-only.
    #[error("read-only")]
    ReadOnly,
    /// The bookie is overloaded.
    #[error("too many requests")]
    TooManyRequests,
    /// The bookie was not shut down cleanly and cannot tell whether it has the entry.
    #[error("ledger in an unknown state")]
    UnknownLedgerState,
    /// Something that this release does not know; an error in any case.
    #[error("status {0}")]
    Other(i32),
}

const CODES: [(i32, Status); 11] = [
    (0, Status::Ok),
    (402, Status::NoLedger),
    (403, Status::NoEntry),
    (404, Status::BadRequest),
    (501, Status::Io),
    (502, Status::Unauthorized),
    (503, Status::BadVersion),
    (504, Status::Fenced),
    (505, Status::ReadOnly),
    (506, Status::TooManyRequests),
    (507, Status::UnknownLedgerState),
];

impl Status {
    /// By its number in version 3.
    #[must_use]
    pub fn from_code(code: i32) -> Self {
        let known = CODES.iter().find(|(known, _)| *known == code);
        known.map_or(Self::Other(code), |(_, status)| *status)
    }

    /// Its number in version 3.
    #[must_use]
    pub fn code(self) -> i32 {
        match self {
            Self::Other(code) => code,
            known => CODES
                .iter()
                .find(|(_, status)| *status == known)
                .map_or(i32::MAX, |(code, _)| *code),
        }
    }
}

/// An answer and what it answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The number of the request.
    pub txn: u64,
    /// Status of the request. With anything but `Ok` the rest may be empty.
    pub status: Status,
    /// Content of the answer.
    pub response: Response,
}

/// Content of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// Answer to an add.
    Added,
    /// Answer to a read.
    Read {
        /// The entry with its header and digest. Not checked yet.
        body: Option<Bytes>,
        /// Last confirmed entry that the bookie knows.
        max_lac: Option<EntryId>,
    },
    /// Answer to a read of the last-add-confirmed.
    Lac {
        /// Last-add-confirmed that the writer sent without an entry, with its digest.
        explicit: Option<Bytes>,
        /// The newest entry with its header and digest.
        newest: Option<Bytes>,
    },
    /// The bookie told its disks' room, in bytes.
    Info {
        /// Together.
        total: u64,
        /// Free disk space, in bytes.
        free: u64,
    },
    /// A step of authentication.
    Auth {
        /// Authentication plugin of the bookie.
        plugin: String,
        /// Data of the plugin.
        payload: Bytes,
    },
    /// Entries that the bookie has, in the bookies' own encoding.
    Entries(Option<Bytes>),
    /// An answer without content, or to something that was not asked.
    Empty,
}

impl Answer {
    /// Reads the body of a frame. Payloads are slices of it.
    ///
    /// # Errors
    /// [`DecodeError::Malformed`].
    pub fn decode(body: Bytes) -> Result<Self, DecodeError> {
        let message = proto::Response::decode(body)?;
        if message.header.version != VERSION_THREE {
            return Err(DecodeError::Malformed(format!(
                "version {} in the header",
                message.header.version
            )));
        }
        let txn = message.header.txn_id;
        let (inner, response) = take_apart(message.header.operation, &message);
        // The outer status tells of what no operation saw, such as a request that the bookie did not understand.
        let code = if message.status == 0 {
            inner.unwrap_or(0)
        } else {
            message.status
        };
        Ok(Self {
            txn,
            status: Status::from_code(code),
            response,
        })
    }
}

fn take_apart(operation: i32, message: &proto::Response) -> (Option<i32>, Response) {
    match operation {
        proto::operation::ADD_ENTRY => (
            message.add.as_ref().map(|add| add.status),
            message.add.as_ref().map_or(Response::Empty, |_| Response::Added),
        ),
        proto::operation::READ_ENTRY => match &message.read {
            Some(read) => {
                let response = Response::Read {
                    body: read.body.clone(),
                    max_lac: read.max_lac.and_then(|lac| u64::try_from(lac).ok()).map(EntryId),
                };
                (Some(read.status), response)
            }
            None => (None, Response::Empty),
        },
        proto::operation::READ_LAC => match &message.read_lac {
            Some(lac) => {
                let response = Response::Lac {
                    explicit: lac.lac_body.clone(),
                    newest: lac.last_entry_body.clone(),
                };
                (Some(lac.status), response)
            }
            None => (None, Response::Empty),
        },
        proto::operation::GET_BOOKIE_INFO => match &message.info {
            Some(info) => {
                let bytes = |bytes: Option<i64>| u64::try_from(bytes.unwrap_or(0)).unwrap_or(0);
                let response = Response::Info {
                    total: bytes(info.total_disk_capacity),
                    free: bytes(info.free_disk_space),
                };
                (Some(info.status), response)
            }
            None => (None, Response::Empty),
        },
        proto::operation::GET_LIST_OF_ENTRIES_OF_LEDGER => match &message.entries {
            Some(entries) => (
                Some(entries.status),
                Response::Entries(entries.availability.clone()),
            ),
            None => (None, Response::Empty),
        },
        proto::operation::AUTH => match &message.auth {
            Some(auth) => {
                let response = Response::Auth {
                    plugin: auth.plugin.clone(),
                    payload: auth.payload.clone(),
                };
                (None, response)
            }
            None => (None, Response::Empty),
        },
        proto::operation::WRITE_LAC => (message.write_lac.as_ref().map(|a| a.status), Response::Empty),
        proto::operation::FORCE_LEDGER => (message.force.as_ref().map(|a| a.status), Response::Empty),
        _ => (None, Response::Empty),
    }
}
