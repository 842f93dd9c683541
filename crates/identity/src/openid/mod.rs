//! Access tokens of OAuth2 and OpenID Connect: signed by an issuer that the node allows, with a key that the issuer publishes.
//!
//! ```text
//!   token ─► algorithm of a public key? ─► issuer allowed? ─► its keys: at hand, or asked for ─► signature, times, audience ─► role
//!            no: none, HMAC                no: not asked      (issuer.rs)
//! ```
//! Whom the broker asks is in its settings: what a token says of its issuer only chooses among these. Which algorithms are
//! taken follows from the published key, and from what it says itself.

mod fetch;
mod issuer;
mod keys;

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jsonwebtoken::{Algorithm, decode, decode_header};
use serde_json::{Map, Value};

use pharos_runtime::Pool;

use crate::token::{Refused, TOKEN_BYTES_MAX, expires_at_ms, names, or_sub, role_of, validation, why};
use crate::{Identity, TokenMark, sign};

use fetch::Fetcher;
use issuer::{Issuer, Timing};

/// Options of a verifier of access tokens. The names are those of Pulsar's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenIdOptions {
    /// Accepted issuers: the URLs under which issuers name themselves.
    pub issuers: Vec<String>,
    /// Audiences, of which a token must name one.
    pub audiences: Vec<String>,
    /// The claim that holds the role; empty is `sub`.
    pub role_claim: String,
    /// By how many seconds the issuer's clock may be wrong.
    pub clock_skew_s: u64,
    /// Maximum number of issuers whose keys are cached at once.
    pub cache_size: usize,
    /// Age at which cached keys are refreshed, in the background.
    pub refresh_after: Duration,
    /// Age at which cached keys expire.
    pub expire_after: Duration,
    /// Minimum time between requests to an issuer for a key that it did not have.
    pub miss_refresh: Duration,
    /// Time limit for a connection to an issuer.
    pub connect_timeout: Duration,
    /// Time limit for an issuer's answer.
    pub read_timeout: Duration,
    /// PEM: authorities that vouch for issuers, instead of those of the system.
    pub trust_certs_file: Option<PathBuf>,
    /// True if issuers and their keys are requested over TLS only.
    pub require_https: bool,
}

impl Default for OpenIdOptions {
    fn default() -> Self {
        Self {
            issuers: Vec::new(),
            audiences: Vec::new(),
            role_claim: String::new(),
            clock_skew_s: 0,
            cache_size: 5,
            refresh_after: Duration::from_secs(18 * 3600),
            expire_after: Duration::from_secs(24 * 3600),
            miss_refresh: Duration::from_secs(300),
            connect_timeout: Duration::from_secs(10),
            read_timeout: Duration::from_secs(10),
            trust_certs_file: None,
            require_https: true,
        }
    }
}

/// Reason why a verifier cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum OpenIdError {
    /// No issuer is allowed.
    #[error("no issuer is allowed")]
    NoIssuer,
    /// No audience is allowed: a token for any other service would get in.
    #[error("no audience is allowed")]
    NoAudience,
    /// An issuer that cannot be asked.
    #[error("'{0}' is no URL of an issuer: write https://HOST[:PORT][/PATH]")]
    Issuer(String),
    /// The trusted authorities cannot be used.
    #[error("the authorities that vouch for issuers: {0}")]
    Trust(String),
    /// The system refuses a thread, or the HTTP client cannot be made.
    #[error("issuers cannot be asked for their keys: {0}")]
    Client(String),
}

/// Checks access tokens.
pub struct OpenIdVerifier {
    issuers: Vec<Arc<Issuer>>,
    /// Issuers whose keys are kept, by their place in the list, the last used first. The lock is held for one look.
    used: Mutex<Vec<usize>>,
    cache_size: usize,
    audiences: Vec<String>,
    role_claim: String,
    clock_skew_s: u64,
    /// Threads that send the requests to issuers. End with the verifier.
    _pool: Pool,
}

impl fmt::Debug for OpenIdVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let issuers: Vec<_> = self.issuers.iter().map(|issuer| issuer.name()).collect();
        f.debug_struct("OpenIdVerifier")
            .field("issuers", &issuers)
            .field("audiences", &self.audiences)
            .field("role_claim", &self.role_claim)
            .finish_non_exhaustive()
    }
}

