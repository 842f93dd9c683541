//! TLS of a client: trusted authorities and the client certificate.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use crate::ClientError;

/// TLS options of a client. By default the authorities of the system are trusted, and no certificate is presented.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// PEM: the authorities to trust, instead of those of the system.
    pub trust_certs_file: Option<PathBuf>,
    /// PEM: the certificate to show, with those between it and its authority. Needs `key_file`.
    pub certificate_file: Option<PathBuf>,
    /// PEM: its key.
    pub key_file: Option<PathBuf>,
    /// Take a broker's certificate whatever name is in it.
    pub skip_hostname_verification: bool,
    /// Take any certificate of a broker: it could be anyone's.
    pub allow_insecure_connection: bool,
}

impl TlsOptions {
    /// Returns the rustls configuration, read from the files.
    ///
    /// # Errors
    /// `Tls`: a file cannot be read, or they do not go together.
    pub fn client_config(&self) -> Result<Arc<ClientConfig>, ClientError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .dangerous()
            .with_custom_certificate_verifier(self.verifier(provider)?);
        let config = match (&self.certificate_file, &self.key_file) {
            (Some(certificate), Some(key)) => {
                let pair = PrivateKeyDer::from_pem_file(key).map_err(|_| {
                    ClientError::Tls(format!(
                        "{}: no private key in PEM that is not encrypted",
                        key.display()
                    ))
                })?;
                let chain = certificates(certificate)?;
                builder.with_client_auth_cert(chain, pair).map_err(|error| {
                    let (certificate, key) = (certificate.display(), key.display());
                    ClientError::Tls(format!(
                        "{certificate} cannot be used with the key in {key}: {error}"
                    ))
                })?
            }
            (None, None) => builder.with_no_client_auth(),
            _ => {
                return Err(ClientError::Tls(
                    "a certificate and its key belong together".to_owned(),
                ));
            }
        };
        Ok(Arc::new(config))
    }

    fn verifier(&self, provider: Arc<CryptoProvider>) -> Result<Arc<dyn ServerCertVerifier>, ClientError> {
        if self.allow_insecure_connection {
            return Ok(Arc::new(Lenient {
                provider,
                strict: None,
            }));
        }
        let roots = Arc::new(self.roots()?);
        let strict = WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).build();
        let strict = strict.map_err(|error| ClientError::Tls(error.to_string()))?;
        if !self.skip_hostname_verification {
            return Ok(strict);
        }
        let strict = Some(strict);
        Ok(Arc::new(Lenient { provider, strict }))
    }

    fn roots(&self) -> Result<RootCertStore, ClientError> {
        let mut roots = RootCertStore::empty();
        match &self.trust_certs_file {
            Some(path) => {
                for authority in certificates(path)? {
                    let added = roots.add(authority);
                    added.map_err(|error| ClientError::Tls(format!("{}: {error}", path.display())))?;
                }
            }
            None => {
                // One that cannot be read is one less; without any nothing is trusted.
                let (known, _) =
                    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
                if known == 0 {
                    let reason = "the system knows no certificate authorities; name some to trust";
                    return Err(ClientError::Tls(reason.to_owned()));
                }
            }
        }
        Ok(roots)
    }
}

fn unusable(error: Error) -> ClientError {
    ClientError::Tls(error.to_string())
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, ClientError> {
    let fault = |reason: String| ClientError::Tls(format!("{}: {reason}", path.display()));
    let found = CertificateDer::pem_file_iter(path).map_err(|error| fault(error.to_string()))?;
    let found: Vec<_> = found
        .collect::<Result<_, _>>()
        .map_err(|error| fault(error.to_string()))?;
    if found.is_empty() {
        return Err(fault("no certificate in PEM".to_owned()));
    }
    Ok(found)
}

/// Takes certificates that others would not.
#[derive(Debug)]
struct Lenient {
    provider: Arc<CryptoProvider>,
    /// Checks everything but the name; `None`: nothing is checked.
    strict: Option<Arc<WebPkiServerVerifier>>,
}

impl ServerCertVerifier for Lenient {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(strict) = &self.strict else {
            return Ok(ServerCertVerified::assertion());
        };
        // The name is looked at last, when the rest has been found good.
        match strict.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            outcome => outcome,
        }
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
