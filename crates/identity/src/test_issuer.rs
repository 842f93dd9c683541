//! A small issuer of access tokens on loopback, over HTTP with or without TLS: OpenID discovery, its keys, and tokens for client
//! credentials. For tests; it signs for clients with a secret that it was told.

#![allow(clippy::unwrap_used, reason = "for tests")]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jsonwebtoken::jwk::Jwk;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

use pharos_runtime::clock;

use crate::sign::{self, Algorithm, Claims, KeyPair};

/// The most of a request's body that is read.
const BODY_BYTES_MAX: u64 = 64 << 10;
/// Maximum silence of a peer.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// An issuer that answers as long as it exists.
pub struct TestIssuer {
    url: String,
    state: Arc<Mutex<IssuerState>>,
}

/// State and behaviour of the issuer.
struct IssuerState {
    /// Name, pair and algorithm; the last one signs.
    keys: Vec<(String, KeyPair, Algorithm)>,
    /// Further keys that are published.
    odd_keys: Vec<Value>,
    /// Secrets of clients by their names.
    clients: BTreeMap<String, String>,
    /// For how many seconds a token is good.
    lifetime_s: u64,
    is_down: bool,
    /// Answer sent instead of the keys.
    instead: Option<Vec<u8>>,
    /// Name of the issuer, if that is not its URL.
    name: Option<String>,
    /// URL of its keys, if not at the issuer itself.
    keys_url: Option<String>,
    /// Number of requests for its keys.
    keys_asked: u32,
    /// Number of tokens issued.
    tokens_given: u32,
}

impl TestIssuer {
    /// On a free port, with one key.
    ///
    /// # Panics
    /// There is no port.
    #[must_use]
    pub fn start() -> Self {
        Self::listen("127.0.0.1:0")
    }

    /// At this address, with one key.
    ///
    /// # Panics
    /// The address is taken.
    #[must_use]
    pub fn listen(address: &str) -> Self {
        Self::serve_on(&TcpListener::bind(address).unwrap(), None)
    }

    /// On a free port, over TLS alone, with this certificate and its key in PEM.
    ///
    /// # Panics
    /// There is no port, or they cannot be used.
    #[must_use]
    pub fn start_tls(certificate_file: &Path, key_file: &Path) -> Self {
        let chain = CertificateDer::pem_file_iter(certificate_file).unwrap();
        let chain = chain.map(Result::unwrap).collect();
        let key = PrivateKeyDer::from_pem_file(key_file).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let config = builder
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        Self::serve_on(&TcpListener::bind("127.0.0.1:0").unwrap(), Some(Arc::new(config)))
    }

