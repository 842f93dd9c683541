//! The simulated world: bookies, the metadata of one ledger, a network, the ledger's writer and those who recover it.
//!
//! All that happens is an event with a time; the seed decides what is lost, late, doubled, crashed and cut off.

#![expect(
    clippy::unwrap_used,
    reason = "the world of a test; what is not there is a mistake in it"
)]

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use bytes::Bytes;
use pharos_bookkeeper::machine::{
    AddAnswer, EnsembleChange, LacRead, MetadataAnswer, Placement, Recovery, RecoveryEffect, Writer,
    WriterEffect,
};
use pharos_bookkeeper::metadata::{BookieId, LedgerMetadata, Segment, State};
use pharos_bookkeeper::wire::Status;
use pharos_bookkeeper::{CallError, DigestType, Digester, Entry, Quorum};
use pharos_metadata::Version;
use pharos_runtime::random::Random;
use pharos_types::{EntryId, LedgerId};

const LEDGER: LedgerId = LedgerId(7);
/// Timeout of a caller.
const TIMEOUT: u64 = 120;
/// From here on nothing fails any more.
const HEALED: u64 = 4_000;
/// The last recovery begins; everything late has arrived.
const LAST: u64 = 6_000;

/// Returns the payload of entry `entry` of the ledger.
pub(crate) fn payload(entry: u64) -> Bytes {
    Bytes::from(format!("{entry} ").repeat(1 + (entry as usize * 5) % 7))
}

/// A way in which the client, a bookie or the metadata store is wrong. Each is made on the way of the messages, so that the code
/// under test is the one that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// Reads of a recovery do not fence (apache/bookkeeper#2614).
    RecoveryReadsDoNotFence,
    /// A recovery does not know where the last segment begins (apache/bookkeeper#2615).
    LastSegmentIsForgotten,
    /// Nothing fences.
    NothingFences,
    /// A bookie that does not answer counts as one that does not have the entry.
    SilenceIsMissing,
    /// A single "no such entry" is taken for the end.
    OneMissingIsEnough,
    /// Metadata is written whatever version is there.
    AnyVersionIsOverwritten,
    /// A recovery does not write again the entries that it finds.
    RecoveryWritesNothing,
    /// Bookies forget at a restart that a ledger is fenced.
    FencesAreForgotten,
    /// Bookies acknowledge what they have not synced.
    AcknowledgedBeforeSynced,
    /// Pending entries are not sent to a bookie that replaces another one.
    ReplacedWithoutResending,
    /// A writer that pauses tells of what it has sent rather than of what is confirmed.
    TellsWhatWasSent,
    /// Bookies answer a force without syncing anything.
    ForceDoesNothing,
    /// A bookie that is back is taken for one that was there all the time.
    CrashesAreNotSeen,
}

impl Mutation {
    pub(crate) const ALL: [Self; 13] = [
        Self::RecoveryReadsDoNotFence,
        Self::LastSegmentIsForgotten,
        Self::NothingFences,
        Self::SilenceIsMissing,
        Self::OneMissingIsEnough,
        Self::AnyVersionIsOverwritten,
        Self::RecoveryWritesNothing,
        Self::FencesAreForgotten,
        Self::AcknowledgedBeforeSynced,
        Self::ReplacedWithoutResending,
        Self::TellsWhatWasSent,
        Self::ForceDoesNothing,
        Self::CrashesAreNotSeen,
    ];
}

#[derive(Debug, Default)]
pub(crate) struct Bookie {
    pub(crate) entries: BTreeMap<u64, Bytes>,
    /// Entries among them that a crash loses.
    pub(crate) unsynced: BTreeSet<u64>,
    /// Entries that the writer told to be confirmed, without an entry.
    told: u64,
    is_fenced: bool,
    is_down: bool,
    /// Number of its starts; its connections are new after each.
    lives: u64,
    /// Cut off from this client.
    cut_off: Option<Client>,
}

/// Client of the bookies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Client {
    Writer,
    /// With the number of its start, so that a dead one gets no answers.
    Recovery(usize),
    /// Asks how far the ledger is confirmed, again and again.
    Reader,
}

#[derive(Clone, Debug)]
enum Ask {
    Add {
        entry: EntryId,
        body: Bytes,
        is_recovery: bool,
        is_deferred: bool,
    },
    /// Number of the force.
    Force(u64),
    Newest,
    Read {
        entry: EntryId,
        is_fencing: bool,
    },
    TellConfirmed(EntryId),
    Lac,
}

/// An answer before its client looks at it.
type Raw = Result<Option<Bytes>, CallError>;

#[derive(Clone, Debug)]
struct Call {
    id: u64,
    client: Client,
    attempt: u32,
    position: usize,
    bookie: BookieId,
    ask: Ask,
}

#[derive(Clone, Debug)]
enum Event {
    Arrives(Call),
    /// Answer of a bookie; the last field is the number of starts of the bookie when it answered.
    Answers(u64, Raw, u64),
    GivesUp(u64),
    MetadataArrives(u64, Box<LedgerMetadata>, Version),
    MetadataAnswers(u64, Option<Version>),
    Appends,
    Closes,
    Resends(usize, BookieId),
    Tells,
    Forces,
    Looks,
    Recovers,
    WriterDies,
    RecoveryDies,
    Crashes(usize),
    Restarts(usize),
    CutsOff(usize, Client),
    Reconnects(usize),
    Heals,
}

