//! A metadata store that cannot be reached: what a broker owns it serves on, what it does not know it does not take.

#![expect(clippy::unwrap_used, reason = "a test that fails panics")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use pharos_cluster::{BrokerAddresses, BundleOwnership, Owner, Ownership, OwnershipError, SessionOptions};
use pharos_metadata::{
    BoxFuture, Expect, Fault, Item, Memory, MetadataStore, ReadError, Session, SessionEnd, SessionError,
    SessionId, SessionWriteError, Version, Versioned, Watch, WriteError,
};
use pharos_types::TopicName;

const TIMEOUT: Duration = Duration::from_millis(150);

/// A store behind a network that can be cut. Its own sessions last for ever: what ends here ends because nothing was heard.
struct Far {
    store: Arc<Memory>,
    is_cut: Arc<AtomicBool>,
    /// Answers to what sessions put are on their way while it is held.
    answers: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug)]
struct FarSession {
    session: Arc<dyn Session>,
    is_cut: Arc<AtomicBool>,
    answers: Arc<tokio::sync::Mutex<()>>,
}

fn cut() -> Arc<Fault> {
    Fault::new("reach the store", "the network is cut")
}

impl Far {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            store: Arc::new(Memory::new()),
            is_cut: Arc::default(),
            answers: Arc::default(),
        })
    }

    fn set_cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::SeqCst);
    }

    fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(Arc<Memory>) -> BoxFuture<'static, Result<T, ReadError>>,
    ) -> BoxFuture<'static, Result<T, ReadError>> {
        match self.is_cut.load(Ordering::SeqCst) {
            true => Box::pin(async { Err(ReadError::Fault(cut())) }),
            false => read(self.store.clone()),
        }
    }

    fn write<T: Send + 'static>(
        &self,
        write: impl FnOnce(Arc<Memory>) -> BoxFuture<'static, Result<T, WriteError>>,
    ) -> BoxFuture<'static, Result<T, WriteError>> {
        match self.is_cut.load(Ordering::SeqCst) {
            true => Box::pin(async { Err(WriteError::Fault(cut())) }),
            false => write(self.store.clone()),
        }
    }
}

impl MetadataStore for Far {
    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<Versioned>, ReadError>> {
        let key = key.to_owned();
        self.read(|store| Box::pin(async move { store.get(&key).await }))
    }

    fn put(&self, key: &str, value: Bytes, expect: Expect) -> BoxFuture<'_, Result<Version, WriteError>> {
        let key = key.to_owned();
        self.write(|store| Box::pin(async move { store.put(&key, value, expect).await }))
    }

    fn delete(&self, key: &str, expect: Expect) -> BoxFuture<'_, Result<bool, WriteError>> {
        let key = key.to_owned();
        self.write(|store| Box::pin(async move { store.delete(&key, expect).await }))
    }

    fn list(&self, prefix: &str) -> BoxFuture<'_, Result<Vec<String>, ReadError>> {
        let prefix = prefix.to_owned();
        self.read(|store| Box::pin(async move { store.list(&prefix).await }))
    }

    fn scan(&self, prefix: &str) -> BoxFuture<'_, Result<Vec<Item>, ReadError>> {
        let prefix = prefix.to_owned();
        self.read(|store| Box::pin(async move { store.scan(&prefix).await }))
    }

    fn watch(&self, prefix: &str) -> Watch {
        self.store.watch(prefix)
    }

    fn open_session(&self, _: Duration) -> BoxFuture<'_, Result<Arc<dyn Session>, SessionError>> {
        Box::pin(async {
            if self.is_cut.load(Ordering::SeqCst) {
                return Err(SessionError::Fault(cut()));
            }
            let session = self.store.open_session(Duration::from_hours(1)).await?;
            Ok(Arc::new(FarSession {
                session,
                is_cut: Arc::clone(&self.is_cut),
                answers: Arc::clone(&self.answers),
            }) as Arc<dyn Session>)
        })
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        self.store.shutdown()
    }
}

impl Session for FarSession {
    fn id(&self) -> SessionId {
        self.session.id()
    }

    fn timeout(&self) -> Duration {
        TIMEOUT
    }

    fn put(
        &self,
        key: &str,
        value: Bytes,
        expect: Expect,
    ) -> BoxFuture<'_, Result<Version, SessionWriteError>> {
        let put = self.session.put(key, value, expect);
        Box::pin(async move {
            match self.is_cut.load(Ordering::SeqCst) {
                true => Err(WriteError::Fault(cut()).into()),
                false => {
                    let put = put.await;
                    drop(self.answers.lock().await);
                    put
                }
            }
        })
    }

    fn renew(&self) -> BoxFuture<'_, Result<(), SessionError>> {
        Box::pin(async {
            match self.is_cut.load(Ordering::SeqCst) {
                true => Err(SessionError::Fault(cut())),
                false => self.session.renew().await,
            }
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.session.close()
    }

    fn ended(&self) -> BoxFuture<'_, SessionEnd> {
        self.session.ended()
    }
}

