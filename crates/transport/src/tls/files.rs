//! The files that TLS is made of: PEM, as Pulsar has them.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::{TlsError, TlsOptions};

/// Contents of the files.
pub(super) struct Files {
    /// The certificate, then those between it and the authority.
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: PrivateKeyDer<'static>,
    /// Authorities for client certificates; may be empty.
    pub(super) authorities: RootCertStore,
    /// Another one when any of the files is another.
    pub(super) fingerprint: u64,
}

impl Files {
    /// Reads them all.
    ///
    /// # Errors
    /// One cannot be read, or has not in it what it should have.
    pub(super) fn read(options: &TlsOptions) -> Result<Self, TlsError> {
        let mut hasher = DefaultHasher::new();
        let mut read = |path: &Path| -> Result<Vec<u8>, TlsError> {
            let bytes = std::fs::read(path).map_err(|error| fault(path, error))?;
            bytes.hash(&mut hasher);
            Ok(bytes)
        };
        let chain = certificates(&options.certificate_file, &read(&options.certificate_file)?)?;
        let key = read(&options.key_file)?;
        let key = PrivateKeyDer::from_pem_slice(&key).map_err(|_| {
            fault(
                &options.key_file,
                "has no private key in PEM that is not encrypted",
            )
        })?;
        let mut authorities = RootCertStore::empty();
        if let Some(path) = &options.trust_certs_file {
            for authority in certificates(path, &read(path)?)? {
                authorities.add(authority).map_err(|error| fault(path, error))?;
            }
        }
        Ok(Self {
            chain,
            key,
            authorities,
            fingerprint: hasher.finish(),
        })
    }
}

fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(|error| fault(path, format!("is no PEM: {error}")))?;
    if found.is_empty() {
        return Err(fault(path, "has no certificate in PEM"));
    }
    Ok(found)
}

fn fault(path: &Path, reason: impl ToString) -> TlsError {
    TlsError::File {
        path: path.to_path_buf(),
        reason: reason.to_string(),
    }
}