pub(crate) struct World {
    random: Random,
    mutation: Option<Mutation>,
    now: u64,
    events: BinaryHeap<Reverse<(u64, u64)>>,
    what: BTreeMap<u64, Event>,
    numbers: u64,
    calls: BTreeMap<u64, Call>,
    /// Writes of metadata whose client waits; each is answered once.
    puts: BTreeMap<u64, Client>,
    bookies: BTreeMap<BookieId, Bookie>,
    pub(crate) stored: LedgerMetadata,
    version: u64,
    pub(crate) digester: Digester,
    writer: Option<Writer>,
    recoveries: Vec<Option<Recovery>>,
    /// Read of the last-add-confirmed by the reader, and its state so far.
    reader: Option<(u32, LacRead)>,
    looks: u32,
    /// Entries that a reader was told are confirmed.
    pub(crate) seen: u64,
    /// Entries of which the writer was told that they are confirmed.
    pub(crate) confirmed: u64,
    /// Entries that stay, whatever happens: of a ledger with deferred sync those that were forced.
    pub(crate) settled: u64,
    /// Final states reported to the clients that saw the ledger closed.
    pub(crate) ends_told: Vec<State>,
    closed_by_writer: bool,
    /// A law that was broken on the way.
    pub(crate) wrong: Option<String>,
    pub(crate) trace: Vec<String>,
}

/// Any bookie that is not used; also one that is down.
struct AnyOther<'a>(&'a mut Random, Vec<BookieId>);

impl Placement for AnyOther<'_> {
    fn replace(&mut self, ensemble: &[BookieId], _: usize, excluded: &[BookieId]) -> Option<BookieId> {
        let is_free = |bookie: &&BookieId| !ensemble.contains(bookie) && !excluded.contains(bookie);
        let free: Vec<_> = self.1.iter().filter(is_free).cloned().collect();
        self.0.pick(&free).cloned()
    }
}

impl World {
    pub(crate) fn new(mut random: Random, mutation: Option<Mutation>) -> Self {
        let sizes = [
            (3, 3, 2),
            (3, 3, 2),
            (3, 2, 2),
            (2, 2, 2),
            (4, 3, 2),
            (3, 3, 3),
            (5, 3, 2),
            (2, 2, 1),
        ];
        let (ensemble, write, ack) = *random.pick(&sizes).unwrap();
        let names: Vec<_> = (0..ensemble + random.below(4))
            .map(|n| BookieId::new(&format!("b{n}")))
            .collect();
        let stored = LedgerMetadata {
            quorum: Quorum::new(ensemble, write, ack).unwrap(),
            state: State::Open,
            segments: vec![Segment {
                first: EntryId(0),
                ensemble: names[..ensemble].to_vec(),
            }],
            digest: DigestType::Crc32c,
            password: Bytes::new(),
            created_ms: None,
            custom: BTreeMap::new(),
            token: None,
        };
        let digester = Digester::new(LEDGER, stored.digest, &stored.password);
        let change = *random
            .pick(&[
                EnsembleChange::AtOnce,
                EnsembleChange::WhenNeeded,
                EnsembleChange::Never,
            ])
            .unwrap();
        let is_deferred = random.one_in(4);
        let stored = match is_deferred {
            true => stored.with_deferred_sync(),
            false => stored,
        };
        let writer = if is_deferred {
            Writer::deferring(digester.clone(), stored.clone(), Version(1))
        } else {
            Writer::new(digester.clone(), stored.clone(), Version(1), change)
        };
        let mut world = Self {
            random,
            mutation,
            now: 0,
            events: BinaryHeap::new(),
            what: BTreeMap::new(),
            numbers: 0,
            calls: BTreeMap::new(),
            puts: BTreeMap::new(),
            bookies: names.into_iter().map(|name| (name, Bookie::default())).collect(),
            stored,
            version: 1,
            digester,
            writer: Some(writer),
            recoveries: Vec::new(),
            reader: None,
            looks: 0,
            seen: 0,
            confirmed: 0,
            settled: 0,
            ends_told: Vec::new(),
            closed_by_writer: false,
            wrong: None,
            trace: Vec::new(),
        };
        world.plan();
        world
    }

