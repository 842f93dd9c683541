//! A blocking connection for the few questions asked before the load starts: how many partitions, which broker.

use std::collections::HashMap;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::{Bytes, BytesMut};
use pharos_wire::command::Command;
use pharos_wire::proto::{
    command_lookup_topic_response::LookupType,
    command_partitioned_topic_metadata_response::LookupType as Answer,
};
use pharos_wire::{encode, frame, request};

use crate::access::{Access, TLS_SCHEME};
use crate::net::Socket;
use crate::proto::command;

/// Longest wait for one answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Redirects followed before giving up.
const REDIRECTS_MAX: usize = 20;
/// Requests unanswered at once.
const UNDER_WAY_MAX: usize = 128;
/// Number of attempts for a request that is refused temporarily, and the pause between them.
const TRIES_MAX: u32 = 100;
const TRY_AGAIN: Duration = Duration::from_millis(50);

/// A connection that has shaken hands.
pub(crate) struct Session {
    stream: Socket,
    inbound: BytesMut,
    next_request: u64,
}

impl Session {
    /// Connects and shakes hands.
    pub(crate) fn open(broker: SocketAddr, access: &Access) -> anyhow::Result<Self> {
        let stream = TcpStream::connect_timeout(&broker, ANSWER_TIMEOUT)
            .with_context(|| format!("cannot connect to {broker}"))?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        stream.set_nodelay(true)?;
        let mut session = Self {
            stream: Socket::new(stream, access.connector()?.as_ref())?,
            inbound: BytesMut::new(),
            next_request: 0,
        };
        let mut hello = Vec::new();
        command::push_connect(&mut hello, access.shown.as_ref());
        session.send_bytes(&hello)?;
        match session.next()? {
            Command::Connected(_) => Ok(session),
            Command::Error(error) => bail!("the broker refused the connection: {}", command::refusal(&error)),
            other => bail!("unexpected {:?} in the handshake", other.command_type()),
        }
    }

    /// Partitions of `topic`; 0 for a topic that is not partitioned.
    pub(crate) fn partitions(&mut self, topic: &str) -> anyhow::Result<u32> {
        let id = self.request_id();
        self.send(&request::partitioned_metadata(topic, id).into())?;
        loop {
            if let Command::PartitionedMetadataResponse(answer) = self.next()?
                && answer.request_id == id
            {
                if answer.response() == Answer::Failed {
                    bail!("{topic}: {}", answer.message());
                }
                return Ok(answer.partitions());
            }
        }
    }

    /// Performs one lookup step. Returns the broker that serves `topic`, or the one to ask next.
    fn lookup(&mut self, topic: &str, authoritative: bool) -> anyhow::Result<Found> {
        let id = self.request_id();
        let is_tls = matches!(self.stream, Socket::Tls(_));
        self.send(&request::lookup(topic, id, authoritative).into())?;
        loop {
            let Command::LookupResponse(answer) = self.next()? else {
                continue;
            };
            if answer.request_id != id {
                continue;
            }
            if answer.response() == LookupType::Failed {
                bail!("{topic}: {}", answer.message());
            }
            let url = if is_tls {
                answer.broker_service_url_tls()
            } else {
                answer.broker_service_url()
            };
            return Ok(Found {
                url: url.to_owned(),
                redirect: answer.response() == LookupType::Redirect,
                authoritative: answer.authoritative(),
            });
        }
    }

    /// Puts many requests, some of them under way at once, and waits until each has succeeded. A request is a word for
    /// errors and a maker that is given the request id. What is refused for the moment is tried again for a while.
    pub(crate) fn ask_all<M: Fn(u64) -> Command>(
        &mut self,
        requests: impl Iterator<Item = (String, M)>,
    ) -> anyhow::Result<()> {
        self.ask_each(requests, &mut || {})
    }

    /// Sends the requests like `ask_all`; `succeeded` is called for each that succeeds.
    pub(crate) fn ask_each<M: Fn(u64) -> Command>(
        &mut self,
        requests: impl Iterator<Item = (String, M)>,
        succeeded: &mut dyn FnMut(),
    ) -> anyhow::Result<()> {
        let mut left = requests;
        let mut under_way: HashMap<u64, (String, M, u32)> = HashMap::new();
        loop {
            while under_way.len() < UNDER_WAY_MAX
                && let Some((what, make)) = left.next()
            {
                let id = self.request_id();
                self.send(&make(id))?;
                under_way.insert(id, (what, make, 0));
            }
            if under_way.is_empty() {
                return Ok(());
            }
            match self.next()? {
                Command::ProducerSuccess(answer) if under_way.remove(&answer.request_id).is_some() => {
                    succeeded();
                }
                Command::Success(answer) if under_way.remove(&answer.request_id).is_some() => succeeded(),
                Command::Error(error) => {
                    let Some((what, make, tries)) = under_way.remove(&error.request_id) else {
                        continue;
                    };
                    if tries >= TRIES_MAX || !command::is_transient(error.error) {
                        bail!("{what}: {}", command::refusal(&error));
                    }
                    std::thread::sleep(TRY_AGAIN);
                    let id = self.request_id();
                    self.send(&make(id))?;
                    under_way.insert(id, (what, make, tries + 1));
                }
                _ => {}
            }
        }
    }

    /// The socket, and what was read beyond the last answer.
    pub(crate) fn into_parts(self) -> (Socket, Vec<u8>) {
        (self.stream, self.inbound.to_vec())
    }

    fn request_id(&mut self) -> u64 {
        self.next_request += 1;
        self.next_request
    }

