//! A stand-in for a broker: one topic, a log in memory, every consumer gets everything.
//!
//! Two threads per connection, no storage, no acknowledgements, permits ignored. `STAND_IN_FAULT` makes it misbehave towards
//! the consumer named `c-000001` (`drop:N`, `double:N`, `swap:N` at message `N`) or hang up on every client once after message
//! `N` (`hangup:N`; consumers that come back under their names resume two messages earlier).

use std::collections::HashMap;
use std::io::{IoSlice, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use bytes::{Bytes, BytesMut};
use pharos_wire::answer::{self, BrokerUrls};
use pharos_wire::command::Command;
use pharos_wire::{HeaderBuf, MessageHeader, encode, frame};

/// The options of `pharos serve` that the load tool uses.
#[derive(clap::Args)]
pub(crate) struct ServeArgs {
    #[arg(long)]
    data_dir: Option<PathBuf>,
    #[arg(long, default_value = "127.0.0.1:0")]
    pulsar_listen: String,
    #[arg(long, default_value = "127.0.0.1:0")]
    http_listen: String,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    Drop(usize),
    Double(usize),
    Swap(usize),
    HangUp(usize),
}

/// Work for a connection's writer.
enum Job {
    Frames(Bytes),
    /// Entry `number` for these consumers.
    Entry(usize, Bytes, Arc<Vec<u64>>),
}

struct Conn {
    stream: TcpStream,
    jobs: SyncSender<Job>,
    consumers: Arc<Vec<u64>>,
}

#[derive(Default)]
struct Topic {
    log: Vec<Bytes>,
    conns: HashMap<usize, Conn>,
    /// Next entry of each consumer by name; those not connected keep theirs.
    cursors: HashMap<String, usize>,
    /// Where consumer `c-000001` sits.
    victim: Option<(usize, u64)>,
    hung_up: bool,
}

struct Broker {
    topic: Mutex<Topic>,
    fault: Fault,
    url: String,
}

/// Serves until killed.
pub(crate) fn serve(args: &ServeArgs) -> anyhow::Result<ExitCode> {
    if let Some(dir) = &args.data_dir {
        std::fs::create_dir_all(dir)?;
        std::fs::write(dir.join("stand-in"), "was here")?;
    }
    let pulsar = TcpListener::bind(&args.pulsar_listen)?;
    let http = TcpListener::bind(&args.http_listen)?;
    let url = format!("pulsar://{}", pulsar.local_addr()?);
    let mut out = std::io::stdout();
    writeln!(out, "stand-in listens on {url} and http://{}", http.local_addr()?)?;
    out.flush()?;
    std::thread::spawn(move || metrics_pages(&http));
    let broker = Arc::new(Broker {
        topic: Mutex::default(),
        fault: fault()?,
        url,
    });
    for (number, stream) in pulsar.incoming().enumerate() {
        let (stream, broker) = (stream?, Arc::clone(&broker));
        stream.set_nodelay(true)?;
        let small = || std::thread::Builder::new().stack_size(256 << 10);
        small().spawn(move || {
            // A client that leaves is no news.
            let _ = connection(&broker, number, &stream);
            broker.lock().conns.remove(&number);
        })?;
    }
    Ok(ExitCode::SUCCESS)
}

fn fault() -> anyhow::Result<Fault> {
    let Ok(text) = std::env::var("STAND_IN_FAULT") else {
        return Ok(Fault::None);
    };
    let (kind, number) = text.split_once(':').context("kind:number")?;
    let number = number.parse()?;
    Ok(match kind {
        "drop" => Fault::Drop(number),
        "double" => Fault::Double(number),
        "swap" => Fault::Swap(number),
        "hangup" => Fault::HangUp(number),
        other => anyhow::bail!("no fault `{other}`"),
    })
}

fn metrics_pages(listener: &TcpListener) {
    const PAGE: &str = "pharos_stage_seconds{stage=\"broadcasting\",quantile=\"0.99\"} 0.25\n";
    for mut stream in listener.incoming().map_while(Result::ok) {
        let _ = stream.read(&mut [0; 4096]);
        let _ = write!(
            stream,
            "HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n{PAGE}",
            PAGE.len()
        );
    }
}

fn connection(broker: &Arc<Broker>, number: usize, stream: &TcpStream) -> anyhow::Result<()> {
    let (jobs, work) = sync_channel(4096);
    let out = stream.try_clone()?;
    std::thread::Builder::new()
        .stack_size(256 << 10)
        .spawn(move || writer(&out, &work))?;
    let conn = Conn {
        stream: stream.try_clone()?,
        jobs: jobs.clone(),
        consumers: Arc::default(),
    };
    broker.lock().conns.insert(number, conn);
    let mut inbound = BytesMut::new();
    let mut stream = stream;
    loop {
        while let Some(frame) = frame::decode(&mut inbound, 64 << 20)? {
            let mut answers = BytesMut::new();
            broker.answer(number, frame, &mut answers);
            if !answers.is_empty() {
                jobs.send(Job::Frames(answers.freeze()))?;
            }
        }
        let mut buf = [0u8; 64 << 10];
        let read = stream.read(&mut buf)?;
        if read == 0 {
            return Ok(());
        }
        inbound.extend_from_slice(&buf[..read]);
    }
}

impl Broker {
    fn lock(&self) -> std::sync::MutexGuard<'_, Topic> {
        self.topic.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, number: usize, frame: frame::Frame, out: &mut BytesMut) {
        let command = match frame.command {
            Command::Connect(_) => answer::connected("stand-in", 21, 5 << 20, Default::default()),
            Command::Ping(_) => answer::pong(),
            Command::PartitionedMetadata(asked) => answer::partitioned_metadata(asked.request_id, 0),
            Command::Lookup(asked) => {
                let broker = BrokerUrls {
                    plain: Some(self.url.clone()),
                    tls: None,
                };
                answer::lookup_connect(asked.request_id, broker, true, false)
            }
            Command::Producer(asked) => {
                let name = asked.producer_name().to_owned();
                answer::producer_success(asked.request_id, name, -1, Bytes::new(), None, true)
            }
            Command::Subscribe(asked) => {
                let name = asked.consumer_name().to_owned();
                let mut topic = self.lock();
                topic.subscribe(number, &name, asked.consumer_id);
                answer::success(asked.request_id)
            }
            Command::Flow(flow) => return self.lock().catch_up(number, flow.consumer_id),
            Command::Send(send) => {
                let highest = send.highest_sequence_id();
                let entry = self.append(frame.payload.unwrap_or_default());
                answer::send_receipt(send.producer_id, send.sequence_id, highest, 1, entry as u64)
            }
            _ => return,
        };
        encode::encode_command_into(&command, out);
    }

    fn append(&self, payload: Bytes) -> usize {
        let mut topic = self.lock();
        let entry = topic.log.len();
        topic.log.push(payload);
        if self.fault == Fault::HangUp(entry) && !topic.hung_up {
            topic.hung_up = true;
            for cursor in topic.cursors.values_mut() {
                *cursor = entry.saturating_sub(2);
            }
            topic
                .conns
                .values()
                .for_each(|conn| drop(conn.stream.shutdown(Shutdown::Both)));
            return entry;
        }
        for cursor in topic.cursors.values_mut() {
            *cursor = entry + 1;
        }
        topic.fan_out(entry, self.fault);
        entry
    }
}

