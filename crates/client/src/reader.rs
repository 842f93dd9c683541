//! Readers: a topic from a place on, without leaving a subscription behind.

use pharos_wire::proto::MessageIdData;
use pharos_wire::proto::command_subscribe::SubType;

use crate::{ClientError, Connection, Consumer, ConsumerOptions, Message};

/// Reads a topic from a place on.
#[derive(Debug)]
pub struct Reader {
    consumer: Consumer,
    /// The last message handed out, or the place where reading began.
    position: MessageIdData,
    /// True if messages up to `position` may still arrive: brokers begin with the entry of the start, read before or
    /// not.
    is_beginning: bool,
}

impl Connection {
    /// Reads what comes after `start`: a message id, [`crate::earliest`] or [`crate::latest`].
    ///
    /// # Errors
    /// `Refused`, `Redirected`; as any request.
    pub async fn reader(&self, topic: &str, start: MessageIdData) -> Result<Reader, ClientError> {
        let name = format!(
            "reader-{:x}-{:x}",
            pharos_runtime::clock::wall_ms(),
            self.next_id()
        );
        let options = ConsumerOptions::new(&name, SubType::Exclusive);
        self.reader_with(topic, start, options).await
    }

    /// As [`Connection::reader`], on a subscription with the given options; it is made non-durable.
    ///
    /// # Errors
    /// `Refused`, `Redirected`; as any request.
    pub async fn reader_with(
        &self,
        topic: &str,
        start: MessageIdData,
        options: ConsumerOptions,
    ) -> Result<Reader, ClientError> {
        let options = options.non_durable(start.clone());
        Ok(Reader {
            consumer: self.subscribe(topic, options).await?,
            position: start,
            is_beginning: true,
        })
    }
}

impl Reader {
    /// The next message.
    ///
    /// # Errors
    /// As [`Consumer::receive`].
    ///
    /// Cancel safety: nothing is lost when the future is dropped.
    pub async fn next(&mut self) -> Result<Message, ClientError> {
        loop {
            let message = self.consumer.receive().await?;
            // Another ledger is never before the start, and the ends of a topic have no ledger of their own.
            let is_old = message.id.ledger_id == self.position.ledger_id
                && place(&message.id) <= place(&self.position);
            if self.is_beginning && is_old {
                continue;
            }
            self.is_beginning = false;
            self.position = message.id.clone();
            return Ok(message);
        }
    }

    /// True if the topic has a message after the last one that was read.
    ///
    /// # Errors
    /// As any request.
    pub async fn has_next(&self) -> Result<bool, ClientError> {
        let last = self.consumer.last_message_id().await?.last_message_id;
        let is_empty = last.entry_id.cast_signed() < 0;
        Ok(!is_empty && place(&last) > place(&self.position))
    }

    /// The consumer behind it.
    #[must_use]
    pub fn consumer(&mut self) -> &mut Consumer {
        &mut self.consumer
    }

    /// Closes it and waits for the broker's word. Dropping it does the same without waiting.
    ///
    /// # Errors
    /// As any request.
    pub async fn close(self) -> Result<(), ClientError> {
        self.consumer.close().await
    }
}

/// Sort key of message ids; a whole entry counts as its last member.
fn place(id: &MessageIdData) -> (i64, i64, i32) {
    let index = id.batch_index.filter(|index| *index >= 0).unwrap_or(i32::MAX);
    (id.ledger_id.cast_signed(), id.entry_id.cast_signed(), index)
}
