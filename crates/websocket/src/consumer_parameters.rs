//! Parameters of a consumer or reader.

use std::time::Duration;

use pharos_client::{ConsumerOptions, earliest, latest};
use pharos_runtime::clock;
use pharos_types::{NameError, SubscriptionName, TopicName};
use pharos_wire::proto::command_subscribe::{InitialPosition, SubType};

use crate::UpgradeRefusal;
use crate::dead_letters::DeadLetterPolicy;
use crate::frames::read_id;
use crate::query::Query;
use crate::source::Subscribing;

/// Unacknowledged messages with a caller who is pushed messages, unless it says less.
const WINDOW_MAX: usize = 1000;
/// Default delay of a negative acknowledgement.
const NACK_DELAY: Duration = Duration::from_secs(60);
/// Shortest time after which an unacknowledged message is asked for again.
const ACK_TIMEOUT_MIN: Duration = Duration::from_secs(1);
/// Asks the broker for a broadcast subscription.
const KIND_PROPERTY: (&str, &str) = ("pharos.subscription", "broadcast");

/// Parameters of a consumer.
#[derive(Clone, Debug)]
pub(crate) struct ConsumerParameters {
    pub(crate) subscribing: Subscribing,
    pub(crate) is_reader: bool,
    /// Messages that may be with a caller who is pushed messages.
    pub(crate) window: usize,
    pub(crate) is_pulled: bool,
    /// Time after which an unacknowledged message is requested again.
    pub(crate) ack_timeout: Option<Duration>,
    pub(crate) nack_delay: Duration,
    pub(crate) dead_letters: Option<DeadLetterPolicy>,
}

#[derive(Clone, Copy)]
enum SubscriptionKind {
    Of(SubType),
    Broadcast,
}

impl ConsumerParameters {
    /// # Errors
    /// [`UpgradeRefusal`]: one of them is not possible.
    pub(crate) fn of_consumer(
        topic: &TopicName,
        subscription: &SubscriptionName,
        query: &mut Query,
    ) -> Result<Self, UpgradeRefusal> {
        let kinds = [
            ("Exclusive", SubscriptionKind::Of(SubType::Exclusive)),
            ("Shared", SubscriptionKind::Of(SubType::Shared)),
            ("Failover", SubscriptionKind::Of(SubType::Failover)),
            ("Key_Shared", SubscriptionKind::Of(SubType::KeyShared)),
            ("Broadcast", SubscriptionKind::Broadcast),
        ];
        let kind = query.choice("subscriptionType", &kinds)?;
        let kind = kind.unwrap_or(SubscriptionKind::Of(SubType::Exclusive));
        let mut options = match kind {
            SubscriptionKind::Of(kind) => ConsumerOptions::new(subscription.as_str(), kind),
            SubscriptionKind::Broadcast => {
                let (key, value) = KIND_PROPERTY;
                ConsumerOptions::exclusive(subscription.as_str()).property(key, value)
            }
        };
        if query.choice("subscriptionMode", &[("Durable", true), ("NonDurable", false)])? == Some(false) {
            options.command.durable = Some(false);
        }
        let positions = [
            ("Latest", InitialPosition::Latest),
            ("Earliest", InitialPosition::Earliest),
        ];
        if let Some(position) = query.choice("subscriptionInitialPosition", &positions)? {
            options.command.initial_position = Some(position as i32);
        }
        if let Some(name) = query.text("consumerName").filter(|name| !name.is_empty()) {
            options = options.name(&name);
        }
        options.command.priority_level = query.value("priorityLevel")?;
        let dead_letters = dead_letters(topic, subscription, query)?;
        if dead_letters.is_some() {
            if !matches!(kind, SubscriptionKind::Of(SubType::Shared | SubType::KeyShared)) {
                let reason =
                    "maxRedeliverCount and deadLetterTopic need a subscriptionType of Shared or Key_Shared";
                return Err(UpgradeRefusal::bad_request(reason));
            }
            // What is acknowledged of a batch must not come again with its rest, and become a dead letter.
            options.batch_index_ack = true;
        }
        let ack_timeout = query.millis("ackTimeoutMillis")?.filter(|time| !time.is_zero());
        if ack_timeout.is_some_and(|time| time < ACK_TIMEOUT_MIN) {
            return Err(UpgradeRefusal::bad_request(
                "the parameter ackTimeoutMillis must be at least 1000",
            ));
        }
        Ok(Self {
            window: window(query)?,
            is_pulled: query.value("pullMode")?.unwrap_or(false),
            ack_timeout,
            nack_delay: query.millis("negativeAckRedeliveryDelay")?.unwrap_or(NACK_DELAY),
            subscribing: Subscribing { options, start: None },
            is_reader: false,
            dead_letters,
        })
    }

