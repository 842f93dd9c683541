//! A session that consumes or reads: messages out, acknowledgements in.
//!
//! ```text
//!   pushed: at most receiverQueueSize messages are with the caller unacknowledged; each acknowledgement makes room for one more
//!   pulled: as many messages go out as the caller has permitted
//! ```
//! An acknowledgement goes on to the broker as it comes, and makes room here. A reader's makes room only.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pharos_client::{ClientError, Message, MessageId, earliest, latest};
use pharos_runtime::{ShutdownToken, iso_time};
use tokio::time::{Instant, Interval};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use crate::UpgradeRefusal;
use crate::consumer_parameters::ConsumerParameters;
use crate::counts::DoorCounters;
use crate::dead_letters::{CarriedLetter, DeadLetters};
use crate::frames::{ConsumerCommand, ConsumerMessage, EndOfTopic, read_id, write_id};
use crate::link::Link;
use crate::memory::SessionMemory;
use crate::refusal::said;
use crate::socket::{SessionEnd, Socket, ticks};
use crate::source::{ConsumerSource, next_of};
use crate::target::SessionTarget;

/// Maximum number of unacknowledged messages of a consumer in pull mode; no broker sends more by default.
const PULLED_MAX: usize = 50_000;
/// Minimum pause before a message is requested again because its dead letter could not be stored.
const LETTER_PAUSE_MIN: Duration = Duration::from_secs(1);

/// A message that is with the caller.
struct Given {
    id: MessageId,
    source: usize,
    at: Instant,
}

/// Key of a message id: ledger, entry, partition, index in the batch.
type Key = (u64, u64, i32, i32);

fn key_of(id: &MessageId) -> Key {
    let (partition, index) = (id.partition.unwrap_or(-1), id.batch_index.unwrap_or(-1));
    (id.ledger_id, id.entry_id, partition, index)
}

/// The consumers of a session.
pub(crate) struct ConsumerSession {
    counters: Arc<DoorCounters>,
    link: Link,
    sources: Vec<ConsumerSource>,
    parameters: ConsumerParameters,
    /// Messages sent to the caller and not acknowledged.
    given: HashMap<Key, Given>,
    /// Messages negatively acknowledged by the caller, in the order of their redelivery.
    given_back: VecDeque<Given>,
    /// Permits given by the caller.
    permits: u64,
    dead_letters: Option<DeadLetters>,
    memory: SessionMemory,
}

impl ConsumerSession {
    /// # Errors
    /// [`UpgradeRefusal`]: there are none.
    pub(crate) async fn open(
        mut link: Link,
        target: &SessionTarget,
        mut parameters: ConsumerParameters,
        payload_bytes_max: usize,
        counters: Arc<DoorCounters>,
        memory: SessionMemory,
    ) -> Result<Self, UpgradeRefusal> {
        let options = &mut parameters.subscribing.options;
        options.lookup = false;
        options.receiver_queue_size = 0;
        options.decompress_bytes_max = Some(payload_bytes_max);
        let topics = link.topics(&target.topic.to_string()).await?;
        let is_one_place = |start: &MessageId| {
            start.ledger_id != earliest().ledger_id && start.ledger_id != latest().ledger_id
        };
        if topics.len() > 1 && parameters.subscribing.start.as_ref().is_some_and(is_one_place) {
            let reason = "a partitioned topic is read from earliest or latest; name a partition to read it from a message";
            return Err(UpgradeRefusal::bad_request(reason));
        }
        let mut sources = Vec::new();
        for topic in topics {
            sources.push(ConsumerSource::open(&mut link, &topic, &parameters.subscribing).await?);
        }
        let dead_letters = parameters.dead_letters.clone().map(|policy| {
            let name = parameters.subscribing.options.command.consumer_name.as_deref();
            DeadLetters::new(link.clone(), policy, &target.topic, name.unwrap_or_default())
        });
        Ok(Self {
            counters,
            link,
            sources,
            parameters,
            dead_letters,
            memory,
            given: HashMap::new(),
            given_back: VecDeque::new(),
            permits: 0,
        })
    }

