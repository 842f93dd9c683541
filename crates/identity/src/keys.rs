//! Keys as settings and command lines name them, in Pulsar's forms: `file:///path`, `data:;base64,…`, a path, or base64.

use std::path::Path;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// The largest file that is taken for a key.
const FILE_BYTES_MAX: u64 = 1 << 20;

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Reason why a key cannot be loaded. The messages name files, and never what may be the key itself.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file cannot be read.
    #[error("cannot read the key file {path}: {cause}")]
    File {
        /// The file.
        path: String,
        /// Error of the operating system.
        cause: std::io::Error,
    },
    /// The file is much too large.
    #[error("{0} is too large for a key file")]
    TooLarge(String),
    /// Neither of the forms.
    #[error("a key is file:///PATH, data:;base64,KEY, the path of a file that exists, or base64")]
    Form,
}

/// Reads a key. A file's bytes are the key as they are.
///
/// # Errors
/// [`KeyError`].
pub fn read_key(text: &str) -> Result<Vec<u8>, KeyError> {
    if let Some(rest) = text.strip_prefix("file:") {
        return read_file(rest.strip_prefix("//").unwrap_or(rest));
    }
    if let Some(rest) = text.strip_prefix("data:") {
        let (about, data) = rest.split_once(',').ok_or(KeyError::Form)?;
        return match about.ends_with(";base64") {
            true => BASE64.decode(data).map_err(|_| KeyError::Form),
            false => Ok(data.as_bytes().to_vec()),
        };
    }
    if !text.is_empty() && Path::new(text).is_file() {
        return read_file(text);
    }
    match BASE64.decode(text) {
        Ok(key) if !key.is_empty() => Ok(key),
        _ => Err(KeyError::Form),
    }
}

fn read_file(path: &str) -> Result<Vec<u8>, KeyError> {
    let failed = |cause| KeyError::File {
        path: path.to_owned(),
        cause,
    };
    if std::fs::metadata(path).map_err(failed)?.len() > FILE_BYTES_MAX {
        return Err(KeyError::TooLarge(path.to_owned()));
    }
    std::fs::read(path).map_err(failed)
}

/// A public or private key as PEM; DER is wrapped under this label.
pub(crate) fn to_pem(key: &[u8], label: &str) -> Vec<u8> {
    let begins = key.trim_ascii_start();
    if begins.starts_with(b"-----BEGIN ") {
        return begins.to_vec();
    }
    let text = base64::engine::general_purpose::STANDARD.encode(key);
    let mut pem = format!("-----BEGIN {label}-----\n");
    for line in text.as_bytes().chunks(64) {
        pem.push_str(&String::from_utf8_lossy(line));
        pem.push('\n');
    }
    pem.push_str(&format!("-----END {label}-----\n"));
    pem.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_pulsar_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        std::fs::write(&path, [0, 1, 2, 255]).unwrap();
        let path = path.display().to_string();
        for text in [
            format!("file://{path}"),
            format!("file:{path}"),
            path.clone(),
            "data:;base64,AAEC/w==".to_owned(),
            "data:application/octet-stream;base64,AAEC/w".to_owned(),
            "AAEC/w==".to_owned(),
        ] {
            assert_eq!(read_key(&text).unwrap(), [0, 1, 2, 255], "{text}");
        }
        assert_eq!(read_key("data:,secret").unwrap(), b"secret");
    }

    #[test]
    fn what_is_no_key_is_not_repeated_in_the_error() {
        for text in ["", "not-base64-s3cret!", "data:;base64,s3cret!", "data:s3cret"] {
            let error = read_key(text).unwrap_err().to_string();
            assert!(!error.contains("s3cret"), "{error}");
        }
        let missing = read_key("file:///does/not/exist").unwrap_err();
        assert!(matches!(missing, KeyError::File { .. }), "{missing}");
    }
}
