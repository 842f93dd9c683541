//! A certificate for a first try with TLS, which no authority vouches for: clients are told to trust it by itself.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use pharos_runtime::clock;
use pharos_transport::{Tls, TlsOptions};
use rcgen::{CertificateParams, DnType, KeyPair, date_time_ymd};

/// Minimum remaining validity of the certificate, in seconds; below it a new one is created.
const REMAINING_MIN: u64 = 30 * 24 * 3600;

/// The certificate and the key in the folder `tls` of the data directory; both are made unless they are there.
///
/// `host`: what clients call this machine; the certificate is for that, and for this machine's own name for itself.
///
/// # Errors
/// They cannot be written, or what is there is not both.
pub(crate) fn make(data_dir: &Path, host: &str) -> anyhow::Result<(PathBuf, PathBuf)> {
    let dir = data_dir.join("tls");
    let (certificate, key) = (dir.join("certificate.pem"), dir.join("key.pem"));
    if is_good(&certificate, &key) {
        return Ok((certificate, key));
    }
    let mut folder = fs::DirBuilder::new();
    let made = folder.recursive(true).mode(0o700).create(&dir);
    made.with_context(|| format!("cannot make the folder {}", dir.display()))?;
    let pair = KeyPair::generate()?;
    let signed = params(host)?.self_signed(&pair)?;
    write(&key, &pair.serialize_pem(), 0o600)?;
    write(&certificate, &signed.pem(), 0o644)?;
    fs::File::open(&dir).and_then(|dir| dir.sync_all())?;
    tracing::info!(certificate = %certificate.display(), host, "a certificate was made that no authority vouches for");
    Ok((certificate, key))
}

/// True if both files exist, match, and the certificate is valid for long enough.
fn is_good(certificate: &Path, key: &Path) -> bool {
    let loaded = Tls::load(TlsOptions {
        certificate_file: certificate.to_path_buf(),
        key_file: key.to_path_buf(),
        ..TlsOptions::default()
    });
    let expires_at = loaded.map_or(0, |tls| u64::try_from(tls.expires_at()).unwrap_or(0));
    expires_at > clock::wall_ms() / 1000 + REMAINING_MIN
}

fn params(host: &str) -> anyhow::Result<CertificateParams> {
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    // An IPv6 address stands in brackets where URLs are made of it.
    let host = host.trim_matches(['[', ']']);
    let host = host
        .parse::<IpAddr>()
        .map_or(host.to_owned(), |address| address.to_string());
    if !names.contains(&host) {
        names.push(host);
    }
    let mut params = CertificateParams::new(names)?;
    params
        .distinguished_name
        .push(DnType::CommonName, "pharos self-signed");
    let this_year = 1970 + clock::wall_ms() / (31_556_952 * 1000);
    let this_year = i32::try_from(this_year).unwrap_or(i32::MAX - 2);
    params.not_before = date_time_ymd(this_year - 1, 1, 1);
    params.not_after = date_time_ymd(this_year + 2, 1, 1);
    Ok(params)
}

/// Puts a file there as a whole: what was there before is replaced at once.
fn write(path: &Path, text: &str, mode: u32) -> anyhow::Result<()> {
    let fresh = path.with_extension("new");
    let write = || -> io::Result<()> {
        match fs::remove_file(&fresh) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&fresh)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&fresh, path)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_certificate_is_made_once_and_only_its_owner_reads_the_key() {
        let dir = tempfile::tempdir().unwrap();
        let (certificate, key) = make(dir.path(), "[::1]").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&key), mode(key.parent().unwrap())), (0o600, 0o700));
        let first = fs::read(&certificate).unwrap();
        assert_eq!(make(dir.path(), "elsewhere").unwrap().0, certificate);
        assert_eq!(fs::read(&certificate).unwrap(), first, "what is there is used");
        fs::write(&key, "no key").unwrap();
        make(dir.path(), "broker.example").unwrap();
        assert_ne!(fs::read(&certificate).unwrap(), first);
        assert!(is_good(&certificate, &key));
    }
}
