//! An entry as it travels and as bookies keep it.
//!
//! ```text
//!  0        8        16                     24       32       32 + digest
//!  ┌ ledger ┬ entry ─┬ last add confirmed ──┬ length ┬ digest ┬ payload ┐      all numbers big-endian, −1: none
//! ```
//! `last add confirmed` is what the writer knew to be confirmed when it packed the entry, so a reader learns of entry n from
//! entry n+1. `length` counts the payload bytes of the ledger up to and with this entry.
//!
//! Bookies look into the first 16 bytes only; who reads checks the rest.

use bytes::{BufMut, Bytes, BytesMut};
use pharos_types::{EntryId, LedgerId};

use crate::digest::{DigestType, Guard, MasterKey};

/// Bytes of the header before the digest.
const HEADER_BYTES: usize = 32;
/// Bytes of the header of an explicit last-add-confirmed.
const LAC_HEADER_BYTES: usize = 16;

/// Header that a writer adds to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryHeader {
    /// The entry's id.
    pub entry: EntryId,
    /// The last entry that was confirmed when it was packed.
    pub lac: Option<EntryId>,
    /// Payload bytes of the ledger up to and with this entry.
    pub length: u64,
}

/// An entry ready to be sent: the parts follow each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedEntry {
    /// Header and digest.
    pub head: Bytes,
    /// Appended payload.
    pub payload: Bytes,
}

impl PackedEntry {
    /// Bytes of both.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.head.len() + self.payload.len()
    }

    /// Both in one piece; a copy.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        let mut whole = BytesMut::with_capacity(self.bytes());
        whole.extend_from_slice(&self.head);
        whole.extend_from_slice(&self.payload);
        whole.freeze()
    }
}

/// An entry whose digest was right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Header written with it.
    pub header: EntryHeader,
    /// Appended payload.
    pub payload: Bytes,
}

/// Error in the bytes of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// Shorter than its header and digest.
    #[error("{bytes} bytes are too few for an entry")]
    Short {
        /// Number of bytes.
        bytes: usize,
    },
    /// The digest does not fit, or is of another kind than the ledger's.
    #[error("digest mismatch")]
    Digest,
    /// The digest fits, but it is another entry.
    #[error("an entry of ledger {ledger} with id {entry} instead")]
    Other {
        /// Its ledger as stored.
        ledger: i64,
        /// Its id as stored.
        entry: i64,
    },
}

/// Packs and checks entries of one ledger.
#[derive(Clone, Debug)]
pub struct Digester {
    ledger: LedgerId,
    guard: Guard,
    key: MasterKey,
}

impl Digester {
    /// For entries of `ledger`, which was made with this digest and password.
    #[must_use]
    pub fn new(ledger: LedgerId, kind: DigestType, password: &[u8]) -> Self {
        Self {
            ledger,
            guard: Guard::new(kind, password),
            key: MasterKey::of(password),
        }
    }

    /// The ledger's key.
    #[must_use]
    pub fn key(&self) -> MasterKey {
        self.key
    }

    /// Bytes that go before each payload.
    #[must_use]
    pub fn head_bytes(&self) -> usize {
        HEADER_BYTES + self.guard.bytes()
    }

    /// Packs an entry. `payload_crc32c`, when it is known from a check of these very bytes, saves a walk over them.
    #[must_use]
    pub fn pack(&self, header: EntryHeader, payload: Bytes, payload_crc32c: Option<u32>) -> PackedEntry {
        let mut head = Vec::with_capacity(self.head_bytes());
        head.put_u64(self.ledger.0);
        head.put_u64(header.entry.0);
        head.put_i64(or_minus_one(header.lac));
        head.put_u64(header.length);
        let mut digest = Vec::with_capacity(self.guard.bytes());
        self.guard.write(&head, &payload, payload_crc32c, &mut digest);
        head.extend_from_slice(&digest);
        PackedEntry {
            head: head.into(),
            payload,
        }
    }

    /// Checks the entry that a bookie gave for `wanted`, or for the newest one.
    ///
    /// # Errors
    /// [`EntryError`]: this copy is of no use; another bookie may have a good one.
    pub fn open(&self, wanted: Option<EntryId>, body: &Bytes) -> Result<Entry, EntryError> {
        let short = EntryError::Short { bytes: body.len() };
        let (header, rest) = body.split_first_chunk::<HEADER_BYTES>().ok_or(short)?;
        let (digest, payload) = rest.split_at_checked(self.guard.bytes()).ok_or(short)?;
        self.check(header, payload, digest)?;
        let [ledger, entry, lac, length] = numbers(header);
        let stored = EntryError::Other { ledger, entry };
        let id = u64::try_from(entry).map(EntryId).map_err(|_| stored)?;
        if ledger != self.ledger.0 as i64 || wanted.is_some_and(|wanted| wanted != id) {
            return Err(stored);
        }
        Ok(Entry {
            header: EntryHeader {
                entry: id,
                lac: from_minus_one(lac),
                length: u64::try_from(length).map_err(|_| stored)?,
            },
            payload: body.slice(self.head_bytes()..),
        })
    }

