//! The keys that an issuer publishes (a JSON Web Key Set), by their names.
//!
//! A key that cannot be used here is passed over: one that is for encryption, of another kind, weak, or without a name. A
//! secret (`oct`) is never taken: each reader of the document would have it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde_json::Value;

/// Keys of an issuer that are looked at.
const KEYS_MAX: usize = 256;

/// Public keys by their names.
#[derive(Default)]
pub(super) struct KeySet {
    keys: HashMap<String, PublishedKey>,
}

/// A public key and what it may have signed.
pub(super) struct PublishedKey {
    decoding: DecodingKey,
    algorithms: Vec<Algorithm>,
}

impl PublishedKey {
    pub(super) fn decoding(&self) -> &DecodingKey {
        &self.decoding
    }

    /// All of one kind of key; never empty.
    pub(super) fn algorithms(&self) -> &[Algorithm] {
        &self.algorithms
    }
}

impl KeySet {
    /// Reads what an issuer published; `None` when that is no key set.
    pub(super) fn parse(document: &[u8]) -> Option<Self> {
        let document: Value = serde_json::from_slice(document).ok()?;
        let listed = document.get("keys")?.as_array()?;
        let mut keys = HashMap::new();
        for key in listed.iter().take(KEYS_MAX) {
            let Some((name, key)) = published(key) else {
                continue;
            };
            // Which of two keys of one name was meant cannot be known; the first is.
            if let Entry::Vacant(place) = keys.entry(name) {
                place.insert(key);
            }
        }
        Some(Self { keys })
    }

    /// The key of this name.
    pub(super) fn get(&self, name: &str) -> Option<&PublishedKey> {
        self.keys.get(name)
    }

    /// Returns the number of keys.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }
}

fn published(key: &Value) -> Option<(String, PublishedKey)> {
    let key: Jwk = serde_json::from_value(key.clone()).ok()?;
    let is_for_signatures = matches!(key.common.public_key_use, None | Some(PublicKeyUse::Signature));
    let name = key.common.key_id.clone().filter(|_| is_for_signatures)?;
    let mut algorithms = algorithms_of(&key.algorithm)?;
    if let Some(only) = key.common.key_algorithm {
        algorithms.retain(|algorithm| Algorithm::try_from(only).ok() == Some(*algorithm));
    }
    if algorithms.is_empty() {
        return None;
    }
    let decoding = DecodingKey::from_jwk(&key).ok()?;
    Some((name, PublishedKey { decoding, algorithms }))
}

fn algorithms_of(parameters: &AlgorithmParameters) -> Option<Vec<Algorithm>> {
    use Algorithm::{ES256, ES384, PS256, PS384, PS512, RS256, RS384, RS512};
    match parameters {
        AlgorithmParameters::RSA(_) => Some(vec![RS256, RS384, RS512, PS256, PS384, PS512]),
        AlgorithmParameters::EllipticCurve(key) => match key.curve {
            EllipticCurve::P256 => Some(vec![ES256]),
            EllipticCurve::P384 => Some(vec![ES384]),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_keys_that_sign_by_what_is_taken_are_kept() {
        let set = |key: Value| KeySet::parse(json!({ "keys": [key] }).to_string().as_bytes()).unwrap();
        let point = "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU";
        let key = json!({ "kty": "EC", "crv": "P-256", "kid": "k", "x": point, "y": point });
        let with = |name: &str, value: &str| {
            let mut key = key.clone();
            key.as_object_mut().unwrap().insert(name.to_owned(), json!(value));
            set(key).len()
        };
        assert_eq!((with("use", "sig"), with("use", "enc")), (1, 0));
        assert_eq!(
            (with("alg", "ES256"), with("alg", "ES384"), with("alg", "HS256")),
            (1, 0, 0)
        );
        assert_eq!((with("kty", "oct"), with("crv", "P-521")), (0, 0));
    }
}
