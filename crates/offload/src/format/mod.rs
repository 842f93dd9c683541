//! The two objects of an offloaded ledger, as bytes. `docs/formats/offload.md` draws them.
//!
//! Data and index are laid out as Pulsar's tools expect them. What they have no place for, the checksums of *spans*, stands at
//! the end of the index object, where readers that do not know it stop before it.
//!
//! Always true: nothing here does I/O; decoding never panics and never trusts a length it has not checked.

pub mod block;
pub mod index;

pub use block::{Block, BlockBuilder, SpanFault, records};
pub use index::{Index, IndexFault, Span};

use bytes::Buf;

/// CRC-32C, as everywhere in the product.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// The next bytes as a big-endian number, or `None` when there are too few.
pub(crate) trait Take: Buf {
    /// Four bytes.
    fn take_u32(&mut self) -> Option<u32> {
        (self.remaining() >= 4).then(|| self.get_u32())
    }

    /// Eight bytes.
    fn take_u64(&mut self) -> Option<u64> {
        (self.remaining() >= 8).then(|| self.get_u64())
    }
}

impl<T: Buf> Take for T {}
