//! Authorities and certificates, made for a test.

use std::path::{Path, PathBuf};

use pharos_client::TlsOptions;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

/// An authority, and the folder in which it puts what it signs.
pub(crate) struct Authority {
    dir: PathBuf,
    issuer: Issuer<'static, KeyPair>,
    /// Its own certificate in PEM.
    pub(crate) certificate_file: PathBuf,
}

/// A certificate with its key, in PEM.
#[derive(Clone, Debug)]
pub(crate) struct Signed {
    pub(crate) certificate_file: PathBuf,
    pub(crate) key_file: PathBuf,
}

impl Authority {
    /// A new one, which puts `name.pem` into `dir`.
    pub(crate) fn new(dir: &Path, name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().unwrap();
        let certificate_file = dir.join(format!("{name}.pem"));
        std::fs::write(&certificate_file, params.self_signed(&key).unwrap().pem()).unwrap();
        Self {
            dir: dir.to_path_buf(),
            issuer: Issuer::new(params, key),
            certificate_file,
        }
    }

    /// A certificate for a broker at 127.0.0.1.
    pub(crate) fn broker(&self, name: &str) -> Signed {
        self.sign(
            name,
            &["127.0.0.1", "localhost"],
            ExtendedKeyUsagePurpose::ServerAuth,
            2100,
        )
    }

    /// Certificate of another machine.
    pub(crate) fn stranger(&self, name: &str) -> Signed {
        self.sign(
            name,
            &["elsewhere.example"],
            ExtendedKeyUsagePurpose::ServerAuth,
            2100,
        )
    }

    /// Expired certificate of a broker at 127.0.0.1.
    pub(crate) fn expired_broker(&self, name: &str) -> Signed {
        self.sign(name, &["127.0.0.1"], ExtendedKeyUsagePurpose::ServerAuth, 2001)
    }

    /// A certificate for a client with this common name.
    pub(crate) fn client(&self, name: &str) -> Signed {
        self.sign(name, &[], ExtendedKeyUsagePurpose::ClientAuth, 2100)
    }

    /// Expired client certificate.
    pub(crate) fn expired_client(&self, name: &str) -> Signed {
        self.sign(name, &[], ExtendedKeyUsagePurpose::ClientAuth, 2001)
    }

    fn sign(&self, name: &str, hosts: &[&str], usage: ExtendedKeyUsagePurpose, until: i32) -> Signed {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut params = CertificateParams::new(hosts).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![usage];
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(until, 1, 1);
        let key = KeyPair::generate().unwrap();
        let signed = params.signed_by(&key, &self.issuer).unwrap();
        let file = |end: &str| self.dir.join(format!("{name}{end}"));
        let signed_files = Signed {
            certificate_file: file(".pem"),
            key_file: file(".key"),
        };
        std::fs::write(&signed_files.certificate_file, signed.pem()).unwrap();
        std::fs::write(&signed_files.key_file, key.serialize_pem()).unwrap();
        signed_files
    }

    /// A client that trusts this authority alone and shows nothing.
    pub(crate) fn trusted(&self) -> TlsOptions {
        TlsOptions {
            trust_certs_file: Some(self.certificate_file.clone()),
            ..TlsOptions::default()
        }
    }

    /// A client that trusts this authority alone and shows a certificate.
    pub(crate) fn trusted_by(&self, signed: &Signed) -> TlsOptions {
        TlsOptions {
            certificate_file: Some(signed.certificate_file.clone()),
            key_file: Some(signed.key_file.clone()),
            ..self.trusted()
        }
    }
}

impl Signed {
    /// The settings of a broker that has it, with TLS at both doors.
    pub(crate) fn settings(&self) -> Vec<String> {
        let path = |path: &Path| path.display().to_string();
        [
            ("--pulsar-listen-tls", "127.0.0.1:0".to_owned()),
            ("--http-listen-tls", "127.0.0.1:0".to_owned()),
            ("--tls-certificate-file", path(&self.certificate_file)),
            ("--tls-key-file", path(&self.key_file)),
        ]
        .into_iter()
        .flat_map(|(flag, value)| [flag.to_owned(), value])
        .collect()
    }

    /// Puts this one in the place of another.
    pub(crate) fn replace(&self, other: &Self) {
        std::fs::copy(&self.certificate_file, &other.certificate_file).unwrap();
        std::fs::copy(&self.key_file, &other.key_file).unwrap();
    }
}
