//! Bookies that tests make up: they speak the protocol over TCP and keep entries in memory.

#![allow(dead_code, reason = "each test uses its part")]
#![expect(
    clippy::unwrap_used,
    reason = "the world of a test; what is not there is a mistake in it"
)]

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use pharos_bookkeeper::wire::bookie_side::{decode_request, encode_answer};
use pharos_bookkeeper::wire::{ReadTarget, Request, Response, Status, next_frame};
use pharos_bookkeeper::{BookKeeper, BookieId, MasterKey, Options};
use pharos_metadata::{Expect, Memory, MetadataStore};
use pharos_types::EntryId;

/// A bookie.
pub(crate) struct Bookie {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    ledgers: HashMap<u64, Ledger>,
    connections: Vec<TcpStream>,
    mood: Mood,
    /// Bytes that its disks have left.
    free: u64,
    /// Reads that came.
    reads: usize,
}

struct Ledger {
    key: MasterKey,
    is_fenced: bool,
    entries: BTreeMap<u64, Bytes>,
    /// Acknowledged entries that are not on disk.
    unsynced: BTreeSet<u64>,
    lac: Option<Bytes>,
}

/// Behaviour of a bookie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mood {
    #[default]
    Well,
    /// Ends every connection.
    Down,
    /// Takes requests and says nothing.
    Silent,
    /// Takes no entries.
    ReadOnly,
}

impl Bookie {
    pub(crate) fn start() -> Self {
        Self::start_with(None)
    }

    /// Starts a bookie; with a TLS configuration, it answers nothing before TLS.
    pub(crate) fn start_with(tls: Option<Arc<rustls::ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State::default()));
        let served = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                let mut state = served.lock().unwrap();
                if state.mood == Mood::Down {
                    continue;
                }
                state.connections.push(stream.try_clone().unwrap());
                drop(state);
                let (served, tls) = (Arc::clone(&served), tls.clone());
                std::thread::spawn(move || match tls {
                    Some(tls) => serve_with_tls(stream, &served, tls),
                    None => serve(stream, &served),
                });
            }
        });
        Self { address, state }
    }

    pub(crate) fn id(&self) -> BookieId {
        BookieId::new(&self.address.to_string())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(crate) fn set(&self, mood: Mood) {
        let mut state = self.lock();
        state.mood = mood;
        if mood == Mood::Down {
            for connection in state.connections.drain(..) {
                let _ = connection.shutdown(Shutdown::Both);
            }
        }
    }

    /// Entries of the ledger that it has.
    pub(crate) fn count(&self, ledger: u64) -> usize {
        let state = self.lock();
        state
            .ledgers
            .get(&ledger)
            .map_or(0, |ledger| ledger.entries.len())
    }

    /// Entries of the ledger that are acknowledged and not on disk.
    pub(crate) fn unsynced(&self, ledger: u64) -> usize {
        let state = self.lock();
        state
            .ledgers
            .get(&ledger)
            .map_or(0, |ledger| ledger.unsynced.len())
    }

    /// The machine loses its power: what is not on disk is lost.
    pub(crate) fn lose_power(&self) {
        for ledger in self.lock().ledgers.values_mut() {
            for entry in std::mem::take(&mut ledger.unsynced) {
                ledger.entries.remove(&entry);
            }
        }
    }

    /// Its disks have so many bytes left.
    pub(crate) fn has_room(&self, free: u64) {
        self.lock().free = free;
    }

    /// Reads that it was asked for since this was called last.
    pub(crate) fn take_reads(&self) -> usize {
        std::mem::take(&mut self.lock().reads)
    }

    pub(crate) fn has(&self, ledger: u64, entry: u64) -> bool {
        let state = self.lock();
        state
            .ledgers
            .get(&ledger)
            .is_some_and(|ledger| ledger.entries.contains_key(&entry))
    }

    /// Spoils the bookie's copy.
    pub(crate) fn damage(&self, ledger: u64, entry: u64) {
        let mut state = self.lock();
        let body = state
            .ledgers
            .get_mut(&ledger)
            .unwrap()
            .entries
            .get_mut(&entry)
            .unwrap();
        let mut spoilt = body.to_vec();
        *spoilt.last_mut().unwrap() ^= 1;
        *body = spoilt.into();
    }
}

