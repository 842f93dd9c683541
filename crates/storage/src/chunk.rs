//! Entries of one ledger in one half of the write cache.
//!
//! Dense pieces without a map: an entry is found by its id. A piece ends after some thousand entries, so that growing never
//! copies much, and where damage found at a start has left a hole. Pieces are shared, so that the flusher takes one without
//! copying it; only the half being filled grows, and a piece of that is not shared for longer than a lock is held.

use std::sync::Arc;

use bytes::Bytes;

/// Entries in one piece.
const PIECE_ENTRIES: usize = 4096;

/// Cost of an entry in the write cache besides its payload, in bytes.
const ENTRY_COST: u64 = 64;

/// An entry and the checksum that its record carries.
#[derive(Clone, Debug)]
pub(crate) struct CachedEntry {
    pub(crate) payload: Bytes,
    pub(crate) crc: u32,
}

impl CachedEntry {
    /// Returns its cost in the write cache, in bytes.
    pub(crate) fn cost(&self) -> u64 {
        cost(self.payload.len())
    }
}

/// Returns the cost of an entry of this size in the write cache, in bytes.
pub(crate) fn cost(payload_bytes: usize) -> u64 {
    payload_bytes as u64 + ENTRY_COST
}

/// Consecutive entries.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) first: u64,
    pub(crate) entries: Vec<CachedEntry>,
}

impl Piece {
    pub(crate) fn end(&self) -> u64 {
        self.first + self.entries.len() as u64
    }
}

/// The entries, in rising order.
#[derive(Debug, Default)]
pub(crate) struct Chunk {
    pub(crate) pieces: Vec<Arc<Piece>>,
    /// Cost of the entries in the write cache, in bytes.
    pub(crate) cost: u64,
}

impl Chunk {
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Adds entries from id `first` on, which is at or behind the end.
    pub(crate) fn extend(&mut self, first: u64, entries: Vec<CachedEntry>) {
        self.cost += entries.iter().map(CachedEntry::cost).sum::<u64>();
        match self.pieces.last_mut().and_then(Arc::get_mut) {
            Some(piece) if piece.end() == first && piece.entries.len() < PIECE_ENTRIES => {
                piece.entries.extend(entries);
            }
            _ => self.pieces.push(Arc::new(Piece { first, entries })),
        }
    }

    pub(crate) fn get(&self, entry: u64) -> Option<&CachedEntry> {
        let at = self.pieces.partition_point(|piece| piece.first <= entry);
        let piece = self.pieces.get(at.checked_sub(1)?)?;
        piece.entries.get(usize::try_from(entry - piece.first).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(count: usize) -> Vec<CachedEntry> {
        let entry = CachedEntry {
            payload: Bytes::from_static(b"abc"),
            crc: 1,
        };
        vec![entry; count]
    }

    #[test]
    fn entries_are_found_by_id_also_behind_a_hole() {
        let mut chunk = Chunk::default();
        chunk.extend(5, entries(2));
        chunk.extend(7, entries(1));
        chunk.extend(20, entries(3));
        assert_eq!(chunk.pieces.len(), 2);
        let found: Vec<u64> = (0..30).filter(|entry| chunk.get(*entry).is_some()).collect();
        assert_eq!(found, [5, 6, 7, 20, 21, 22]);
        assert_eq!(chunk.cost, 6 * cost(3));
    }

    #[test]
    fn a_piece_with_another_owner_is_never_changed() {
        let mut chunk = Chunk::default();
        chunk.extend(0, entries(2));
        let taken = Arc::clone(&chunk.pieces[0]);
        chunk.extend(2, entries(3));
        assert_eq!((taken.end(), chunk.pieces.len()), (2, 2));
        assert!((0..5).all(|entry| chunk.get(entry).is_some()));
    }
}
