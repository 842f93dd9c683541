//! Questions about topics: where they are, how many partitions, which there are, which schema.

use bytes::Bytes;
use pharos_wire::command::Command;
use pharos_wire::proto::command_get_topics_of_namespace::Mode;
use pharos_wire::proto::command_lookup_topic_response::LookupType;
use pharos_wire::proto::{CommandWatchTopicUpdate, Schema};
use pharos_wire::request;
use tokio::sync::mpsc;

use crate::connection::unexpected;
use crate::{ClientError, Connection};

/// Updates that a watcher may fall behind before the connection's reader waits for it.
const WATCHER_QUEUE: usize = 256;

/// Result of a topic lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// `pulsar://host:port`; empty when the broker gave only the TLS one.
    pub broker_url: String,
    /// `pulsar+ssl://host:port`; empty when the broker gave none.
    pub broker_url_tls: String,
    /// True if the client must stay on this address and name the broker in CONNECT.
    pub through_proxy: bool,
}

/// The answer to a request for topics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicList {
    /// Full names; empty when nothing changed.
    pub topics: Vec<String>,
    /// True if the broker applied the pattern.
    pub filtered: bool,
    /// The fingerprint.
    pub hash: String,
    /// False when the given fingerprint still holds.
    pub changed: bool,
}

impl Connection {
    /// Looks up who serves a topic. Brokers that share a cluster load a topic only after this.
    ///
    /// # Errors
    /// `Redirected` to the broker that knows; `Refused`; as any request.
    pub async fn lookup(&self, topic: &str) -> Result<Lookup, ClientError> {
        self.lookup_as(topic, false).await
    }

    /// `authoritative`: the broker that sent us here says that this one decides.
    pub(crate) async fn lookup_as(&self, topic: &str, authoritative: bool) -> Result<Lookup, ClientError> {
        let answer = self
            .ask("LOOKUP", |request_id| {
                request::lookup(topic, request_id, authoritative)
            })
            .await?;
        let Command::LookupResponse(answer) = answer else {
            return Err(unexpected("LOOKUP", &answer));
        };
        let url = answer.broker_service_url.clone().unwrap_or_default();
        match answer.response() {
            LookupType::Connect => Ok(Lookup {
                broker_url: url,
                broker_url_tls: answer.broker_service_url_tls.clone().unwrap_or_default(),
                through_proxy: answer.proxy_through_service_url.unwrap_or_default(),
            }),
            LookupType::Redirect => {
                let url = match url.is_empty() {
                    true => answer.broker_service_url_tls.clone().unwrap_or_default(),
                    false => url,
                };
                Err(ClientError::Redirected {
                    url,
                    authoritative: answer.authoritative.unwrap_or_default(),
                })
            }
            LookupType::Failed => Err(ClientError::refused(answer.error, answer.message)),
        }
    }

    /// Returns the number of partitions of a topic; 0 if it is not partitioned. May create it, where that is allowed.
    ///
    /// # Errors
    /// `Refused`; as any request.
    pub async fn partitions(&self, topic: &str) -> Result<u32, ClientError> {
        const WHAT: &str = "PARTITIONED_METADATA";
        let answer = self
            .ask(WHAT, |request_id| {
                request::partitioned_metadata(topic, request_id)
            })
            .await?;
        let Command::PartitionedMetadataResponse(answer) = answer else {
            return Err(unexpected(WHAT, &answer));
        };
        if answer.error.is_some() {
            return Err(ClientError::refused(answer.error, answer.message));
        }
        Ok(answer.partitions.unwrap_or_default())
    }

    /// The topics of a namespace. `pattern` and `known_hash` may be left out.
    ///
    /// # Errors
    /// `Refused`; as any request.
    pub async fn topics_of_namespace(
        &self,
        namespace: &str,
        mode: Mode,
        pattern: Option<&str>,
        known_hash: Option<&str>,
    ) -> Result<TopicList, ClientError> {
        const WHAT: &str = "GET_TOPICS_OF_NAMESPACE";
        let answer = self
            .ask(WHAT, |request_id| {
                let mut command = request::topics_of_namespace(request_id, namespace, mode);
                command.topics_pattern = pattern.map(str::to_owned);
                command.topics_hash = known_hash.map(str::to_owned);
                command
            })
            .await?;
        let Command::GetTopicsOfNamespaceResponse(answer) = answer else {
            return Err(unexpected(WHAT, &answer));
        };
        Ok(TopicList {
            filtered: answer.filtered.unwrap_or(false),
            changed: answer.changed.unwrap_or(true),
            hash: answer.topics_hash.unwrap_or_default(),
            topics: answer.topics,
        })
    }

