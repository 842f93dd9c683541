//! Signed tokens (JWT): checked with the node's key, read for the role.
//!
//! Which algorithms are taken follows from the key alone: a secret takes HMAC of no more bits than it has, an RSA key the RSA
//! ones, an elliptic curve its own. What the token's header says only chooses among these; `none` is none of them.

use std::collections::HashSet;
use std::sync::Arc;

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode};
use serde_json::{Map, Value};

use crate::keys::to_pem;
use crate::{Identity, TokenMark, sign};

/// The longest token that is looked at, in bytes.
pub(crate) const TOKEN_BYTES_MAX: usize = 16 << 10;

/// Options of a verifier. The keys are bytes, as returned by [`read_key`](crate::read_key).
#[derive(Clone, Default)]
pub struct TokenOptions {
    /// The secret of HMAC tokens: 32 bytes or more. Goes before the public key, where both are set.
    pub secret_key: Option<Vec<u8>>,
    /// The public key, as PEM or as DER of X.509.
    pub public_key: Option<Vec<u8>>,
    /// Kind of that key, as one of its algorithms; empty is RS256.
    pub public_algorithm: String,
    /// The claim that holds the role; empty is `sub`.
    pub role_claim: String,
    /// The claim that must name the audience; empty: not looked at.
    pub audience_claim: String,
    /// The audience.
    pub audience: String,
    /// By how many seconds the issuer's clock may be wrong.
    pub clock_skew_s: u64,
}

/// Reason why a verifier cannot be created.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// No key is set.
    #[error("neither a secret key nor a public key is set")]
    NoKey,
    /// A secret that can be guessed.
    #[error("the secret key has {0} bytes; it needs 32 or more")]
    WeakSecret(usize),
    /// An algorithm that is not known here.
    #[error("'{0}' is none of RS256, RS384, RS512, PS256, PS384, PS512, ES256 and ES384")]
    Algorithm(String),
    /// The bytes are no public key of that kind.
    #[error("the public key is no key for {0}")]
    PublicKey(String),
    /// Only one of the audience and its claim is set.
    #[error("the claim of the audience and the audience must both be set, or neither")]
    Audience,
}

/// Reason why a token was refused. Contains nothing of the token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    #[error("the token is longer than {TOKEN_BYTES_MAX} bytes")]
    TooLong,
    #[error("the token has expired")]
    Expired,
    #[error("the token is not valid yet")]
    NotYet,
    #[error("the token's signature is not that of the key")]
    Signature,
    #[error("the token's algorithm is none of the key's")]
    Algorithm,
    #[error("this is no token")]
    Malformed,
    #[error("the token's claim {0} has another shape")]
    Claim(String),
    #[error("the token has no role in its claim {0}")]
    NoRole(String),
    #[error("the token is for another audience")]
    Audience,
    #[error("the token has no claim {0}")]
    Missing(String),
    #[error("the token's issuer is none of those that are allowed")]
    Issuer,
    #[error("the token does not say which key it is signed with")]
    NoKeyId,
    #[error("the token is signed with a key that its issuer does not have")]
    UnknownKey,
    #[error("the keys of the token's issuer are not known: {0}")]
    NoKeys(String),
}

/// Checks tokens.
pub struct TokenVerifier {
    key: DecodingKey,
    validation: Validation,
    role_claim: String,
    /// Claim and value.
    audience: Option<(String, String)>,
}

impl std::fmt::Debug for TokenVerifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenVerifier")
            .field("algorithms", &self.validation.algorithms)
            .field("role_claim", &self.role_claim)
            .field("audience", &self.audience)
            .finish_non_exhaustive()
    }
}

impl TokenVerifier {
    /// With these keys and claims.
    ///
    /// # Errors
    /// [`TokenError`].
    pub fn new(options: &TokenOptions) -> Result<Self, TokenError> {
        let (key, algorithms) = match (&options.secret_key, &options.public_key) {
            (Some(secret), _) => (DecodingKey::from_secret(secret), of_secret(secret)?),
            (None, Some(key)) => of_public_key(key, &options.public_algorithm)?,
            (None, None) => return Err(TokenError::NoKey),
        };
        let audience = match (options.audience_claim.as_str(), options.audience.as_str()) {
            ("", "") => None,
            ("", _) | (_, "") => return Err(TokenError::Audience),
            (claim, audience) => Some((claim.to_owned(), audience.to_owned())),
        };
        Ok(Self {
            key,
            validation: validation(algorithms, options.clock_skew_s),
            role_claim: or_sub(&options.role_claim),
            audience,
        })
    }

    /// Verifies a token and returns its identity.
    pub(crate) fn verify(&self, token: &[u8]) -> Result<Identity, Refused> {
        let claims = self.claims(token)?;
        if let Some((claim, audience)) = &self.audience
            && !names(claims.get(claim), audience)
        {
            return Err(Refused::Audience);
        }
        Ok(Identity {
            role: role_of(&claims, &self.role_claim)?.into(),
            expires_at_ms: expires_at_ms(&claims, &self.validation),
            token: Some(Arc::new(TokenMark::of(token, &claims))),
        })
    }

