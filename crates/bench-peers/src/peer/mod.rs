//! The peers: how each is installed, told what to do, started, and known to be ready.

mod kafka;
mod mosquitto;
mod nats;
mod pharos;
mod process;
mod pulsar;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use pharos_bench::load::monotonic_ns;

use crate::door::Door;
use crate::door::nats::NatsDoor;
use crate::door::pulsar::PulsarDoor;
use crate::spec::Load;

pub(crate) use process::{GUARDED, Process, run_guarded};

/// Time limit for a start, in nanoseconds.
const START_TIMEOUT_NS: u64 = 120_000_000_000;
/// Time limit for the command that runs before a start, in seconds.
const BEFORE_LIMIT_S: f64 = 60.0;
/// Between two looks whether it is ready.
const LOOK: Duration = Duration::from_millis(20);

/// A program that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Peer {
    /// This broker.
    Pharos,
    /// Apache Pulsar, standalone.
    Pulsar,
    /// Apache Kafka, one node.
    Kafka,
    /// nats-server.
    Nats,
    /// Eclipse mosquitto.
    Mosquitto,
}

/// A program in one of the ways in which it can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Contestant {
    /// The program.
    pub(crate) peer: Peer,
    /// As workload files spell it.
    pub(crate) word: &'static str,
    /// As the page spells it.
    pub(crate) title: &'static str,
    /// True if an acknowledged message survives the end of the process; a contestant without this is not compared as
    /// an equal.
    pub(crate) durable: bool,
}

/// All of them.
const CONTESTANTS: [Contestant; 7] = [
    contestant(Peer::Pharos, "pharos", "Pharos", true),
    contestant(Peer::Pharos, "pharos-broadcast", "Pharos, broadcast", true),
    contestant(Peer::Pulsar, "pulsar", "Pulsar", true),
    contestant(Peer::Kafka, "kafka", "Kafka", true),
    contestant(Peer::Nats, "nats", "NATS JetStream", true),
    contestant(Peer::Nats, "nats-core", "NATS core", false),
    contestant(Peer::Mosquitto, "mosquitto", "mosquitto", false),
];

const fn contestant(peer: Peer, word: &'static str, title: &'static str, durable: bool) -> Contestant {
    Contestant {
        peer,
        word,
        title,
        durable,
    }
}

impl Contestant {
    /// The one of that name.
    pub(crate) fn parse(word: &str) -> anyhow::Result<Self> {
        let found = CONTESTANTS.iter().find(|it| it.word == word);
        found
            .copied()
            .with_context(|| format!("there is no contestant `{word}`"))
    }

    /// Its place among all, which gives it its color in plots.
    pub(crate) fn color(self) -> usize {
        CONTESTANTS.iter().position(|it| *it == self).unwrap_or(0)
    }

    /// True for this broker.
    pub(crate) fn is_ours(self) -> bool {
        self.peer == Peer::Pharos
    }
}

impl Peer {
    /// All of them.
    pub(crate) const ALL: [Self; 5] = [
        Self::Pharos,
        Self::Pulsar,
        Self::Kafka,
        Self::Nats,
        Self::Mosquitto,
    ];

    /// Returns the source of its settings.
    pub(crate) fn source(self) -> &'static str {
        match self {
            Self::Pharos => pharos::SOURCE,
            Self::Pulsar => pulsar::SOURCE,
            Self::Kafka => kafka::SOURCE,
            Self::Nats => nats::SOURCE,
            Self::Mosquitto => mosquitto::SOURCE,
        }
    }

    /// Its name, and that of its directory.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Pharos => "pharos",
            Self::Pulsar => "pulsar",
            Self::Kafka => "kafka",
            Self::Nats => "nats",
            Self::Mosquitto => "mosquitto",
        }
    }
}

/// Locations of the programs.
#[derive(Clone, Debug)]
pub(crate) struct Installed {
    /// Directory of the install script, with a subdirectory for each peer.
    pub(crate) peers: PathBuf,
    /// The binary `pharos`.
    pub(crate) pharos: PathBuf,
}

impl Installed {
    fn of(&self, peer: Peer) -> PathBuf {
        self.peers.join(peer.word())
    }

    /// The version of a peer, as its install script noted it or as it says itself.
    pub(crate) fn version(&self, peer: Peer) -> String {
        let noted = match peer {
            Peer::Pharos => pharos::version(&self.pharos),
            _ => fs::read_to_string(self.of(peer).join("version")).ok(),
        };
        noted.map_or_else(|| "not installed".to_owned(), |text| text.trim().to_owned())
    }

    /// Bytes of what runs: binary, or libraries without the Java runtime.
    pub(crate) fn bytes(&self, peer: Peer) -> u64 {
        match peer {
            Peer::Pharos => fs::metadata(&self.pharos).map_or(0, |data| data.len()),
            Peer::Pulsar | Peer::Kafka => bytes_below(&self.of(peer).join("lib")),
            Peer::Nats | Peer::Mosquitto => bytes_below(&self.of(peer).join("bin")),
        }
    }
}

