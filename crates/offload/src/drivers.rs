//! From a target to an object store. The names of drivers and facts are stored with each offloaded ledger: never change one.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::{BackoffConfig, ClientOptions, RetryConfig};
use pharos_ledger::offload::{OffloadError, OffloadTarget};

use crate::folder::Folder;
use crate::options::{Credentials, Encryption, Options};
use crate::store::Backing;

/// Amazon S3.
pub const AWS_S3: &str = "aws-s3";
/// A store that speaks the S3 protocol, at an endpoint of its own.
pub const S3: &str = "S3";
/// A folder of this machine.
pub const FILESYSTEM: &str = "filesystem";
/// Drivers that Pulsar knows and this release does not have.
const ABSENT: [&str; 4] = ["google-cloud-storage", "azureblob", "aliyun-oss", "transient"];

/// Fact: name of the bucket.
pub const BUCKET: &str = "bucket";
/// Fact: its region.
pub const REGION: &str = "region";
/// Fact: URL of the service, when it is not Amazon's.
pub const ENDPOINT: &str = "endpoint";
/// Fact: `file:///…` of the folder.
pub const URI: &str = "uri";

/// The region that stands where none is given.
const REGION_DEFAULT: &str = "us-east-1";
/// User metadata that Pulsar's tools look for on S3 objects, and its value.
pub(crate) const VERSION_METADATA: (&str, &str) = ("s3managedledgeroffloaderformatversion", "1");

/// The target that is a folder.
#[must_use]
pub fn folder(path: &Path) -> OffloadTarget {
    OffloadTarget {
        driver: FILESYSTEM.to_owned(),
        facts: [(URI.to_owned(), format!("file://{}", path.display()))].into(),
    }
}

/// Implementation of a driver name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Driver {
    S3,
    Folder,
}

fn driver(target: &OffloadTarget) -> Result<Driver, OffloadError> {
    let name = target.driver.as_str();
    if name.eq_ignore_ascii_case(AWS_S3) || name.eq_ignore_ascii_case(S3) {
        return Ok(Driver::S3);
    }
    if name.eq_ignore_ascii_case(FILESYSTEM) {
        return Ok(Driver::Folder);
    }
    let why = if ABSENT.iter().any(|absent| name.eq_ignore_ascii_case(absent)) {
        "is not available in this release"
    } else {
        "is not known"
    };
    Err(wrong(
        target,
        format!("driver {name:?} {why}; there are {AWS_S3}, {S3} and {FILESYSTEM}"),
    ))
}

/// Checks that new objects may be stored there.
pub(crate) fn check(target: &OffloadTarget, options: &Options) -> Result<(), OffloadError> {
    match driver(target)? {
        Driver::S3 => {
            let bucket = fact(target, BUCKET).unwrap_or_default();
            if bucket.is_empty() {
                return Err(wrong(target, "a bucket is needed".to_owned()));
            }
            match fact(target, ENDPOINT) {
                Some(endpoint) if !endpoint.starts_with("http://") && !endpoint.starts_with("https://") => {
                    Err(wrong(
                        target,
                        "the endpoint must begin with http:// or https://".to_owned(),
                    ))
                }
                _ => Ok(()),
            }
        }
        Driver::Folder => {
            let Some(root) = &options.folders_in else {
                let cause = "this node has no folder for offloaded ledgers; set offload.filesystem_uri";
                return Err(wrong(target, cause.to_owned()));
            };
            let path = folder_of(target)?;
            let is_dotted = path
                .components()
                .any(|part| part == std::path::Component::ParentDir);
            if !is_dotted && path.starts_with(root) {
                return Ok(());
            }
            let cause = format!("the folder must be {} or below it", root.display());
            Err(wrong(target, cause))
        }
    }
}

/// Opens a target. Sends no request to it yet.
pub(crate) fn open(target: &OffloadTarget, options: &Options) -> Result<Backing, OffloadError> {
    match driver(target)? {
        Driver::S3 => Ok(Backing::Objects(Arc::new(open_s3(target, options)?))),
        Driver::Folder => Ok(Backing::Folder(Folder::new(
            options.fs.clone(),
            folder_of(target)?,
        ))),
    }
}

fn open_s3(target: &OffloadTarget, options: &Options) -> Result<AmazonS3, OffloadError> {
    install_tls();
    let endpoint = fact(target, ENDPOINT);
    let client = ClientOptions::new()
        .with_timeout(options.request_timeout)
        .with_allow_http(endpoint.is_some_and(|endpoint| endpoint.starts_with("http://")));
    let retry = RetryConfig {
        backoff: BackoffConfig::default(),
        max_retries: options.retries_max,
        retry_timeout: options.retry_timeout,
    };
    let mut builder = match &options.credentials {
        Credentials::Environment => AmazonS3Builder::from_env(),
        Credentials::Static { key_id, secret } => AmazonS3Builder::new()
            .with_access_key_id(key_id)
            .with_secret_access_key(secret),
    };
    builder = builder
        .with_bucket_name(fact(target, BUCKET).unwrap_or_default())
        .with_region(fact(target, REGION).unwrap_or(REGION_DEFAULT))
        .with_client_options(client)
        .with_retry(retry)
        // One DELETE for each object: not every store that speaks S3 knows how to delete several.
        .with_disable_bulk_delete(true);
    if let Some(endpoint) = endpoint {
        builder = builder.with_endpoint(endpoint.trim_end_matches('/'));
    }
    let built = encrypted(builder, &options.encryption).and_then(AmazonS3Builder::build);
    built.map_err(|error| wrong(target, error.to_string()))
}