    /// Verifies a token and returns its identity, for diagnostics.
    ///
    /// # Errors
    /// Reason why it is refused; contains nothing of the token.
    pub fn check(&self, token: &[u8]) -> Result<Identity, String> {
        self.verify(token).map_err(|refused| refused.to_string())
    }

    /// The claims of a token whose signature and times are right; its audience and role are not looked at.
    pub(crate) fn claims(&self, token: &[u8]) -> Result<Map<String, Value>, Refused> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(Refused::TooLong);
        }
        let decoded = decode::<Map<String, Value>>(token, &self.key, &self.validation);
        decoded
            .map(|token| token.claims)
            .map_err(|error| why(error.kind()))
    }
}

/// The first moment at which the token would be refused.
pub(crate) fn expires_at_ms(claims: &Map<String, Value>, validation: &Validation) -> Option<u64> {
    let seconds = sign::seconds(claims.get("exp")?)?;
    let last = seconds.saturating_add(validation.leeway);
    Some(last.saturating_add(1).saturating_mul(1000))
}

/// Returns the checks applied to every token: one of these algorithms, and valid times if it has some.
pub(crate) fn validation(algorithms: Vec<Algorithm>, clock_skew_s: u64) -> Validation {
    Validation {
        algorithms,
        required_spec_claims: HashSet::new(),
        // So much that a sum with a time stays one.
        leeway: clock_skew_s.min(1 << 31),
        validate_exp: true,
        validate_nbf: true,
        // The audience may be in another claim, and is looked at where one is wanted.
        validate_aud: false,
        ..Validation::default()
    }
}

/// A secret signs with no more bits than it has.
pub(crate) fn of_secret(secret: &[u8]) -> Result<Vec<Algorithm>, TokenError> {
    let all = [
        (32, Algorithm::HS256),
        (48, Algorithm::HS384),
        (64, Algorithm::HS512),
    ];
    if secret.len() < 32 {
        return Err(TokenError::WeakSecret(secret.len()));
    }
    Ok(all
        .iter()
        .filter(|(bytes, _)| secret.len() >= *bytes)
        .map(|(_, algorithm)| *algorithm)
        .collect())
}

fn of_public_key(key: &[u8], algorithm: &str) -> Result<(DecodingKey, Vec<Algorithm>), TokenError> {
    use Algorithm::{ES256, ES384, PS256, PS384, PS512, RS256, RS384, RS512};
    let name = if algorithm.is_empty() { "RS256" } else { algorithm };
    let known: Algorithm = name.parse().map_err(|_| TokenError::Algorithm(name.to_owned()))?;
    let wrong = |_| TokenError::PublicKey(name.to_owned());
    let pem = to_pem(key, "PUBLIC KEY");
    match known {
        RS256 | RS384 | RS512 | PS256 | PS384 | PS512 => {
            let key = DecodingKey::from_rsa_pem(&pem).map_err(wrong)?;
            Ok((key, vec![RS256, RS384, RS512, PS256, PS384, PS512]))
        }
        ES256 | ES384 => {
            let key = DecodingKey::from_ec_pem(&pem).map_err(wrong)?;
            // A point that is not compressed: one byte, then both coordinates.
            let algorithm = match key.try_get_as_bytes().map_err(wrong)?.len() {
                65 => ES256,
                97 => ES384,
                _ => return Err(TokenError::PublicKey(name.to_owned())),
            };
            Ok((key, vec![algorithm]))
        }
        _ => Err(TokenError::Algorithm(name.to_owned())),
    }
}

pub(crate) fn or_sub(claim: &str) -> String {
    if claim.is_empty() { "sub" } else { claim }.to_owned()
}

/// The role in a claim: a text, or the first of a list of texts.
pub(crate) fn role_of<'c>(claims: &'c Map<String, Value>, claim: &str) -> Result<&'c str, Refused> {
    let found = match claims.get(claim) {
        Some(Value::String(role)) => Some(role.as_str()),
        Some(Value::Array(roles)) => roles.first().and_then(Value::as_str),
        _ => None,
    };
    found
        .filter(|role| !role.is_empty())
        .ok_or_else(|| Refused::NoRole(claim.to_owned()))
}

/// True if a claim is this text, or a list that contains it.
pub(crate) fn names(claim: Option<&Value>, wanted: &str) -> bool {
    match claim {
        Some(Value::String(text)) => text == wanted,
        Some(Value::Array(texts)) => texts.iter().any(|text| text.as_str() == Some(wanted)),
        _ => false,
    }
}

pub(crate) fn why(error: &ErrorKind) -> Refused {
    match error {
        ErrorKind::ExpiredSignature => Refused::Expired,
        ErrorKind::ImmatureSignature => Refused::NotYet,
        ErrorKind::InvalidSignature => Refused::Signature,
        ErrorKind::InvalidAlgorithm => Refused::Algorithm,
        ErrorKind::MissingRequiredClaim(claim) => Refused::Missing(claim.clone()),
        ErrorKind::InvalidClaimFormat(claim) => Refused::Claim(claim.clone()),
        _ => Refused::Malformed,
    }
}

#[cfg(test)]
mod tests;