impl OpenIdVerifier {
    /// For these issuers. They are asked for their keys at once, on a thread apart; one that does not answer holds up nothing.
    ///
    /// # Errors
    /// [`OpenIdError`].
    pub fn new(options: &OpenIdOptions) -> Result<Self, OpenIdError> {
        if options.issuers.is_empty() {
            return Err(OpenIdError::NoIssuer);
        }
        if options.audiences.is_empty() {
            return Err(OpenIdError::NoAudience);
        }
        let is_url = |issuer: &str| {
            let plain = (!options.require_https).then_some("http://");
            let scheme = ["https://"].into_iter().chain(plain);
            let mut rest = scheme.filter_map(|scheme| issuer.strip_prefix(scheme));
            rest.next()
                .is_some_and(|rest| !rest.is_empty() && !rest.contains(['?', '#', '@']))
        };
        if let Some(odd) = options.issuers.iter().find(|issuer| !is_url(issuer)) {
            return Err(OpenIdError::Issuer(odd.clone()));
        }
        let fetcher = Arc::new(Fetcher::new(options)?);
        let pool = Pool::start("issuers", 1).map_err(|error| OpenIdError::Client(error.to_string()))?;
        let timing = Timing::of(options);
        let cache_size = options.cache_size.max(1);
        let start = |(index, name): (usize, &String)| {
            let issuer = Arc::new(Issuer::new(name, timing));
            let is_first = index < cache_size;
            // It ends with the pool.
            drop(pool.run(issuer.clone().keep(fetcher.clone(), is_first)));
            issuer
        };
        let issuers: Vec<_> = options.issuers.iter().enumerate().map(start).collect();
        Ok(Self {
            used: Mutex::new((0..issuers.len().min(cache_size)).collect()),
            issuers,
            cache_size,
            audiences: options.audiences.clone(),
            role_claim: or_sub(&options.role_claim),
            clock_skew_s: options.clock_skew_s,
            _pool: pool,
        })
    }

    /// Verifies a token and returns its identity. Waits for the issuer's keys if they are not cached, in bounded
    /// time.
    pub(crate) async fn verify(&self, token: &[u8]) -> Result<Identity, Refused> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(Refused::TooLong);
        }
        let (_, said) = sign::read(std::str::from_utf8(token).map_err(|_| Refused::Malformed)?)
            .ok_or(Refused::Malformed)?;
        let header = decode_header(token).map_err(|error| why(error.kind()))?;
        if !is_of_public_key(header.alg) {
            return Err(Refused::Algorithm);
        }
        let name = said.get("iss").and_then(Value::as_str);
        let mut issuers = self.issuers.iter().enumerate();
        let named = issuers.find(|(_, issuer)| Some(issuer.name()) == name);
        let (place, issuer) = named.ok_or(Refused::Issuer)?;
        let key_id = header.kid.as_deref().ok_or(Refused::NoKeyId)?;
        let keys = issuer.keys_with(key_id).await?;
        let key = keys.get(key_id).ok_or(Refused::UnknownKey)?;
        let mut wanted = validation(key.algorithms().to_vec(), self.clock_skew_s);
        wanted.required_spec_claims.insert("exp".to_owned());
        let decoded = decode::<Map<String, Value>>(token, key.decoding(), &wanted);
        let claims = decoded.map_err(|error| why(error.kind()))?.claims;
        self.note_use(place);
        let audience = claims.get("aud");
        if !self.audiences.iter().any(|known| names(audience, known)) {
            return Err(Refused::Audience);
        }
        Ok(Identity {
            role: role_of(&claims, &self.role_claim)?.into(),
            expires_at_ms: expires_at_ms(&claims, &wanted),
            token: Some(Arc::new(TokenMark::of(token, &claims))),
        })
    }

    /// Notes that a token of the issuer at this place was good. The issuer that was not used for longest lets go of its keys when
    /// there are too many; forged tokens have no part in that.
    fn note_use(&self, place: usize) {
        let dropped = {
            let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
            used.retain(|other| *other != place);
            used.insert(0, place);
            if used.len() > self.cache_size {
                used.pop()
            } else {
                None
            }
        };
        if let Some(dropped) = dropped.and_then(|place| self.issuers.get(place)) {
            dropped.forget();
        }
    }
}

/// True if the algorithm is an accepted one that needs no secret for verification.
fn is_of_public_key(algorithm: Algorithm) -> bool {
    use Algorithm::{ES256, ES384, PS256, PS384, PS512, RS256, RS384, RS512};
    matches!(
        algorithm,
        RS256 | RS384 | RS512 | PS256 | PS384 | PS512 | ES256 | ES384
    )
}
