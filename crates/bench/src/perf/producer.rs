//! Publishing in the Pulsar protocol; the loop is [`super::publish`]'s.

use std::net::SocketAddr;

use pharos_wire::command::Command;
use pharos_wire::{frame as wire_frame, request};

use crate::access::Access;
use crate::clock;
use crate::net::Poller;
use crate::proto::command;
use crate::proto::frame::{self, FrameError};

use super::batch::{Author, BatchTemplate};
use super::link::Sessions;
use super::publish::{Heard, LaneStart, OutgoingBatch, Pace, PublishProtocol, publish};
use super::slice::{Control, Teller};

/// Producer to create.
#[derive(Clone, Debug)]
pub struct ProducerPlan {
    /// Its topic or partition.
    pub topic: String,
    /// The broker that serves it.
    pub broker: SocketAddr,
    /// Its number within the run; goes into every payload.
    pub source: u32,
    /// Its first message is due this long after the start, so that a thousand producers do not all begin at once.
    pub offset_ns: u64,
}

/// Publish options of all producers of a thread.
#[derive(Clone, Debug)]
pub struct PublishPlan {
    /// JSON Web Token.
    pub access: Access,
    /// The producers.
    pub producers: Vec<ProducerPlan>,
    /// Connections to each broker.
    pub connections: u32,
    /// Payload bytes.
    pub size: usize,
    /// Messages a second of one producer; 0 for as fast as it goes.
    pub rate: f64,
    /// Each producer ends after so many messages.
    pub limit: Option<u64>,
    /// Most messages in a batch.
    pub batch_messages: u32,
    /// Most bytes in a batch.
    pub batch_bytes: usize,
    /// Oldest a batch may get.
    pub batch_delay_ns: u64,
    /// Most sends without a receipt, per producer.
    pub window: usize,
}

/// Runs until stopped or until all is sent; reports through `teller`.
///
/// # Errors
/// A connection is lost or a producer is refused or closed.
pub fn run(plan: &PublishPlan, control: &Control, teller: Teller) -> anyhow::Result<()> {
    let poller = Poller::new()?;
    let (lanes, authors, sessions) = create(plan)?;
    let links = sessions.into_links(&poller)?;
    let protocol = PulsarPublish {
        template: BatchTemplate::new(plan.size, plan.batch_messages, plan.batch_bytes),
        authors,
    };
    let pace = Pace {
        size: plan.size,
        rate: plan.rate,
        limit: plan.limit,
        batch_delay_ns: plan.batch_delay_ns,
        window: plan.window,
    };
    publish(protocol, (poller, links), &lanes, &pace, control, teller)
}

/// Opens the connections and creates the producers.
fn create(plan: &PublishPlan) -> anyhow::Result<(Vec<LaneStart>, Vec<Author>, Sessions)> {
    let mut sessions = Sessions::new(plan.connections);
    let (mut lanes, mut authors) = (Vec::new(), Vec::new());
    for (number, producer) in plan.producers.iter().enumerate() {
        lanes.push(LaneStart {
            link: sessions.to(producer.broker, number, &plan.access)?,
            source: producer.source,
            offset_ns: producer.offset_ns,
        });
        authors.push(Author {
            producer_id: number as u64,
            source: producer.source,
            name: format!("bench-{}-{}", std::process::id(), producer.source),
        });
    }
    for (link, session) in sessions.all() {
        let own = lanes.iter().zip(&authors).zip(&plan.producers);
        let own = own.filter(|((lane, _), _)| lane.link == link);
        session.ask_all(own.map(|((_, author), producer)| {
            let Author {
                producer_id, name, ..
            } = author;
            let make = move |id: u64| request::producer(&producer.topic, *producer_id, id, Some(name)).into();
            (format!("producer on {}", producer.topic), make)
        }))?;
    }
    Ok((lanes, authors, sessions))
}

struct PulsarPublish {
    template: BatchTemplate,
    /// By producer.
    authors: Vec<Author>,
}

impl PublishProtocol for PulsarPublish {
    fn capacity(&self) -> u32 {
        self.template.capacity
    }

    fn write(&mut self, _link: usize, batch: &OutgoingBatch, out: &mut Vec<u8>) {
        if let Some(author) = self.authors.get(batch.lane) {
            let (sequence, count, due) = (batch.sequence, batch.count, batch.due);
            self.template
                .write(author, out, sequence, count, due, clock::wall_ns);
        }
    }

    fn whole_len(start: &[u8]) -> Result<Option<usize>, FrameError> {
        frame::whole_len(start)
    }

    fn on_frame(&mut self, _link: usize, whole: &[u8], heard: &mut Heard<'_>) -> Result<(), FrameError> {
        let (bytes, _) = frame::split(whole).ok_or(FrameError::Malformed)?;
        match wire_frame::decode_command(bytes).map_err(|_| FrameError::Malformed)? {
            Command::SendReceipt(receipt) => heard.receipt(receipt.producer_id as usize, receipt.sequence_id),
            Command::SendError(error) => heard.refused(&error.message),
            Command::Error(error) => heard.fail(command::refusal(&error)),
            Command::CloseProducer(_) => heard.fail("the broker closed a producer".to_owned()),
            Command::Ping(_) => command::push(heard.out, &request::pong()),
            _ => {}
        }
        Ok(())
    }
}
