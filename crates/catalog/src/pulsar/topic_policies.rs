//! Policies of single topics: what Pulsar's brokers said of them in events, and what Pharos says in the same way.
//!
//! ```text
//!  a change ─► the log is taken over ─► read to its end ─► is it as expected? ─► event appended ─► closed ─► bell
//! ```
//! Taking the log over is the lock: of two brokers that change policies of a namespace at once, one finds its log taken, and begins again.
//! The bell is a node beside Pulsar's tree that says where the last event of a topic is. Other brokers watch it, and read on to there.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use pharos_metadata::{Expect, Fault, Item, ReadError, Version, Versioned, WriteError};
use pharos_runtime::clock;
use pharos_types::hash::java_string_hash;
use pharos_types::{Domain, TopicName};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::avro_value::AvroCodec;
use super::event_logs::{EventLog, EventLogError};
use super::event_message::{NewEvent, key_of};
use super::policy_events::{
    EventLogRead, EventLogsRead, EventPlace, EventsReader, Said, SaidLast, all_said, path_of, said_of,
};
use super::schemas::SchemaFacts;
use super::{EventWriter, OpenLedgers, PulsarFacts, check, policy_names, unread};
use crate::GLOBAL;
use crate::keys;

/// Maximum number of attempts of a change if another broker takes the log over.
const TRIES: u32 = 8;
/// The longest it waits before that.
const WAIT_MAX: Duration = Duration::from_millis(200);

/// The value of a bell: the last event of a topic, by the local name of the log that has it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PoliciesBell {
    at: BTreeMap<String, EventPlace>,
}

/// New policies of a topic, for this cluster and for all; `None`: none.
#[derive(Default)]
struct WantedPolicies {
    here: Option<Map<String, Value>>,
    everywhere: Option<Map<String, Value>>,
}

impl WantedPolicies {
    /// Policies by the catalog's names. Where there was something, an empty part stays, as it does with Pulsar's brokers.
    fn of(policies: Map<String, Value>, before: &Said) -> Self {
        let (everywhere, here): (Map<_, _>, Map<_, _>) = policies
            .into_iter()
            .partition(|(name, _)| name.starts_with(GLOBAL));
        let is_none_everywhere = everywhere.is_empty() && before.everywhere.policies.is_none();
        let is_none_here = here.is_empty() && before.here.policies.is_none();
        Self {
            here: (!is_none_here || is_none_everywhere).then_some(here),
            everywhere: (!is_none_everywhere).then_some(everywhere),
        }
    }
}

fn bell_key(topic: &TopicName) -> String {
    format!("{}{}", keys::PULSAR_TOPIC_POLICIES, path_of(topic))
}

fn to_versioned(said: &Said) -> Option<Versioned> {
    Some(Versioned {
        version: said.version()?,
        value: serde_json::to_vec(&said.policies()).unwrap_or_default().into(),
    })
}

fn unwritten(topic: &TopicName, cause: &impl ToString) -> WriteError {
    let cause = format!("{topic}: {}", cause.to_string());
    WriteError::Fault(Fault::new("write policies of a topic", cause))
}

/// Logs that were taken over for one change.
struct HeldEventLogs {
    logs: Vec<(TopicName, Box<dyn EventLog>)>,
}

impl HeldEventLogs {
    async fn close(self) {
        for (_, log) in self.logs {
            log.close().await;
        }
    }
}

/// Failure of a change.
enum NotSaid {
    /// A log was taken over by another one meanwhile.
    TakenOver,
    Failed(WriteError),
}

impl From<WriteError> for NotSaid {
    fn from(error: WriteError) -> Self {
        Self::Failed(error)
    }
}

