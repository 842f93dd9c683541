//! Random choice of the next actions of clients and administrators.

use std::rc::Rc;

use pharos_runtime::random::Random;
use pharos_sim::model::Move;
use pharos_topic::{AccessMode, SubscriptionType};

use super::{CLIENTS_MAX, LISTENERS, Request, SUBSCRIPTIONS, World};
use crate::client::{Client, MODES};

/// Producers that wait for their turn at once.
const WAITING_MAX: usize = 4;

impl World {
    /// Something that a client does next: a request to run, if it needs an answer.
    pub(crate) fn next(self: &Rc<Self>, random: &mut Random, topics: &[String]) -> Option<Request> {
        self.tidy();
        let topic = random.pick(topics)?.clone();
        let me = self.clone();
        if self.habits.takes_turns && random.one_in(3) {
            return self.take_turns(random, &topic);
        }
        match random.below(64) {
            0..22 => self.send(random, &topic),
            22..34 => return self.acknowledge(random),
            34..40 => return self.come(random, &topic),
            40..43 => return self.come_to_produce(random, &topic),
            43 => self.leave(random),
            44 => self.stop_producing(random),
            45..49 => return self.change_subscription(random, topic),
            49..51 => return self.seek_somewhere(random),
            51 | 52 if self.may_change(&topic) => {
                let force = !random.one_in(4);
                return Some(Box::pin(me.delete_topic(topic, force)));
            }
            53 | 54 if self.may_change(&topic) => return Some(Box::pin(me.unload(topic))),
            55 if self.may_change(&topic) => return Some(Box::pin(me.create_topic(topic))),
            56 if self.may_change(&topic) => return Some(Box::pin(me.trim(topic))),
            57..61 => return self.write_down(random),
            61 | 62 if self.habits.offloads => return Some(Box::pin(me.offload(topic))),
            _ => {}
        }
        None
    }

    fn pick(&self, random: &mut Random, which: impl Fn(&Client) -> bool) -> Option<Rc<Client>> {
        let clients = self.clients.borrow();
        let found: Vec<_> = clients.iter().filter(|client| which(client)).collect();
        random.pick(&found).map(|client| Rc::clone(client))
    }

    fn send(&self, random: &mut Random, topic: &str) {
        let at = self.pick(random, |client| client.produces() && client.topic == topic);
        let Some(client) = at.or_else(|| self.pick(random, Client::produces)) else {
            return;
        };
        if client.unanswered() < 20 {
            let bytes = if random.one_in(10) {
                2000
            } else {
                random.below(200)
            };
            client.publish(1 + random.below(3), bytes);
            self.reach("sends");
        }
    }

    fn acknowledge(self: &Rc<Self>, random: &mut Random) -> Option<Request> {
        let client = self.pick(random, |client| client.unacknowledged() > 0)?;
        let cumulative = random.one_in(3);
        let messages = client.ack(random.below(client.unacknowledged()), cumulative);
        self.reach("acknowledgements");
        if random.one_in(3) && !messages.is_empty() {
            return Some(Box::pin(self.clone().wait_for_ack(client, messages)));
        }
        None
    }

    fn leave(&self, random: &mut Random) {
        if let Some(client) = self.pick(random, Client::consumes) {
            client.leave();
        }
    }

    fn stop_producing(&self, random: &mut Random) {
        if let Some(client) = self.pick(random, Client::produces) {
            client.close_producer();
        }
    }

    fn is_crowded(&self, which: impl Fn(&Client) -> bool) -> bool {
        self.clients
            .borrow()
            .iter()
            .filter(|client| which(client))
            .count()
            >= CLIENTS_MAX / 2
    }

    fn come(self: &Rc<Self>, random: &mut Random, topic: &str) -> Option<Request> {
        if self.is_crowded(Client::consumes) {
            return None;
        }
        let (subscription, kind) = *random.pick(&SUBSCRIPTIONS)?;
        let cursor = match kind {
            SubscriptionType::Broadcast => (*random.pick(&LISTENERS)?).to_owned(),
            _ => String::new(),
        };
        let client = self.client(random, topic);
        let me = self.clone();
        Some(Box::pin(async move {
            me.subscribe(client, subscription, cursor).await;
        }))
    }

    fn come_to_produce(self: &Rc<Self>, random: &mut Random, topic: &str) -> Option<Request> {
        if self.is_crowded(Client::produces) {
            return None;
        }
        let mode = match random.one_in(2) {
            true if self.habits.takes_turns => AccessMode::WaitForExclusive,
            true => AccessMode::Shared,
            false => *random.pick(&MODES)?,
        };
        // Now and then one that was fenced off comes back.
        let epoch = self.model.borrow_mut().topic(topic).epoch;
        let held = epoch.filter(|_| random.one_in(3) && mode != AccessMode::Shared);
        let held = held.map(|epoch| epoch.saturating_sub(random.below(3) as u64));
        let client = self.client(random, topic);
        Some(Box::pin(self.clone().produce(client, mode, held)))
    }

    /// Closes the producer that holds a topic, or adds one that waits for exclusive access.
    fn take_turns(self: &Rc<Self>, random: &mut Random, topic: &str) -> Option<Request> {
        let holder = self.pick(random, |client| client.produces() && client.topic == topic);
        match holder {
            Some(holder) if random.one_in(3) => {
                holder.close_producer();
                None
            }
            _ if self.waiting.get() >= WAITING_MAX => None,
            _ => {
                let client = self.client(random, topic);
                let me = self.clone();
                Some(Box::pin(me.produce(client, AccessMode::WaitForExclusive, None)))
            }
        }
    }

    fn change_subscription(self: &Rc<Self>, random: &mut Random, topic: String) -> Option<Request> {
        let subscription = random.pick(&SUBSCRIPTIONS)?.0;
        if !self
            .model
            .borrow_mut()
            .topic(&topic)
            .subscriptions
            .contains_key(subscription)
            || !self.may_change(&topic)
        {
            return None;
        }
        let me = self.clone();
        let to = match random.below(6) {
            0 => return Some(Box::pin(me.unsubscribe(topic, subscription))),
            1 | 2 => Move::Skip(1 + random.below(4)),
            3 => Move::SkipAll,
            _ => self.somewhere(random, &topic),
        };
        Some(Box::pin(me.move_subscription(topic, subscription, to)))
    }

    fn somewhere(&self, random: &mut Random, topic: &str) -> Move {
        let known = self.model.borrow_mut().topic(topic).in_order();
        let message = random.pick(&known).copied();
        let position = message.and_then(|message| self.model.borrow_mut().topic(topic).place_of(message));
        match (random.below(4), position) {
            (0, _) => Move::Earliest,
            (1, _) | (_, None) => Move::Latest,
            (_, Some(position)) => Move::To(position),
        }
    }

    fn seek_somewhere(self: &Rc<Self>, random: &mut Random) -> Option<Request> {
        let client = self.pick(random, Client::consumes)?;
        if !self.may_change(&client.topic) {
            return None;
        }
        let to = self.somewhere(random, &client.topic);
        Some(Box::pin(self.clone().seek(client, to)))
    }
}