    /// # Errors
    /// [`UpgradeRefusal`]: one of them is not possible.
    pub(crate) fn of_reader(query: &mut Query) -> Result<Self, UpgradeRefusal> {
        let start = match query.text("messageId").as_deref() {
            None | Some("latest") => latest(),
            Some("earliest") => earliest(),
            Some(text) => read_id(text).ok_or_else(|| {
                UpgradeRefusal::bad_request(
                    "the parameter messageId is none of earliest, latest and a message id",
                )
            })?,
        };
        let name = query.text("readerName").filter(|name| !name.is_empty());
        let subscription = format!("reader-{:x}", clock::wall_ms() ^ (clock::now().0 << 20));
        let mut options = ConsumerOptions::exclusive(&subscription);
        if let Some(name) = &name {
            options = options.name(name);
        }
        Ok(Self {
            window: window(query)?,
            is_pulled: false,
            ack_timeout: None,
            nack_delay: NACK_DELAY,
            subscribing: Subscribing {
                options,
                start: Some(start),
            },
            is_reader: true,
            dead_letters: None,
        })
    }
}

/// Dead letter policy, if the caller sets one.
fn dead_letters(
    topic: &TopicName,
    subscription: &SubscriptionName,
    query: &mut Query,
) -> Result<Option<DeadLetterPolicy>, UpgradeRefusal> {
    let (count, named) = (
        query.value::<u32>("maxRedeliverCount")?,
        query.text("deadLetterTopic"),
    );
    let max_redeliver_count = match (count, &named) {
        (None, None) => return Ok(None),
        (Some(0) | None, _) => {
            let reason = "the parameter maxRedeliverCount must be at least 1";
            return Err(UpgradeRefusal::bad_request(reason));
        }
        (Some(count), _) => count,
    };
    let name = match named.filter(|name| !name.is_empty()) {
        Some(name) => name,
        None => format!("{topic}-{subscription}-DLQ"),
    };
    let topic = name
        .parse()
        .map_err(|error: NameError| UpgradeRefusal::bad_request(format!("the dead letter topic: {error}")))?;
    Ok(Some(DeadLetterPolicy {
        max_redeliver_count,
        topic,
        subscription: subscription.clone(),
    }))
}

fn window(query: &mut Query) -> Result<usize, UpgradeRefusal> {
    // The one of these that a session without keys can have.
    query.choice("cryptoFailureAction", &[("FAIL", ())])?;
    match query.value::<usize>("receiverQueueSize")? {
        Some(0) => Err(UpgradeRefusal::bad_request(
            "the parameter receiverQueueSize must be at least 1",
        )),
        size => Ok(size.unwrap_or(WINDOW_MAX).min(WINDOW_MAX)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str) -> Result<ConsumerParameters, u16> {
        let subscription = SubscriptionName::new("s").unwrap();
        let topic = "persistent://a/b/c".parse().unwrap();
        let read = ConsumerParameters::of_consumer(&topic, &subscription, &mut Query::parse(query).unwrap());
        read.map_err(|refusal| refusal.status.as_u16())
    }

    #[test]
    fn dead_letters_go_where_the_caller_says_or_beside_the_topic() {
        let topic = |query: &str| {
            let letters = read(query).unwrap().dead_letters;
            letters.map(|policy| (policy.max_redeliver_count, policy.topic.to_string()))
        };
        assert_eq!(topic("subscriptionType=Shared"), None);
        assert_eq!(
            topic("subscriptionType=Shared&maxRedeliverCount=3"),
            Some((3, "persistent://a/b/c-s-DLQ".to_owned()))
        );
        assert_eq!(
            topic("subscriptionType=Key_Shared&maxRedeliverCount=1&deadLetterTopic=d"),
            Some((1, "persistent://public/default/d".to_owned()))
        );
        for wrong in [
            "maxRedeliverCount=3",
            "subscriptionType=Failover&maxRedeliverCount=3",
            "subscriptionType=Broadcast&maxRedeliverCount=3",
            "subscriptionType=Shared&maxRedeliverCount=0",
            "subscriptionType=Shared&maxRedeliverCount=x",
            "subscriptionType=Shared&deadLetterTopic=d",
            "subscriptionType=Shared&maxRedeliverCount=1&deadLetterTopic=a/b",
        ] {
            assert_eq!(read(wrong).err(), Some(400), "{wrong}");
        }
    }
}