fn serve_with_tls(mut stream: TcpStream, state: &Mutex<State>, tls: Arc<rustls::ServerConfig>) {
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    let mut body = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut body).unwrap();
    let (txn, request) = decode_request(body.into()).unwrap();
    let is_asked = matches!(request, Request::StartTls);
    let status = if is_asked {
        Status::Ok
    } else {
        Status::Unauthorized
    };
    let answer = encode_answer(txn, &request, status, &Response::Empty);
    if stream.write_all(&answer).is_ok() && is_asked {
        let connection = rustls::ServerConnection::new(tls).unwrap();
        serve(rustls::StreamOwned::new(connection, stream), state);
    }
}

fn serve(mut stream: impl Read + Write, state: &Mutex<State>) {
    let mut received = BytesMut::new();
    let mut buffer = vec![0; 64 << 10];
    while let Ok(bytes) = stream.read(&mut buffer)
        && bytes > 0
    {
        received.extend_from_slice(&buffer[..bytes]);
        while let Some(body) = next_frame(&mut received, 64 << 20).unwrap() {
            let (txn, request) = decode_request(body).unwrap();
            wait_for_more(state, &request);
            let mut state = state.lock().unwrap();
            state.reads += usize::from(matches!(request, Request::Read(_)));
            let (status, response) = match state.mood {
                Mood::Silent => continue,
                Mood::Down => return,
                Mood::ReadOnly if matches!(request, Request::Add(_)) => (Status::ReadOnly, Response::Empty),
                Mood::Well | Mood::ReadOnly => state.handle(&request),
            };
            drop(state);
            if stream
                .write_all(&encode_answer(txn, &request, status, &response))
                .is_err()
            {
                return;
            }
        }
    }
}

/// A read that waits for something to be confirmed waits; not for long, because others wait behind it here.
fn wait_for_more(state: &Mutex<State>, request: &Request) {
    let Request::Read(read) = request else { return };
    let Some(poll) = read.long_poll else { return };
    for _ in 0..20 {
        let lac = state
            .lock()
            .unwrap()
            .ledgers
            .get(&read.ledger.0)
            .map(Ledger::known);
        match lac {
            Some(lac) if lac <= poll.previous_lac => std::thread::sleep(Duration::from_millis(1)),
            _ => return,
        }
    }
}