/// A namespace has two bundles: of `a…`, and of all others.
fn bundle_of(topic: &TopicName) -> Option<String> {
    let bundle = match topic.local().starts_with('a') {
        true => "0x00000000_0x80000000",
        false => "0x80000000_0xffffffff",
    };
    Some(bundle.to_owned())
}

fn broker(store: &Arc<Far>, outage_max: Option<Duration>) -> Arc<BundleOwnership> {
    let options = SessionOptions {
        timeout: TIMEOUT,
        outage_max,
    };
    let ownership = BundleOwnership::new(store.clone(), options, Box::new(bundle_of));
    ownership.serve(&BrokerAddresses {
        http_url: "http://127.0.0.1:8080".to_owned(),
        ..BrokerAddresses::default()
    });
    pharos_runtime::spawn_local(ownership.clone().run());
    ownership
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, test);
}

async fn until(what: &str, is: impl Fn() -> bool) {
    let waiting = async {
        while !is() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let came = tokio::time::timeout(Duration::from_secs(30), waiting).await;
    assert!(came.is_ok(), "never: {what}");
}

#[test]
fn what_is_owned_is_served_on_until_the_store_answers() {
    run(async {
        let store = Far::new();
        let one = broker(&store, None);
        let (mine, other): (TopicName, TopicName) = ("a".parse().unwrap(), "b".parse().unwrap());
        one.acquire(&mine).await.unwrap();
        assert!(one.confirm(&mine).await.unwrap());
        let mut losses = one.losses();
        losses.mark_unchanged();
        store.set_cut(true);
        until("it notices", || one.lapsed_for().is_some()).await;
        tokio::time::sleep(2 * TIMEOUT).await;
        assert_eq!(one.owner_of(&mine), Owner::Us);
        assert!(!losses.has_changed().unwrap(), "nothing was closed");
        // What would take a log from another, or a bundle, is not done on a guess.
        let asked = one.confirm(&mine).await;
        assert!(matches!(asked, Err(OwnershipError::NotReady(_))), "{asked:?}");
        assert!(one.acquire(&other).await.is_err());

        store.set_cut(false);
        // Others may have had it meanwhile, so what is loaded is closed once.
        losses.changed().await.unwrap();
        until("it has a session again", || one.lapsed_for().is_none()).await;
        assert_eq!(one.acquire(&mine).await.unwrap(), Owner::Us);
        assert!(one.confirm(&mine).await.unwrap());
        assert_eq!(one.brokers().unwrap(), ["127.0.0.1:8080"]);
    });
}

#[test]
fn an_outage_that_takes_too_long_ends_service() {
    run(async {
        let store = Far::new();
        for outage_max in [Duration::ZERO, 2 * TIMEOUT] {
            let one = broker(&store, Some(outage_max));
            let mine: TopicName = "a".parse().unwrap();
            one.acquire(&mine).await.unwrap();
            let mut losses = one.losses();
            losses.mark_unchanged();
            store.set_cut(true);
            losses.changed().await.unwrap();
            assert_ne!(one.owner_of(&mine), Owner::Us);
            store.set_cut(false);
            one.close().await;
        }
    });
}

#[test]
fn a_client_that_comes_before_the_answer_waits_for_it() {
    run(async {
        let store = Far::new();
        let one = broker(&store, None);
        until("it is registered", || one.is_registered()).await;
        let mine: TopicName = "a".parse().unwrap();
        let answers = store.answers.clone().lock_owned().await;
        let (taking, topic) = (one.clone(), mine.clone());
        pharos_runtime::spawn_local(
            async move { assert_eq!(taking.acquire(&topic).await.unwrap(), Owner::Us) },
        );
        let key = "namespace/public/default/0x00000000_0x80000000";
        while store.store.get(key).await.unwrap().is_none() {
            tokio::task::yield_now().await;
        }
        // Others see the key and send clients, and it does not know yet.
        assert_eq!(one.owner_of(&mine), Owner::Unowned);
        let waited = tokio::time::timeout(TIMEOUT / 10, one.settle(&mine)).await;
        assert!(waited.is_err(), "it did not wait");
        drop(answers);
        one.settle(&mine).await;
        assert_eq!(one.owner_of(&mine), Owner::Us);
        // Of what is not being taken nothing is waited for.
        one.settle(&"b".parse().unwrap()).await;
    });
}