fn bytes_below(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(data) if data.is_dir() => bytes_below(&entry.path()),
        Ok(data) => data.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

/// Commands that start a peer.
#[derive(Clone, Debug, Default)]
struct Launch {
    /// Program and arguments.
    command: Vec<String>,
    /// Name and text of its settings file, if it has one.
    settings: Option<(&'static str, String)>,
    /// Program and arguments that must finish before the start.
    before: Option<Vec<String>>,
}

impl Launch {
    /// Command and settings without what is this machine's or this run's.
    fn told(&self, home: &Path, installed: &Installed, ports: Ports) -> (String, String) {
        let hide = |text: &str| {
            let mut text = text.replace(&*home.to_string_lossy(), "DATA");
            text = text.replace(&*installed.pharos.to_string_lossy(), "pharos");
            text = text.replace(&*installed.peers.to_string_lossy(), "PEERS");
            for port in [ports.main, ports.other, ports.third] {
                text = text.replace(&port.to_string(), "PORT");
            }
            text
        };
        let settings = self.settings.as_ref();
        let settings = settings.map(|(_, text)| hide(text)).unwrap_or_default();
        (hide(&self.command.join(" ")), settings)
    }
}

/// Ports of a peer.
#[derive(Clone, Copy, Debug)]
struct Ports {
    /// Its protocol.
    main: u16,
    /// HTTP, or what is inside only.
    other: u16,
    /// Another one of that kind.
    third: u16,
}

impl Ports {
    /// Ports that are free at this moment.
    fn free() -> anyhow::Result<Self> {
        let listeners: Vec<TcpListener> = (0..3)
            .map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
            .collect::<Result<_, _>>()?;
        let port = |at: usize| listeners[at].local_addr().map(|address| address.port());
        Ok(Self {
            main: port(0)?,
            other: port(1)?,
            third: port(2)?,
        })
    }
}

/// A peer that takes clients. Dropping it ends it and removes its data.
pub(crate) struct Running {
    process: Process,
    /// Data directory. Declared after the process, so that it is removed after the process has ended.
    home: tempfile::TempDir,
    /// Protocol and address.
    pub(crate) door: Door,
    /// From the start of the process until it took clients.
    pub(crate) start_s: f64,
    /// Its command and its settings, as they go onto the page.
    pub(crate) told: (String, String),
}

impl Running {
    /// Starts a peer on a fresh directory in `data` and waits until it takes clients.
    ///
    /// # Errors
    /// It is not installed, or does not start in time; with the last it said.
    pub(crate) fn start(
        contestant: Contestant,
        load: &Load,
        installed: &Installed,
        data: &Path,
        stop: &AtomicBool,
    ) -> anyhow::Result<Self> {
        let dir = installed.of(contestant.peer);
        ensure!(
            contestant.is_ours() || dir.join("version").is_file(),
            "{} is not installed in {}",
            contestant.title,
            installed.peers.display()
        );
        let home = tempfile::Builder::new().prefix("peer-").tempdir_in(data)?;
        let ports = Ports::free()?;
        let launch = match contestant.peer {
            Peer::Pharos => pharos::launch(&installed.pharos, load, home.path(), ports),
            Peer::Pulsar => pulsar::launch(&dir, load, home.path(), ports),
            Peer::Kafka => kafka::launch(&dir, load, home.path(), ports),
            Peer::Nats => nats::launch(&dir, load, home.path(), ports),
            Peer::Mosquitto => mosquitto::launch(&dir, home.path(), ports),
        };
        if let Some((name, text)) = &launch.settings {
            fs::write(home.path().join(name), text)?;
        }
        if let Some(before) = &launch.before {
            Process::start(before, home.path(), "before.log")?.wait(BEFORE_LIMIT_S, stop)?;
        }
        let from_ns = monotonic_ns();
        let process = Process::start(&launch.command, home.path(), "peer.log")?;
        let mut running = Self {
            process,
            door: door(contestant, ports),
            start_s: 0.0,
            told: launch.told(home.path(), installed, ports),
            home,
        };
        running.await_ready(contestant, ports, stop)?;
        running.start_s = (monotonic_ns() - from_ns) as f64 / 1e9;
        Ok(running)
    }

    /// Returns the data directory.
    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Returns the end of the output if the process has ended by itself.
    pub(crate) fn last_words(&mut self) -> Option<String> {
        self.process.has_ended().then(|| self.process.tail())
    }

    fn await_ready(&mut self, contestant: Contestant, ports: Ports, stop: &AtomicBool) -> anyhow::Result<()> {
        let deadline = monotonic_ns() + START_TIMEOUT_NS;
        loop {
            let ready = match contestant.peer {
                Peer::Pharos => pharos::is_ready(ports),
                Peer::Pulsar => pulsar::is_ready(ports),
                Peer::Kafka => kafka::is_ready(ports),
                Peer::Nats => nats::is_ready(ports),
                Peer::Mosquitto => mosquitto::is_ready(ports),
            };
            if ready {
                return Ok(());
            }
            ensure!(!stop.load(Ordering::Relaxed), "stopped");
            if self.process.has_ended() {
                bail!("{} ended at its start: {}", contestant.title, self.process.tail());
            }
            if monotonic_ns() > deadline {
                bail!(
                    "{} was not ready in time: {}",
                    contestant.title,
                    self.process.tail()
                );
            }
            std::thread::sleep(LOOK);
        }
    }
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

fn door(contestant: Contestant, ports: Ports) -> Door {
    match contestant.peer {
        Peer::Pharos | Peer::Pulsar => Door::Pulsar(PulsarDoor {
            url: format!("pulsar://127.0.0.1:{}", ports.main),
            http_url: format!("http://127.0.0.1:{}", ports.other),
            broadcast: contestant.word == "pharos-broadcast",
            times_stages: contestant.is_ours(),
        }),
        Peer::Kafka => Door::Kafka(local(ports.main)),
        Peer::Mosquitto => Door::Mqtt(local(ports.main)),
        Peer::Nats => Door::Nats(NatsDoor {
            address: local(ports.main),
            jetstream: contestant.word == "nats",
        }),
    }
}

/// Program and arguments as texts.
fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}
