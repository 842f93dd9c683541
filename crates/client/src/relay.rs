//! A producer that passes entries on as they are: several original producers share it, so its owner numbers nothing and matches the
//! receipts itself.

use pharos_wire::command::Command;
use pharos_wire::encode;
use pharos_wire::proto::{CommandSend, CommandSendError, CommandSendReceipt, FeatureFlags};
use pharos_wire::request;
use tokio::sync::mpsc;

use crate::connection::unexpected;
use crate::driver::ProducerRoute;
use crate::{ClientError, Connection, ProducerOptions};

/// Broker's answer to one send, in the order of the sends.
#[derive(Clone, Debug, PartialEq)]
pub enum RelayAnswer {
    /// The message is stored.
    Stored(CommandSendReceipt),
    /// The message is not stored.
    Refused(CommandSendError),
}

/// The sending side of a producer that passes entries on. Dropping it closes the producer.
#[derive(Debug)]
pub struct RelayProducer {
    connection: Connection,
    producer_id: u64,
}

/// The answers to what a [`RelayProducer`] sent.
#[derive(Debug)]
pub struct RelayAnswers {
    connection: Connection,
    answers: mpsc::Receiver<RelayAnswer>,
}

impl Connection {
    /// Makes a producer that passes entries on. Its owner has at most `options.max_pending` sends without an answer.
    ///
    /// # Errors
    /// `Refused`, `Redirected`; as any request.
    pub async fn relay(
        &self,
        topic: &str,
        options: ProducerOptions,
    ) -> Result<(RelayProducer, RelayAnswers), ClientError> {
        if options.lookup {
            self.lookup(topic).await?;
        }
        let producer_id = self.next_id();
        let (sender, answers) = mpsc::channel(options.max_pending.max(1));
        self.routes()?
            .producers
            .insert(producer_id, ProducerRoute::Relay(sender));
        // Dropped on any way out, it takes itself off the table.
        let producer = RelayProducer {
            connection: self.clone(),
            producer_id,
        };
        self.ask_for_producer(topic, producer_id, options).await?;
        let answers = RelayAnswers {
            connection: self.clone(),
            answers,
        };
        Ok((producer, answers))
    }

    /// True if the broker answers replicators by a message's source position in its original cluster.
    #[must_use]
    pub fn answers_by_source(&self) -> bool {
        let flags = self.connected().feature_flags.as_ref();
        flags.and_then(|flags: &FeatureFlags| flags.supports_repl_dedup_by_lid_and_eid) == Some(true)
    }

    /// Returns the number of partitions of a topic, without creating it; 0 if it is not partitioned.
    ///
    /// # Errors
    /// `Refused`, `TopicNotFound` when there is none; as any request.
    pub async fn partitions_if_there(&self, topic: &str) -> Result<u32, ClientError> {
        const WHAT: &str = "PARTITIONED_METADATA";
        let answer = self
            .ask(WHAT, |request_id| {
                let mut command = request::partitioned_metadata(topic, request_id);
                command.metadata_auto_creation_enabled = Some(false);
                command
            })
            .await?;
        let Command::PartitionedMetadataResponse(answer) = answer else {
            return Err(unexpected(WHAT, &answer));
        };
        match answer.error {
            Some(_) => Err(ClientError::refused(answer.error, answer.message)),
            None => Ok(answer.partitions.unwrap_or_default()),
        }
    }
}

impl RelayProducer {
    /// Sends an entry; resolves when it is queued. The producer's id is filled in.
    ///
    /// # Errors
    /// `TooLarge`, `Disconnected`.
    ///
    /// Cancel safety: a dropped future has sent nothing.
    pub async fn send(&self, mut send: CommandSend, entry: &[u8]) -> Result<(), ClientError> {
        self.connection.check_size(entry.len())?;
        send.producer_id = self.producer_id;
        let frame = encode::encode_frame(&send.into(), entry);
        self.connection.send_bytes(frame).await
    }
}

impl Drop for RelayProducer {
    fn drop(&mut self) {
        let mut routes = self.connection.remaining_routes();
        let is_known = routes.producers.remove(&self.producer_id).is_some();
        drop(routes);
        if is_known {
            let request_id = self.connection.next_id();
            self.connection
                .send_if_room(&request::close_producer(self.producer_id, request_id));
        }
    }
}

impl RelayAnswers {
    /// The next answer.
    ///
    /// # Errors
    /// `ClosedByBroker`; why the connection ended.
    ///
    /// Cancel safety: nothing is lost when the future is dropped.
    pub async fn next(&mut self) -> Result<RelayAnswer, ClientError> {
        match self.answers.recv().await {
            Some(answer) => Ok(answer),
            None => Err(self
                .connection
                .end_reason()
                .unwrap_or(ClientError::ClosedByBroker)),
        }
    }
}
