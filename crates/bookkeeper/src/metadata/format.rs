//! The bytes of a ledger's metadata, as BookKeeper 4.9 and later write them.
//!
//! ```text
//!  "BookieMetadataFormatVersion\t3\n"  ┬ length (varint) ┬ LedgerMetadataFormat (protobuf) ┐
//! ```
//! Versions 1 and 2 are text and older than what Pulsar has written for years; they are refused by name.

use std::collections::BTreeMap;

use bytes::Bytes;
use pharos_types::EntryId;
use prost::Message;

use super::{BookieId, LedgerMetadata, Segment, State};
use crate::digest::DigestType;
use crate::quorum::{BadQuorum, Quorum};

const HEADER: &[u8] = b"BookieMetadataFormatVersion\t";
const VERSION: u32 = 3;

const OPEN: i32 = 1;
const IN_RECOVERY: i32 = 2;
const CLOSED: i32 = 3;

/// Error in the stored metadata of a ledger.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The magic is missing.
    #[error("this is no ledger metadata")]
    Foreign,
    /// The version is not supported.
    #[error("ledger metadata of version {0}; this release reads version 3")]
    Version(u32),
    /// The bytes are not protobuf, or truncated.
    #[error("ledger metadata is damaged: {0}")]
    Damaged(String),
    /// Sizes that no ledger can have.
    #[error(transparent)]
    Quorum(#[from] BadQuorum),
}

