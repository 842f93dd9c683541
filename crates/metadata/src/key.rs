//! Limits of keys and values, the same for every backend so that a store can be moved to another one.

use crate::{ReadError, WriteError};

/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 1_024;
/// Largest value, in bytes: what ZooKeeper takes by default, less room for its own framing.
pub const VALUE_BYTES_MAX: usize = 1_000_000;

/// True if `key` consists of segments separated by single slashes.
fn is_key(key: &str) -> bool {
    !key.is_empty()
        && key.len() <= KEY_BYTES_MAX
        && !key.contains('\0')
        && key.split('/').all(|s| !s.is_empty())
}

/// Refuses what is not a key, before a read.
///
/// # Errors
/// [`ReadError::InvalidKey`].
pub fn check_read(key: &str) -> Result<(), ReadError> {
    if is_key(key) {
        Ok(())
    } else {
        Err(ReadError::InvalidKey(key.to_owned()))
    }
}

/// Refuses what is not a key or is too large, before a write.
///
/// # Errors
/// [`WriteError::InvalidKey`], [`WriteError::TooLarge`].
pub fn check_write(key: &str, value: &[u8]) -> Result<(), WriteError> {
    if !is_key(key) {
        return Err(WriteError::InvalidKey(key.to_owned()));
    }
    if value.len() > VALUE_BYTES_MAX {
        return Err(WriteError::TooLarge {
            bytes: value.len(),
            bytes_max: VALUE_BYTES_MAX,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_paths() {
        for good in ["a", "a/b", "topics/öffentlich/x y"] {
            assert!(is_key(good), "{good}");
        }
        for bad in ["", "/", "/a", "a/", "a//b", "a\0", &"x".repeat(KEY_BYTES_MAX + 1)] {
            assert!(!is_key(bad), "{bad}");
        }
    }
}