    fn serve_on(listener: &TcpListener, tls: Option<Arc<ServerConfig>>) -> Self {
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{}", listener.local_addr().unwrap());
        let listener = listener.try_clone().unwrap();
        let state = Arc::new(Mutex::new(IssuerState {
            keys: Vec::new(),
            odd_keys: Vec::new(),
            clients: BTreeMap::new(),
            lifetime_s: 3600,
            is_down: false,
            instead: None,
            name: None,
            keys_url: None,
            keys_asked: 0,
            tokens_given: 0,
        }));
        let issuer = Self { url, state };
        issuer.add_key("first", Algorithm::RS256);
        let (url, state) = (issuer.url(), Arc::downgrade(&issuer.state));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (Some(state), Ok(stream)) = (state.upgrade(), stream) else {
                    return;
                };
                if stream.set_read_timeout(Some(READ_TIMEOUT)).is_err() {
                    continue;
                }
                // A peer that leaves early, or trusts another, is none of its business.
                let _ = match &tls {
                    None => serve(stream, &url, &state),
                    Some(config) => match ServerConnection::new(config.clone()) {
                        Ok(connection) => serve(StreamOwned::new(connection, stream), &url, &state),
                        Err(_) => continue,
                    },
                };
            }
        });
        issuer
    }

    /// Returns its URL, which is also its name.
    #[must_use]
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// Signs with a new key from now on. Those before are published as well.
    pub fn add_key(&self, name: &str, algorithm: Algorithm) {
        let pair = sign::key_pair(algorithm).unwrap();
        self.state().keys.push((name.to_owned(), pair, algorithm));
    }

    /// Publishes its newest key only.
    pub fn retire_keys(&self) {
        let mut state = self.state();
        let last = state.keys.len().saturating_sub(1);
        state.keys.drain(..last);
    }

    /// Publishes this among its keys.
    pub fn publish(&self, key: Value) {
        self.state().odd_keys.push(key);
    }

    /// Gives tokens to this client.
    pub fn add_client(&self, id: &str, secret: &str) {
        self.state().clients.insert(id.to_owned(), secret.to_owned());
    }

    /// For how many seconds tokens are good that it gives to clients.
    pub fn set_lifetime(&self, seconds: u64) {
        self.state().lifetime_s = seconds;
    }

    /// Sets whether it closes connections without an answer.
    pub fn set_down(&self, is_down: bool) {
        self.state().is_down = is_down;
    }

    /// Answers this instead of its keys.
    pub fn answer_instead(&self, document: Option<Vec<u8>>) {
        self.state().instead = document;
    }

    /// Calls itself by another name.
    pub fn call_itself(&self, name: &str) {
        self.state().name = Some(name.to_owned());
    }

    /// Says that its keys are at another URL.
    pub fn say_keys_are_at(&self, url: &str) {
        self.state().keys_url = Some(url.to_owned());
    }

    /// Returns the number of requests for its keys.
    #[must_use]
    pub fn keys_asked(&self) -> u32 {
        self.state().keys_asked
    }

    /// Returns the number of tokens issued to clients.
    #[must_use]
    pub fn tokens_given(&self) -> u32 {
        self.state().tokens_given
    }

    /// Claims of a token of this issuer, good for an hour.
    #[must_use]
    pub fn claims(&self, role: &str, audience: &str) -> Claims {
        claims(&self.url(), role, audience, 3600)
    }

    /// A token, signed with its newest key.
    ///
    /// # Panics
    /// It cannot be signed.
    #[must_use]
    pub fn token(&self, claims: &Claims) -> String {
        self.state().sign(claims)
    }

    /// Returns a token without a signature, as if none were needed.
    #[must_use]
    pub fn unsigned(&self, claims: &Claims) -> String {
        let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let key = self.state().keys.last().map(|(name, ..)| name.clone());
        let header = part(json!({ "alg": "none", "kid": key }));
        format!("{header}.{}.", part(json!(claims.members())))
    }

    /// The newest key's public part, as the command line writes it.
    #[must_use]
    pub fn public_key(&self) -> Vec<u8> {
        let state = self.state();
        state
            .keys
            .last()
            .map(|(_, pair, _)| pair.public.clone())
            .unwrap_or_default()
    }

    fn state(&self) -> MutexGuard<'_, IssuerState> {
        lock(&self.state)
    }
}

impl Drop for TestIssuer {
    fn drop(&mut self) {
        self.state().is_down = true;
    }
}

fn lock(state: &Mutex<IssuerState>) -> MutexGuard<'_, IssuerState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn claims(issuer: &str, role: &str, audience: &str, lifetime_s: u64) -> Claims {
    let now = clock::wall_ms() / 1000;
    let claims = Claims::of(role).until(now + lifetime_s);
    claims
        .with("iss", issuer)
        .with("aud", audience)
        .with("iat", now)
        .with("nbf", now)
}

impl IssuerState {
    fn sign(&self, claims: &Claims) -> String {
        let (name, pair, algorithm) = self.keys.last().unwrap();
        sign::with_named_key(&pair.private, *algorithm, Some(name), claims).unwrap()
    }

