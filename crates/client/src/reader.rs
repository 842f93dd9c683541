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
    /// Members of the first entry up to this index were read before.
    skip: Option<(u64, u64, i32)>,
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
        let skip = start
            .batch_index
            .filter(|index| *index >= 0)
            .map(|index| (start.ledger_id, start.entry_id, index));
        // From within a batch: the entry is read again from its beginning, and its first members are skipped here.
        let mut from = start.clone();
        if skip.is_some() {
            from.entry_id = from.entry_id.wrapping_sub(1);
            from.batch_index = None;
            from.batch_size = None;
        }
        let consumer = self.subscribe(topic, options.non_durable(from)).await?;
        Ok(Reader {
            consumer,
            position: start,
            skip,
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
            let at = (message.id.ledger_id, message.id.entry_id);
            let index = message.id.batch_index.unwrap_or(-1);
            match self.skip {
                Some((ledger, entry, last)) if at == (ledger, entry) && index <= last => {}
                _ => {
                    self.skip = None;
                    self.position = message.id.clone();
                    return Ok(message);
                }
            }
        }
    }

    /// Whether the topic has a message after the last one that was read.
    ///
    /// # Errors
    /// As any request.
    pub async fn has_next(&self) -> Result<bool, ClientError> {
        let last = self.consumer.last_message_id().await?.last_message_id;
        let signed = |n: u64| n.cast_signed();
        if signed(last.entry_id) < 0 {
            return Ok(false);
        }
        let place = |id: &MessageIdData| {
            // A whole entry counts as its last member.
            let index = id.batch_index.filter(|index| *index >= 0).unwrap_or(i32::MAX);
            (signed(id.ledger_id), signed(id.entry_id), index)
        };
        Ok(place(&last) > place(&self.position))
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