    /// Plans the events that are not consequences of others.
    fn plan(&mut self) {
        let entries = 4 + self.random.below(20);
        let mut at = 1;
        for _ in 0..entries {
            at += 1 + self.random.below(60) as u64;
            self.at(at, Event::Appends);
        }
        if self.random.one_in(3) {
            self.at(at + 1, Event::Closes);
        }
        for _ in 0..self.random.below(4) {
            let when = 1 + self.random.below(at as usize * 2) as u64;
            self.at(when, Event::Recovers);
        }
        let is_deferring = self.writer.as_ref().is_some_and(Writer::is_deferring);
        for _ in 0..self.random.below(if is_deferring { 20 } else { 8 }) {
            let when = 1 + self.random.below(at as usize * 2) as u64;
            let events = [Event::Tells, Event::Looks, Event::Forces];
            let event = self.random.pick(&events).cloned();
            self.at(when, event.unwrap());
        }
        if self.random.one_in(4) {
            let when = self.random.below(at as usize) as u64;
            self.at(when, Event::WriterDies);
        }
        for _ in 0..self.random.below(6) {
            let bookie = self.random.below(self.bookies.len());
            let (from, lasts) = (self.random.below(1_500) as u64, self.random.below(900) as u64);
            let client = match self.random.below(3) {
                0 => Client::Recovery(self.random.below(2)),
                _ => Client::Writer,
            };
            if self.random.one_in(2) {
                self.at(from, Event::Crashes(bookie));
                self.at(from + lasts, Event::Restarts(bookie));
            } else {
                self.at(from, Event::CutsOff(bookie, client));
                self.at(from + lasts, Event::Reconnects(bookie));
            }
        }
        self.at(HEALED, Event::Heals);
        self.at(LAST, Event::Recovers);
    }

    fn at(&mut self, time: u64, event: Event) {
        self.numbers += 1;
        self.events.push(Reverse((time, self.numbers)));
        self.what.insert(self.numbers, event);
    }

    fn after(&mut self, wait: u64, event: Event) {
        self.at(self.now + wait, event);
    }

    pub(crate) fn run(&mut self) {
        let mut steps = 0;
        while let Some(Reverse((time, number))) = self.events.pop() {
            self.now = time;
            steps += 1;
            if steps > 200_000 {
                self.wrong.get_or_insert("it never ends".to_owned());
            }
            if self.wrong.is_some() {
                return;
            }
            if let Some(event) = self.what.remove(&number) {
                self.happens(event);
            }
        }
    }

    pub(crate) fn bookie(&self, name: &BookieId) -> &Bookie {
        &self.bookies[name]
    }

    /// Every call is answered or given up, so what began has ended.
    pub(crate) fn still_waits(&self) -> bool {
        self.reader.is_some() || self.recoveries.iter().any(Option::is_some)
    }

    pub(crate) fn ensemble_changes(&self) -> u64 {
        self.stored.segments.len() as u64 - 1
    }

    pub(crate) fn was_closed_by_writer(&self) -> bool {
        self.closed_by_writer
    }

    fn is(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    fn is_healed(&self) -> bool {
        self.now >= HEALED
    }

    fn nth(&mut self, index: usize) -> &mut Bookie {
        self.bookies.values_mut().nth(index).unwrap()
    }

    fn happens(&mut self, event: Event) {
        self.trace.push(format!("{:5} {event:?}", self.now));
        match event {
            Event::Arrives(call) => self.arrives(call),
            Event::Answers(id, raw, life) => self.answered(id, raw, life),
            Event::GivesUp(id) => self.answered(id, Err(CallError::NoAnswer("time")), 0),
            Event::MetadataArrives(id, metadata, version) => {
                self.metadata_arrives(id, *metadata, version);
            }
            Event::MetadataAnswers(id, version) => self.metadata_answers(id, version),
            Event::Appends => self.with_writer(|writer, placement, out| {
                let next = payload(writer.next().0);
                writer.append(next, None, placement, out);
            }),
            Event::Closes => self.with_writer(|writer, _, out| writer.close(out)),
            Event::Resends(position, bookie) => {
                self.with_writer(|writer, _, out| writer.resend(position, &bookie, out));
            }
            Event::Tells => self.with_writer(|writer, _, out| writer.tell_confirmed(out)),
            Event::Forces => self.with_writer(|writer, _, out| writer.force(out)),
            Event::Looks => self.looks(),
            Event::Recovers => self.recovers(),
            Event::WriterDies => self.writer = None,
            Event::RecoveryDies => {
                if let Some(recovery) = self.recoveries.last_mut() {
                    *recovery = None;
                }
            }
            Event::Crashes(bookie) => self.crashes(bookie),
            Event::Restarts(bookie) => {
                let bookie = self.nth(bookie);
                bookie.is_down = false;
                bookie.lives += 1;
            }
            Event::CutsOff(bookie, client) => self.nth(bookie).cut_off = Some(client),
            Event::Reconnects(bookie) => self.nth(bookie).cut_off = None,
            Event::Heals => {
                for bookie in self.bookies.values_mut() {
                    bookie.is_down = false;
                    bookie.cut_off = None;
                }
            }
        }
    }

    fn crashes(&mut self, index: usize) {
        let (forgets_fence, loses) = (
            self.is(Mutation::FencesAreForgotten),
            self.is(Mutation::AcknowledgedBeforeSynced),
        );
        let bookie = self.nth(index);
        bookie.is_down = true;
        for entry in std::mem::take(&mut bookie.unsynced) {
            bookie.entries.remove(&entry);
        }
        bookie.is_fenced &= !forgets_fence;
        if loses {
            bookie.entries.pop_last();
        }
    }
}

mod clients;
mod network;
