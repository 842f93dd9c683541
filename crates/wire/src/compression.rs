//! Payloads as producers compress them: the whole payload of an entry, of a batch all its messages together.
//!
//! A broker stores and delivers them as they come. Topic compaction alone takes a batch apart and packs it again.

use crate::proto::CompressionType;

/// A payload that is not what its metadata say, or larger than the caller takes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompressionError {
    /// Larger than the caller allows.
    #[error("a payload of {claimed} bytes is larger than {bytes_max}")]
    TooLarge {
        /// Size in bytes, or the claimed size.
        claimed: usize,
        /// The most that the caller takes.
        bytes_max: usize,
    },
    /// The bytes are no such stream, or decompress to another size than the metadata say.
    #[error("the payload does not decompress: {0}")]
    Malformed(String),
}

fn malformed(error: impl std::fmt::Display) -> CompressionError {
    CompressionError::Malformed(error.to_string())
}

/// The payload that was compressed. `claimed`: its size as the metadata say, in bytes. Never makes more than `bytes_max`.
///
/// # Errors
/// [`CompressionError`].
pub fn decompress(
    payload: &[u8],
    kind: CompressionType,
    claimed: usize,
    bytes_max: usize,
) -> Result<Vec<u8>, CompressionError> {
    if kind == CompressionType::None {
        return Ok(payload.to_vec());
    }
    if claimed > bytes_max {
        return Err(CompressionError::TooLarge { claimed, bytes_max });
    }
    let mut whole = vec![0; claimed];
    let bytes = match kind {
        CompressionType::None => 0,
        CompressionType::Lz4 => lz4_flex::block::decompress_into(payload, &mut whole).map_err(malformed)?,
        CompressionType::Zlib => {
            let mut stream = flate2::Decompress::new(true);
            let status = stream
                .decompress(payload, &mut whole, flate2::FlushDecompress::Finish)
                .map_err(malformed)?;
            if status != flate2::Status::StreamEnd {
                return Err(malformed("the stream goes on"));
            }
            usize::try_from(stream.total_out()).unwrap_or(usize::MAX)
        }
        CompressionType::Zstd => {
            zstd::bulk::decompress_to_buffer(payload, whole.as_mut_slice()).map_err(malformed)?
        }
        CompressionType::Snappy => {
            let needed = snap::raw::decompress_len(payload).map_err(malformed)?;
            if needed > claimed {
                return Err(malformed("it is larger than it claims"));
            }
            snap::raw::Decoder::new()
                .decompress(payload, &mut whole)
                .map_err(malformed)?
        }
    };
    match bytes == claimed {
        true => Ok(whole),
        false => Err(malformed(format!("{bytes} bytes where {claimed} were said"))),
    }
}

/// The payload, compressed.
///
/// # Errors
/// [`CompressionError`]; of none of these kinds is one known for bytes that are in memory.
pub fn compress(payload: &[u8], kind: CompressionType) -> Result<Vec<u8>, CompressionError> {
    use std::io::Write as _;
    match kind {
        CompressionType::None => Ok(payload.to_vec()),
        CompressionType::Lz4 => Ok(lz4_flex::block::compress(payload)),
        CompressionType::Zlib => {
            let mut stream = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
            stream.write_all(payload).map_err(malformed)?;
            stream.finish().map_err(malformed)
        }
        CompressionType::Zstd => zstd::bulk::compress(payload, 0).map_err(malformed),
        CompressionType::Snappy => snap::raw::Encoder::new().compress_vec(payload).map_err(malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [CompressionType; 5] = [
        CompressionType::None,
        CompressionType::Lz4,
        CompressionType::Zlib,
        CompressionType::Zstd,
        CompressionType::Snappy,
    ];

    #[test]
    fn what_is_compressed_comes_back() {
        for kind in ALL {
            for payload in [Vec::new(), b"aye".to_vec(), vec![7; 100_000]] {
                let packed = compress(&payload, kind).unwrap();
                let back = decompress(&packed, kind, payload.len(), 1 << 20);
                assert_eq!(back, Ok(payload), "{kind:?}");
            }
        }
    }

    #[test]
    fn a_payload_that_lies_is_an_error_and_takes_no_more_memory_than_allowed() {
        for kind in ALL.into_iter().skip(1) {
            let packed = compress(&[7; 1000], kind).unwrap();
            for claimed in [0, 10, 999, 1001] {
                assert!(
                    matches!(
                        decompress(&packed, kind, claimed, 1 << 20),
                        Err(CompressionError::Malformed(_))
                    ),
                    "{kind:?} {claimed}"
                );
            }
            assert_eq!(
                decompress(&packed, kind, 1000, 999),
                Err(CompressionError::TooLarge {
                    claimed: 1000,
                    bytes_max: 999
                })
            );
            assert!(decompress(b"\xff\xfe\xfd\xfc\xfb\xfa", kind, 1000, 1 << 20).is_err());
            assert!(decompress(&packed[..packed.len() / 2], kind, 1000, 1 << 20).is_err());
        }
    }
}