impl Topic {
    fn subscribe(&mut self, number: usize, name: &str, consumer_id: u64) {
        let end = self.log.len();
        self.cursors.entry(name.to_owned()).or_insert(end);
        if name == "c-000001" {
            self.victim = Some((number, consumer_id));
        }
        if let Some(conn) = self.conns.get_mut(&number) {
            Arc::make_mut(&mut conn.consumers).push(consumer_id);
        }
    }

    /// After a hang-up every consumer resumes at the same place, whatever the name.
    fn catch_up(&mut self, number: usize, consumer_id: u64) {
        if !self.hung_up {
            return;
        }
        let from = self.cursors.values().copied().min().unwrap_or(self.log.len());
        if let Some(conn) = self.conns.get(&number) {
            for entry in from..self.log.len() {
                let one = Arc::new(vec![consumer_id]);
                let _ = conn.jobs.send(Job::Entry(entry, self.log[entry].clone(), one));
            }
        }
    }

    fn fan_out(&self, entry: usize, fault: Fault) {
        for (number, conn) in &self.conns {
            let send = |entry: usize, consumers| {
                let _ = conn
                    .jobs
                    .send(Job::Entry(entry, self.log[entry].clone(), consumers));
            };
            let Some((_, victim)) = self.victim.filter(|(at, _)| at == number) else {
                send(entry, Arc::clone(&conn.consumers));
                continue;
            };
            let others: Vec<u64> = conn
                .consumers
                .iter()
                .copied()
                .filter(|id| *id != victim)
                .collect();
            send(entry, Arc::new(others));
            let entries = match fault {
                Fault::Drop(at) if at == entry => vec![],
                Fault::Double(at) if at == entry => vec![entry, entry],
                Fault::Swap(at) if at == entry => vec![],
                Fault::Swap(at) if at + 1 == entry => vec![entry, at],
                _ => vec![entry],
            };
            for entry in entries {
                send(entry, Arc::new(vec![victim]));
            }
        }
    }
}

/// Messages per system call.
const PER_CALL: usize = 32;

fn writer(mut stream: &TcpStream, work: &Receiver<Job>) -> anyhow::Result<()> {
    for job in work {
        match job {
            Job::Frames(bytes) => stream.write_all(&bytes)?,
            Job::Entry(number, payload, consumers) => {
                let header = MessageHeader::new(1, number as u64, None, payload.len())?;
                for some in consumers.chunks(PER_CALL) {
                    let mut headers = vec![HeaderBuf::default(); some.len()];
                    for (consumer_id, buf) in some.iter().zip(&mut headers) {
                        header.write_for(*consumer_id, 0, &[], None, buf);
                    }
                    let mut slices: Vec<IoSlice<'_>> = headers
                        .iter()
                        .flat_map(|header| [IoSlice::new(header.as_slice()), IoSlice::new(&payload)])
                        .collect();
                    let mut left = &mut slices[..];
                    while !left.is_empty() {
                        let written = stream.write_vectored(left)?;
                        IoSlice::advance_slices(&mut left, written);
                    }
                }
            }
        }
    }
    Ok(())
}
