//! Contents of a certificate about its holder.

use std::net::IpAddr;

use rustls::pki_types::CertificateDer;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// The certificate that a client has shown, and proved to hold the key of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerCertificate {
    /// True if an authority trusted by the listener signed it. If not, nothing in it proves anything.
    pub is_trusted: bool,
    /// The whole subject, such as `C=DE, O=City, CN=vehicle-7`.
    pub subject: String,
    /// The subject's common name, of several the last, which is the most specific. `None`: it has none that is text.
    pub common_name: Option<String>,
    /// Subject alternative names: host names.
    pub dns_names: Vec<String>,
    /// Subject alternative names: URIs, such as a SPIFFE id.
    pub uris: Vec<String>,
    /// Subject alternative names: mail addresses.
    pub emails: Vec<String>,
    /// Subject alternative names: addresses.
    pub addresses: Vec<IpAddr>,
}

impl PeerCertificate {
    /// Reads it. `None`: it is none, or says something twice that it may say once.
    pub(super) fn read(certificate: &CertificateDer<'_>, is_trusted: bool) -> Option<Self> {
        let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
        let names = parsed.subject().iter_common_name().last();
        let common_name = names.and_then(|name| name.as_str().ok());
        let mut read = Self {
            is_trusted,
            subject: parsed.subject().to_string(),
            common_name: common_name.filter(|name| is_plain(name)).map(str::to_owned),
            ..Self::default()
        };
        let alternatives = parsed.subject_alternative_name().ok()?;
        for name in alternatives.iter().flat_map(|found| &found.value.general_names) {
            match name {
                GeneralName::DNSName(name) if is_plain(name) => read.dns_names.push((*name).to_owned()),
                GeneralName::URI(uri) if is_plain(uri) => read.uris.push((*uri).to_owned()),
                GeneralName::RFC822Name(email) if is_plain(email) => read.emails.push((*email).to_owned()),
                GeneralName::IPAddress(bytes) => read.addresses.extend(address(bytes)),
                _ => {}
            }
        }
        Some(read)
    }
}

/// True if it can be used in a log and in a role unchanged.
fn is_plain(text: &str) -> bool {
    !text.is_empty() && !text.chars().any(char::is_control)
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from).ok();
    v4.or_else(|| <[u8; 16]>::try_from(bytes).map(IpAddr::from).ok())
}

/// Expiry time of a certificate, in seconds since 1970; 0 if it cannot be read.
pub(super) fn expires_at(certificate: Option<&CertificateDer<'_>>) -> i64 {
    let parsed = certificate.and_then(|certificate| X509Certificate::from_der(certificate).ok());
    parsed.map_or(0, |(_, parsed)| parsed.validity().not_after.timestamp())
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;

    #[test]
    fn a_certificate_says_who_its_holder_is() {
        let mut params =
            CertificateParams::new(["vehicle-7.example".to_owned(), "10.0.0.7".to_owned()]).unwrap();
        let id = "spiffe://city/vehicle-7".try_into().unwrap();
        params.subject_alt_names.push(SanType::URI(id));
        params.distinguished_name.push(DnType::OrganizationName, "City");
        params.distinguished_name.push(DnType::CommonName, "vehicle-7");
        let made = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let read = PeerCertificate::read(made.der(), true).unwrap();
        assert_eq!(read.common_name.as_deref(), Some("vehicle-7"));
        assert!(read.subject.contains("O=City") && read.is_trusted);
        assert_eq!(read.dns_names, ["vehicle-7.example"]);
        assert_eq!(read.addresses, ["10.0.0.7".parse::<IpAddr>().unwrap()]);
        assert_eq!(read.uris, ["spiffe://city/vehicle-7"]);
        assert!(expires_at(Some(made.der())) > 0);
    }

    #[test]
    fn a_name_with_control_characters_is_none() {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, "admin\n");
        let made = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        assert_eq!(PeerCertificate::read(made.der(), true).unwrap().common_name, None);
        assert_eq!(PeerCertificate::read(&vec![1, 2, 3].into(), true), None);
    }
}