    /// Sends a command without waiting for anything.
    pub(crate) fn send(&mut self, command: &Command) -> anyhow::Result<()> {
        self.send_bytes(&encode::encode_command(command))
    }

    /// Sends whole frames.
    pub(crate) fn send_bytes(&mut self, frames: &[u8]) -> anyhow::Result<()> {
        let mut left = frames;
        while !left.is_empty() {
            let taken = self.stream.write(left)?;
            left = &left[taken..];
        }
        self.stream.flush()?;
        Ok(())
    }

    fn next(&mut self) -> anyhow::Result<Command> {
        Ok(self.next_with_payload()?.0)
    }

    /// The next command, and what comes with it when it is a message. Pings are answered on the way.
    pub(crate) fn next_with_payload(&mut self) -> anyhow::Result<(Command, Option<Bytes>)> {
        loop {
            let max = frame::frame_bytes_max(frame::MESSAGE_BYTES_MAX_DEFAULT);
            if let Some(frame) = frame::decode(&mut self.inbound, max)? {
                if matches!(frame.command, Command::Ping(_)) {
                    self.send(&request::pong())?;
                    continue;
                }
                return Ok((frame.command, frame.payload));
            }
            let mut buf = [0u8; 64 << 10];
            let (read, _) = self
                .stream
                .read(&mut [], &mut buf)
                .context("no answer from the broker")?;
            if read == 0 {
                bail!("the broker closed the connection");
            }
            self.inbound.extend_from_slice(&buf[..read]);
        }
    }
}

struct Found {
    url: String,
    redirect: bool,
    authoritative: bool,
}

/// The broker that serves `topic`, starting from any broker of the cluster.
pub(crate) fn find_broker(url: &str, topic: &str, access: &Access) -> anyhow::Result<SocketAddr> {
    let mut broker = resolve(url)?;
    let mut authoritative = false;
    for _ in 0..REDIRECTS_MAX {
        let found = Session::open(broker, access)?.lookup(topic, authoritative)?;
        if found.url.is_empty() {
            return Ok(broker);
        }
        broker = resolve(&found.url)?;
        if !found.redirect {
            return Ok(broker);
        }
        authoritative = found.authoritative;
    }
    bail!("{topic}: more than {REDIRECTS_MAX} redirects")
}

/// The broker of each topic; see [`find_broker`].
///
/// # Errors
/// A broker cannot be reached or refuses.
pub fn find_brokers(url: &str, topics: &[String], access: &Access) -> anyhow::Result<Vec<SocketAddr>> {
    let first = resolve(url)?;
    let mut session = Session::open(first, access)?;
    let mut brokers = Vec::new();
    for topic in topics {
        let found = session.lookup(topic, false)?;
        brokers.push(if found.redirect {
            find_broker(url, topic, access)?
        } else if found.url.is_empty() {
            first
        } else {
            resolve(&found.url)?
        });
    }
    Ok(brokers)
}

/// The address in `pulsar://host:port` or `pulsar+ssl://host:port`; the port may be left out.
///
/// # Errors
/// It is no such URL, or its host has no address.
pub fn resolve(url: &str) -> anyhow::Result<SocketAddr> {
    if url.starts_with(TLS_SCHEME) {
        resolve_with(url, TLS_SCHEME, 6651)
    } else {
        resolve_with(url, "pulsar://", 6650)
    }
}

/// The address in `<scheme>host[:port][/...]`.
fn resolve_with(url: &str, scheme: &str, port: u16) -> anyhow::Result<SocketAddr> {
    let rest = url
        .strip_prefix(scheme)
        .with_context(|| format!("`{url}` does not begin with {scheme}"))?;
    let host = rest.split(['/', ',']).next().unwrap_or(rest);
    let has_port = host
        .rsplit_once(':')
        .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let target = if has_port {
        host.to_owned()
    } else {
        format!("{host}:{port}")
    };
    let found: Vec<SocketAddr> = target
        .to_socket_addrs()
        .with_context(|| format!("cannot resolve {target}"))?
        .collect();
    found
        .iter()
        .find(|address| address.is_ipv4())
        .or(found.first())
        .copied()
        .with_context(|| format!("{target} has no address"))
}

/// The full name of a topic given in any of the short forms.
pub fn full_topic(topic: &str) -> String {
    if topic.contains("://") {
        topic.to_owned()
    } else if topic.matches('/').count() == 2 {
        format!("persistent://{topic}")
    } else {
        format!("persistent://public/default/{topic}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_resolve_with_and_without_port() {
        let address = |text: &str| resolve(text).map(|found| found.to_string()).ok();
        assert_eq!(
            address("pulsar://127.0.0.1:6651").as_deref(),
            Some("127.0.0.1:6651")
        );
        assert_eq!(address("pulsar://127.0.0.1").as_deref(), Some("127.0.0.1:6650"));
        assert_eq!(
            address("pulsar://127.0.0.1:1,127.0.0.2:2/x").as_deref(),
            Some("127.0.0.1:1")
        );
        assert_eq!(
            address("pulsar+ssl://127.0.0.1").as_deref(),
            Some("127.0.0.1:6651")
        );
        assert_eq!(address("http://127.0.0.1:1"), None);
    }

    #[test]
    fn short_topic_names_are_completed() {
        assert_eq!(full_topic("t"), "persistent://public/default/t");
        assert_eq!(full_topic("a/b/t"), "persistent://a/b/t");
        assert_eq!(full_topic("non-persistent://a/b/t"), "non-persistent://a/b/t");
    }
}
