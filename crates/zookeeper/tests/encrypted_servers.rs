//! A store on a ZooKeeper of its own that speaks TLS alone and asks for certificates. Run by tests/bookkeeper/run.sh.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use pharos_metadata::{Expect, MetadataStore};
use pharos_zookeeper::{ConnectOptions, TlsFiles, ZooKeeper};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

const PATIENCE: Duration = Duration::from_secs(120);

/// An authority, and the files of what it signed.
struct Authority {
    folder: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(folder: PathBuf) -> Self {
        fs::create_dir(&folder).unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        fs::write(folder.join("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        let issuer = Issuer::new(params, key);
        Self { folder, issuer }
    }

    fn trust_certs(&self) -> PathBuf {
        self.folder.join("ca.pem")
    }

    /// Files of a certificate for this machine, of its key, and of both.
    fn sign(&self, name: &str) -> (PathBuf, PathBuf, PathBuf) {
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        let file = |kind: &str, text: String| {
            let path = self.folder.join(format!("{name}-{kind}.pem"));
            fs::write(&path, text).unwrap();
            path
        };
        let both = file("both", key.serialize_pem() + &certificate);
        (file("cert", certificate), file("key", key.serialize_pem()), both)
    }
}

struct Server {
    process: Child,
    address: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A port below those that the system gives to sockets that connect.
fn free_port() -> u16 {
    let first = 10_000 + u16::try_from(std::process::id() % 20_000).unwrap();
    (first..32_000)
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .unwrap()
}

fn start(folder: &Path, authority: &Authority) -> Server {
    let (_, _, both) = authority.sign("server");
    let port = free_port();
    let settings = format!(
        "tickTime=500\ndataDir={data}\nsecureClientPort={port}\nsecureClientPortAddress=127.0.0.1\n\
         serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
         ssl.keyStore.location={keys}\nssl.keyStore.type=PEM\nssl.trustStore.location={trusted}\nssl.trustStore.type=PEM\n\
         ssl.hostnameVerification=false\n",
        data = folder.join("data").display(),
        keys = both.display(),
        trusted = authority.trust_certs().display(),
    );
    fs::write(folder.join("zoo.cfg"), settings).unwrap();
    let classpath = std::env::var("JAVA_PEER_CLASSPATH")
        .expect("no classpath: this test is run by tests/bookkeeper/run.sh");
    let log = fs::File::create(folder.join("log")).unwrap();
    let process = Command::new("java")
        .args([
            "-Xmx128m",
            "-Dzookeeper.admin.enableServer=false",
            "-cp",
            &classpath,
        ])
        .arg("org.apache.zookeeper.server.ZooKeeperServerMain")
        .arg(folder.join("zoo.cfg"))
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let address = format!("127.0.0.1:{port}/tls");
    Server { process, address }
}

fn over(tls: Option<TlsFiles>) -> ConnectOptions {
    ConnectOptions {
        tls,
        ..ConnectOptions::default()
    }
}

#[test]
fn a_store_speaks_tls_and_shows_its_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let ours = Authority::new(folder.path().join("ours"));
    let others = Authority::new(folder.path().join("others"));
    let server = start(folder.path(), &ours);
    let shown = |authority: &Authority| {
        let (certificate, key, _) = authority.sign("broker");
        Some((certificate, key))
    };
    let right = TlsFiles {
        trust_certs: ours.trust_certs(),
        certificate: shown(&ours),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let began = Instant::now();
        let store = loop {
            match ZooKeeper::connect(
                &server.address,
                Duration::from_secs(10),
                over(Some(right.clone())),
            )
            .await
            {
                Ok(store) => break store,
                Err(error) if began.elapsed() > PATIENCE => {
                    let log = fs::read_to_string(folder.path().join("log"));
                    panic!("{error:?}, and the server said {log:?}");
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        };
        store.put("a/b", Bytes::from("x"), Expect::Absent).await.unwrap();
        assert_eq!(store.get("a/b").await.unwrap().unwrap().value, "x");

        let brief = Duration::from_secs(2);
        let wrong = [
            ("plain", None),
            ("trusts another", Some((others.trust_certs(), shown(&ours)))),
            ("shows nothing", Some((ours.trust_certs(), None))),
            (
                "shows that of another",
                Some((ours.trust_certs(), shown(&others))),
            ),
        ];
        for (what, files) in wrong {
            let files = files.map(|(trust_certs, certificate)| TlsFiles {
                trust_certs,
                certificate,
            });
            let refused = ZooKeeper::connect(&server.address, brief, over(files)).await;
            assert!(refused.is_err(), "{what}");
        }
        let missing = TlsFiles {
            trust_certs: folder.path().join("missing.pem"),
            certificate: None,
        };
        let refused = ZooKeeper::connect(&server.address, brief, over(Some(missing))).await;
        let reason = format!("{:?}", refused.err().unwrap());
        assert!(reason.contains("missing.pem"), "{reason}");
        // All of this did nothing to the one that is let in.
        assert_eq!(store.get("a/b").await.unwrap().unwrap().value, "x");
        store.shutdown().await;
    });
}
