//! Making keys and tokens: what the command line does, and tests. Their forms are those of Pulsar: secrets as bytes, private
//! keys as DER of PKCS #8, public keys as DER of X.509.

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der, PublicKeyX509Der};
use aws_lc_rs::rsa::{KeyPair as RsaKeyPair, KeySize};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm,
    KeyPair as _,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{EncodingKey, Header, encode};
use serde_json::{Map, Value};

pub use jsonwebtoken::Algorithm;

use crate::keys::to_pem;
use crate::token::of_secret;

/// Reason why a key or token cannot be created.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignError {
    /// The algorithm is not valid for this kind of key.
    #[error("{0:?} is no algorithm for this kind of key")]
    Algorithm(Algorithm),
    /// The secret is too short.
    #[error("the secret key has {0} bytes; it needs 32 or more")]
    WeakSecret(usize),
    /// The bytes are no private key of that kind.
    #[error("the private key is no key for {0:?}")]
    PrivateKey(Algorithm),
    /// The library failed, for want of random numbers or memory.
    #[error("the key or token could not be made")]
    Failed,
}

/// Claims of a token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims(Map<String, Value>);

impl Claims {
    /// Claims with the role as `sub`.
    #[must_use]
    pub fn of(role: &str) -> Self {
        Self::default().with("sub", role)
    }

    /// With one claim more, or another value for it.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.insert(name.to_owned(), value.into());
        self
    }

    /// All of them.
    #[must_use]
    pub fn members(&self) -> &Map<String, Value> {
        &self.0
    }

    /// Expires at this time, in seconds since 1970.
    #[must_use]
    pub fn until(self, seconds: u64) -> Self {
        self.with("exp", seconds)
    }
}

/// A random secret: as many bits as the algorithm's hash has.
///
/// # Errors
/// [`SignError`].
pub fn secret_key(algorithm: Algorithm) -> Result<Vec<u8>, SignError> {
    let bytes = match algorithm {
        Algorithm::HS256 => 32,
        Algorithm::HS384 => 48,
        Algorithm::HS512 => 64,
        other => return Err(SignError::Algorithm(other)),
    };
    let mut secret = vec![0; bytes];
    aws_lc_rs::rand::fill(&mut secret).map_err(|_| SignError::Failed)?;
    Ok(secret)
}

/// A private and its public key.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyPair {
    /// DER of PKCS #8.
    pub private: Vec<u8>,
    /// DER of X.509.
    pub public: Vec<u8>,
}

/// A random pair of keys. RSA keys have as many bits as Pulsar gives them: 2048, 3072 or 4096.
///
/// # Errors
/// [`SignError`].
pub fn key_pair(algorithm: Algorithm) -> Result<KeyPair, SignError> {
    match algorithm {
        Algorithm::RS256 | Algorithm::PS256 => rsa_pair(KeySize::Rsa2048),
        Algorithm::RS384 | Algorithm::PS384 => rsa_pair(KeySize::Rsa3072),
        Algorithm::RS512 | Algorithm::PS512 => rsa_pair(KeySize::Rsa4096),
        Algorithm::ES256 => ec_pair(&ECDSA_P256_SHA256_FIXED_SIGNING),
        Algorithm::ES384 => ec_pair(&ECDSA_P384_SHA384_FIXED_SIGNING),
        other => Err(SignError::Algorithm(other)),
    }
}

fn rsa_pair(size: KeySize) -> Result<KeyPair, SignError> {
    let pair = RsaKeyPair::generate(size).map_err(|_| SignError::Failed)?;
    let private = AsDer::<Pkcs8V1Der<'_>>::as_der(&pair).map_err(|_| SignError::Failed)?;
    let public = AsDer::<PublicKeyX509Der<'_>>::as_der(pair.public_key()).map_err(|_| SignError::Failed)?;
    Ok(KeyPair {
        private: private.as_ref().to_vec(),
        public: public.as_ref().to_vec(),
    })
}

fn ec_pair(algorithm: &'static EcdsaSigningAlgorithm) -> Result<KeyPair, SignError> {
    let pair = EcdsaKeyPair::generate(algorithm).map_err(|_| SignError::Failed)?;
    let private = pair.to_pkcs8v1().map_err(|_| SignError::Failed)?;
    let public = AsDer::<PublicKeyX509Der<'_>>::as_der(pair.public_key()).map_err(|_| SignError::Failed)?;
    Ok(KeyPair {
        private: private.as_ref().to_vec(),
        public: public.as_ref().to_vec(),
    })
}

/// A token signed with a secret, by the strongest algorithm that the secret has bits for, as Pulsar does.
///
/// # Errors
/// [`SignError`].
pub fn with_secret(secret: &[u8], claims: &Claims) -> Result<String, SignError> {
    let algorithms = of_secret(secret).map_err(|_| SignError::WeakSecret(secret.len()))?;
    let algorithm = algorithms.last().copied().unwrap_or_default();
    token(algorithm, claims, &EncodingKey::from_secret(secret))
}

/// A token signed with a private key: PKCS #8, as DER or PEM.
///
/// # Errors
/// [`SignError`].
pub fn with_private_key(key: &[u8], algorithm: Algorithm, claims: &Claims) -> Result<String, SignError> {
    with_named_key(key, algorithm, None, claims)
}

/// Signs a token, with the name of the key in the header (`kid`).
///
/// # Errors
/// [`SignError`].
pub fn with_named_key(
    key: &[u8],
    algorithm: Algorithm,
    key_id: Option<&str>,
    claims: &Claims,
) -> Result<String, SignError> {
    let key = encoding_key(key, algorithm)?;
    let mut header = Header::new(algorithm);
    header.kid = key_id.map(str::to_owned);
    encode(&header, &claims.0, &key).map_err(|_| SignError::PrivateKey(algorithm))
}

/// A private key: PKCS #8, as DER or PEM.
pub(crate) fn encoding_key(key: &[u8], algorithm: Algorithm) -> Result<EncodingKey, SignError> {
    use Algorithm::{ES256, ES384, PS256, PS384, PS512, RS256, RS384, RS512};
    let pem = to_pem(key, "PRIVATE KEY");
    let key = match algorithm {
        RS256 | RS384 | RS512 | PS256 | PS384 | PS512 => EncodingKey::from_rsa_pem(&pem),
        ES256 | ES384 => EncodingKey::from_ec_pem(&pem),
        other => return Err(SignError::Algorithm(other)),
    };
    key.map_err(|_| SignError::PrivateKey(algorithm))
}

fn token(algorithm: Algorithm, claims: &Claims, key: &EncodingKey) -> Result<String, SignError> {
    encode(&Header::new(algorithm), &claims.0, key).map_err(|_| SignError::Failed)
}

/// Header and claims of a token as it says them. Nothing is checked: it may be forged.
#[must_use]
pub fn read(token: &str) -> Option<(Value, Value)> {
    let header = token.split('.').next()?;
    let header = URL_SAFE_NO_PAD.decode(header).ok()?;
    let claims = jsonwebtoken::dangerous::insecure_decode::<Value>(token)
        .ok()?
        .claims;
    Some((serde_json::from_slice(&header).ok()?, claims))
}

/// A time in a claim, in whole seconds since 1970.
#[must_use]
pub fn seconds(claim: &Value) -> Option<u64> {
    let float = || claim.as_f64().filter(|seconds| *seconds >= 0.0);
    // Rounded as the check of the token does; what is too large is as good as never.
    claim
        .as_u64()
        .or_else(|| float().map(|seconds| seconds.round() as u64))
}
