//! Sockets, for every protocol.
//!
//! ```text
//!   Listener ─► Acceptor ─► Admission: a place on the shard with the fewest ─► Protocol::admit
//!                                                                                │
//!   ReadHalf ─► ReadBuffer ─► frames of a protocol                Incoming::establish: Entrance (PROXY header, TLS), Stream
//!   frames ─► Outbound ─► write_turn: one vectored write after the other ─► WriteHalf
//! ```
//! It is independent of protocols and the broker: it transfers bytes, and assigns each connection to a shard. Reading
//! order: `stream`, `listener`, `quota`, `entrance`, `tls`, `admission`, `balance`, `read_buffer`, `outbound`,
//! `turn`.
//!
//! Invariants: only `stream`, `listener` and what `entrance` leads through name the carrier of the bytes; an idle
//! connection has no memory to read into or write from, except the few kilobytes that TLS keeps.

#![forbid(unsafe_code)]

mod admission;
mod balance;
mod blocks;
mod buffer_pool;
mod entrance;
mod handshakes;
mod listener;
mod outbound;
mod partial;
mod proxy_protocol;
mod quota;
mod read_buffer;
mod stream;
mod tls;
mod turn;

pub use admission::{Admission, ConnectionsMax, NoRoom, Protocol};
pub use balance::{Balance, Place};
pub use buffer_pool::{BufferPool, Reusable};
pub use entrance::{Entrance, EntranceOptions};
pub use listener::{Acceptor, Listener};
pub use outbound::{FrameBytes, Outbound};
pub use partial::{FrameRoom, PartialFrames, SMALL_FRAME_BYTES};
pub use proxy_protocol::ProxyProtocol;
pub use quota::{BURST_SECONDS, Quota, QuotaError, QuotaHold, QuotaLimits, Requester, network_of};
pub use read_buffer::{Filled, Read, ReadBuffer};
pub use stream::{Detached, Incoming, ReadHalf, Stream, WriteHalf};
pub use tls::{
    ClientCertificates, PeerCertificate, Tls, TlsError, TlsOptions, TlsVersion, cipher_suite_names,
};
pub use turn::{Turn, Writer, write_turn};