    /// The body that tells a bookie how far the ledger is confirmed.
    #[must_use]
    pub fn pack_lac(&self, lac: EntryId) -> Bytes {
        let mut body = Vec::with_capacity(LAC_HEADER_BYTES + self.guard.bytes());
        body.put_u64(self.ledger.0);
        body.put_u64(lac.0);
        let mut digest = Vec::with_capacity(self.guard.bytes());
        self.guard.write(&body, &[], None, &mut digest);
        body.extend_from_slice(&digest);
        body.into()
    }

    /// Checks what [`pack_lac`](Self::pack_lac) made.
    ///
    /// # Errors
    /// [`EntryError`].
    pub fn open_lac(&self, body: &[u8]) -> Result<Option<EntryId>, EntryError> {
        let short = EntryError::Short { bytes: body.len() };
        let (header, rest) = body.split_first_chunk::<LAC_HEADER_BYTES>().ok_or(short)?;
        let digest = rest.get(..self.guard.bytes()).ok_or(short)?;
        self.check(header, &[], digest)?;
        let [ledger, lac] = numbers(header);
        if ledger != self.ledger.0 as i64 {
            return Err(EntryError::Other { ledger, entry: lac });
        }
        Ok(from_minus_one(lac))
    }

    fn check(&self, header: &[u8], payload: &[u8], digest: &[u8]) -> Result<(), EntryError> {
        let mut right = Vec::with_capacity(digest.len());
        self.guard.write(header, payload, None, &mut right);
        if right == digest {
            Ok(())
        } else {
            Err(EntryError::Digest)
        }
    }
}

/// The big-endian numbers at the start of `bytes`; those that are not there are 0.
fn numbers<const N: usize>(bytes: &[u8]) -> [i64; N] {
    let mut numbers = [0; N];
    for (number, chunk) in numbers.iter_mut().zip(bytes.chunks_exact(8)) {
        *number = chunk.try_into().map_or(0, i64::from_be_bytes);
    }
    numbers
}

fn or_minus_one(entry: Option<EntryId>) -> i64 {
    entry.map_or(-1, |entry| i64::try_from(entry.0).unwrap_or(i64::MAX))
}

fn from_minus_one(entry: i64) -> Option<EntryId> {
    u64::try_from(entry).ok().map(EntryId)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LEDGER: LedgerId = LedgerId(42);

    fn header(entry: u64, lac: Option<u64>, length: u64) -> EntryHeader {
        EntryHeader {
            entry: EntryId(entry),
            lac: lac.map(EntryId),
            length,
        }
    }

    #[test]
    fn a_packed_entry_is_the_documented_bytes() {
        let digester = Digester::new(LedgerId(1), DigestType::Dummy, b"");
        let packed = digester.pack(header(2, None, 3), Bytes::from_static(b"abc"), None);
        let mut expected = vec![0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2];
        expected.extend([255; 8]);
        expected.extend([0, 0, 0, 0, 0, 0, 0, 3]);
        expected.extend(b"abc");
        assert_eq!(packed.to_bytes(), expected);
    }

    #[test]
    fn an_entry_of_another_place_is_refused() {
        let digester = Digester::new(LEDGER, DigestType::Crc32c, b"");
        let body = digester
            .pack(header(7, Some(6), 10), Bytes::from_static(b"x"), None)
            .to_bytes();
        assert!(digester.open(None, &body).is_ok());
        assert_eq!(
            digester.open(Some(EntryId(8)), &body),
            Err(EntryError::Other { ledger: 42, entry: 7 })
        );
        let other = Digester::new(LedgerId(43), DigestType::Crc32c, b"");
        assert!(matches!(other.open(None, &body), Err(EntryError::Other { .. })));
    }

    #[test]
    fn a_mac_of_another_password_is_refused() {
        let ours = Digester::new(LEDGER, DigestType::Mac, b"one");
        let theirs = Digester::new(LEDGER, DigestType::Mac, b"two");
        let body = ours
            .pack(header(0, None, 1), Bytes::from_static(b"x"), None)
            .to_bytes();
        assert_eq!(theirs.open(None, &body), Err(EntryError::Digest));
    }

    proptest! {
        #[test]
        fn what_is_packed_is_opened(
            kind in prop::sample::select(DigestType::ALL.to_vec()),
            entry in 0..=u64::MAX >> 1,
            lac in prop::option::of(0..=u64::MAX >> 1),
            length in 0..=u64::MAX >> 1,
            payload in prop::collection::vec(any::<u8>(), 0..300),
            flipped in any::<prop::sample::Index>(),
        ) {
            let digester = Digester::new(LEDGER, kind, b"secret");
            let header = header(entry, lac, length);
            let payload = Bytes::from(payload);
            let body = digester.pack(header, payload.clone(), None).to_bytes();
            prop_assert_eq!(digester.open(Some(header.entry), &body), Ok(Entry { header, payload }));
            if kind != DigestType::Dummy {
                let mut spoilt = body.to_vec();
                let at = flipped.index(spoilt.len());
                spoilt[at] ^= 1;
                prop_assert!(digester.open(Some(header.entry), &spoilt.into()).is_err());
            }
            let lac = digester.pack_lac(header.entry);
            prop_assert_eq!(digester.open_lac(&lac), Ok(Some(header.entry)));
        }

        #[test]
        fn no_bytes_panic(
            kind in prop::sample::select(DigestType::ALL.to_vec()),
            body in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            let digester = Digester::new(LEDGER, kind, b"");
            let _ = digester.open(None, &body.clone().into());
            let _ = digester.open_lac(&body);
        }
    }
}
