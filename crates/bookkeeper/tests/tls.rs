//! Connections to bookies that are encrypted, and what is refused then.

#![expect(clippy::unwrap_used, reason = "a test")]

mod cluster;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pharos_bookkeeper::{BookKeeper, Options, Quorum};
use pharos_ledger::{CreateOptions, LedgerEngine};
use pharos_types::EntryId;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use cluster::{Bookie, Cluster, options};

const PATIENCE: Duration = Duration::from_secs(60);

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap().der().clone();
        Self {
            issuer: Issuer::new(params, key),
            certificate,
        }
    }

    fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        Arc::new(roots)
    }

    fn sign(&self, usage: ExtendedKeyUsagePurpose) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().der().clone();
        (
            vec![certificate],
            PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
    }

    /// For a bookie that asks its clients for a certificate of `clients`, or takes any.
    fn bookie(&self, clients: Option<&Self>) -> Arc<ServerConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap();
        let config = match clients {
            Some(clients) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(clients.roots(), provider);
                config.with_client_cert_verifier(verifier.build().unwrap())
            }
            None => config.with_no_client_auth(),
        };
        let (chain, key) = self.sign(ExtendedKeyUsagePurpose::ServerAuth);
        Arc::new(config.with_single_cert(chain, key).unwrap())
    }

    /// For a client that trusts this authority and shows a certificate of `shown`, or none.
    fn client(&self, shown: Option<&Self>) -> Arc<ClientConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(self.roots());
        Arc::new(match shown {
            Some(shown) => {
                let (chain, key) = shown.sign(ExtendedKeyUsagePurpose::ClientAuth);
                config.with_client_auth_cert(chain, key).unwrap()
            }
            None => config.with_no_client_auth(),
        })
    }
}

async fn engine(cluster: &Cluster, tls: Option<Arc<ClientConfig>>) -> BookKeeper {
    let quorum = Quorum::new(2, 2, 2).unwrap();
    cluster
        .engine(Options {
            tls,
            quorum,
            ..options()
        })
        .await
}

/// True if a ledger can be written and read.
async fn works(engine: &BookKeeper) -> bool {
    let writer = engine.create(CreateOptions::default()).await.unwrap();
    let payloads = [Bytes::from(vec![1; 300_000]), Bytes::from_static(b"two")];
    for payload in &payloads {
        if writer.append(payload.clone()).is_err() {
            return false;
        }
    }
    let mut tail = writer.tail();
    let stored = tail.wait_for(|tail| tail.durable == 2 || tail.failed.is_some());
    let stored = tokio::time::timeout(PATIENCE, stored)
        .await
        .expect("the tail stands still")
        .unwrap();
    if stored.failed.is_some() {
        return false;
    }
    drop(stored);
    let read = engine.read(writer.id(), EntryId(0), 2, usize::MAX).await.unwrap();
    assert!(read.iter().map(|entry| &entry.payload).eq(&payloads));
    true
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(test);
}

async fn of_bookies(tls: Option<Arc<ServerConfig>>) -> Cluster {
    Cluster::of((0..2).map(|_| Bookie::start_with(tls.clone())).collect()).await
}

#[test]
fn ledgers_are_written_and_read_over_tls() {
    run(async {
        let authority = Authority::new();
        let cluster = of_bookies(Some(authority.bookie(None))).await;
        assert!(works(&engine(&cluster, Some(authority.client(None))).await).await);
        let stranger = Authority::new();
        assert!(
            !works(&engine(&cluster, Some(stranger.client(None))).await).await,
            "a bookie that is not trusted"
        );
        assert!(
            !works(&engine(&cluster, None).await).await,
            "no TLS where bookies want it"
        );
    });
}

#[test]
fn bookies_see_the_certificate_of_their_client() {
    run(async {
        let (bookies, clients) = (Authority::new(), Authority::new());
        let cluster = of_bookies(Some(bookies.bookie(Some(&clients)))).await;
        assert!(works(&engine(&cluster, Some(bookies.client(Some(&clients)))).await).await);
        assert!(
            !works(&engine(&cluster, Some(bookies.client(None))).await).await,
            "none"
        );
        assert!(
            !works(&engine(&cluster, Some(bookies.client(Some(&bookies)))).await).await,
            "of another authority"
        );
    });
}

#[test]
fn a_bookie_without_tls_is_not_talked_to_otherwise() {
    run(async {
        let authority = Authority::new();
        let cluster = of_bookies(None).await;
        assert!(!works(&engine(&cluster, Some(authority.client(None))).await).await);
    });
}
