//! The offloader over a folder and over S3: the same laws, and what failing stores come to.

#![expect(clippy::unwrap_used, reason = "a test that fails panics")]

use std::sync::Arc;
use std::time::Duration;

use axum::http::Method;
use bytes::Bytes;
use pharos_ledger::memory::MemoryEngine;
use pharos_ledger::offload::{LedgerOffloader, OffloadError, OffloadSource, OffloadTarget, OffloadedLedger};
use pharos_ledger::{CreateOptions, LedgerEngine};
use pharos_offload::{Credentials, Encryption, Offloader, Options, drivers};
use pharos_types::{EntryId, LedgerId};

mod s3_server;
use s3_server::{BUCKET, Fault, KEY_ID, S3Server, SECRET};

/// The smallest block that S3 takes.
const BLOCK: usize = 5 << 20;

fn run<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(test)
}

fn options() -> Options {
    Options {
        block_bytes: BLOCK,
        credentials: Credentials::Static {
            key_id: KEY_ID.to_owned(),
            secret: SECRET.to_owned(),
        },
        request_timeout: Duration::from_secs(60),
        retries_max: 3,
        ..Options::default()
    }
}

fn s3_target(server: &S3Server) -> OffloadTarget {
    let facts = [
        (drivers::BUCKET, BUCKET.to_owned()),
        (drivers::REGION, "eu-north-1".to_owned()),
        (drivers::ENDPOINT, server.endpoint()),
    ];
    OffloadTarget {
        driver: drivers::AWS_S3.to_owned(),
        facts: facts.map(|(key, value)| (key.to_owned(), value)).into(),
    }
}

fn payload(entry: u64, bytes: usize) -> Bytes {
    let byte = |at: usize| u8::try_from((at as u64 * 31 + entry * 7) % 251).unwrap();
    (0..bytes).map(byte).collect()
}

/// A closed ledger with entries of these lengths.
async fn ledger(engine: &Arc<MemoryEngine>, lengths: &[usize]) -> (LedgerId, OffloadSource) {
    let writer = engine.create(CreateOptions::default()).await.unwrap();
    for (entry, length) in lengths.iter().enumerate() {
        writer.append(payload(entry as u64, *length)).unwrap();
    }
    writer.close().await.unwrap();
    let source = OffloadSource {
        engine: engine.clone(),
        entries: lengths.len() as u64,
        bytes: lengths.iter().map(|length| *length as u64).sum(),
        closed_at_ms: 1_700_000_000_000,
        name: "public/default/persistent/t".into(),
    };
    (writer.id(), source)
}

struct Setup {
    offloader: Offloader,
    object: OffloadedLedger,
    source: OffloadSource,
    lengths: Vec<usize>,
}

async fn setup(options: Options, target: OffloadTarget, lengths: Vec<usize>) -> Setup {
    let offloader = Offloader::start(options).unwrap();
    let (ledger, source) = ledger(&Arc::new(MemoryEngine::new()), &lengths).await;
    let id = offloader.new_id();
    Setup {
        offloader,
        object: OffloadedLedger { id, ledger, target },
        source,
        lengths,
    }
}

impl Setup {
    async fn offload(&self) -> Result<(), OffloadError> {
        self.offloader
            .offload(self.object.clone(), self.source.clone())
            .await
    }

    async fn read(&self, first: u64) -> Result<Vec<pharos_ledger::ReadEntry>, OffloadError> {
        self.offloader
            .read(self.object.clone(), EntryId(first), 100, 1 << 20)
            .await
    }

    async fn check_all(&self) {
        let mut at = 0;
        while at < self.lengths.len() as u64 {
            let entries = self.read(at).await.unwrap();
            assert!(!entries.is_empty());
            for entry in entries {
                let index = usize::try_from(at).unwrap();
                assert_eq!(entry.id.0, at);
                assert_eq!(entry.payload, payload(at, self.lengths[index]), "entry {at}");
                at += 1;
            }
        }
        assert!(self.read(at).await.unwrap().is_empty());
    }
}

/// 14 MB: three blocks.
fn large() -> Vec<usize> {
    let mut lengths = vec![100; 1_000];
    lengths.extend([900_000; 15]);
    lengths.extend([10; 1_000]);
    lengths
}

