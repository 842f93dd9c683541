//! Verifiers of client certificates.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use x509_parser::prelude::{FromDer as _, X509Certificate, X509Version};

/// Treatment of client certificates.
#[derive(Clone, Debug)]
pub(crate) enum Clients {
    NotAsked,
    /// Untrusted certificates end the handshake.
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

    /// True if an authority signed this certificate, which passed a handshake.
    pub(super) fn is_trusted(&self, chain: &[CertificateDer<'_>]) -> bool {
        match self {
            Self::NotAsked => false,
            Self::Strict(_) => true,
            Self::Lenient(lenient) => lenient.is_trusted(chain),
        }
    }
}

/// Refuses certificates of X.509 version 1 before anything else is looked at, with the alert `unsupported_certificate`: without extensions
/// nothing in one says what it may be used for.
#[derive(Debug)]
pub(super) struct Version3Only(pub(super) Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for Version3Only {
    fn offer_client_auth(&self) -> bool {
        self.0.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.0.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        first: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if std::iter::once(first).chain(rest).any(is_of_old_version) {
            // No other check answers so: `explain` in `session` says what is wrong.
            return Err(Error::InvalidCertificate(CertificateError::InvalidPurpose));
        }
        self.0.verify_client_cert(first, rest, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// True for X.509 versions 1 and 2, which have no extensions. What cannot be read is for others to refuse.
fn is_of_old_version(certificate: &CertificateDer<'_>) -> bool {
    X509Certificate::from_der(certificate).is_ok_and(|(_, parsed)| parsed.version() != X509Version::V3)
}

/// Takes any certificate, as long as its holder has the key.
#[derive(Debug)]
pub(crate) struct Lenient {
    provider: Arc<CryptoProvider>,
    /// Verifier that decides trust; `None` without authorities.
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

#[cfg(test)]
mod tests {
    use rustls::AlertDescription;
    use rustls::RootCertStore;
    use rustls::pki_types::pem::PemObject as _;

    use super::*;

    /// Made by `openssl x509 -req` without extensions; valid until 2126.
    const OF_VERSION_1: &str = "-----BEGIN CERTIFICATE-----
MIIBFzCBvgIUadKS2HD5JNXOk6Ife+0mhoK6jrcwCgYIKoZIzj0EAwIwDTELMAkG
A1UEAwwCY2EwIBcNMjYxMTI3MTEwOTMxWhgPMjEyNjExMDMxMTA5MzFaMA4xDDAK
BgNVBAMMA29sZDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABAiYfbDGHnE2L5Ey
v1Q2ECmutoATF99ISMNf9xPq4h9NOMn+FGPOaZYxCh33dLu8RwXmLJ9l5TSnd6KU
DZPrAmowCgYIKoZIzj0EAwIDSAAwRQIhAOLhgNyVYErXCGDlII4TdA63T0EFNwEa
/CjvcKlO0BiOAiBcFC0ZLkeuJa8mCKUVxels3MN724jhftY69ESVBsCkAw==
-----END CERTIFICATE-----
";

    #[test]
    fn a_certificate_of_version_1_is_refused_in_words_that_say_so() {
        let authority = rcgen::generate_simple_self_signed(["ca".to_owned()]).unwrap();
        let mut authorities = RootCertStore::empty();
        authorities.add(authority.cert.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let how = crate::tls::ClientCertificates::Required;
        let verifier = crate::tls::verifier(&provider, authorities, how)
            .unwrap()
            .unwrap();
        let old = CertificateDer::from_pem_slice(OF_VERSION_1.as_bytes()).unwrap();
        let error = verifier
            .verify_client_cert(&old, &[], UnixTime::now())
            .unwrap_err();
        let Error::InvalidCertificate(certificate_error) = error.clone() else {
            panic!("{error:?}");
        };
        let alert = AlertDescription::from(certificate_error);
        assert_eq!(alert, AlertDescription::UnsupportedCertificate);
        let told = crate::tls::session::explain(error).to_string();
        assert!(
            told.contains("X.509 version 1") && told.contains("-extfile"),
            "{told}"
        );
        let other = rcgen::generate_simple_self_signed(["car".to_owned()]).unwrap();
        let error = verifier.verify_client_cert(other.cert.der(), &[], UnixTime::now());
        let told = crate::tls::session::explain(error.unwrap_err()).to_string();
        assert!(!told.contains("version 1"), "{told}");
    }
}