impl State {
    fn handle(&mut self, request: &Request) -> (Status, Response) {
        match request {
            Request::Add(add) => {
                let ledger = self
                    .ledgers
                    .entry(add.ledger.0)
                    .or_insert_with(|| Ledger::new(add.key));
                if ledger.key != add.key {
                    return (Status::Unauthorized, Response::Empty);
                }
                if ledger.is_fenced && !add.is_recovery {
                    return (Status::Fenced, Response::Empty);
                }
                ledger.entries.insert(add.entry.0, add.body.to_bytes());
                if add.is_deferred_sync {
                    ledger.unsynced.insert(add.entry.0);
                } else {
                    ledger.unsynced.remove(&add.entry.0);
                }
                (Status::Ok, Response::Added)
            }
            Request::Read(read) => {
                if let Some(key) = read.fence {
                    let ledger = self
                        .ledgers
                        .entry(read.ledger.0)
                        .or_insert_with(|| Ledger::new(key));
                    if ledger.key != key {
                        return (Status::Unauthorized, Response::Empty);
                    }
                    ledger.is_fenced = true;
                }
                let Some(ledger) = self.ledgers.get(&read.ledger.0) else {
                    return (Status::NoLedger, Response::Empty);
                };
                if let Some(poll) = read.long_poll {
                    let max_lac = ledger.known();
                    let next = poll.previous_lac.map_or(0, |lac| lac.0 + 1);
                    if max_lac <= poll.previous_lac {
                        return (Status::Ok, Response::Read { body: None, max_lac });
                    }
                    return match ledger.entries.get(&next).cloned() {
                        Some(body) => (
                            Status::Ok,
                            Response::Read {
                                body: Some(body),
                                max_lac,
                            },
                        ),
                        None => (Status::NoEntry, Response::Empty),
                    };
                }
                let body = match read.target {
                    ReadTarget::Entry(entry) => ledger.entries.get(&entry.0),
                    ReadTarget::Newest => ledger.entries.last_key_value().map(|(_, body)| body),
                };
                let body = body.cloned();
                match body {
                    Some(_) => (Status::Ok, Response::Read { body, max_lac: None }),
                    None => (Status::NoEntry, Response::Empty),
                }
            }
            Request::ReadLac { ledger } => match self.ledgers.get(&ledger.0) {
                Some(ledger) => {
                    let newest = ledger.entries.last_key_value().map(|(_, body)| body.clone());
                    let explicit = ledger.lac.clone();
                    (Status::Ok, Response::Lac { explicit, newest })
                }
                None => (Status::NoLedger, Response::Empty),
            },
            Request::WriteLac {
                ledger, key, body, ..
            } => {
                let ledger = self.ledgers.entry(ledger.0).or_insert_with(|| Ledger::new(*key));
                ledger.lac = Some(body.clone());
                (Status::Ok, Response::Empty)
            }
            Request::Info => {
                let free = self.free;
                (Status::Ok, Response::Info { total: free, free })
            }
            Request::Force { ledger } => {
                if let Some(ledger) = self.ledgers.get_mut(&ledger.0) {
                    ledger.unsynced.clear();
                }
                (Status::Ok, Response::Empty)
            }
            Request::Auth { .. } | Request::StartTls | Request::Entries { .. } => {
                (Status::BadRequest, Response::Empty)
            }
        }
    }
}

impl Ledger {
    /// Returns the last confirmed entry that it knows, from its newest entry or from an explicit last-add-confirmed.
    fn known(&self) -> Option<EntryId> {
        let number = |body: &Bytes, at: usize| {
            let bytes = body.get(at..at + 8)?.try_into().unwrap();
            u64::try_from(i64::from_be_bytes(bytes)).ok()
        };
        let newest = self
            .entries
            .last_key_value()
            .and_then(|(_, body)| number(body, 16));
        let told = self.lac.as_ref().and_then(|body| number(body, 8));
        newest.max(told).map(EntryId)
    }

    fn new(key: MasterKey) -> Self {
        Self {
            key,
            is_fenced: false,
            entries: BTreeMap::new(),
            unsynced: BTreeSet::new(),
            lac: None,
        }
    }
}

/// Bookies and the metadata that names them.
pub(crate) struct Cluster {
    pub(crate) bookies: Vec<Bookie>,
    pub(crate) store: Arc<Memory>,
}

impl Cluster {
    pub(crate) async fn start(bookies: usize) -> Self {
        Self::of((0..bookies).map(|_| Bookie::start()).collect()).await
    }

    pub(crate) async fn of(bookies: Vec<Bookie>) -> Self {
        let cluster = Self {
            bookies,
            store: Arc::new(Memory::new()),
        };
        for bookie in &cluster.bookies {
            let key = format!("ledgers/available/{}", bookie.id());
            cluster.store.put(&key, Bytes::new(), Expect::Any).await.unwrap();
        }
        cluster
    }

    pub(crate) async fn engine(&self, options: Options) -> BookKeeper {
        let store = Arc::clone(&self.store) as Arc<dyn MetadataStore>;
        BookKeeper::start(options, store, "ledgers").await.unwrap()
    }

    pub(crate) fn bookie(&self, id: &BookieId) -> &Bookie {
        self.bookies.iter().find(|bookie| bookie.id() == *id).unwrap()
    }
}

/// Short times, so that tests of time-outs are short.
pub(crate) fn options() -> Options {
    Options {
        add_timeout: Duration::from_millis(700),
        read_timeout: Duration::from_millis(700),
        speculative_after: Duration::from_millis(50),
        entry_bytes_max: 16 << 20,
        ..Options::default()
    }
}
