//! As much of the S3 protocol as an offloader uses, in memory: put, multipart upload, get with a range, head, delete.
//!
//! It refuses requests that are not signed as S3 wants them, or whose body is not the one that was signed, and can be told to
//! fail. Signatures themselves are not computed anew: that would test the client library with itself.

#![allow(dead_code, reason = "each test uses its part")]

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Router, routing::any};

/// Injected outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// This answer.
    Status(u16),
    /// No answer.
    Hang,
    /// An answer that breaks off after half of its body.
    Truncated,
    /// An answer with one bit of its body turned over.
    Flipped,
    /// The request is executed, and answered with 500.
    DoneBut500,
}

#[derive(Default)]
struct World {
    objects: BTreeMap<String, Bytes>,
    /// User metadata of objects.
    metadata: BTreeMap<String, String>,
    /// Encryption that the client requests for its objects: the kind, and the key.
    encryption: BTreeMap<String, Vec<String>>,
    uploads: BTreeMap<String, BTreeMap<u32, Bytes>>,
    next_upload: u32,
    /// Faults for coming requests of a method whose key ends with a text.
    faults: VecDeque<(Method, &'static str, Fault)>,
    requests: Vec<String>,
}

/// The server. It ends with the process.
#[derive(Clone)]
pub(crate) struct S3Server {
    pub(crate) address: SocketAddr,
    world: Arc<Mutex<World>>,
}

pub(crate) const KEY_ID: &str = "AKIDPHAROS";
pub(crate) const SECRET: &str = "not-so-secret";
pub(crate) const BUCKET: &str = "cold";

impl S3Server {
    pub(crate) fn start() -> Self {
        let world = Arc::<Mutex<World>>::default();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        listener.set_nonblocking(true).expect("a socket");
        let router = Router::new()
            .route("/{bucket}/{*key}", any(handle))
            .layer(axum::extract::DefaultBodyLimit::disable())
            .with_state(world.clone());
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
                axum::serve(listener, router).await.expect("it serves for ever");
            });
        });
        Self { address, world }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The next request of `method` whose key ends with `suffix` meets `fault`.
    pub(crate) fn fail(&self, method: Method, suffix: &'static str, fault: Fault) {
        self.lock().faults.push_back((method, suffix, fault));
    }

    pub(crate) fn faults_left(&self) -> usize {
        self.lock().faults.len()
    }

    pub(crate) fn objects(&self) -> BTreeMap<String, Bytes> {
        self.lock().objects.clone()
    }

    pub(crate) fn metadata(&self) -> BTreeMap<String, String> {
        self.lock().metadata.clone()
    }

    pub(crate) fn encryption(&self) -> BTreeMap<String, Vec<String>> {
        self.lock().encryption.clone()
    }

    pub(crate) fn uploads(&self) -> usize {
        self.lock().uploads.len()
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.lock().requests.clone()
    }

    pub(crate) fn set(&self, key: &str, bytes: Bytes) {
        self.lock().objects.insert(key.to_owned(), bytes);
    }

    pub(crate) fn remove(&self, key: &str) {
        self.lock().objects.remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Parameters = BTreeMap<String, String>;

async fn handle(
    State(world): State<Arc<Mutex<World>>>,
    Path((bucket, key)): Path<(String, String)>,
    Query(parameters): Query<Parameters>,
    method: Method,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let fault = {
        let mut world = world.lock().unwrap_or_else(PoisonError::into_inner);
        world.requests.push(format!("{method} {key} {parameters:?}"));
        let meets = |(at, suffix, _): &(Method, &str, Fault)| *at == method && key.ends_with(suffix);
        let at = world.faults.iter().position(meets);
        at.and_then(|at| world.faults.remove(at))
            .map(|(_, _, fault)| fault)
    };
    match fault {
        Some(Fault::Status(status)) => {
            return StatusCode::from_u16(status).expect("a status").into_response();
        }
        Some(Fault::Hang) => std::future::pending().await,
        _ => {}
    }
    if let Err(reason) = check_signed(&headers, &body) {
        return (StatusCode::FORBIDDEN, reason).into_response();
    }
    if bucket != BUCKET {
        return (StatusCode::NOT_FOUND, "NoSuchBucket").into_response();
    }
    let answer = {
        let mut world = world.lock().unwrap_or_else(PoisonError::into_inner);
        world.answer(&method, key, &parameters, &headers, body)
    };
    match fault {
        Some(Fault::DoneBut500) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        Some(fault) => spoil(answer, fault).await,
        None => answer,
    }
}

/// Every request names its key, region and service, and the hash of the body that was signed.
fn check_signed(headers: &HeaderMap, body: &[u8]) -> Result<(), String> {
    let header = |name: &str| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    };
    let authorization = header("authorization");
    let scope = format!("AWS4-HMAC-SHA256 Credential={KEY_ID}/");
    let is_scoped =
        authorization.starts_with(&scope) && authorization.contains("/eu-north-1/s3/aws4_request");
    if !is_scoped || !authorization.contains("Signature=") || header("x-amz-date").is_empty() {
        return Err(format!("not signed: {authorization}"));
    }
    let digest = ring::digest::digest(&ring::digest::SHA256, body);
    let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    match header("x-amz-content-sha256") == hex {
        true => Ok(()),
        false => Err("the body is not the one that was signed".to_owned()),
    }
}