#[test]
fn a_folder_keeps_the_laws() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options {
        folders_in: Some(folder.path().to_path_buf()),
        ..options()
    };
    run(async {
        for lengths in [vec![5, 1, 70_000, 3], large()] {
            let setup = setup(
                options.clone(),
                drivers::folder(&folder.path().join("a/b")),
                lengths,
            )
            .await;
            setup.offload().await.unwrap();
            setup.check_all().await;
            let entries = setup.lengths.len() as u64;
            setup
                .offloader
                .check(setup.object.clone(), entries)
                .await
                .unwrap();
            assert!(
                setup
                    .offloader
                    .check(setup.object.clone(), entries + 1)
                    .await
                    .is_err()
            );
            for _ in 0..2 {
                setup.offloader.delete(setup.object.clone()).await.unwrap();
            }
            assert_eq!(std::fs::read_dir(folder.path().join("a/b")).unwrap().count(), 0);
            assert!(matches!(setup.read(0).await, Err(OffloadError::Missing { .. })));
        }
    });
}

#[test]
fn s3_keeps_the_laws_in_parts_and_in_one() {
    let server = S3Server::start();
    run(async {
        for (lengths, parts) in [(vec![5, 1, 70_000, 3], 0), (large(), 3)] {
            let setup = setup(options(), s3_target(&server), lengths).await;
            setup.offload().await.unwrap();
            let (data, index) = (setup.object.data_name(), setup.object.index_name());
            assert_eq!(
                server.objects().keys().cloned().collect::<Vec<_>>(),
                [data.clone(), index.clone()]
            );
            let sent = server.requests();
            let is_part = |request: &&String| request.contains("partNumber") && request.contains(&data);
            assert_eq!(sent.iter().filter(is_part).count(), parts);
            for name in [&data, &index] {
                assert_eq!(
                    server.metadata().get(name).map(String::as_str),
                    Some("1"),
                    "{name}"
                );
            }
            setup.check_all().await;
            let before = server.requests().len();
            setup.read(0).await.unwrap();
            setup.read(1).await.unwrap();
            assert!(
                server.requests().len() <= before + 1,
                "neighbours come out of the buffer"
            );
            setup
                .offloader
                .check(setup.object.clone(), setup.lengths.len() as u64)
                .await
                .unwrap();
            setup.offloader.delete(setup.object.clone()).await.unwrap();
            assert!(server.objects().is_empty());
            assert_eq!(server.uploads(), 0);
        }
    });
}

/// Small and large objects: with a request each, and in parts.
#[test]
fn s3_is_told_how_to_encrypt_each_object() {
    let kms = |key_id: &str| Encryption::Kms {
        key_id: key_id.to_owned(),
    };
    for (encryption, said) in [
        (Encryption::Bucket, vec![]),
        (Encryption::S3, vec!["AES256"]),
        (kms(""), vec!["aws:kms"]),
        (kms("arn:key"), vec!["aws:kms", "arn:key"]),
    ] {
        let server = S3Server::start();
        run(async {
            for lengths in [vec![5], large()] {
                let options = Options {
                    encryption: encryption.clone(),
                    ..options()
                };
                let setup = setup(options, s3_target(&server), lengths).await;
                setup.offload().await.unwrap();
                let told = server.encryption();
                for name in [setup.object.data_name(), setup.object.index_name()] {
                    assert_eq!(told.get(&name).unwrap(), &said, "{encryption:?}");
                }
                setup.check_all().await;
            }
        });
    }
}

#[test]
fn failures_for_the_moment_are_tried_again() {
    let server = S3Server::start();
    run(async {
        let setup = setup(options(), s3_target(&server), large()).await;
        for (method, fault) in [
            (Method::PUT, Fault::Status(500)),
            (Method::PUT, Fault::Status(503)),
            (Method::POST, Fault::Status(500)),
            (Method::PUT, Fault::DoneBut500),
        ] {
            server.fail(method, "", fault);
        }
        setup.offload().await.unwrap();
        server.fail(Method::GET, "-index", Fault::Status(500));
        server.fail(Method::GET, "", Fault::Status(503));
        setup.check_all().await;
        server.fail(Method::DELETE, "", Fault::Status(500));
        setup.offloader.delete(setup.object.clone()).await.unwrap();
        assert_eq!((server.faults_left(), server.objects().len()), (0, 0));
    });
}

#[test]
fn a_request_without_an_answer_is_given_up_and_made_again() {
    let server = S3Server::start();
    run(async {
        let patient = setup(options(), s3_target(&server), vec![10; 10]).await;
        patient.offload().await.unwrap();
        let hurried = Options {
            request_timeout: Duration::from_millis(500),
            retries_max: 20,
            ..options()
        };
        let offloader = Offloader::start(hurried).unwrap();
        server.fail(Method::GET, "-index", Fault::Hang);
        let read = offloader
            .read(patient.object.clone(), EntryId(3), 100, 1 << 20)
            .await;
        assert_eq!(read.unwrap()[0].payload, payload(3, 10));
        assert_eq!(server.faults_left(), 0);
    });
}

