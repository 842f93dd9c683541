//! The producers of a topic: one for each partition, or one.

use pharos_client::{ClientError, Producer, ProducerOptions};
use pharos_runtime::clock;
use pharos_types::TopicName;
use pharos_types::hash::java_string_hash;

use crate::link::Link;

/// Hash function for message keys.
pub(crate) type KeyHash = fn(&str) -> u32;

/// Partition routing of messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Routing {
    /// Messages without a key go to one partition.
    pub(crate) to_one: bool,
    /// Routes them to one partition until its batch is sent.
    pub(crate) by_batch: bool,
    pub(crate) hash: KeyHash,
}

impl Default for Routing {
    fn default() -> Self {
        Self {
            to_one: false,
            by_batch: false,
            hash: java_string_hash,
        }
    }
}

/// Producers, by partition.
#[derive(Debug)]
pub(crate) struct Partitions {
    producers: Vec<Producer>,
    routing: Routing,
    /// The partition of the next message without a key.
    next: usize,
}

impl Partitions {
    /// Makes them all.
    ///
    /// # Errors
    /// As a client that makes one.
    pub(crate) async fn open(
        link: &mut Link,
        topic: &TopicName,
        options: &ProducerOptions,
        routing: Routing,
    ) -> Result<Self, ClientError> {
        let mut producers = Vec::new();
        for topic in link.topics(&topic.to_string()).await? {
            let made = link.at(&topic, None, |connection| {
                let (options, topic) = (options.clone(), topic.clone());
                // The link has found the broker.
                let options = ProducerOptions {
                    lookup: false,
                    ..options
                };
                async move { connection.producer(&topic, options).await }
            });
            producers.push(made.await?);
        }
        // Not all begin at the same partition.
        let next = usize::try_from(clock::now().0 >> 10).unwrap_or_default() % producers.len().max(1);
        Ok(Self {
            producers,
            routing,
            next,
        })
    }

    /// The partition of the next message, which has this key.
    pub(crate) fn of_message(&mut self, key: Option<&str>) -> usize {
        let count = self.producers.len().max(1);
        match key {
            Some(key) => usize::try_from((self.routing.hash)(key)).unwrap_or_default() % count,
            None if self.routing.to_one || self.routing.by_batch => self.next,
            None => {
                let partition = self.next;
                self.next = (partition + 1) % count;
                partition
            }
        }
    }

    /// A batch of a partition is sent: the next one goes to the next partition.
    pub(crate) fn on_batch(&mut self, partition: usize) {
        if self.routing.by_batch && !self.routing.to_one && partition == self.next {
            self.next = (partition + 1) % self.producers.len().max(1);
        }
    }

    pub(crate) fn producers(&self) -> &[Producer] {
        &self.producers
    }

    pub(crate) fn producer(&self, partition: usize) -> Option<&Producer> {
        self.producers.get(partition)
    }

    /// Reason why one of the producers ended; `None` while all are open.
    pub(crate) fn end_reason(&self) -> Option<ClientError> {
        self.producers.iter().find_map(Producer::end_reason)
    }
}
