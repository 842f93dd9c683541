//! The messages as protobuf, field for field as bookies define them. Only their neighbours in this folder use them.
//!
//! Enumerations are plain integers: an unknown one must not make a message unreadable.

use bytes::Bytes;

/// `OperationType`.
pub(super) mod operation {
    pub(in crate::wire) const READ_ENTRY: i32 = 1;
    pub(in crate::wire) const ADD_ENTRY: i32 = 2;
    pub(in crate::wire) const AUTH: i32 = 5;
    pub(in crate::wire) const WRITE_LAC: i32 = 6;
    pub(in crate::wire) const READ_LAC: i32 = 7;
    pub(in crate::wire) const GET_BOOKIE_INFO: i32 = 8;
    pub(in crate::wire) const START_TLS: i32 = 9;
    pub(in crate::wire) const FORCE_LEDGER: i32 = 10;
    pub(in crate::wire) const GET_LIST_OF_ENTRIES_OF_LEDGER: i32 = 11;
}

/// `ReadRequest.Flag`.
pub(super) const FENCE_LEDGER: i32 = 1;
/// `ReadRequest.Flag`.
pub(super) const ENTRY_PIGGYBACK: i32 = 2;
/// `AddRequest.Flag`.
pub(super) const RECOVERY_ADD: i32 = 1;
/// `AddRequest.writeFlags`.
pub(super) const DEFERRED_SYNC: i32 = 1;
/// `GetBookieInfoRequest.Flags`, both.
pub(super) const TOTAL_AND_FREE: i64 = 3;

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Header {
    #[prost(int32, required, tag = "1")]
    pub(super) version: i32,
    #[prost(int32, required, tag = "2")]
    pub(super) operation: i32,
    #[prost(uint64, required, tag = "3")]
    pub(super) txn_id: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Request {
    #[prost(message, required, tag = "1")]
    pub(super) header: Header,
    #[prost(message, optional, tag = "100")]
    pub(super) read: Option<Read>,
    #[prost(message, optional, tag = "101")]
    pub(super) add: Option<Add>,
    #[prost(message, optional, tag = "102")]
    pub(super) auth: Option<AuthMessage>,
    #[prost(message, optional, tag = "103")]
    pub(super) write_lac: Option<WriteLac>,
    #[prost(message, optional, tag = "104")]
    pub(super) read_lac: Option<OfLedger>,
    #[prost(message, optional, tag = "105")]
    pub(super) info: Option<Info>,
    #[prost(message, optional, tag = "106")]
    pub(super) start_tls: Option<StartTls>,
    #[prost(message, optional, tag = "107")]
    pub(super) force: Option<OfLedger>,
    #[prost(message, optional, tag = "108")]
    pub(super) entries: Option<OfLedger>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Read {
    #[prost(int64, required, tag = "1")]
    pub(super) ledger: i64,
    #[prost(int64, required, tag = "2")]
    pub(super) entry: i64,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub(super) master_key: Option<Bytes>,
    #[prost(int64, optional, tag = "4")]
    pub(super) previous_lac: Option<i64>,
    #[prost(int64, optional, tag = "5")]
    pub(super) timeout_ms: Option<i64>,
    #[prost(int32, optional, tag = "100")]
    pub(super) flag: Option<i32>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Add {
    #[prost(int64, required, tag = "1")]
    pub(super) ledger: i64,
    #[prost(int64, required, tag = "2")]
    pub(super) entry: i64,
    #[prost(bytes = "bytes", required, tag = "3")]
    pub(super) master_key: Bytes,
    #[prost(bytes = "bytes", required, tag = "4")]
    pub(super) body: Bytes,
    #[prost(int32, optional, tag = "5")]
    pub(super) write_flags: Option<i32>,
    #[prost(int32, optional, tag = "100")]
    pub(super) flag: Option<i32>,
}

/// [`Add`] without its body, which its writer appends as field 4.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct AddHead {
    #[prost(int64, required, tag = "1")]
    pub(super) ledger: i64,
    #[prost(int64, required, tag = "2")]
    pub(super) entry: i64,
    #[prost(bytes = "bytes", required, tag = "3")]
    pub(super) master_key: Bytes,
    #[prost(int32, optional, tag = "5")]
    pub(super) write_flags: Option<i32>,
    #[prost(int32, optional, tag = "100")]
    pub(super) flag: Option<i32>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct WriteLac {
    #[prost(int64, required, tag = "1")]
    pub(super) ledger: i64,
    #[prost(int64, required, tag = "2")]
    pub(super) lac: i64,
    #[prost(bytes = "bytes", required, tag = "3")]
    pub(super) master_key: Bytes,
    #[prost(bytes = "bytes", required, tag = "4")]
    pub(super) body: Bytes,
}

/// `ReadLacRequest`, `ForceLedgerRequest` and `GetListOfEntriesOfLedgerRequest` look the same.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct OfLedger {
    #[prost(int64, required, tag = "1")]
    pub(super) ledger: i64,
}

/// Without fields, in both directions.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct StartTls {}

/// In both directions.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct AuthMessage {
    #[prost(string, required, tag = "1")]
    pub(super) plugin: String,
    #[prost(bytes = "bytes", required, tag = "2")]
    pub(super) payload: Bytes,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Info {
    #[prost(int64, optional, tag = "1")]
    pub(super) requested: Option<i64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Response {
    #[prost(message, required, tag = "1")]
    pub(super) header: Header,
    #[prost(int32, required, tag = "2")]
    pub(super) status: i32,
    #[prost(message, optional, tag = "100")]
    pub(super) read: Option<ReadAnswer>,
    #[prost(message, optional, tag = "101")]
    pub(super) add: Option<AddAnswer>,
    #[prost(message, optional, tag = "102")]
    pub(super) auth: Option<AuthMessage>,
    #[prost(message, optional, tag = "103")]
    pub(super) write_lac: Option<LedgerAnswer>,
    #[prost(message, optional, tag = "104")]
    pub(super) read_lac: Option<ReadLacAnswer>,
    #[prost(message, optional, tag = "105")]
    pub(super) info: Option<InfoAnswer>,
    #[prost(message, optional, tag = "106")]
    pub(super) start_tls: Option<StartTls>,
    #[prost(message, optional, tag = "107")]
    pub(super) force: Option<LedgerAnswer>,
    #[prost(message, optional, tag = "108")]
    pub(super) entries: Option<EntriesAnswer>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ReadAnswer {
    #[prost(int32, required, tag = "1")]
    pub(super) status: i32,
    #[prost(int64, required, tag = "2")]
    pub(super) ledger: i64,
    #[prost(int64, required, tag = "3")]
    pub(super) entry: i64,
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub(super) body: Option<Bytes>,
    #[prost(int64, optional, tag = "5")]
    pub(super) max_lac: Option<i64>,
    #[prost(int64, optional, tag = "6")]
    pub(super) lac_update_timestamp: Option<i64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct AddAnswer {
    #[prost(int32, required, tag = "1")]
    pub(super) status: i32,
    #[prost(int64, required, tag = "2")]
    pub(super) ledger: i64,
    #[prost(int64, required, tag = "3")]
    pub(super) entry: i64,
}

/// `WriteLacResponse` and `ForceLedgerResponse` look the same.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct LedgerAnswer {
    #[prost(int32, required, tag = "1")]
    pub(super) status: i32,
    #[prost(int64, required, tag = "2")]
    pub(super) ledger: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ReadLacAnswer {
    #[prost(int32, required, tag = "1")]
    pub(super) status: i32,
    #[prost(int64, required, tag = "2")]
    pub(super) ledger: i64,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub(super) lac_body: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub(super) last_entry_body: Option<Bytes>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct InfoAnswer {
    #[prost(int32, required, tag = "1")]
    pub(super) status: i32,
    #[prost(int64, optional, tag = "2")]
    pub(super) total_disk_capacity: Option<i64>,
    #[prost(int64, optional, tag = "3")]
    pub(super) free_disk_space: Option<i64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct EntriesAnswer {
    #[prost(int32, required, tag = "1")]
    pub(super) status: i32,
    #[prost(int64, required, tag = "2")]
    pub(super) ledger: i64,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub(super) availability: Option<Bytes>,
}