/// Answers whose body is not what it should be.
async fn spoil(answer: Response, fault: Fault) -> Response {
    let (mut parts, body) = answer.into_parts();
    let whole = axum::body::to_bytes(body, usize::MAX)
        .await
        .expect("it is in memory");
    let half = whole.len() / 2;
    let body = match fault {
        Fault::Flipped => {
            let mut bytes = whole.to_vec();
            if let Some(byte) = bytes.get_mut(half) {
                *byte ^= 4;
            }
            Body::from(bytes)
        }
        _ => {
            parts.headers.insert("content-length", whole.len().into());
            let pieces = vec![Ok(whole.slice(..half)), Err(std::io::Error::other("cut off"))];
            Body::from_stream(futures_util::stream::iter(pieces))
        }
    };
    Response::from_parts(parts, body)
}

impl World {
    fn answer(
        &mut self,
        method: &Method,
        key: String,
        parameters: &Parameters,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Response {
        let upload = parameters.get("uploadId");
        let part = parameters.get("partNumber").and_then(|part| part.parse().ok());
        match (method.as_str(), upload, part) {
            ("POST", None, _) if parameters.contains_key("uploads") => self.begin(key, headers),
            ("PUT", Some(upload), Some(part)) => match self.uploads.get_mut(upload) {
                Some(parts) => {
                    parts.insert(part, body);
                    ([("etag", format!("\"part-{part}\""))], "").into_response()
                }
                None => StatusCode::NOT_FOUND.into_response(),
            },
            ("POST", Some(upload), _) => self.complete(&key, upload),
            ("DELETE", Some(upload), _) => {
                self.uploads.remove(upload);
                StatusCode::NO_CONTENT.into_response()
            }
            ("PUT", None, _) => {
                self.note_metadata(&key, headers);
                self.objects.insert(key, body);
                ([("etag", "\"whole\"")], "").into_response()
            }
            ("DELETE", None, _) => {
                self.objects.remove(&key);
                StatusCode::NO_CONTENT.into_response()
            }
            ("GET" | "HEAD", ..) => self.get(&key, headers),
            _ => StatusCode::NOT_IMPLEMENTED.into_response(),
        }
    }

    fn note_metadata(&mut self, key: &str, headers: &HeaderMap) {
        let name = "x-amz-meta-s3managedledgeroffloaderformatversion";
        if let Some(value) = headers.get(name).and_then(|value| value.to_str().ok()) {
            self.metadata.insert(key.to_owned(), value.to_owned());
        }
        let encryption = ["", "-aws-kms-key-id"].map(|rest| format!("x-amz-server-side-encryption{rest}"));
        let said = encryption
            .iter()
            .filter_map(|name| headers.get(name)?.to_str().ok());
        let said = said.map(str::to_owned).collect();
        self.encryption.insert(key.to_owned(), said);
    }

    fn begin(&mut self, key: String, headers: &HeaderMap) -> Response {
        self.note_metadata(&key, headers);
        self.next_upload += 1;
        let id = format!("upload-{}", self.next_upload);
        self.uploads.insert(id.clone(), BTreeMap::new());
        format!(
            "<InitiateMultipartUploadResult><Bucket>{BUCKET}</Bucket><Key>{key}</Key><UploadId>{id}</UploadId>\
             </InitiateMultipartUploadResult>"
        )
        .into_response()
    }

    fn complete(&mut self, key: &str, upload: &str) -> Response {
        let Some(parts) = self.uploads.remove(upload) else {
            return StatusCode::NOT_FOUND.into_response();
        };
        let last = parts.keys().last().copied().unwrap_or_default();
        let is_small = |(number, part): (&u32, &Bytes)| *number != last && part.len() < 5 << 20;
        if parts.iter().any(is_small) {
            return (StatusCode::BAD_REQUEST, "EntityTooSmall").into_response();
        }
        let whole: Vec<u8> = parts.into_values().flatten().collect();
        self.objects.insert(key.to_owned(), whole.into());
        "<CompleteMultipartUploadResult><ETag>\"all\"</ETag></CompleteMultipartUploadResult>".into_response()
    }

    fn get(&self, key: &str, headers: &HeaderMap) -> Response {
        let Some(object) = self.objects.get(key) else {
            return StatusCode::NOT_FOUND.into_response();
        };
        let range = headers.get("range").and_then(|range| range.to_str().ok());
        let range = range.and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
        let common = [
            ("etag", "\"all\"".to_owned()),
            ("last-modified", "Tue, 14 Nov 2023 22:13:20 GMT".to_owned()),
        ];
        let Some((from, to)) = range else {
            return (common, object.clone()).into_response();
        };
        let from: usize = from.parse().unwrap_or(0);
        let to = to
            .parse()
            .map_or(object.len(), |to: usize| to.saturating_add(1))
            .min(object.len());
        if from >= to {
            return StatusCode::RANGE_NOT_SATISFIABLE.into_response();
        }
        let content_range = format!("bytes {from}-{}/{}", to - 1, object.len());
        (
            StatusCode::PARTIAL_CONTENT,
            common,
            [("content-range", content_range)],
            object.slice(from..to),
        )
            .into_response()
    }
}