    /// Serves the caller until one of both goes. What it has not acknowledged is delivered again, here or elsewhere.
    pub(crate) async fn run(mut self, mut socket: Socket, stop: &mut ShutdownToken) {
        let mut ticks = ticks();
        let end = loop {
            // A caller that takes nothing must not hold up the stop of the node.
            let step = tokio::select! {
                biased;
                () = stop.triggered() => Err(SessionEnd::stopping()),
                step = self.step(&mut socket, &mut ticks) => step,
            };
            if let Err(end) = step {
                break end;
            }
        };
        tracing::debug!(
            ?end,
            unacknowledged = self.given.len(),
            "a WebSocket session of a consumer ends"
        );
        if end == SessionEnd::Stalled {
            self.counters.stalled.add_one();
        }
        socket.close(end).await;
    }

    /// Messages that may go out now.
    fn room(&self) -> usize {
        let with_caller = self.given.len() + self.given_back.len();
        match self.parameters.is_pulled {
            true => PULLED_MAX
                .saturating_sub(with_caller)
                .min(usize::try_from(self.permits).unwrap_or(usize::MAX)),
            // What was given back makes room, as what was acknowledged does.
            false => self
                .parameters
                .window
                .saturating_sub(self.given.len())
                .min(PULLED_MAX.saturating_sub(with_caller)),
        }
    }

    async fn step(&mut self, socket: &mut Socket, ticks: &mut Interval) -> Result<(), SessionEnd> {
        let room = self.room();
        let each = room.div_ceil(self.sources.len().max(1));
        // A session that has nothing from the broker holds nothing: it may always ask for one.
        let is_exhausted = self.memory.is_exhausted() && self.sources.iter().any(ConsumerSource::is_served);
        for source in self.sources.iter_mut().filter(|_| !is_exhausted) {
            if let Err(error) = source.grant(each as u64).await {
                tracing::debug!(%error, "a consumer of a WebSocket gets no permits");
            }
        }
        let takes = room > 0 && self.dead_letters.as_ref().is_none_or(DeadLetters::has_room);
        tokio::select! {
            biased;
            // Before what comes: who is busy all the time gives back in time as well.
            _ = ticks.tick() => {
                socket.on_tick().await?;
                self.on_tick().await
            }
            text = socket.next() => self.on_text(socket, &text?).await,
            carried = next_letter(&mut self.dead_letters) => self.on_letter(carried).await,
            (index, outcome) = next_of(&mut self.sources), if takes => match outcome {
                Ok(message) => self.on_message(socket, index, message).await,
                Err(error) => self.on_error(index, error).await,
            },
        }
    }

    async fn on_message(
        &mut self,
        socket: &mut Socket,
        index: usize,
        message: Message,
    ) -> Result<(), SessionEnd> {
        let Some(source) = self.sources.get_mut(index) else {
            return Ok(());
        };
        if !source.on_message(&message) {
            return Ok(());
        }
        if !message.metadata.encryption_keys.is_empty() {
            return Err(SessionEnd::policy(
                "the next message is encrypted, and such are not delivered to WebSockets",
            ));
        }
        if message
            .metadata
            .num_chunks_from_msg
            .is_some_and(|chunks| chunks > 1)
        {
            return Err(SessionEnd::policy(
                "the next message is in chunks, and such are not delivered to WebSockets",
            ));
        }
        if let Some(letters) = self
            .dead_letters
            .as_mut()
            .filter(|letters| letters.is_due(&message))
        {
            letters.push(index, source.topic(), &message);
            // It may be with the caller still, as part of a batch that was given back.
            let key = key_of(&message.id);
            self.given.remove(&key);
            self.taken_back(&key);
            return Ok(());
        }
        let event_time = match &message.single {
            Some(single) => single.event_time,
            None => message.metadata.event_time,
        };
        let frame = ConsumerMessage {
            message_id: write_id(&message.id),
            payload: STANDARD.encode(&message.payload),
            properties: message.properties(),
            publish_time: iso_time(message.metadata.publish_time),
            redelivery_count: message.redelivery_count,
            event_time: event_time.filter(|ms| *ms > 0).map(iso_time),
            key: message.key(),
        };
        let given = Given {
            id: message.id.clone(),
            source: index,
            at: Instant::now(),
        };
        self.given.insert(key_of(&message.id), given);
        self.permits = self.permits.saturating_sub(1);
        let text = serde_json::to_string(&frame).map_err(|error| SessionEnd::error(error.to_string()))?;
        // The encoded text is all that is kept while the caller takes it.
        let held_bytes = source.ahead_bytes();
        drop(frame);
        drop(message);
        socket.send_text(text, held_bytes).await?;
        self.counters.messages_out.add_one();
        Ok(())
    }

