//! What the sockets of every protocol need.
//!
//! ```text
//!   Listener ─► Acceptor ─► Admission: a place on the shard with the fewest ─► Protocol::admit
//!                                                                                │
//!   ReadHalf ─► ReadBuffer ─► frames of a protocol                Incoming::establish, Stream
//!   frames ─► Outbound ─► write_turn: one vectored write after the other ─► WriteHalf
//! ```
//! It knows no protocol and no broker: bytes come and go, and a connection has a place on a shard. Reading order: `stream`,
//! `listener`, `admission`, `balance`, `read_buffer`, `outbound`, `turn`.
//!
//! Always true: only `stream` and `listener` name what carries the bytes; an idle connection has no memory to read into or
//! write from.

#![forbid(unsafe_code)]

mod admission;
mod balance;
mod blocks;
mod buffer_pool;
mod listener;
mod outbound;
mod partial;
mod read_buffer;
mod stream;
mod turn;

pub use admission::{Admission, ConnectionsMax, Protocol};
pub use balance::{Balance, Place};
pub use buffer_pool::{BufferPool, Reusable};
pub use listener::{Acceptor, Listener};
pub use outbound::Outbound;
pub use partial::{FrameRoom, PartialFrames, SMALL_FRAME_BYTES};
pub use read_buffer::{Filled, Read, ReadBuffer};
pub use stream::{Detached, Incoming, ReadHalf, Stream, WriteHalf};
pub use turn::{Turn, Writer, write_turn};