#[derive(Clone, PartialEq, Message)]
struct Format {
    #[prost(int32, required, tag = "1")]
    write_quorum: i32,
    #[prost(int32, required, tag = "2")]
    ensemble_size: i32,
    #[prost(int64, required, tag = "3")]
    length: i64,
    #[prost(int64, optional, tag = "4")]
    last_entry: Option<i64>,
    #[prost(int32, required, tag = "5")]
    state: i32,
    #[prost(message, repeated, tag = "6")]
    segments: Vec<SegmentFormat>,
    #[prost(int32, optional, tag = "7")]
    digest: Option<i32>,
    #[prost(bytes = "bytes", optional, tag = "8")]
    password: Option<Bytes>,
    #[prost(int32, optional, tag = "9")]
    ack_quorum: Option<i32>,
    #[prost(int64, optional, tag = "10")]
    created_ms: Option<i64>,
    #[prost(message, repeated, tag = "11")]
    custom: Vec<Custom>,
    #[prost(int64, optional, tag = "12")]
    token: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct SegmentFormat {
    #[prost(string, repeated, tag = "1")]
    ensemble: Vec<String>,
    #[prost(int64, required, tag = "2")]
    first: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Custom {
    #[prost(string, optional, tag = "1")]
    key: Option<String>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    value: Option<Bytes>,
}

/// The bytes to store.
#[must_use]
pub fn encode(metadata: &LedgerMetadata) -> Bytes {
    let (state, last, length) = match metadata.state {
        State::Open => (OPEN, None, 0),
        State::InRecovery => (IN_RECOVERY, None, 0),
        State::Closed { last, length } => (CLOSED, last, length),
    };
    let small = |size: usize| i32::try_from(size).unwrap_or(i32::MAX);
    let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let format = Format {
        write_quorum: small(metadata.quorum.write()),
        ensemble_size: small(metadata.quorum.ensemble()),
        length: signed(length),
        last_entry: Some(last.map_or(-1, |entry| signed(entry.0))),
        state,
        segments: metadata
            .segments
            .iter()
            .map(|segment| SegmentFormat {
                ensemble: segment.ensemble.iter().map(ToString::to_string).collect(),
                first: signed(segment.first.0),
            })
            .collect(),
        digest: Some(match metadata.digest {
            DigestType::Crc32 => 1,
            DigestType::Mac => 2,
            DigestType::Crc32c => 3,
            DigestType::Dummy => 4,
        }),
        password: Some(metadata.password.clone()),
        ack_quorum: Some(small(metadata.quorum.ack())),
        created_ms: metadata.created_ms,
        custom: metadata
            .custom
            .iter()
            .map(|(key, value)| Custom {
                key: Some(key.clone()),
                value: Some(value.clone()),
            })
            .collect(),
        token: metadata.token,
    };
    let mut bytes = HEADER.to_vec();
    bytes.extend_from_slice(format!("{VERSION}\n").as_bytes());
    bytes.extend_from_slice(&format.encode_length_delimited_to_vec());
    bytes.into()
}

/// Reads what is stored. What it gives fits together: see [`LedgerMetadata`].
///
/// # Errors
/// [`FormatError`].
pub fn decode(bytes: &[u8]) -> Result<LedgerMetadata, FormatError> {
    let rest = bytes.strip_prefix(HEADER).ok_or(FormatError::Foreign)?;
    let line = rest
        .iter()
        .position(|byte| *byte == b'\n')
        .ok_or(FormatError::Foreign)?;
    let (version, body) = rest.split_at(line);
    let version = std::str::from_utf8(version)
        .ok()
        .and_then(|text| text.parse().ok());
    match version.ok_or(FormatError::Foreign)? {
        VERSION => {}
        other => return Err(FormatError::Version(other)),
    }
    let body = body.get(1..).unwrap_or_default();
    let format = Format::decode_length_delimited(body).map_err(|error| damaged(&error))?;
    from_format(format)
}

fn damaged(what: &impl std::fmt::Display) -> FormatError {
    FormatError::Damaged(what.to_string())
}

fn from_format(format: Format) -> Result<LedgerMetadata, FormatError> {
    let size = |size: i32| usize::try_from(size).unwrap_or(0);
    let quorum = Quorum::new(
        size(format.ensemble_size),
        size(format.write_quorum),
        size(format.ack_quorum.unwrap_or(format.write_quorum)),
    )?;
    let state = match format.state {
        OPEN => State::Open,
        IN_RECOVERY => State::InRecovery,
        CLOSED => State::Closed {
            last: u64::try_from(format.last_entry.unwrap_or(-1)).ok().map(EntryId),
            length: u64::try_from(format.length).map_err(|_| damaged(&"a negative length"))?,
        },
        other => return Err(damaged(&format!("state {other}"))),
    };
    let digest = match format.digest {
        Some(1) => DigestType::Crc32,
        Some(2) | None => DigestType::Mac,
        Some(3) => DigestType::Crc32c,
        Some(4) => DigestType::Dummy,
        Some(other) => return Err(damaged(&format!("digest {other}"))),
    };
    Ok(LedgerMetadata {
        quorum,
        state,
        segments: segments(format.segments, quorum)?,
        digest,
        password: format.password.unwrap_or_default(),
        created_ms: format.created_ms,
        custom: custom(format.custom),
        token: format.token,
    })
}

fn segments(formats: Vec<SegmentFormat>, quorum: Quorum) -> Result<Vec<Segment>, FormatError> {
    let mut segments: Vec<Segment> = Vec::with_capacity(formats.len());
    for format in formats {
        let first = u64::try_from(format.first).map_err(|_| damaged(&"a negative first entry"))?;
        let fits = match segments.last() {
            Some(before) => before.first.0 < first,
            None => first == 0,
        };
        if !fits || format.ensemble.len() != quorum.ensemble() {
            return Err(damaged(&format!("segment of entry {first}")));
        }
        segments.push(Segment {
            first: EntryId(first),
            ensemble: format.ensemble.iter().map(|name| BookieId::new(name)).collect(),
        });
    }
    if segments.is_empty() {
        return Err(damaged(&"no segment"));
    }
    Ok(segments)
}

fn custom(items: Vec<Custom>) -> BTreeMap<String, Bytes> {
    items
        .into_iter()
        .map(|item| (item.key.unwrap_or_default(), item.value.unwrap_or_default()))
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// As a broker of Pulsar 4.2.4 left them in ZooKeeper.
    const SCHEMA_LEDGER: &str = concat!(
        "426f6f6b69654d65746164617461466f726d617456657273696f6e09330a9c010802100318a6012000280332350a0f3132372e302e302e313a32333138",
        "330a0f3132372e302e302e313a32333138320a0f3132372e302e302e313a323331383110003803420048025a130a09636f6d706f6e656e741206736368",
        "656d615a150a0b6170706c69636174696f6e120670756c7361725a240a0f70756c7361722f736368656d61496412117075626c69632f64656661756c74",
        "2f74316000"
    );

    fn unhex(hex: &str) -> Vec<u8> {
        let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        (0..hex.len()).step_by(2).map(byte).collect()
    }

    fn bookies() -> Vec<BookieId> {
        [3, 2, 1]
            .map(|n| BookieId::new(&format!("127.0.0.1:2318{n}")))
            .to_vec()
    }

    #[test]
    fn what_pulsar_wrote_is_read() {
        let stored = unhex(SCHEMA_LEDGER);
        let metadata = decode(&stored).unwrap();
        assert_eq!(metadata.quorum, Quorum::new(3, 2, 2).unwrap());
        assert_eq!(
            metadata.state,
            State::Closed {
                last: Some(EntryId(0)),
                length: 166
            }
        );
        assert_eq!(
            metadata.segments,
            [Segment {
                first: EntryId(0),
                ensemble: bookies()
            }]
        );
        assert_eq!((metadata.digest, metadata.token), (DigestType::Crc32c, Some(0)));
        assert_eq!(metadata.custom["application"], "pulsar");
        assert_eq!(metadata.custom["pulsar/schemaId"], "public/default/t1");
    }

    /// Byte for byte, but for the order of the custom metadata, which is that of a hash table there.
    #[test]
    fn what_is_written_is_what_pulsar_writes() {
        let stored = unhex(SCHEMA_LEDGER);
        let written = encode(&decode(&stored).unwrap());
        let sorted = |bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            bytes.sort_unstable();
            bytes
        };
        assert_eq!(sorted(&written), sorted(&stored));
        let custom = stored.windows(2).position(|pair| pair == [0x5a, 0x13]).unwrap();
        assert_eq!(written[..custom], stored[..custom]);
        assert_eq!(written[written.len() - 2..], [0x60, 0]);
    }

    #[test]
    fn other_versions_are_refused_by_name() {
        for version in [1, 2, 4] {
            let text = format!("BookieMetadataFormatVersion\t{version}\n2\n3\n0\n");
            assert_eq!(decode(text.as_bytes()), Err(FormatError::Version(version)));
        }
        assert_eq!(decode(b""), Err(FormatError::Foreign));
        assert_eq!(
            decode(b"BookieMetadataFormatVersion\t3"),
            Err(FormatError::Foreign)
        );
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        let good = decode(&unhex(SCHEMA_LEDGER)).unwrap();
        let bad = [
            LedgerMetadata {
                segments: Vec::new(),
                ..good.clone()
            },
            LedgerMetadata {
                segments: vec![Segment {
                    first: EntryId(1),
                    ensemble: bookies(),
                }],
                ..good.clone()
            },
            LedgerMetadata {
                segments: vec![Segment {
                    first: EntryId(0),
                    ensemble: bookies()[1..].to_vec(),
                }],
                ..good.clone()
            },
            LedgerMetadata {
                segments: [&good.segments[..], &good.segments[..]].concat(),
                ..good
            },
        ];
        for metadata in bad {
            assert!(matches!(decode(&encode(&metadata)), Err(FormatError::Damaged(_))));
        }
    }

    fn any_metadata() -> impl Strategy<Value = LedgerMetadata> {
        let state = prop_oneof![
            Just(State::Open),
            Just(State::InRecovery),
            (prop::option::of(0..1u64 << 62), 0..1u64 << 62).prop_map(|(last, length)| State::Closed {
                last: last.map(EntryId),
                length
            }),
        ];
        let sizes = (1..5usize, 0..4usize, 0..4usize);
        let firsts = prop::collection::btree_set(1..1u64 << 62, 0..4);
        let custom =
            prop::collection::btree_map("[a-z/]{0,9}", prop::collection::vec(any::<u8>(), 0..9), 0..4);
        let digest = prop::sample::select(DigestType::ALL.to_vec());
        (state, sizes, firsts, custom, digest, any::<Option<i64>>()).prop_map(
            |(state, (ack, write, ensemble), firsts, custom, digest, token)| {
                let write = ack + write;
                let ensemble = write + ensemble;
                let names = (0..ensemble).map(|n| BookieId::new(&format!("bookie-{n}:3181")));
                let names: Vec<_> = names.collect();
                let segment = |first| Segment {
                    first: EntryId(first),
                    ensemble: names.clone(),
                };
                LedgerMetadata {
                    quorum: Quorum::new(ensemble, write, ack).unwrap(),
                    state,
                    segments: std::iter::once(0).chain(firsts).map(segment).collect(),
                    digest,
                    password: Bytes::from_static(b"secret"),
                    created_ms: token.map(|token| token / 2),
                    custom: custom.into_iter().map(|(k, v)| (k, v.into())).collect(),
                    token,
                }
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(metadata in any_metadata()) {
            prop_assert_eq!(decode(&encode(&metadata)), Ok(metadata));
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..100), at in any::<prop::sample::Index>()) {
            let _ = decode(&bytes);
            let mut with_header = b"BookieMetadataFormatVersion\t3\n".to_vec();
            with_header.extend(&bytes);
            let _ = decode(&with_header);
            let mut spoilt = unhex(SCHEMA_LEDGER);
            let at = at.index(spoilt.len());
            spoilt[at] = spoilt[at].wrapping_add(1);
            let _ = decode(&spoilt);
        }
    }
}
