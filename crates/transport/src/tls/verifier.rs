//! Who checks the certificates of clients.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

/// What becomes of the certificates of clients.
#[derive(Clone, Debug)]
pub(crate) enum Clients {
    NotAsked,
    /// One that is not trusted ends the handshake.
    Strict(Arc<dyn ClientCertVerifier>),
    /// Any will do.
    Lenient(Arc<Lenient>),
}

impl Clients {
    pub(super) fn verifier(&self) -> Arc<dyn ClientCertVerifier> {
        match self {
            Self::NotAsked => WebPkiClientVerifier::no_client_auth(),
            Self::Strict(verifier) => verifier.clone(),
            Self::Lenient(lenient) => lenient.clone(),
        }
    }

    /// Whether an authority vouches for this certificate, which came through a handshake.
    pub(super) fn is_trusted(&self, chain: &[CertificateDer<'_>]) -> bool {
        match self {
            Self::NotAsked => false,
            Self::Strict(_) => true,
            Self::Lenient(lenient) => lenient.is_trusted(chain),
        }
    }
}

/// Takes any certificate, as long as its holder has the key.
#[derive(Debug)]
pub(crate) struct Lenient {
    provider: Arc<CryptoProvider>,
    /// What would check it; `None` without authorities.
    trusted: Option<Arc<dyn ClientCertVerifier>>,
}

impl Lenient {
    pub(super) fn new(provider: Arc<CryptoProvider>, trusted: Option<Arc<dyn ClientCertVerifier>>) -> Self {
        Self { provider, trusted }
    }

    fn is_trusted(&self, chain: &[CertificateDer<'_>]) -> bool {
        let Some((trusted, (first, rest))) = self.trusted.as_ref().zip(chain.split_first()) else {
            return false;
        };
        trusted.verify_client_cert(first, rest, UnixTime::now()).is_ok()
    }
}

impl ClientCertVerifier for Lenient {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    /// No hint: a client that is told which authorities count would keep a certificate of another to itself.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
