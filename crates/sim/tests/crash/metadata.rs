//! A metadata store on the simulated disk, without threads: one change at a time, each a new file under the old name.
//!
//! It keeps the laws of the contract and nothing more, so that what is found is the broker's.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use pharos_metadata::{
    BoxFuture, Expect, Fault, Item, Memory, MetadataStore, ReadError, Version, Versioned, Watch, WriteError,
};
use pharos_runtime::fs::{Fs, OpenHow};
use tokio::sync::oneshot;

pub(crate) struct Metadata {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    /// What is durable, with versions and watches.
    memory: Memory,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    durable: BTreeMap<String, Bytes>,
    waiting: VecDeque<Change>,
}

struct Change {
    key: String,
    value: Option<Bytes>,
    expect: Expect,
    answer: oneshot::Sender<Result<(Version, bool), WriteError>>,
}

impl Metadata {
    pub(crate) async fn open(fs: Arc<dyn Fs>, dir: &Path) -> std::io::Result<Arc<Self>> {
        fs.create_dir_all(dir)?;
        let mut durable = BTreeMap::new();
        match fs.open(&dir.join("items"), OpenHow::READ) {
            Ok(file) => {
                let mut bytes = vec![0; usize::try_from(file.len()?).unwrap()];
                assert_eq!(file.read_at(&mut bytes, 0)?, bytes.len());
                durable = decode(&bytes);
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let memory = Memory::new();
        for (key, value) in &durable {
            memory.put(key, value.clone(), Expect::Absent).await.unwrap();
        }
        Ok(Arc::new(Self {
            fs,
            dir: dir.to_owned(),
            memory,
            state: Mutex::new(State {
                durable,
                waiting: VecDeque::new(),
            }),
        }))
    }

    /// Makes one waiting change durable and answers it. `false` when there is none.
    pub(crate) fn step(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(change) = state.waiting.pop_front() else {
            return false;
        };
        let known = now(self.memory.get(&change.key)).unwrap();
        if change.expect.holds(known.map(|known| known.version)) {
            let before = match &change.value {
                Some(value) => state.durable.insert(change.key.clone(), value.clone()),
                None => state.durable.remove(&change.key),
            };
            if let Err(error) = self.write(&state.durable) {
                match before {
                    Some(value) => state.durable.insert(change.key, value),
                    None => state.durable.remove(&change.key),
                };
                let fault = Fault::new("write metadata", error);
                drop(change.answer.send(Err(WriteError::Fault(fault))));
                return true;
            }
        }
        let outcome = match change.value {
            Some(value) => {
                now(self.memory.put(&change.key, value, change.expect)).map(|version| (version, true))
            }
            None => now(self.memory.delete(&change.key, change.expect)).map(|was| (Version(0), was)),
        };
        drop(change.answer.send(outcome));
        true
    }

    fn write(&self, items: &BTreeMap<String, Bytes>) -> std::io::Result<()> {
        let temporary = self.dir.join("items.new");
        let file = self.fs.open(&temporary, OpenHow::CREATE)?;
        let bytes = encode(items);
        file.set_len(bytes.len() as u64)?;
        file.write_all_at(&bytes, 0)?;
        file.sync_data()?;
        self.fs.rename(&temporary, &self.dir.join("items"))?;
        self.fs.sync_dir(&self.dir)
    }

    async fn change(
        &self,
        key: String,
        value: Option<Bytes>,
        expect: Expect,
    ) -> Result<(Version, bool), WriteError> {
        let (answer, answered) = oneshot::channel();
        let change = Change {
            key,
            value,
            expect,
            answer,
        };
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .waiting
            .push_back(change);
        answered
            .await
            .unwrap_or_else(|_| Err(WriteError::Fault(Fault::new("write metadata", "it ended"))))
    }
}

/// What a future that never waits comes to.
fn now<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match future.as_mut().poll(&mut context) {
        std::task::Poll::Ready(outcome) => outcome,
        std::task::Poll::Pending => panic!("memory never waits"),
    }
}

fn encode(items: &BTreeMap<String, Bytes>) -> Vec<u8> {
    let mut out = Vec::new();
    for (key, value) in items {
        out.extend_from_slice(&(key.len() as u32).to_le_bytes());
        out.extend_from_slice(&(value.len() as u32).to_le_bytes());
        out.extend_from_slice(key.as_bytes());
        out.extend_from_slice(value);
    }
    out
}

fn decode(mut bytes: &[u8]) -> BTreeMap<String, Bytes> {
    let mut items = BTreeMap::new();
    let length = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap()) as usize;
    while !bytes.is_empty() {
        let (key, value) = (length(&bytes[..4]), length(&bytes[4..8]));
        let (head, rest) = bytes[8..].split_at(key + value);
        let name = String::from_utf8(head[..key].to_vec()).unwrap();
        items.insert(name, Bytes::copy_from_slice(&head[key..]));
        bytes = rest;
    }
    items
}

impl MetadataStore for Metadata {
    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<Versioned>, ReadError>> {
        self.memory.get(key)
    }

    fn put(&self, key: &str, value: Bytes, expect: Expect) -> BoxFuture<'_, Result<Version, WriteError>> {
        let key = key.to_owned();
        Box::pin(async move { Ok(self.change(key, Some(value), expect).await?.0) })
    }

    fn delete(&self, key: &str, expect: Expect) -> BoxFuture<'_, Result<bool, WriteError>> {
        let key = key.to_owned();
        Box::pin(async move { Ok(self.change(key, None, expect).await?.1) })
    }

    fn list(&self, prefix: &str) -> BoxFuture<'_, Result<Vec<String>, ReadError>> {
        self.memory.list(prefix)
    }

    fn scan(&self, prefix: &str) -> BoxFuture<'_, Result<Vec<Item>, ReadError>> {
        self.memory.scan(prefix)
    }

    fn watch(&self, prefix: &str) -> Watch {
        self.memory.watch(prefix)
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        // Requests that wait are answered by the steps that follow.
        Box::pin(async {})
    }
}
