//! Reading a topic from its first message to a mark sent just now.

use anyhow::{Context as _, bail};
use pharos_wire::command::Command;
use pharos_wire::proto::command_subscribe::{InitialPosition, SubType};
use pharos_wire::request;

use crate::access::Access;
use crate::clock;
use crate::perf::batch::{Author, BatchTemplate, Due};
use crate::proto::command;
use crate::proto::message::{self, next_in_batch};
use crate::proto::payload::{Bodies, Stamp};
use crate::session::{self, Session};

use super::ledger::{Account, MARK};

/// Permits granted at a time.
const PERMITS: u32 = 10_000;
/// The subscription that never acknowledges, so that the broker keeps everything.
const KEEPER: &str = "crash-keeper";

/// Sends the mark of `round`, then reads everything up to it and tells `account`.
pub(super) fn mark_and_read(
    url: &str,
    topic: &str,
    round: u32,
    account: &mut Account,
    size: usize,
) -> anyhow::Result<()> {
    let mut session = Session::open(session::resolve(url)?, &Access::default())?;
    // Before the first message there must be a subscription that keeps it.
    subscribe(&mut session, topic, KEEPER, 0)?;
    send_mark(&mut session, topic, round, size)?;
    account.published(MARK | round, 1, 1);
    account.begin_reading();
    subscribe(&mut session, topic, &format!("crash-reader-{round}"), 1)?;
    session.send(&request::flow(1, PERMITS))?;
    let (mut taken, bodies) = (0, Bodies::default());
    loop {
        let (command, payload) = session.next_with_payload()?;
        match command {
            Command::Message(delivery) if delivery.consumer_id == 1 => {
                let payload = payload.context("a message without content")?;
                let mut marked = false;
                taken += each_stamp(&payload, &bodies, |stamp, is_whole| {
                    account.saw(stamp, is_whole);
                    marked |= stamp.source == MARK | round;
                })?;
                if marked {
                    return Ok(());
                }
                if taken >= PERMITS / 2 {
                    session.send(&request::flow(1, taken))?;
                    taken = 0;
                }
            }
            Command::CloseConsumer(_) => bail!("the broker closed the reader"),
            _ => {}
        }
    }
}

fn subscribe(session: &mut Session, topic: &str, name: &str, consumer_id: u64) -> anyhow::Result<()> {
    let mut subscribe = request::subscribe(topic, name, SubType::Exclusive, consumer_id, 0);
    subscribe.initial_position = Some(InitialPosition::Earliest as i32);
    let make = move |id| {
        let mut subscribe = subscribe.clone();
        subscribe.request_id = id;
        subscribe.into()
    };
    session.ask_all(std::iter::once((format!("subscription {name} of {topic}"), make)))
}

fn send_mark(session: &mut Session, topic: &str, round: u32, size: usize) -> anyhow::Result<()> {
    let author = Author {
        producer_id: 0,
        source: MARK | round,
        name: format!("crash-mark-{round}"),
    };
    let make = |id: u64| request::producer(topic, 0, id, Some(&author.name)).into();
    session.ask_all(std::iter::once((format!("producer on {topic}"), make)))?;
    let due = Due {
        first_ns: clock::monotonic_ns(),
        step_ns: 0.0,
    };
    let mut out = Vec::new();
    BatchTemplate::new(size, 1, 0).write(&author, &mut out, 0, 1, due, clock::wall_ns);
    session.send_bytes(&out)?;
    loop {
        match session.next_with_payload()?.0 {
            Command::SendReceipt(_) => break,
            Command::SendError(error) => bail!("the mark was refused: {}", error.message),
            Command::Error(error) => bail!("{}", command::refusal(&error)),
            _ => {}
        }
    }
    let make = |id: u64| request::close_producer(0, id);
    session.ask_all(std::iter::once(("closing a producer".to_owned(), make)))
}

/// Every message of an entry, and whether its bytes are those that were sent; their number.
fn each_stamp(part: &[u8], bodies: &Bodies, mut visit: impl FnMut(&Stamp, bool)) -> anyhow::Result<u32> {
    let content = message::parse_content(part).context("an entry that cannot be read")?;
    let peek = message::peek_metadata(content.metadata).context("metadata that cannot be read")?;
    let mut rest = content.payload;
    let count = peek.batch.unwrap_or(1);
    for _ in 0..count {
        let payload = match peek.batch {
            Some(_) => next_in_batch(&mut rest).context("a batch that ends early")?,
            None => rest,
        };
        let stamp = Stamp::read(payload).context("a message that is none of ours")?;
        visit(&stamp, bodies.is_right(&stamp, payload));
    }
    Ok(count)
}
