//! How connections to ZooKeeper are encrypted.

use std::path::{Path, PathBuf};

use zookeeper_client::{Error, TlsOptions};

/// Files in PEM. They are read with each session that is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificates of the authorities that vouch for the servers.
    pub trust_certs: PathBuf,
    /// The certificate that is shown to servers, and its key, not encrypted.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

impl TlsFiles {
    pub(crate) fn read(&self) -> Result<TlsOptions, Error> {
        // The client asks for the process's provider of cryptography, of which there must be one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let authorities = text_of(&self.trust_certs)?;
        let options = TlsOptions::new().with_pem_ca(&authorities)?;
        match &self.certificate {
            None => Ok(options),
            Some((certificate, key)) => options.with_pem_identity(&text_of(certificate)?, &text_of(key)?),
        }
    }
}

fn text_of(file: &Path) -> Result<String, Error> {
    std::fs::read_to_string(file)
        .map_err(|error| Error::UnexpectedError(format!("cannot read {}: {error}", file.display())))
}