    fn key_set(&self) -> Value {
        let published = self.keys.iter().map(|(name, pair, algorithm)| {
            let key = sign::encoding_key(&pair.private, *algorithm).unwrap();
            let mut key = Jwk::from_encoding_key(&key, *algorithm).unwrap();
            key.common.key_id = Some(name.clone());
            serde_json::to_value(key).unwrap()
        });
        json!({ "keys": self.odd_keys.iter().cloned().chain(published).collect::<Vec<_>>() })
    }
}

/// Answers one request.
fn serve(stream: impl Read + Write, url: &str, state: &Mutex<IssuerState>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        match line.trim_end().split_once(':') {
            Some((name, value)) => headers.insert(name.to_ascii_lowercase(), value.trim().to_owned()),
            None => break,
        };
    }
    let length = headers
        .get("content-length")
        .and_then(|it| it.parse().ok())
        .unwrap_or(0);
    let mut body = String::new();
    reader
        .by_ref()
        .take(BODY_BYTES_MAX.min(length))
        .read_to_string(&mut body)?;
    let (status, answer) = {
        let mut state = lock(state);
        if state.is_down {
            return Ok(());
        }
        let path = first.split(' ').nth(1).unwrap_or_default();
        answer(&mut state, url, path, headers.get("authorization"), &body)
    };
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        answer.len()
    );
    let stream = reader.get_mut();
    stream.write_all(head.as_bytes())?;
    stream.write_all(&answer)?;
    stream.flush()
}

fn answer(
    state: &mut IssuerState,
    url: &str,
    path: &str,
    authorization: Option<&String>,
    body: &str,
) -> (&'static str, Vec<u8>) {
    match path {
        "/.well-known/openid-configuration" => {
            let about = json!({
                "issuer": state.name.as_deref().unwrap_or(url),
                "jwks_uri": state.keys_url.clone().unwrap_or_else(|| format!("{url}/keys")),
                "token_endpoint": format!("{url}/token"),
            });
            ("200 OK", about.to_string().into_bytes())
        }
        "/keys" => {
            state.keys_asked += 1;
            let keys = || state.key_set().to_string().into_bytes();
            ("200 OK", state.instead.clone().unwrap_or_else(keys))
        }
        "/token" => match give(state, url, authorization, body) {
            Some(given) => ("200 OK", given.to_string().into_bytes()),
            None => ("401 Unauthorized", br#"{"error":"invalid_client"}"#.to_vec()),
        },
        _ => ("404 Not Found", Vec::new()),
    }
}

/// A token for a client that shows its name and secret, in the form or in the header.
fn give(state: &mut IssuerState, url: &str, authorization: Option<&String>, body: &str) -> Option<Value> {
    let form: BTreeMap<String, String> = body
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (plain(name), plain(value)))
        .collect();
    let shown = authorization
        .and_then(|it| it.strip_prefix("Basic "))
        .and_then(|pair| {
            let pair = String::from_utf8(STANDARD.decode(pair).ok()?).ok()?;
            let (id, secret) = pair.split_once(':')?;
            Some((plain(id), plain(secret)))
        });
    let written = || Some((form.get("client_id")?.clone(), form.get("client_secret")?.clone()));
    let (id, secret) = shown.or_else(written)?;
    let is_known = state.clients.get(&id) == Some(&secret);
    if !is_known || form.get("grant_type").map(String::as_str) != Some("client_credentials") {
        return None;
    }
    state.tokens_given += 1;
    let audience = form.get("audience").cloned().unwrap_or_default();
    let token = state.sign(&claims(url, &id, &audience, state.lifetime_s));
    Some(json!({ "access_token": token, "token_type": "Bearer", "expires_in": state.lifetime_s }))
}

/// A piece of a form as it was before it was written as one.
fn plain(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => match (digit(rest.next()), digit(rest.next())) {
                (Some(high), Some(low)) => bytes.push((high * 16 + low) as u8),
                _ => bytes.push(b'?'),
            },
            other => bytes.push(other),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
