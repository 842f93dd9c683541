//! The two tasks of a connection: one writes what is queued, one reads and hands every frame to who waits for it.
//!
//! Always true: a frame that no caller waits for is dropped, and no caller waits for a connection that has ended.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use pharos_wire::command::Command;
use pharos_wire::frame::Frame;
use pharos_wire::proto::{CommandSendError, CommandSendReceipt};
use pharos_wire::{NO_REQUEST_ID, encode, request};
use tokio::io::{AsyncWriteExt as _, BufWriter};
use tokio::sync::{mpsc, oneshot};

use crate::ClientError;
use crate::event::{AssignedBroker, ConsumerEvent};
use crate::producer::Receipts;
use crate::raw::Received;
use crate::refresh::Refresh;
use crate::relay::RelayAnswer;
use crate::stream::{Incoming, Outgoing};

/// Bytes collected before a write, so that a burst of small frames is one.
const WRITE_BYTES: usize = 64 * 1024;

/// Receivers of answers. The lock is held for a single look-up or change.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
pub(crate) struct Table {
    /// Reason why the connection ended; nothing is added after that.
    ended: Option<ClientError>,
    pub(crate) requests: HashMap<u64, oneshot::Sender<Command>>,
    pub(crate) producers: HashMap<u64, ProducerRoute>,
    pub(crate) consumers: HashMap<u64, mpsc::Sender<ConsumerEvent>>,
    pub(crate) watchers: HashMap<u64, mpsc::Sender<Command>>,
}

/// Receiver of the answers to a producer's sends.
#[derive(Clone, Debug)]
pub(crate) enum ProducerRoute {
    /// Its sends by their numbers.
    Receipts(Arc<Receipts>),
    /// Its owner, in order. The queue has room for all that it may have on its way; dropped, it says that the producer is gone.
    Relay(mpsc::Sender<RelayAnswer>),
}

impl ProducerRoute {
    fn on_receipt(&self, receipt: CommandSendReceipt) {
        match self {
            Self::Receipts(receipts) => receipts.on_receipt(&receipt),
            // An answer too many has no room: nothing waits for it.
            Self::Relay(owner) => _ = owner.try_send(RelayAnswer::Stored(receipt)),
        }
    }

    fn on_error(&self, error: CommandSendError) {
        match self {
            Self::Receipts(receipts) => receipts.on_error(&error),
            Self::Relay(owner) => _ = owner.try_send(RelayAnswer::Refused(error)),
        }
    }

    fn end(&self, reason: &ClientError) {
        match self {
            Self::Receipts(receipts) => receipts.end(reason),
            // It is dropped by who took it off the table.
            Self::Relay(_) => {}
        }
    }
}

impl Routes {
    /// The table, to add to it.
    ///
    /// # Errors
    /// Why the connection ended.
    pub(crate) fn open(&self) -> Result<MutexGuard<'_, Table>, ClientError> {
        let table = self.lock();
        match &table.ended {
            Some(error) => Err(error.clone()),
            None => Ok(table),
        }
    }

    /// The table, to take from it.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the reason why the connection ended, as far as is known.
    pub(crate) fn end_reason(&self) -> ClientError {
        let ended = self.lock().ended.clone();
        ended.unwrap_or_else(|| ClientError::disconnected("the connection is closing"))
    }

    /// Ends everything; the first reason stays. Dropping the senders tells requests, consumers and watchers.
    pub(crate) fn end(&self, reason: ClientError) {
        let (reason, ended) = {
            let mut table = self.lock();
            let ended = std::mem::take(&mut *table);
            let reason = ended.ended.clone().unwrap_or(reason);
            table.ended = Some(reason.clone());
            (reason, ended)
        };
        for producer in ended.producers.values() {
            producer.end(&reason);
        }
    }
}

/// Writes what is queued until every sender is gone, then says goodbye to the socket.
pub(crate) async fn write(stream: Outgoing, mut queue: mpsc::Receiver<Bytes>, routes: Arc<Routes>) {
    let mut stream = BufWriter::with_capacity(WRITE_BYTES, stream);
    let mut outcome = Ok(());
    while let Some(bytes) = queue.recv().await {
        outcome = stream.write_all(&bytes).await;
        if outcome.is_ok() && queue.is_empty() {
            outcome = stream.flush().await;
        }
        if outcome.is_err() {
            break;
        }
    }
    match outcome {
        Ok(()) => drop(stream.shutdown().await),
        Err(error) => routes.end(ClientError::disconnected(error)),
    }
}

/// Reads frames until the connection ends and hands each on.
pub(crate) async fn read(
    mut stream: Incoming,
    mut received: Received,
    queue: mpsc::WeakSender<Bytes>,
    routes: Arc<Routes>,
    refresh: Refresh,
    keep_alive: Option<Duration>,
) {
    let reason = loop {
        match next_frame(&mut received, &mut stream, &queue, keep_alive).await {
            Ok(Some(frame)) => {
                if let Err(reason) = on_frame(frame, &queue, &routes, &refresh).await {
                    break reason;
                }
            }
            Ok(None) => break ClientError::disconnected("closed by the peer"),
            Err(error) => break error,
        }
    };
    routes.end(reason);
}