    /// Watches the persistent topics of a namespace that fit a pattern.
    ///
    /// # Errors
    /// `Refused`; as any request.
    pub async fn watch_topics(&self, namespace: &str, pattern: &str) -> Result<TopicWatcher, ClientError> {
        const WHAT: &str = "WATCH_TOPIC_LIST";
        let watcher_id = self.next_id();
        let (sender, updates) = mpsc::channel(WATCHER_QUEUE);
        self.routes()?.watchers.insert(watcher_id, sender);
        // From here on dropping it cleans up.
        let mut watcher = TopicWatcher {
            connection: self.clone(),
            watcher_id,
            updates,
            topics: Vec::new(),
            hash: String::new(),
        };
        let answer = self
            .ask(WHAT, |request_id| {
                request::watch_topic_list(request_id, watcher_id, namespace, pattern)
            })
            .await?;
        let Command::WatchTopicListSuccess(answer) = answer else {
            return Err(unexpected(WHAT, &answer));
        };
        watcher.topics = answer.topic;
        watcher.hash = answer.topics_hash;
        Ok(watcher)
    }

    /// A schema of a topic and its version; without `version` the latest.
    ///
    /// # Errors
    /// `Refused`, `TopicNotFound` when there is none; as any request.
    pub async fn schema(&self, topic: &str, version: Option<Bytes>) -> Result<(Schema, Bytes), ClientError> {
        let answer = self
            .ask("GET_SCHEMA", |request_id| {
                request::schema(request_id, topic, version)
            })
            .await?;
        let Command::GetSchemaResponse(answer) = answer else {
            return Err(unexpected("GET_SCHEMA", &answer));
        };
        match answer.schema {
            Some(schema) if answer.error_code.is_none() => {
                Ok((schema, answer.schema_version.unwrap_or_default()))
            }
            _ => Err(ClientError::refused(answer.error_code, answer.error_message)),
        }
    }

    /// Stores a schema unless the topic has it; its version.
    ///
    /// # Errors
    /// `Refused`; as any request.
    pub async fn get_or_create_schema(&self, topic: &str, schema: Schema) -> Result<Bytes, ClientError> {
        const WHAT: &str = "GET_OR_CREATE_SCHEMA";
        let answer = self
            .ask(WHAT, |request_id| {
                request::get_or_create_schema(request_id, topic, schema)
            })
            .await?;
        let Command::GetOrCreateSchemaResponse(answer) = answer else {
            return Err(unexpected(WHAT, &answer));
        };
        match answer.error_code {
            None => Ok(answer.schema_version.unwrap_or_default()),
            code => Err(ClientError::refused(code, answer.error_message)),
        }
    }
}

/// A watch on topics; it closes when dropped.
#[derive(Debug)]
pub struct TopicWatcher {
    connection: Connection,
    watcher_id: u64,
    updates: mpsc::Receiver<Command>,
    /// The topics when the watch began; full names.
    pub topics: Vec<String>,
    /// Their fingerprint.
    pub hash: String,
}

impl TopicWatcher {
    /// The next change.
    ///
    /// # Errors
    /// `Disconnected`.
    ///
    /// Cancel safety: nothing is lost when the future is dropped.
    pub async fn next(&mut self) -> Result<CommandWatchTopicUpdate, ClientError> {
        loop {
            match self.updates.recv().await {
                Some(Command::WatchTopicUpdate(update)) => return Ok(update),
                Some(_) => {}
                None => return Err(self.connection.end_reason_now()),
            }
        }
    }
}

impl Drop for TopicWatcher {
    fn drop(&mut self) {
        let watched = self
            .connection
            .remaining_routes()
            .watchers
            .remove(&self.watcher_id);
        if watched.is_some() {
            let request_id = self.connection.next_id();
            let close = pharos_wire::proto::CommandWatchTopicListClose {
                request_id,
                watcher_id: self.watcher_id,
            };
            self.connection.send_if_room(&close.into());
        }
    }
}
