//! The other end of the protocol, for bookies that tests make up.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use pharos_types::{EntryId, LedgerId};
use prost::Message;

use super::{AddRequest, DecodeError, LongPoll, ReadRequest, ReadTarget, Request, Response, Status, proto};
use crate::digest::MasterKey;
use crate::entry::PackedEntry;

fn malformed(what: &str) -> DecodeError {
    DecodeError::Malformed(what.to_owned())
}

fn ledger(id: i64) -> Result<LedgerId, DecodeError> {
    u64::try_from(id)
        .map(LedgerId)
        .map_err(|_| malformed("a negative ledger"))
}

fn entry(id: i64) -> Result<EntryId, DecodeError> {
    u64::try_from(id)
        .map(EntryId)
        .map_err(|_| malformed("a negative entry"))
}

/// Reads the body of a request's frame, as a bookie does. The whole body of an add is its payload.
///
/// # Errors
/// [`DecodeError::Malformed`].
pub fn decode_request(body: Bytes) -> Result<(u64, Request), DecodeError> {
    let message = proto::Request::decode(body)?;
    let txn = message.header.txn_id;
    let request = if let Some(add) = message.add {
        Request::Add(AddRequest {
            ledger: ledger(add.ledger)?,
            entry: entry(add.entry)?,
            key: MasterKey::from_bytes(&add.master_key).ok_or_else(|| malformed("a short key"))?,
            is_recovery: add.flag == Some(proto::RECOVERY_ADD),
            is_deferred_sync: add.write_flags == Some(proto::DEFERRED_SYNC),
            body: PackedEntry {
                head: Bytes::new(),
                payload: add.body,
            },
        })
    } else if let Some(read) = message.read {
        Request::Read(decode_read(&read)?)
    } else if let Some(lac) = message.write_lac {
        Request::WriteLac {
            ledger: ledger(lac.ledger)?,
            lac: entry(lac.lac)?,
            key: MasterKey::from_bytes(&lac.master_key).ok_or_else(|| malformed("a short key"))?,
            body: lac.body,
        }
    } else if let Some(of) = message.read_lac {
        Request::ReadLac {
            ledger: ledger(of.ledger)?,
        }
    } else if let Some(of) = message.force {
        Request::Force {
            ledger: ledger(of.ledger)?,
        }
    } else if let Some(of) = message.entries {
        Request::Entries {
            ledger: ledger(of.ledger)?,
        }
    } else if let Some(auth) = message.auth {
        Request::Auth {
            plugin: auth.plugin,
            payload: auth.payload,
        }
    } else if message.start_tls.is_some() {
        Request::StartTls
    } else if message.info.is_some() {
        Request::Info
    } else {
        return Err(malformed("a request of nothing"));
    };
    Ok((txn, request))
}

fn decode_read(read: &proto::Read) -> Result<ReadRequest, DecodeError> {
    let key = |key: &Bytes| MasterKey::from_bytes(key).ok_or_else(|| malformed("a short key"));
    let fence = match (&read.master_key, read.flag) {
        (Some(bytes), Some(proto::FENCE_LEDGER)) => Some(key(bytes)?),
        _ => None,
    };
    let long_poll = read.previous_lac.map(|lac| LongPoll {
        previous_lac: u64::try_from(lac).ok().map(EntryId),
        timeout: Duration::from_millis(u64::try_from(read.timeout_ms.unwrap_or(0)).unwrap_or(0)),
        with_entry: read.flag == Some(proto::ENTRY_PIGGYBACK),
    });
    Ok(ReadRequest {
        ledger: ledger(read.ledger)?,
        target: u64::try_from(read.entry).map_or(ReadTarget::Newest, |id| ReadTarget::Entry(EntryId(id))),
        fence,
        long_poll,
    })
}

/// The frame that answers `request`.
#[must_use]
pub fn encode_answer(txn: u64, request: &Request, status: Status, response: &Response) -> Bytes {
    let mut message = proto::Response {
        status: status.code(),
        header: proto::Header {
            version: super::VERSION_THREE,
            operation: 0,
            txn_id: txn,
        },
        ..proto::Response::default()
    };
    let code = status.code();
    let id = |ledger: &LedgerId| ledger.0 as i64;
    let answer = |ledger: &LedgerId| {
        Some(proto::LedgerAnswer {
            status: code,
            ledger: id(ledger),
        })
    };
    message.header.operation = match (request, response) {
        (Request::Add(add), _) => {
            message.add = Some(proto::AddAnswer {
                status: code,
                ledger: id(&add.ledger),
                entry: add.entry.0 as i64,
            });
            proto::operation::ADD_ENTRY
        }
        (Request::Read(read), response) => {
            let (body, max_lac) = match response {
                Response::Read { body, max_lac } => (body.clone(), max_lac.map(|lac| lac.0 as i64)),
                _ => (None, None),
            };
            message.read = Some(proto::ReadAnswer {
                status: code,
                ledger: id(&read.ledger),
                entry: match read.target {
                    ReadTarget::Entry(entry) => entry.0 as i64,
                    ReadTarget::Newest => -1,
                },
                body,
                max_lac,
                lac_update_timestamp: None,
            });
            proto::operation::READ_ENTRY
        }
        (Request::ReadLac { ledger }, response) => {
            let (lac_body, last_entry_body) = match response {
                Response::Lac { explicit, newest } => (explicit.clone(), newest.clone()),
                _ => (None, None),
            };
            message.read_lac = Some(proto::ReadLacAnswer {
                status: code,
                ledger: id(ledger),
                lac_body,
                last_entry_body,
            });
            proto::operation::READ_LAC
        }
        (Request::WriteLac { ledger, .. }, _) => {
            message.write_lac = answer(ledger);
            proto::operation::WRITE_LAC
        }
        (Request::Force { ledger }, _) => {
            message.force = answer(ledger);
            proto::operation::FORCE_LEDGER
        }
        (Request::Entries { ledger }, response) => {
            message.entries = Some(proto::EntriesAnswer {
                status: code,
                ledger: id(ledger),
                availability: match response {
                    Response::Entries(bytes) => bytes.clone(),
                    _ => None,
                },
            });
            proto::operation::GET_LIST_OF_ENTRIES_OF_LEDGER
        }
        (Request::Auth { .. }, response) => {
            message.auth = match response {
                Response::Auth { plugin, payload } => Some(proto::AuthMessage {
                    plugin: plugin.clone(),
                    payload: payload.clone(),
                }),
                _ => None,
            };
            proto::operation::AUTH
        }
        (Request::StartTls, _) => {
            message.start_tls = Some(proto::StartTls {});
            proto::operation::START_TLS
        }
        (Request::Info, response) => {
            let (total, free) = match response {
                Response::Info { total, free } => (*total as i64, *free as i64),
                _ => (0, 0),
            };
            message.info = Some(proto::InfoAnswer {
                status: code,
                total_disk_capacity: Some(total),
                free_disk_space: Some(free),
            });
            proto::operation::GET_BOOKIE_INFO
        }
    };
    let body = message.encode_to_vec();
    let mut frame = BytesMut::with_capacity(body.len() + super::LENGTH_BYTES);
    frame.put_u32(u32::try_from(body.len()).unwrap_or(u32::MAX));
    frame.extend_from_slice(&body);
    frame.freeze()
}
