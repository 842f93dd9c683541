//! Integrity of entries in transit and at rest: the digest after the header, and the keys derived from a ledger's
//! password.
//!
//! The digest covers header and payload. CRC32C is the default of Pulsar; the others are read and written as well,
//! because existing ledgers use them. A password is no secret in practice (Pulsar's is empty); it keeps ledgers from
//! being mixed up.

use bytes::Bytes;
use crc_fast::CrcAlgorithm;
use ring::{digest, hmac};

/// Digest type of a ledger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DigestType {
    /// CRC-32 as zlib has it, in 8 bytes.
    Crc32,
    /// HMAC with SHA-1, keyed by the ledger's password; 20 bytes.
    Mac,
    /// CRC-32C, in 4 bytes.
    #[default]
    Crc32c,
    /// Nothing at all.
    Dummy,
}

impl DigestType {
    /// Every one.
    pub const ALL: [Self; 4] = [Self::Crc32, Self::Mac, Self::Crc32c, Self::Dummy];

    /// Bytes that it takes in an entry.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Self::Crc32 => 8,
            Self::Mac => 20,
            Self::Crc32c => 4,
            Self::Dummy => 0,
        }
    }
}

/// Key that a bookie compares before it accepts a write to a ledger or fences it: SHA-1 of "ledger" and the password.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct MasterKey([u8; 20]);

impl MasterKey {
    /// The key of ledgers with this password.
    #[must_use]
    pub fn of(password: &[u8]) -> Self {
        Self(sha1("ledger", password))
    }

    /// The key's bytes, as they travel.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        Bytes::copy_from_slice(&self.0)
    }

    /// From the bytes that travelled; `None` when they are no key.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

impl std::fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MasterKey(…)")
    }
}

fn sha1(pad: &str, password: &[u8]) -> [u8; 20] {
    let mut context = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    context.update(pad.as_bytes());
    context.update(password);
    let mut key = [0; 20];
    key.copy_from_slice(context.finish().as_ref());
    key
}

/// The digest of one ledger's entries, keyed where it needs a key.
#[derive(Clone, Debug)]
pub(crate) enum Guard {
    Crc32,
    Mac(hmac::Key),
    Crc32c,
    Dummy,
}

impl Guard {
    pub(crate) fn new(kind: DigestType, password: &[u8]) -> Self {
        match kind {
            DigestType::Crc32 => Self::Crc32,
            DigestType::Mac => Self::Mac(hmac::Key::new(
                hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
                &sha1("mac", password),
            )),
            DigestType::Crc32c => Self::Crc32c,
            DigestType::Dummy => Self::Dummy,
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Crc32 => 8,
            Self::Mac(_) => 20,
            Self::Crc32c => 4,
            Self::Dummy => 0,
        }
    }

    /// Appends the digest of `header` and `payload` to `out`. `payload_crc32c` saves the walk over the payload where it is of use.
    pub(crate) fn write(
        &self,
        header: &[u8],
        payload: &[u8],
        payload_crc32c: Option<u32>,
        out: &mut Vec<u8>,
    ) {
        match self {
            Self::Crc32 => {
                let crc = crc(CrcAlgorithm::Crc32IsoHdlc, &[header, payload]);
                out.extend_from_slice(&u64::from(crc).to_be_bytes());
            }
            Self::Mac(key) => {
                let mut context = hmac::Context::with_key(key);
                context.update(header);
                context.update(payload);
                out.extend_from_slice(context.sign().as_ref());
            }
            Self::Crc32c => {
                let crc = match payload_crc32c {
                    Some(known) => joined(header, known, payload.len()),
                    None => crc(CrcAlgorithm::Crc32Iscsi, &[header, payload]),
                };
                out.extend_from_slice(&crc.to_be_bytes());
            }
            Self::Dummy => {}
        }
    }
}

fn crc(algorithm: CrcAlgorithm, parts: &[&[u8]]) -> u32 {
    let mut digest = crc_fast::Digest::new(algorithm);
    parts.iter().for_each(|part| digest.update(part));
    low_half(digest.finalize())
}

/// The CRC-32C of `header` followed by `bytes` bytes whose CRC-32C is `known`.
fn joined(header: &[u8], known: u32, bytes: usize) -> u32 {
    let algorithm = CrcAlgorithm::Crc32Iscsi;
    let first = crc_fast::checksum(algorithm, header);
    low_half(crc_fast::checksum_combine(
        algorithm,
        first,
        u64::from(known),
        bytes as u64,
    ))
}

/// A CRC of 32 bits comes in the low half.
fn low_half(crc: u64) -> u32 {
    (crc & u64::from(u32::MAX)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn keys_are_sha1_of_their_name_and_the_password() {
        // printf ledger | sha1sum; printf ledgersecret | sha1sum
        assert_eq!(
            hex(&MasterKey::of(b"").to_bytes()),
            "850bf1071c5e3d8c24235676f8816ae0cbe2f14f"
        );
        assert_eq!(
            hex(&MasterKey::of(b"secret").to_bytes()),
            "e793cbc379107648537183605cd361d3bb789a39"
        );
        assert_ne!(MasterKey::of(b""), MasterKey::of(b"secret"));
        assert!(MasterKey::from_bytes(&[1; 19]).is_none());
    }

    #[test]
    fn a_known_checksum_of_the_payload_gives_the_same_digest() {
        let header = [7; 32];
        for bytes in [0, 1, 31, 4_096, 70_000] {
            let payload = vec![3; bytes];
            let known = low_half(crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, &payload));
            let (mut one, mut two) = (Vec::new(), Vec::new());
            let guard = Guard::new(DigestType::Crc32c, b"");
            guard.write(&header, &payload, Some(known), &mut one);
            guard.write(&header, &payload, None, &mut two);
            assert_eq!(one, two, "{bytes} bytes");
        }
    }

    #[test]
    fn digests_have_their_length_and_value() {
        for kind in DigestType::ALL {
            let guard = Guard::new(kind, b"");
            let mut out = Vec::new();
            guard.write(b"1234", b"56789", None, &mut out);
            assert_eq!((out.len(), guard.bytes()), (kind.bytes(), kind.bytes()));
            match kind {
                // The check values that every CRC catalogue gives for "123456789".
                DigestType::Crc32 => assert_eq!(hex(&out), "00000000cbf43926"),
                DigestType::Crc32c => assert_eq!(hex(&out), "e3069283"),
                // openssl dgst -sha1 -mac HMAC -macopt hexkey:(SHA-1 of "mac")
                DigestType::Mac => assert_eq!(hex(&out), "1e15c066d2f730fe3a3850a6ff26f8ddfd39650e"),
                DigestType::Dummy => {}
            }
        }
    }
}