    /// Handles an error of a consumer.
    async fn on_error(&mut self, index: usize, error: ClientError) -> Result<(), SessionEnd> {
        let Some(source) = self.sources.get_mut(index) else {
            return Ok(());
        };
        match error {
            ClientError::EndOfTopic => {
                source.has_ended = true;
                // What was given back may still come.
                source.consumer.expect_more();
                Ok(())
            }
            ClientError::ClosedByBroker | ClientError::Disconnected { .. } => {
                if !source.may_reopen() {
                    return Err(SessionEnd::moved(&said(&error)));
                }
                tracing::debug!(%error, "a consumer of a WebSocket subscribes again");
                let reopened = source.reopen(&mut self.link).await;
                reopened.map_err(|error| SessionEnd::moved(&said(&error)))?;
                // What is not acknowledged comes again by itself; the caller may still acknowledge it.
                self.given.retain(|_, given| given.source != index);
                self.given_back.retain(|given| given.source != index);
                if let Some(letters) = &mut self.dead_letters {
                    letters.forget(index);
                }
                Ok(())
            }
            error => Err(SessionEnd::error(said(&error))),
        }
    }

    async fn on_text(&mut self, socket: &mut Socket, text: &str) -> Result<(), SessionEnd> {
        let command: ConsumerCommand = serde_json::from_str(text)
            .map_err(|error| SessionEnd::malformed(format!("no command in JSON: {error}")))?;
        match command.kind.as_deref() {
            None | Some("" | "ack" | "acknowledge") => {
                let id = id_in(&command)?;
                self.acknowledge(&id).await
            }
            Some("negativeAcknowledge") if !self.parameters.is_reader => {
                let id = id_in(&command)?;
                self.give_back(&id);
                Ok(())
            }
            Some("permit") if self.parameters.is_pulled => {
                let Some(permits) = command.permit_messages else {
                    return Err(SessionEnd::malformed("permitMessages is missing"));
                };
                self.permits = self.permits.saturating_add(u64::from(permits));
                Ok(())
            }
            // Who is pushed messages needs none.
            Some("permit") => Ok(()),
            Some("unsubscribe") if !self.parameters.is_reader => {
                for source in &mut self.sources {
                    let outcome = source.consumer.unsubscribe(false).await;
                    outcome.map_err(|error| SessionEnd::policy(said(&error)))?;
                }
                Err(SessionEnd::Goodbye(CloseCode::Normal, "unsubscribed".to_owned()))
            }
            Some("isEndOfTopic") => {
                let end_of_topic = self.sources.iter().all(|source| source.has_ended);
                socket.send(&EndOfTopic { end_of_topic }).await
            }
            Some(_) => Err(SessionEnd::malformed("there is no command of this type here")),
        }
    }

    async fn acknowledge(&mut self, id: &MessageId) -> Result<(), SessionEnd> {
        let key = key_of(id);
        let (id, index) = match self.given.remove(&key) {
            Some(given) => (given.id, given.source),
            // Of an earlier session. A place in a batch says nothing of what is left of that: it comes again.
            None if id.batch_index.is_none() => (id.clone(), self.source_of(id)),
            None => match self.taken_back(&key) {
                Some(given) => (given.id, given.source),
                None => return Ok(()),
            },
        };
        if self.parameters.is_reader {
            return Ok(());
        }
        self.tell_acknowledged(index, &id).await
    }