#[test]
fn a_store_that_keeps_failing_is_an_error_that_names_object_and_place() {
    let server = S3Server::start();
    run(async {
        let setup = setup(options(), s3_target(&server), large()).await;
        for _ in 0..4 {
            server.fail(Method::PUT, "", Fault::Status(500));
        }
        let refused = setup.offload().await.unwrap_err();
        let text = refused.to_string();
        assert!(
            text.contains(&setup.object.data_name()) && text.contains("bucket=cold"),
            "{text}"
        );
        assert!(matches!(refused, OffloadError::Store { .. }));
        assert_eq!(server.uploads(), 0, "the upload was called off");
        assert_eq!(setup.offloader.stats().offload_errors, 1);
        // What it left, if anything, goes; then it works.
        setup.offloader.delete(setup.object.clone()).await.unwrap();
        setup.offload().await.unwrap();
        setup.check_all().await;
        let wrong = OffloadTarget {
            facts: [(drivers::BUCKET.to_owned(), "other".to_owned())]
                .into_iter()
                .chain(
                    setup
                        .object
                        .target
                        .facts
                        .clone()
                        .into_iter()
                        .filter(|(key, _)| key != drivers::BUCKET),
                )
                .collect(),
            ..setup.object.target.clone()
        };
        let elsewhere = OffloadedLedger {
            target: wrong,
            ..setup.object.clone()
        };
        let missing = setup.offloader.check(elsewhere, 1).await.unwrap_err();
        assert!(matches!(missing, OffloadError::Missing { .. }), "{missing}");
    });
}

#[test]
fn damage_on_the_way_heals_and_damage_in_the_object_is_named() {
    let server = S3Server::start();
    run(async {
        let setup = setup(options(), s3_target(&server), vec![2_000; 200]).await;
        setup.offload().await.unwrap();
        let data = setup.object.data_name();
        // Once the index is known, so that the fault meets the data.
        setup.read(199).await.unwrap();
        server.fail(Method::GET, "", Fault::Flipped);
        setup.read(0).await.unwrap();
        assert_eq!(setup.offloader.stats().read_errors, 1);
        setup
            .offloader
            .delete(OffloadedLedger {
                id: setup.offloader.new_id(),
                ..setup.object.clone()
            })
            .await
            .unwrap();

        let fresh = Offloader::start(options()).unwrap();
        let read = |entry| fresh.read(setup.object.clone(), EntryId(entry), 100, 1 << 20);
        for _ in 0..4 {
            server.fail(Method::GET, "-index", Fault::Truncated);
        }
        let cut = read(0).await.unwrap_err();
        assert!(matches!(cut, OffloadError::Store { .. }), "{cut}");
        while server.faults_left() > 0 {
            let _ = read(0).await;
        }
        let whole = server.objects()[&data].clone();
        let mut bytes = whole.to_vec();
        bytes[300_000] ^= 1;
        server.set(&data, bytes.into());
        let fresh = Offloader::start(options()).unwrap();
        let damaged = fresh
            .read(setup.object.clone(), EntryId(150), 100, 1 << 20)
            .await
            .unwrap_err();
        assert!(
            matches!(&damaged, OffloadError::Damaged { object, .. } if *object == data),
            "{damaged}"
        );
        // A search of single entries still finds those that are whole.
        let first = fresh.read(setup.object.clone(), EntryId(0), 1, 1).await.unwrap();
        assert_eq!(first[0].payload, payload(0, 2_000));
        server.set(&data, whole.slice(..whole.len() - 9));
        let short = fresh.check(setup.object.clone(), 200).await.unwrap_err();
        assert!(short.to_string().contains("where its index says"), "{short}");
    });
}

#[test]
fn an_attempt_without_a_waiting_caller_ends_and_leaves_no_upload() {
    let server = S3Server::start();
    run(async {
        let setup = setup(options(), s3_target(&server), large()).await;
        // The first part never gets an answer, for as long as a request may take.
        server.fail(Method::PUT, "", Fault::Hang);
        let mut attempt = setup
            .offloader
            .offload(setup.object.clone(), setup.source.clone());
        while server.uploads() == 0 || server.faults_left() > 0 {
            assert!(futures_util::poll!(&mut attempt).is_pending());
            tokio::task::yield_now().await;
        }
        drop(attempt);
        while server.uploads() > 0 || setup.offloader.stats().uploading > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(server.objects().is_empty());
        let shorter = OffloadSource {
            entries: 5_000,
            ..setup.source.clone()
        };
        let wrong = setup
            .offloader
            .offload(setup.object.clone(), shorter)
            .await
            .unwrap_err();
        assert!(
            matches!(wrong, OffloadError::WrongLength { expected: 5_000, .. }),
            "{wrong}"
        );
    });
}