/// The next frame; a peer that is silent is asked for one, and a peer without an answer has gone.
async fn next_frame(
    received: &mut Received,
    stream: &mut Incoming,
    queue: &mpsc::WeakSender<Bytes>,
    keep_alive: Option<Duration>,
) -> Result<Option<Frame>, ClientError> {
    let Some(silence) = keep_alive else {
        return received.next(stream).await;
    };
    let mut was_asked = false;
    loop {
        let had = received.len();
        if let Ok(outcome) = tokio::time::timeout(silence, received.next(stream)).await {
            return outcome;
        }
        // A large frame on a slow line is a sign of life.
        let is_silent = received.len() == had;
        if is_silent && was_asked {
            let seconds = (silence * 2).as_secs();
            return Err(ClientError::disconnected(format!(
                "no sign of life for {seconds} s"
            )));
        }
        was_asked = is_silent;
        if is_silent {
            try_write(queue, &request::ping());
        }
    }
}

/// Hands one frame to who waits for it; an error ends the connection.
async fn on_frame(
    frame: Frame,
    queue: &mpsc::WeakSender<Bytes>,
    routes: &Routes,
    refresh: &Refresh,
) -> Result<(), ClientError> {
    let command = match frame.command {
        Command::Message(message) => {
            let id = message.consumer_id;
            let payload = frame.payload.unwrap_or_default();
            tell_consumer(routes, id, ConsumerEvent::Message { message, payload }).await;
            return Ok(());
        }
        other => other,
    };
    match command {
        Command::Ping(_) => try_write(queue, &request::pong()),
        Command::AuthChallenge(_) => refresh.begin(),
        Command::SendReceipt(receipt) => {
            let producer = routes.lock().producers.get(&receipt.producer_id).cloned();
            if let Some(producer) = producer {
                producer.on_receipt(receipt);
            }
        }
        Command::SendError(error) => {
            let producer = routes.lock().producers.get(&error.producer_id).cloned();
            if let Some(producer) = producer {
                producer.on_error(error);
            }
        }
        Command::CloseProducer(close) => {
            let producer = routes.lock().producers.remove(&close.producer_id);
            producer
                .into_iter()
                .for_each(|producer| producer.end(&ClientError::ClosedByBroker));
        }
        Command::CloseConsumer(close) => {
            let assigned = AssignedBroker {
                url: close.assigned_broker_service_url,
                url_tls: close.assigned_broker_service_url_tls,
            };
            let assigned = Some(assigned).filter(|assigned| *assigned != AssignedBroker::default());
            tell_consumer(routes, close.consumer_id, ConsumerEvent::Closed(assigned)).await;
        }
        Command::ActiveConsumerChange(change) => {
            let is_active = change.is_active.unwrap_or_default();
            tell_consumer(routes, change.consumer_id, ConsumerEvent::Active(is_active)).await;
        }
        Command::ReachedEndOfTopic(end) => {
            tell_consumer(routes, end.consumer_id, ConsumerEvent::EndOfTopic).await;
        }
        Command::WatchTopicUpdate(update) => {
            let watcher = routes.lock().watchers.get(&update.watcher_id).cloned();
            if let Some(watcher) = watcher {
                // An error says that the watcher was dropped meanwhile.
                let _ = watcher.send(Command::WatchTopicUpdate(update)).await;
            }
        }
        Command::Error(error) if error.request_id == NO_REQUEST_ID => {
            return Err(ClientError::refused(Some(error.error), Some(error.message)));
        }
        // The producer is queued for exclusive access; the same request is answered again later.
        Command::ProducerSuccess(success) if success.producer_ready == Some(false) => {}
        answer => on_answer(answer, routes),
    }
    Ok(())
}

fn on_answer(answer: Command, routes: &Routes) {
    let Some(request_id) = request_id(&answer) else {
        return;
    };
    let waiting = routes.lock().requests.remove(&request_id);
    if let Some(waiting) = waiting {
        // An error says that the caller waits no more.
        let _ = waiting.send(answer);
    }
}

async fn tell_consumer(routes: &Routes, consumer_id: u64, event: ConsumerEvent) {
    let consumer = routes.lock().consumers.get(&consumer_id).cloned();
    if let Some(consumer) = consumer {
        // An error says that the consumer was dropped meanwhile.
        let _ = consumer.send(event).await;
    }
}

/// Queues a command if there is room. The reader must not wait for the writer: if the peer does the same, neither
/// would ever go on. A full queue means that frames are on their way, and those keep a connection alive as well.
fn try_write(queue: &mpsc::WeakSender<Bytes>, command: &Command) {
    if let Some(queue) = queue.upgrade() {
        let _ = queue.try_send(encode::encode_command(command));
    }
}

/// The request that a command answers.
fn request_id(command: &Command) -> Option<u64> {
    Some(match command {
        Command::Success(answer) => answer.request_id,
        Command::Error(answer) => answer.request_id,
        Command::ProducerSuccess(answer) => answer.request_id,
        Command::PartitionedMetadataResponse(answer) => answer.request_id,
        Command::LookupResponse(answer) => answer.request_id,
        Command::ConsumerStatsResponse(answer) => answer.request_id,
        Command::GetLastMessageIdResponse(answer) => answer.request_id,
        Command::GetTopicsOfNamespaceResponse(answer) => answer.request_id,
        Command::GetSchemaResponse(answer) => answer.request_id,
        Command::GetOrCreateSchemaResponse(answer) => answer.request_id,
        Command::AckResponse(answer) => answer.request_id?,
        Command::WatchTopicListSuccess(answer) => answer.request_id,
        Command::NewTxnResponse(answer) => answer.request_id,
        Command::AddPartitionToTxnResponse(answer) => answer.request_id,
        Command::AddSubscriptionToTxnResponse(answer) => answer.request_id,
        Command::EndTxnResponse(answer) => answer.request_id,
        Command::EndTxnOnPartitionResponse(answer) => answer.request_id,
        Command::EndTxnOnSubscriptionResponse(answer) => answer.request_id,
        Command::TcClientConnectResponse(answer) => answer.request_id,
        _ => return None,
    })
}