    async fn tell_acknowledged(&mut self, index: usize, id: &MessageId) -> Result<(), SessionEnd> {
        let Some(source) = self.sources.get_mut(index) else {
            return Ok(());
        };
        match source.consumer.ack(id).await {
            Ok(()) => Ok(()),
            // It comes again, once the consumer has subscribed again.
            Err(error) if error.is_transient() => Ok(()),
            Err(error) => Err(SessionEnd::error(said(&error))),
        }
    }

    /// Acknowledges a message that is in the dead letter topic. One that is not there is asked for again, not at once.
    async fn on_letter(&mut self, carried: CarriedLetter) -> Result<(), SessionEnd> {
        if carried.is_stored {
            self.counters.dead_letters.add_one();
            return self.tell_acknowledged(carried.source, &carried.id).await;
        }
        let delay = self.parameters.nack_delay.max(LETTER_PAUSE_MIN);
        self.give_back_at(Given {
            id: carried.id,
            source: carried.source,
            at: Instant::now() + delay,
        });
        Ok(())
    }

    /// Removes a negatively acknowledged message that is acknowledged before its redelivery.
    fn taken_back(&mut self, key: &Key) -> Option<Given> {
        let index = self
            .given_back
            .iter()
            .position(|given| key_of(&given.id) == *key)?;
        self.given_back.remove(index)
    }

    fn source_of(&self, id: &MessageId) -> usize {
        match self.sources.len() {
            1 => 0,
            _ => usize::try_from(id.partition.unwrap_or_default()).unwrap_or(usize::MAX),
        }
    }

    fn give_back(&mut self, id: &MessageId) {
        // What is not with the caller cannot be given back.
        if let Some(given) = self.given.remove(&key_of(id)) {
            let at = Instant::now() + self.parameters.nack_delay;
            self.give_back_at(Given { at, ..given });
        }
    }

    fn give_back_at(&mut self, given: Given) {
        let place = self.given_back.partition_point(|earlier| earlier.at <= given.at);
        self.given_back.insert(place, given);
    }

    /// Asks again for what was given back, and for what the caller has had for too long.
    async fn on_tick(&mut self) -> Result<(), SessionEnd> {
        let now = Instant::now();
        let mut due: Vec<Given> = Vec::new();
        while let Some(given) = self.given_back.pop_front_if(|given| given.at <= now) {
            due.push(given);
        }
        if let Some(timeout) = self.parameters.ack_timeout {
            let is_late = |given: &Given| now.duration_since(given.at) >= timeout;
            due.extend(
                self.given
                    .extract_if(|_, given| is_late(given))
                    .map(|(_, given)| given),
            );
        }
        for (index, source) in self.sources.iter_mut().enumerate() {
            let of_source = due.iter().filter(|given| given.source == index);
            let ids: Vec<MessageId> = of_source.map(|given| given.id.clone()).collect();
            if ids.is_empty() {
                continue;
            }
            if let Err(error) = source.consumer.redeliver(&ids).await {
                tracing::debug!(%error, "a consumer of a WebSocket gives nothing back");
            }
        }
        Ok(())
    }
}

/// Result of the next dead letter.
///
/// Cancel safety: nothing is lost when the future is dropped.
async fn next_letter(letters: &mut Option<DeadLetters>) -> CarriedLetter {
    match letters {
        Some(letters) => letters.next().await,
        None => std::future::pending().await,
    }
}

fn id_in(command: &ConsumerCommand) -> Result<MessageId, SessionEnd> {
    let text = command.message_id.as_deref();
    let id = text.ok_or_else(|| SessionEnd::malformed("messageId is missing"))?;
    read_id(id).ok_or_else(|| SessionEnd::malformed("messageId is none"))
}
