//! Authentication of peers: credentials in, a role out.
//!
//! [`Authentication`] is the interface of the protocol handlers, called once for each connection or request. It tries
//! the providers of the node in their order ([`Provider`]): tokens ([`TokenVerifier`]), access tokens of other
//! issuers ([`OpenIdVerifier`]), passwords ([`Passwords`]) and client certificates. The permissions of a role are not
//! known here.
//!
//! ```
//! use pharos_identity::{Authentication, Chain, Credentials, Provider, TokenOptions, TokenVerifier, sign};
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
//! # runtime.block_on(async {
//! let secret = sign::secret_key(sign::Algorithm::HS256).unwrap();
//! let options = TokenOptions { secret_key: Some(secret.clone()), ..TokenOptions::default() };
//! let tokens = TokenVerifier::new(&options).unwrap();
//! let authentication = Authentication::by(Chain { providers: vec![Provider::Token(Box::new(tokens))], ..Chain::default() });
//!
//! let token = sign::with_secret(&secret, &sign::Claims::of("car-7")).unwrap();
//! let identity = authentication.authenticate(Credentials::token(token)).await.unwrap();
//! assert_eq!(&*identity.role, "car-7");
//! # });
//! ```
//!
//! Always true: on any failure the peer is not admitted; no secret is in an error or a log. No cryptography is
//! written here: keys, signatures, hashes and their comparison are those of crates.

#![forbid(unsafe_code)]

mod chain;
mod credentials;
mod guesses;
mod keys;
mod openid;
mod passwords;
mod revoked;
pub mod sign;
#[cfg(feature = "test-util")]
pub mod test_issuer;
mod token;

pub use chain::{Authentication, Chain, Failure, Provider};
pub use credentials::{Credentials, Identity};
pub use guesses::GuessLimits;
pub use keys::{KeyError, read_key};
pub use openid::{OpenIdError, OpenIdOptions, OpenIdVerifier};
pub use passwords::{Passwords, PasswordsError};
pub use revoked::{RevokedError, RevokedTokens, TokenMark, line_of_role, line_of_token};
pub use token::{TokenError, TokenOptions, TokenVerifier};
