//! Sequences of a store that has nothing better: a key that counts.

use std::sync::Arc;

use bytes::Bytes;

use crate::{Expect, Fault, MetadataStore, ReadError, WriteError};

/// The next number of the sequence `key`. Its value is the number after the last one given out, in decimal digits.
pub(crate) async fn next<S: MetadataStore + ?Sized>(store: &S, key: &str) -> Result<u64, WriteError> {
    loop {
        let found = store.get(key).await.map_err(to_write)?;
        let (number, expect) = match &found {
            None => (0, Expect::Absent),
            Some(found) => (parse(&found.value)?, Expect::Version(found.version)),
        };
        let after = number
            .checked_add(1)
            .ok_or_else(|| WriteError::Fault(damaged()))?;
        match store.put(key, Bytes::from(after.to_string()), expect).await {
            Ok(_) => return Ok(number),
            // Another one took the number.
            Err(WriteError::Conflict { .. }) => {}
            Err(error) => return Err(error),
        }
    }
}

fn parse(value: &[u8]) -> Result<u64, WriteError> {
    let number = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| WriteError::Fault(damaged()))
}

fn damaged() -> Arc<Fault> {
    Fault::new(
        "count a sequence",
        "its key holds no number that can be counted on",
    )
}

fn to_write(error: ReadError) -> WriteError {
    match error {
        ReadError::InvalidKey(key) => WriteError::InvalidKey(key),
        ReadError::Fault(fault) => WriteError::Fault(fault),
    }
}