impl PulsarFacts {
    fn known_logs(&self) -> Option<Arc<EventLogsRead>> {
        self.said.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_known_logs(&self, logs: EventLogsRead) -> Arc<EventLogsRead> {
        let logs = Arc::new(logs);
        *self.said.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&logs));
        logs
    }

    /// Returns the events read so far, or reads all of them if none were read yet.
    async fn logs(&self) -> Result<Arc<EventLogsRead>, ReadError> {
        match self.known_logs() {
            Some(known) => Ok(known),
            None => self.read_all_logs().await,
        }
    }

    async fn read_all_logs(&self) -> Result<Arc<EventLogsRead>, ReadError> {
        // It is never closed.
        let _turn = self.reading.acquire().await;
        let known = self.known_logs().unwrap_or_default();
        let read = EventsReader::new(self, OpenLedgers::Recover)
            .read_all(&known)
            .await?;
        Ok(self.set_known_logs(read))
    }

    /// Reads on in one log, up to the end of ledger `last`, or of all of them: then it is held.
    async fn read_on(&self, log: &TopicName, last: Option<u64>) -> Result<Arc<EventLogsRead>, ReadError> {
        self.logs().await?;
        let _turn = self.reading.acquire().await;
        let known = self.known_logs().unwrap_or_default();
        let open = last.map_or(OpenLedgers::Held, |_| OpenLedgers::Recover);
        let mut reader = EventsReader::new(self, open);
        let read = reader.read_log(log, known.get(log), last).await?;
        let mut all = EventLogsRead::clone(&known);
        all.insert(log.clone(), Arc::new(read));
        Ok(self.set_known_logs(all))
    }

    /// Notes an event that was appended behind everything that was read of a log.
    async fn note(&self, log: &TopicName, topic: &TopicName, is_everywhere: bool, said: SaidLast) {
        let _turn = self.reading.acquire().await;
        let mut all = EventLogsRead::clone(&self.known_logs().unwrap_or_default());
        let mut read = all
            .get(log)
            .map(|log| EventLogRead::clone(log))
            .unwrap_or_default();
        read.to = Some(said.at);
        read.note(path_of(topic), is_everywhere, said);
        all.insert(log.clone(), Arc::new(read));
        self.set_known_logs(all);
    }

    pub(super) async fn topic_policies(&self, path: &str) -> Result<Option<Versioned>, ReadError> {
        let Some(topic) = topic_of(path) else {
            return Ok(None);
        };
        let bell = self.store.get(&bell_key(&topic)).await?;
        let bell = bell.and_then(|node| serde_json::from_slice::<PoliciesBell>(&node.value).ok());
        let mut logs = self.logs().await?;
        for (local, at) in bell.unwrap_or_default().at {
            let Ok(log) = TopicName::new(Domain::Persistent, topic.namespace().clone(), &local) else {
                continue;
            };
            if logs.get(&log).and_then(|log| log.to) < Some(at) {
                logs = self.read_on(&log, Some(at.0)).await?;
            }
        }
        Ok(to_versioned(&said_of(&logs, &topic)))
    }

    pub(super) async fn scan_topic_policies(&self) -> Result<Vec<Item>, ReadError> {
        let said = all_said(&*self.read_all_logs().await?);
        let mut items = Vec::with_capacity(said.len());
        for (path, said) in said {
            // What was said of topics of a namespace that is gone is nothing.
            if topic_of(&path).is_none() {
                continue;
            }
            items.extend(to_versioned(&said).map(|found| Item {
                key: format!("{}{path}", keys::TOPIC_POLICIES),
                value: found.value,
                version: found.version,
            }));
        }
        Ok(items)
    }

    pub(super) async fn put_topic_policies(
        &self,
        path: &str,
        value: &Bytes,
        expect: Expect,
    ) -> Result<Version, WriteError> {
        let key = format!("{}{path}", keys::TOPIC_POLICIES);
        let topic = topic_of(path).ok_or_else(|| WriteError::InvalidKey(key.clone()))?;
        let policies = serde_json::from_slice::<Map<String, Value>>(value);
        let policies = policies.map_err(|error| unwritten(&topic, &error))?;
        let version = self.say(&topic, Some(&policies), expect).await?.1;
        version.ok_or_else(|| unwritten(&topic, &"its events are gone"))
    }

    pub(super) async fn delete_topic_policies(&self, path: &str, expect: Expect) -> Result<bool, WriteError> {
        let key = format!("{}{path}", keys::TOPIC_POLICIES);
        let topic = topic_of(path).ok_or_else(|| WriteError::InvalidKey(key.clone()))?;
        Ok(self.say(&topic, None, expect).await?.0.is_some())
    }

    /// Deletes the notification nodes of the topics of a deleted namespace.
    pub(super) async fn delete_bells(&self, namespace: &str) -> Result<(), WriteError> {
        let prefix = format!("{}{namespace}/", keys::PULSAR_TOPIC_POLICIES);
        // What is below goes before what holds it.
        for bell in self.store.list(&prefix).await.map_err(unread)?.iter().rev() {
            self.store.delete(bell, Expect::Any).await?;
        }
        Ok(())
    }

    /// Says which policies a topic has from now on; `None`: none. Answers with the versions before and after.
    async fn say(
        &self,
        topic: &TopicName,
        policies: Option<&Map<String, Value>>,
        expect: Expect,
    ) -> Result<(Option<Version>, Option<Version>), WriteError> {
        let writer = self.writer.as_ref();
        let writer = writer.ok_or_else(|| unwritten(topic, &"these facts were opened to be read"))?;
        // One change at a time: they would take the log from each other.
        let _turn = self.saying.acquire().await;
        for attempt in 0..TRIES {
            let mut held = HeldEventLogs { logs: Vec::new() };
            let said = self.say_once(writer, &mut held, topic, policies, expect).await;
            held.close().await;
            match said {
                Ok((before, at)) => {
                    if !at.is_empty() {
                        let bell = serde_json::to_vec(&PoliciesBell { at }).unwrap_or_default();
                        self.store.put(&bell_key(topic), bell.into(), Expect::Any).await?;
                    }
                    let logs = self.logs().await.map_err(unread)?;
                    return Ok((before, said_of(&logs, topic).version()));
                }
                Err(NotSaid::TakenOver) => tokio::time::sleep(wait(attempt)).await,
                Err(NotSaid::Failed(error)) => return Err(error),
            }
        }
        Err(unwritten(topic, &EventLogError::TakenOver))
    }

    /// Answers with the version before, and with the places of the events.
    async fn say_once(
        &self,
        writer: &EventWriter,
        held: &mut HeldEventLogs,
        topic: &TopicName,
        policies: Option<&Map<String, Value>>,
        expect: Expect,
    ) -> Result<(Option<Version>, BTreeMap<String, EventPlace>), NotSaid> {
        let key = keys::topic_policies(topic);
        // The log of what is said for this cluster is the lock, whatever is to be said.
        let own = self.log_of(topic, false).await?;
        let is_there = self.hold(writer, held, topic, &own, policies.is_some()).await?;
        let logs = self.read_on(&own, None).await.map_err(unread)?;
        let before = said_of(&logs, topic);
        check(&key, expect, before.version())?;
        let wanted = match policies {
            Some(policies) => WantedPolicies::of(policies.clone(), &before),
            None => WantedPolicies::default(),
        };
        let mut places = BTreeMap::new();
        if !is_there {
            return Ok((before.version(), places));
        }
        let version = before.version();
        for (is_everywhere, known, wanted) in [
            (false, before.here.policies, wanted.here),
            (true, before.everywhere.policies, wanted.everywhere),
        ] {
            if known == wanted {
                continue;
            }
            let log = self.log_of(topic, is_everywhere).await?;
            self.hold(writer, held, topic, &log, true).await?;
            let event = self.event(writer, topic, &log, is_everywhere, wanted.as_ref());
            let event = event.await?.to_entry();
            let Some((_, taken)) = held.logs.iter_mut().find(|(name, _)| *name == log) else {
                return Err(NotSaid::TakenOver);
            };
            let at = taken.append(event).await.map_err(|error| match error {
                EventLogError::TakenOver => NotSaid::TakenOver,
                EventLogError::Failed(fault) => NotSaid::Failed(WriteError::Fault(fault)),
            })?;
            let said = SaidLast { at, policies: wanted };
            self.note(&log, topic, is_everywhere, said).await;
            places.insert(log.local().to_owned(), at);
        }
        Ok((version, places))
    }

    /// Takes a log over, unless that was done. Whether there is one then.
    async fn hold(
        &self,
        writer: &EventWriter,
        held: &mut HeldEventLogs,
        topic: &TopicName,
        log: &TopicName,
        may_create: bool,
    ) -> Result<bool, WriteError> {
        if held.logs.iter().any(|(name, _)| name == log) {
            return Ok(true);
        }
        let opened = writer.logs.open(log, may_create).await;
        let opened = opened.map_err(|fault| unwritten(topic, &fault))?;
        let is_there = opened.is_some();
        held.logs.extend(opened.map(|opened| (log.clone(), opened)));
        Ok(is_there)
    }

    /// The log that has what is said of a topic: a partition where the topic of events has some.
    async fn log_of(&self, topic: &TopicName, is_everywhere: bool) -> Result<TopicName, WriteError> {
        let log = TopicName::new(Domain::Persistent, topic.namespace().clone(), keys::CHANGE_EVENTS);
        let log = log.map_err(|error| unwritten(topic, &error))?;
        let found = self.store.get(&keys::partitioned(&log)).await.map_err(unread)?;
        let Some(found) = found.filter(|found| !found.value.is_empty()) else {
            return Ok(log);
        };
        let whole = serde_json::from_slice::<pharos_admin_api::PartitionedTopicMetadata>(&found.value);
        let partitions = whole.map_err(|error| unwritten(&log, &error))?.partitions;
        let hash = java_string_hash(&key_of(topic, is_everywhere));
        Ok(hash
            .checked_rem(partitions)
            .map_or_else(|| log.clone(), |index| log.with_partition(index)))
    }

    /// Encodes the event with the schema of the events topic.
    async fn event<'a>(
        &self,
        writer: &'a EventWriter,
        topic: &TopicName,
        log: &TopicName,
        is_everywhere: bool,
        policies: Option<&Map<String, Value>>,
    ) -> Result<NewEvent<'a>, WriteError> {
        let (schema, definition) = SchemaFacts::new(self).of_events(&keys::schema_id(log)).await?;
        let wrong = |error: String| unwritten(topic, &format!("the schema of {log}: {error}"));
        let cluster = (!is_everywhere).then_some(writer.cluster.as_str());
        let payload = match policies {
            None => None,
            Some(policies) => {
                let event = json!({
                    "actionType": "UPDATE",
                    "eventType": "TOPIC_POLICY",
                    "replicateTo": cluster.map(|cluster| [cluster]),
                    "topicPoliciesEvent": {
                        "domain": topic.domain().as_str(),
                        "tenant": topic.namespace().tenant(),
                        "namespace": topic.namespace().local(),
                        "topic": topic.local(),
                        "policies": policy_names::to_event(policies, is_everywhere),
                    },
                });
                let schema = AvroCodec::new(&definition).map_err(wrong)?;
                Some(schema.write(&event).map_err(wrong)?)
            }
        };
        Ok(NewEvent {
            key: key_of(topic, is_everywhere),
            cluster,
            schema,
            payload,
            time_ms: clock::wall_ms(),
        })
    }
}

/// Longer from attempt to attempt, and another time at each broker, so that two do not take the log from each other all the time.
fn wait(attempt: u32) -> Duration {
    let most = (Duration::from_millis(10) * (1 << attempt)).min(WAIT_MAX);
    let most = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(clock::now().0 % most)
}

fn topic_of(path: &str) -> Option<TopicName> {
    keys::topic_of(keys::TOPIC_POLICIES, &format!("{}{path}", keys::TOPIC_POLICIES))
}
