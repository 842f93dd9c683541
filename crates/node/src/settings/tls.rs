//! Settings of TLS and of the PROXY protocol.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use pharos_transport::{ProxyProtocol, TlsVersion, cipher_suite_names};

use super::Value;

/// What the listeners that speak TLS do, and what connections of all listeners begin with.
#[derive(Clone, Debug, PartialEq)]
pub struct TlsSettings {
    /// Address of the Pulsar protocol over TLS.
    pub pulsar_listen: Option<SocketAddr>,
    /// Address of the admin API over TLS.
    pub http_listen: Option<SocketAddr>,
    /// The certificate.
    pub certificate_file: Option<PathBuf>,
    /// Its key.
    pub key_file: Option<PathBuf>,
    /// Those that vouch for clients.
    pub trust_certs_file: Option<PathBuf>,
    /// Whether clients must have a certificate.
    pub require_trusted_client_cert_on_connect: bool,
    /// Whether any certificate of a client will do.
    pub allow_insecure_connection: bool,
    /// Versions that are spoken.
    pub protocols: TlsVersions,
    /// Cipher suites.
    pub ciphers: CipherSuites,
    /// How often the files are read again.
    pub cert_refresh_check_duration: Duration,
    /// How long what comes before the first byte may take.
    pub handshake_timeout: Duration,
    /// Handshakes at once.
    pub max_handshakes: u32,
    /// The same of one address.
    pub max_handshakes_per_address: u32,
    /// Whether a certificate is made where none is named.
    pub self_signed: bool,
    /// PROXY headers in front of the Pulsar protocol.
    pub proxy_protocol: ProxyProtocol,
    /// PROXY headers in front of the admin API.
    pub http_proxy_protocol: ProxyProtocol,
}

impl Default for TlsSettings {
    fn default() -> Self {
        Self {
            pulsar_listen: None,
            http_listen: None,
            certificate_file: None,
            key_file: None,
            trust_certs_file: None,
            require_trusted_client_cert_on_connect: false,
            allow_insecure_connection: false,
            protocols: TlsVersions::default(),
            ciphers: CipherSuites::default(),
            cert_refresh_check_duration: Duration::from_secs(300),
            handshake_timeout: Duration::from_secs(10),
            max_handshakes: 1024,
            max_handshakes_per_address: 128,
            self_signed: false,
            proxy_protocol: ProxyProtocol::Off,
            http_proxy_protocol: ProxyProtocol::Off,
        }
    }
}

impl TlsSettings {
    /// Whether any listener speaks TLS.
    #[must_use]
    pub fn is_spoken(&self) -> bool {
        self.self_signed || self.pulsar_listen.is_some() || self.http_listen.is_some()
    }

    /// What one value alone cannot tell; a sentence per fault.
    pub(super) fn faults(&self) -> Vec<String> {
        let named = (self.certificate_file.is_some(), self.key_file.is_some());
        let makes_its_own = self.self_signed && named == (false, false);
        let rules = [
            (
                named.0 == named.1,
                "tls.certificate_file and tls.key_file belong together",
            ),
            (
                !self.is_spoken() || named == (true, true) || makes_its_own || named.0 != named.1,
                "TLS needs tls.certificate_file and tls.key_file; tls.self_signed makes them for a first try",
            ),
            (
                !self.require_trusted_client_cert_on_connect || self.trust_certs_file.is_some(),
                "tls.require_trusted_client_cert_on_connect needs tls.trust_certs_file, which says whom to trust",
            ),
            (
                !(self.require_trusted_client_cert_on_connect && self.allow_insecure_connection),
                "tls.require_trusted_client_cert_on_connect and tls.allow_insecure_connection contradict each other",
            ),
            (
                !self.handshake_timeout.is_zero(),
                "tls.handshake_timeout must not be 0",
            ),
            (
                self.max_handshakes > 0 && self.max_handshakes_per_address > 0,
                "tls.max_handshakes and tls.max_handshakes_per_address must not be 0",
            ),
        ];
        let broken = rules.into_iter().filter(|(holds, _)| !holds);
        broken.map(|(_, sentence)| sentence.to_owned()).collect()
    }
}

/// Versions of TLS; none is both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsVersions(pub Vec<TlsVersion>);

impl Value for TlsVersions {
    const KIND: &'static str = "versions";

    fn parse(text: &str) -> Result<Self, String> {
        let version = |word: &str| match word {
            "TLSv1.2" => Ok(TlsVersion::V1_2),
            "TLSv1.3" => Ok(TlsVersion::V1_3),
            _ => Err(format!("'{word}' is none of: TLSv1.2, TLSv1.3")),
        };
        words(text).map(version).collect::<Result<_, _>>().map(Self)
    }

    fn show(&self) -> String {
        let word = |version: &TlsVersion| match version {
            TlsVersion::V1_2 => "TLSv1.2",
            TlsVersion::V1_3 => "TLSv1.3",
        };
        self.0.iter().map(word).collect::<Vec<_>>().join(",")
    }
}

/// Names of cipher suites; none is all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CipherSuites(pub Vec<String>);

impl Value for CipherSuites {
    const KIND: &'static str = "cipher suites";

    fn parse(text: &str) -> Result<Self, String> {
        let known = cipher_suite_names();
        let suite = |word: &str| match known.iter().any(|name| name == word) {
            true => Ok(word.to_owned()),
            false => Err(format!("'{word}' is none of: {}", known.join(", "))),
        };
        words(text).map(suite).collect::<Result<_, _>>().map(Self)
    }

    fn show(&self) -> String {
        self.0.join(",")
    }
}

/// The members of a list with commas between.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_they_are_shown() {
        for text in ["", "TLSv1.3", "TLSv1.3,TLSv1.2"] {
            assert_eq!(TlsVersions::parse(text).unwrap().show(), text);
        }
        assert!(TlsVersions::parse("TLSv1.1").is_err());
        let all = cipher_suite_names().join(",");
        assert_eq!(CipherSuites::parse(&all).unwrap().show(), all);
        assert!(
            all.contains("TLS_AES_256_GCM_SHA384") && all.contains("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256")
        );
        assert!(CipherSuites::parse("TLS_RSA_WITH_RC4_128_SHA").is_err());
    }

    #[test]
    fn tls_without_what_it_needs_is_a_fault() {
        let faults = |change: fn(&mut TlsSettings)| {
            let mut settings = TlsSettings::default();
            change(&mut settings);
            settings.faults().len()
        };
        assert_eq!(faults(|_| ()), 0);
        assert_eq!(faults(|tls| tls.self_signed = true), 0);
        assert_eq!(faults(|tls| tls.http_listen = "127.0.0.1:8443".parse().ok()), 1);
        assert_eq!(faults(|tls| tls.certificate_file = Some("c.pem".into())), 1);
        assert_eq!(faults(|tls| tls.require_trusted_client_cert_on_connect = true), 1);
        assert_eq!(faults(|tls| tls.max_handshakes = 0), 1);
    }
}
