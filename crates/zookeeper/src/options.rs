//! Options of ZooKeeper connections: encryption, login, and the ACL of created nodes.

use std::path::{Path, PathBuf};

use pharos_types::Login;
use zookeeper_client::{Acls, Error, SaslOptions, TlsOptions};

/// Options for a store's connections to ZooKeeper, and the ACL of its nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectOptions {
    /// Connections are encrypted, and a server whose certificate is not for its host name is not talked to. `None`: they are plain.
    pub tls: Option<TlsFiles>,
    /// Login by SASL with DIGEST-MD5. `None` for no login.
    pub login: Option<Login>,
    /// ACL of created nodes.
    pub acl: Acl,
}

/// The access list of a node that is made; those of nodes that are there stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Acl {
    /// All clients may read and write.
    #[default]
    Open,
    /// Only who logged in as we did: it takes a login. What BookKeeper does with `zkEnableSecurity`.
    Creator,
}

impl Acl {
    pub(crate) fn list(self) -> Acls<'static> {
        match self {
            Self::Open => Acls::anyone_all(),
            Self::Creator => Acls::creator_all(),
        }
    }
}

impl ConnectOptions {
    pub(crate) fn sasl(&self) -> Option<SaslOptions> {
        let login = self.login.as_ref()?;
        Some(SaslOptions::digest_md5(login.user.clone(), login.password.clone()).into())
    }
}

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