/// Says with each new object how S3 is to encrypt it.
fn encrypted(builder: AmazonS3Builder, encryption: &Encryption) -> object_store::Result<AmazonS3Builder> {
    // The library does not export these keys but by name.
    let kind: AmazonS3ConfigKey = "aws_server_side_encryption".parse()?;
    Ok(match encryption {
        Encryption::Bucket => builder,
        Encryption::S3 => builder.with_config(kind, "AES256"),
        Encryption::Kms { key_id } if key_id.is_empty() => builder.with_config(kind, "aws:kms"),
        Encryption::Kms { key_id } => builder.with_sse_kms_encryption(key_id),
    })
}

/// The folder of a target: `file:///path`, `file:/path` or `/path`.
///
/// # Errors
/// [`OffloadError::Target`] when it is no absolute path of this machine.
pub fn folder_of(target: &OffloadTarget) -> Result<PathBuf, OffloadError> {
    let uri = fact(target, URI).unwrap_or_default();
    let path = match uri.split_once(':') {
        Some(("file", rest)) => rest.strip_prefix("//").unwrap_or(rest),
        Some(_) => return Err(wrong(target, "only file:///… can be used".to_owned())),
        None => uri,
    };
    let path = PathBuf::from(path);
    if path.is_absolute() {
        Ok(path)
    } else {
        Err(wrong(
            target,
            "an absolute path is needed, as file:///…".to_owned(),
        ))
    }
}

fn fact<'a>(target: &'a OffloadTarget, key: &str) -> Option<&'a str> {
    target
        .facts
        .get(key)
        .map(String::as_str)
        .filter(|value| !value.is_empty())
}

fn wrong(target: &OffloadTarget, cause: String) -> OffloadError {
    OffloadError::Target {
        target: target.clone(),
        cause,
    }
}

/// The process-wide choice of cryptography for TLS, made once. A choice made elsewhere is fine as well.
fn install_tls() {
    static DONE: OnceLock<()> = OnceLock::new();
    DONE.get_or_init(|| {
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(driver: &str, facts: &[(&str, &str)]) -> OffloadTarget {
        OffloadTarget {
            driver: driver.to_owned(),
            facts: facts
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
        }
    }

    fn refusal(target: &OffloadTarget, options: &Options) -> String {
        check(target, options).unwrap_err().to_string()
    }

    #[test]
    fn drivers_that_are_not_there_are_refused_by_name() {
        for name in ["google-cloud-storage", "azureblob", "aliyun-oss", "", "tape"] {
            let refused = refusal(&target(name, &[(BUCKET, "b")]), &Options::default());
            assert!(
                refused.contains(&format!("{name:?}")) && refused.contains("aws-s3"),
                "{refused}"
            );
        }
        for name in ["aws-s3", "S3", "AWS-S3"] {
            assert!(check(&target(name, &[(BUCKET, "b")]), &Options::default()).is_ok());
        }
    }

    #[test]
    fn a_folder_must_lie_where_the_node_allows_it() {
        let options = Options {
            folders_in: Some(PathBuf::from("/srv/cold")),
            ..Options::default()
        };
        for fine in ["file:///srv/cold", "/srv/cold/a", "file:/srv/cold/a/b"] {
            assert!(
                check(&target(FILESYSTEM, &[(URI, fine)]), &options).is_ok(),
                "{fine}"
            );
        }
        for wrong in [
            "",
            "cold",
            "file:///srv",
            "file:///srv/cold/../etc",
            "hdfs://n:8020/x",
            "/srv/coldest",
        ] {
            assert!(
                check(&target(FILESYSTEM, &[(URI, wrong)]), &options).is_err(),
                "{wrong}"
            );
        }
        let nowhere = refusal(&target(FILESYSTEM, &[(URI, "/srv/cold")]), &Options::default());
        assert!(nowhere.contains("offload.filesystem_uri"), "{nowhere}");
    }

    #[test]
    fn s3_needs_a_bucket_and_an_endpoint_that_is_a_url() {
        assert!(check(&target(AWS_S3, &[]), &Options::default()).is_err());
        let odd = target(S3, &[(BUCKET, "b"), (ENDPOINT, "minio:9000")]);
        assert!(check(&odd, &Options::default()).is_err());
    }
}
