//! Receiving over MQTT: a client with a connection of its own for each subscription, every message acknowledged.

use std::net::SocketAddr;

use anyhow::ensure;
use pharos_bench::load::{Control, Count, FrameError, Link, Poller, ReceiveProtocol, Seats, Teller, receive};

use super::wire::{self, Packet};
use crate::share::ReceiveShare;
use crate::spec::Load;

/// Runs until stopped; reports through `teller`.
pub(crate) fn run(
    address: SocketAddr,
    load: &Load,
    share: &ReceiveShare,
    control: &Control,
    mut teller: Teller,
) -> anyhow::Result<()> {
    let poller = Poller::new()?;
    let partitions = load.partitions.max(1) as usize;
    let mut links = Vec::new();
    for (number, unit) in share.units.iter().enumerate() {
        let client = format!("{}-{}-{}", share.prefix(), unit.subscription, unit.topic);
        let stream = super::connect(address, &client)?;
        let mut request = Vec::new();
        wire::subscribe(&mut request, &format!("b{}/+", unit.topic));
        let answer = super::ask(&stream, &request, wire::SUBSCRIBE_ANSWER_BYTES)?;
        ensure!(
            answer.first() == Some(&wire::SUBSCRIBE_ANSWER) && answer.last() == Some(&1),
            "subscribing was answered with {answer:?}"
        );
        teller.attached();
        links.push(Link::plain(stream, &poller, number as u64)?);
    }
    let seats = Seats {
        consumers: links.len() * partitions,
        ordered: true,
        from_first: true,
    };
    receive(
        MqttReceive { partitions },
        (poller, links),
        seats,
        control,
        teller,
    )
}

struct MqttReceive {
    partitions: usize,
}

impl ReceiveProtocol for MqttReceive {
    fn begin(&mut self, _link: usize, _out: &mut Vec<u8>) {}

    fn whole_len(start: &[u8]) -> Result<Option<usize>, FrameError> {
        wire::whole_len(start)
    }

    fn on_frame(
        &mut self,
        link: usize,
        frame: &[u8],
        out: &mut Vec<u8>,
        count: &mut Count<'_>,
    ) -> Result<(), FrameError> {
        if let Packet::Message {
            topic,
            number,
            payload,
        } = wire::parse(frame)?
        {
            let partition = super::partition(topic).ok_or(FrameError::Malformed)?;
            count.message(link * self.partitions + partition as usize, payload, 0);
            if let Some(number) = number {
                wire::receipt(out, number);
            }
        }
        Ok(())
    }
}
