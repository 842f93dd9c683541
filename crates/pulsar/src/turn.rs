//! A connection's turn of writing: what is due becomes frames.

use pharos_broker::feed::Filled;
use pharos_broker::shard::{ConnectionHandle as _, Pumped};
use pharos_runtime::{clock, spawn_local};
use pharos_transport::{Turn, Writer, write_turn};
use pharos_wire::{HeaderBuf, MessageHeader};

use crate::connection::Connection;
use crate::consumer::ConsumerSlot;
use crate::dispatched::{Body, Item};
use crate::outgoing::{Outgoing, Source, Written};
use crate::sink::{Sink, payload_for};
use crate::stall::Stalling;

impl Writer for Connection {
    fn refill(&self) -> bool {
        if self.out.borrow().missing().is_some() {
            // Nothing can be written before that, so nothing more is queued.
            Stalling(self).read_again();
            return false;
        }
        let protocol_version = self.protocol_version();
        self.refill_dispatched(protocol_version);
        // What was chosen for consumers here and found no room needs another turn as much as what groups still have.
        let mut is_all = self.dispatched.borrow().is_empty();
        while let Some(place) = self.due.next() {
            let group = self.groups.borrow().get(place);
            let Some(group) = group else { continue };
            let mut out = self.out.borrow_mut();
            let mut sink = Sink {
                out: &mut out,
                group: place,
                protocol_version,
                head: HeaderBuf::new(),
                current: None,
            };
            let filled = group.take_turn(&mut sink);
            if group.is_empty() {
                self.groups.borrow_mut().remove(place);
            }
            if filled == Filled::Full {
                is_all = false;
                break;
            }
        }
        if Stalling(self).must_read_again() {
            Stalling(self).read_again();
        }
        is_all
    }

    fn is_idle(&self) -> bool {
        let out = self.out.borrow();
        out.is_empty() || out.missing().is_some()
    }

    fn write(&self) -> std::io::Result<usize> {
        self.out.borrow_mut().write(&self.stream)
    }

    fn flush(&self) -> std::io::Result<()> {
        self.stream.flush_now()
    }

    fn on_written(&self) {
        let now = clock::now();
        loop {
            let event = self.out.borrow_mut().take_written();
            match event {
                None => return,
                Some(Written::StreamConsumers {
                    entry,
                    group,
                    messages,
                }) => {
                    let groups = self.groups.borrow();
                    if let Some(group) = groups.get(group) {
                        group.feed().on_written(&entry, u64::from(messages), now);
                    }
                }
                Some(Written::Dispatched { topic, key, bytes }) => self.shard.written(topic, key, bytes),
            }
        }
    }
}

impl Connection {
    /// Writes what is due until nothing is, the socket is full, or others should have their turn.
    pub(crate) fn write_turn(&self) -> Pumped {
        if self.out.borrow().is_idle() {
            self.out.replace(Outgoing::take());
        }
        let turn = write_turn(self);
        match turn {
            Turn::Blocked => self.wait_writable(),
            Turn::Broken => self.close(),
            Turn::Drained | Turn::More => {}
        }
        if self.out.borrow().is_idle() {
            self.out.take().give();
        }
        match turn {
            Turn::More => Pumped::More,
            Turn::Drained | Turn::Blocked | Turn::Broken => Pumped::Rests,
        }
    }

    fn refill_dispatched(&self, protocol_version: i32) {
        if self.dispatched.borrow().is_empty() {
            return;
        }
        let mut head = HeaderBuf::new();
        while self.out.borrow().has_room() {
            let Some(item) = self.next_dispatched() else {
                return;
            };
            let consumers = self.consumers.borrow();
            let Some(ConsumerSlot::Ready(consumer)) = consumers.get(&item.consumer_id) else {
                continue;
            };
            let Body::Here(entry, held) = item.body else {
                continue;
            };
            consumer.count_out(&entry);
            let payload = payload_for(protocol_version, &entry);
            let position = entry.position;
            let Ok(header) =
                MessageHeader::new(position.ledger.0, position.entry.0, item.partition, payload.len())
            else {
                continue;
            };
            head.clear();
            header.write_for(
                item.consumer_id,
                item.redelivery_count,
                &item.ack_set,
                consumer.epoch.get(),
                &mut head,
            );
            let mut out = self.out.borrow_mut();
            let source = Source {
                topic: consumer.topic,
                ordinal: entry.ordinal,
                bytes: entry.payload.len(),
            };
            out.push_dispatched(head.as_slice(), payload, source, held);
            out.mark_dispatched(consumer.topic, item.key, source.bytes as u64);
        }
    }

    /// The next entry for a consumer that is still here, unless it is set aside.
    fn next_dispatched(&self) -> Option<Item> {
        let consumers = self.consumers.borrow();
        let mut queue = self.dispatched.borrow_mut();
        while let Some(front) = queue.front() {
            let is_here = matches!(front.body, Body::Here(..));
            let is_known = matches!(consumers.get(&front.consumer_id),
                Some(ConsumerSlot::Ready(consumer)) if consumer.key == front.key);
            match (is_known, is_here) {
                (true, true) => return queue.pop(),
                (true, false) => return None,
                (false, _) => drop(queue.pop()),
            }
        }
        None
    }

    /// Only a connection whose socket is full has a task for writing, until it is not.
    fn wait_writable(&self) {
        if self.blocked.replace(true) {
            return;
        }
        Stalling(self).begin();
        let Some(me) = self.me() else { return };
        spawn_local(async move {
            tokio::select! {
                // An error shows itself at the next write.
                _ = me.stream.writable() => {}
                () = me.closing.notified() => {
                    me.closing.notify_one();
                    return;
                }
            }
            me.blocked.set(false);
            Stalling(&me).end();
            me.read_ahead.resume();
            if me.flush_turn() == Pumped::More {
                me.shard.connections.wake(me.id);
            }
        });
    }
}
