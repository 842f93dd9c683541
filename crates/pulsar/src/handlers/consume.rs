//! SUBSCRIBE, FLOW, CLOSE_CONSUMER, UNSUBSCRIBE and CONSUMER_STATS.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use pharos_broker::ids::{ConsumerKey, TopicId};
use pharos_broker::shard::{Consume, Consumed, Refused};
use pharos_catalog::properties::{Holder, asks_for_broadcast};
use pharos_cluster::BrokerAddresses;
use pharos_dispatch::{HashRange, KeySharedMode, KeySharedSpec};
use pharos_runtime::clock;
use pharos_topic::{Attach, ConsumerInfo, StartAt, SubscribeRequest, SubscriptionType};
use pharos_types::{Domain, Position, SubscriptionName, TopicName};
use pharos_wire::answer::{self, Refusal};
use pharos_wire::proto::command_subscribe::{InitialPosition, SubType};
use pharos_wire::proto::{
    CommandCloseConsumer, CommandConsumerStats, CommandConsumerStatsResponse, CommandFlow, CommandSubscribe,
    CommandUnsubscribe, KeyValue, ServerError,
};
use pharos_wire::{Command, proto};

use super::produce::pairs;
use super::schema::schema_info;
use super::{bytes_of, check_name, check_own, check_properties, check_properties_count, deny};
use crate::closing::Ending;
use crate::connection::Connection;
use crate::consumer::{Attached, Consumer, ConsumerSlot};
use crate::limits::TenantHold;
use crate::listeners;
use crate::refusal;
use crate::requests::{self, answer_later};
use crate::stall::Stalling;

/// SUBSCRIBE.
pub(super) fn handle_subscribe(connection: &Rc<Connection>, request: CommandSubscribe) {
    let (id, request_id) = (request.consumer_id, request.request_id);
    match connection.consumers.borrow().get(&id) {
        Some(ConsumerSlot::Creating { .. }) => {
            let text = "consumer is already being created on this connection";
            return deny(
                connection,
                request_id,
                Refusal::new(ServerError::ServiceNotReady, text),
            );
        }
        Some(ConsumerSlot::Ready(_) | ConsumerSlot::Elsewhere(_)) => {
            return connection.send(&answer::success(request_id));
        }
        None => {}
    }
    let wish = match wish(connection, &request) {
        Ok(wish) => wish,
        Err(refusal) => return deny(connection, request_id, refusal),
    };
    let schema = match schema_info(request.schema.as_ref()) {
        Ok(schema) => schema,
        Err(refusal) => return deny(connection, request_id, refusal),
    };
    let present = connection.consumers.borrow().len();
    let counted = match connection
        .server
        .limiter
        .consumer(&connection.tenants, &wish.topic, present)
    {
        Ok(counted) => counted,
        Err(refusal) => return deny(connection, request_id, refusal),
    };
    let (attempt, kind) = (connection.shard.number(), wish.kind);
    connection.consumers.borrow_mut().insert(
        id,
        ConsumerSlot::Creating {
            attempt,
            closed: None,
        },
    );
    answer_later(connection, |connection| async move {
        let who = connection.principal();
        let consume = Consume {
            request: wish,
            schema,
            may_create_topic: request.force_topic_creation.unwrap_or(true),
        };
        let caller = connection.shard.caller(&who);
        let outcome = caller.consume(consume, || connection.is_closed()).await;
        let outcome = requests::counted(&connection, counted.tenant(), outcome)
            .map_err(|refused| refusal::of(&refused, refusal::of_consume));
        finish(&connection, kind, &request, (attempt, counted), outcome);
    });
}

/// The checks that need nothing but the command.
fn wish(connection: &Connection, request: &CommandSubscribe) -> Result<SubscribeRequest, Refusal> {
    let topic: TopicName = request
        .topic
        .parse()
        .map_err(|error| Refusal::new(ServerError::InvalidTopicName, format!("{error}")))?;
    let metadata_bytes = bytes_of(&request.metadata);
    let bytes_max = connection.shard.shared.options.max_consumer_metadata_bytes;
    if metadata_bytes > bytes_max {
        let text = format!("consumer metadata of {metadata_bytes} bytes is larger than {bytes_max}");
        return Err(Refusal::new(ServerError::MetadataError, text));
    }
    // Their bytes have a limit of their own, their number has not.
    check_properties_count("consumer metadata", &request.metadata)?;
    check_properties("subscription properties", &request.subscription_properties)?;
    check_own(Holder::Subscription, &request.subscription_properties)?;
    check_own(Holder::Consumer, &request.metadata)?;
    let kind = kind_of(connection, &topic, request);
    if request.read_compacted.unwrap_or(false)
        && !matches!(request.sub_type(), SubType::Exclusive | SubType::Failover)
    {
        let text = "readCompacted only allowed on exclusive or failover subscriptions";
        return Err(Refusal::new(ServerError::NotAllowedError, text));
    }
    if request.read_compacted.unwrap_or(false) && kind == SubscriptionType::Broadcast {
        let text = "a broadcast subscription gets every message; readCompacted is for other subscriptions and readers";
        return Err(Refusal::new(ServerError::NotAllowedError, text));
    }
    let subscription = SubscriptionName::new(&request.subscription)
        .map_err(|error| Refusal::new(ServerError::ProducerBusy, error.to_string()))?;
    if subscription.is_reserved() {
        let text = format!("subscription name {subscription} is reserved");
        return Err(Refusal::new(ServerError::ProducerBusy, text));
    }
    let durable = request.durable.unwrap_or(true);
    if kind == SubscriptionType::Broadcast && !durable {
        let text = "a broadcast subscription is durable; use a reader for a non-durable cursor";
        return Err(Refusal::new(ServerError::NotAllowedError, text));
    }
    let is_replicated = is_replicated(connection, &topic, request) && durable;
    if is_replicated && kind == SubscriptionType::Broadcast {
        let text = "a broadcast subscription is not replicated to other clusters";
        return Err(Refusal::new(ServerError::NotAllowedError, text));
    }
    let name = request.consumer_name.clone().filter(|name| !name.is_empty());
    check_name("consumer name", name.as_deref())?;
    let rewind_sec = request.start_message_rollback_duration_sec.unwrap_or(0);
    let catalog = &connection.shard.shared.catalog;
    Ok(SubscribeRequest {
        may_create: catalog.may_create_subscription(&topic) || topic.is_system(),
        topic,
        subscription,
        kind,
        connection: connection.id,
        consumer_id: request.consumer_id,
        consumer_name: name,
        priority_level: request.priority_level.unwrap_or(0),
        durable,
        start: start_of(request, durable),
        read_compacted: request.read_compacted.unwrap_or(false),
        rewind_to_ms: (rewind_sec > 0)
            .then(|| clock::wall_ms().saturating_sub(rewind_sec.saturating_mul(1000))),
        properties: pairs(&request.subscription_properties),
        is_replicated,
        key_shared: (kind == SubscriptionType::KeyShared).then(|| key_shared_of(request)),
        info: Arc::new(ConsumerInfo {
            address: connection.address.clone(),
            client_version: connection.client_version(),
            connected_since_ms: clock::wall_ms(),
            metadata: pairs(&request.metadata),
        }),
    })
}

/// True if the state of the subscription is replicated to other clusters.
fn is_replicated(connection: &Connection, topic: &TopicName, request: &CommandSubscribe) -> bool {
    let is_wanted =
        request.replicate_subscription_state.unwrap_or(false) && topic.domain() == Domain::Persistent;
    let is_on = connection.shard.shared.options.replication.snapshots.are_on;
    if is_wanted && !is_on {
        tracing::warn!(%topic, subscription = request.subscription, "replicated subscriptions are disabled: this one stays here");
    }
    is_wanted && is_on
}

fn kind_of(connection: &Connection, topic: &TopicName, request: &CommandSubscribe) -> SubscriptionType {
    let asks = |list: &[KeyValue]| list.iter().any(|pair| asks_for_broadcast(&pair.key, &pair.value));
    let declared = connection
        .shard
        .shared
        .catalog
        .policies(topic.namespace())
        .is_some_and(|policies| policies.is_broadcast_subscription(&request.subscription));
    if declared || asks(&request.subscription_properties) || asks(&request.metadata) {
        return SubscriptionType::Broadcast;
    }
    match request.sub_type() {
        SubType::Exclusive => SubscriptionType::Exclusive,
        SubType::Shared => SubscriptionType::Shared,
        SubType::Failover => SubscriptionType::Failover,
        SubType::KeyShared => SubscriptionType::KeyShared,
    }
}

/// Returns the start position of a new cursor. A start id matters to readers only; the broker delivers the entry it
/// names, and the client drops what it has already received. A reader without one, or with one after the end, starts
/// at the initial position.
fn start_of(request: &CommandSubscribe, durable: bool) -> StartAt {
    let initial = match request.initial_position() {
        InitialPosition::Latest => StartAt::Latest,
        InitialPosition::Earliest => StartAt::Earliest,
    };
    if durable {
        return initial;
    }
    match request.start_message_id.as_ref().map(super::seek::place_of) {
        None | Some(StartAt::Latest) => initial,
        Some(place) => place,
    }
}

fn key_shared_of(request: &CommandSubscribe) -> KeySharedSpec {
    let Some(meta) = &request.key_shared_meta else {
        return KeySharedSpec {
            mode: KeySharedMode::AutoSplit,
            allow_out_of_order: false,
        };
    };
    let mode = match meta.key_shared_mode() {
        proto::KeySharedMode::AutoSplit => KeySharedMode::AutoSplit,
        proto::KeySharedMode::Sticky => KeySharedMode::Sticky(
            meta.hash_ranges
                .iter()
                .map(|range| HashRange {
                    start: slot(range.start),
                    end: slot(range.end),
                })
                .collect(),
        ),
    };
    KeySharedSpec {
        mode,
        allow_out_of_order: meta.allow_out_of_order_delivery.unwrap_or(false),
    }
}

/// A hash slot off the wire; a negative one becomes one that no range may have, so that it is refused like any other.
fn slot(number: i32) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Answers SUBSCRIBE, unless the client gave up on it meanwhile.
fn finish(
    connection: &Rc<Connection>,
    kind: SubscriptionType,
    request: &CommandSubscribe,
    (attempt, counted): (u64, TenantHold),
    outcome: Result<Consumed, Refusal>,
) {
    let id = request.consumer_id;
    let slot = match connection.consumers.borrow().get(&id) {
        Some(ConsumerSlot::Creating { attempt: a, closed }) if *a == attempt => Some(*closed),
        _ => None,
    };
    let wanted = !connection.is_closed() && slot.is_some();
    let outcome = outcome.and_then(|consumed| match consumed {
        Consumed::Elsewhere(next) => may_go(connection, id, &next).map(|()| Consumed::Elsewhere(next)),
        here @ Consumed::Here(_) => Ok(here),
    });
    let subscribed = match outcome {
        Ok(Consumed::Here(subscribed)) => *subscribed,
        Ok(Consumed::Elsewhere(next)) => {
            if wanted {
                let slot = ConsumerSlot::Elsewhere(next);
                connection.consumers.borrow_mut().insert(id, slot);
                connection.send(&answer::success(request.request_id));
            }
            return;
        }
        Err(refusal) => {
            if wanted {
                connection.consumers.borrow_mut().remove(&id);
                deny(connection, request.request_id, refusal);
            }
            return;
        }
    };
    let topic = subscribed.seed.topic;
    let closed = slot == Some(Some(subscribed.key));
    if wanted && closed {
        connection.consumers.borrow_mut().remove(&id);
        let text = "the topic was closed while the consumer came; try again";
        deny(
            connection,
            request.request_id,
            Refusal::new(ServerError::ServiceNotReady, text),
        );
    }
    let wanted = wanted && !closed;
    let attached = match subscribed.attach {
        Attach::Listen(lease) if wanted => {
            let feed = connection.shard.feeds.open(&subscribed.seed);
            let handle = feed.join(
                connection.id,
                (id, subscribed.key),
                lease,
                0,
                request.consumer_epoch,
            );
            connection.add_group(handle.group());
            Attached::Listening(handle)
        }
        Attach::Listen(lease) => return connection.shard.detach(topic, subscribed.key, Some(lease)),
        _ if !wanted => return connection.shard.detach(topic, subscribed.key, None),
        Attach::Dormant => Attached::Dormant { permits: 0 },
        Attach::Dispatched => Attached::Dispatched {
            permits: Cell::new(0),
        },
    };
    let consumer = Consumer {
        topic,
        kind,
        key: subscribed.key,
        attached,
        epoch: Cell::new(request.consumer_epoch),
        name: request.consumer_name.as_deref().unwrap_or_default().into(),
        counted,
        messages_out: Cell::new(0),
        bytes_out: Cell::new(0),
    };
    connection
        .consumers
        .borrow_mut()
        .insert(id, ConsumerSlot::Ready(consumer));
    connection.send(&answer::success(request.request_id));
    if let Some(active) = subscribed.active
        && connection.protocol_version() >= 12
    {
        connection.send(&answer::active_consumer_change(id, active));
    }
}

/// Checks that a client can be sent to another broker, and has not returned from there too often. A client that does
/// not know the assigned address looks up the topic instead.
fn may_go(connection: &Connection, consumer_id: u64, next: &BrokerAddresses) -> Result<(), Refusal> {
    let urls = listeners::urls_of_next(connection, Some(next));
    if urls.plain.is_none() && urls.tls.is_none() {
        let text = "the consumer is to be at a broker that has no address for it";
        return Err(Refusal::new(ServerError::ServiceNotReady, text));
    }
    if connection
        .sent_away
        .borrow_mut()
        .may_go(consumer_id, clock::now())
    {
        return Ok(());
    }
    let text = "the consumers of this subscription are dealt among brokers, and the client does not go to the one that it is \
                assigned (assigned_broker_service_url of CLOSE_CONSUMER); use a newer client";
    Err(Refusal::new(ServerError::NotAllowedError, text))
}

/// FLOW. Returns false when the connection must be closed: zero permits are a protocol violation.
pub(super) fn handle_flow(connection: &Connection, flow: &CommandFlow) -> bool {
    if flow.message_permits == 0 {
        if let Some(untold) = connection.server.peer_log.enter() {
            tracing::warn!(peer = %connection.address, untold, "closing a connection that sent FLOW with no permits");
        }
        return false;
    }
    let mut consumers = connection.consumers.borrow_mut();
    if let Some(ConsumerSlot::Elsewhere(next)) = consumers.get(&flow.consumer_id) {
        let urls = listeners::urls_of_next(connection, Some(next));
        consumers.remove(&flow.consumer_id);
        drop(consumers);
        connection.send(&answer::close_consumer(flow.consumer_id, urls));
        return true;
    }
    let Some(ConsumerSlot::Ready(consumer)) = consumers.get_mut(&flow.consumer_id) else {
        return true;
    };
    match &mut consumer.attached {
        Attached::Listening(handle) => {
            if handle.flow(flow.message_permits) {
                connection.wake();
            }
        }
        Attached::Dormant { permits } => *permits = permits.saturating_add(flow.message_permits),
        Attached::Dispatched { permits } => {
            permits.set(permits.get() + i64::from(flow.message_permits));
            connection
                .shard
                .flow(consumer.topic, consumer.key, flow.message_permits);
        }
    }
    true
}

/// CLOSE_CONSUMER; an unknown id is fine.
pub(super) fn handle_close_consumer(connection: &Connection, request: &CommandCloseConsumer) {
    Stalling(connection).before_a_consumer_goes();
    let slot = connection.consumers.borrow_mut().remove(&request.consumer_id);
    if let Some(ConsumerSlot::Ready(consumer)) = slot {
        Ending(connection).detach(consumer);
    }
    connection.send(&answer::success(request.request_id));
}

/// UNSUBSCRIBE.
pub(super) fn handle_unsubscribe(connection: &Rc<Connection>, request: &CommandUnsubscribe) {
    let (id, request_id, force) = (
        request.consumer_id,
        request.request_id,
        request.force.unwrap_or(false),
    );
    let Some((topic, key, tenant)) = attached(connection, id) else {
        return deny(
            connection,
            request_id,
            Refusal::new(ServerError::MetadataError, "Consumer not found"),
        );
    };
    answer_later(connection, |connection| async move {
        let who = connection.principal();
        let gone = connection.shard.caller(&who).unsubscribe(topic, key, force).await;
        match requests::counted(&connection, &tenant, gone) {
            // The consumer was closed on the way, like every other of the subscription.
            Ok(()) => connection.send(&answer::success(request_id)),
            Err(refused) => deny(&connection, request_id, refusal::of(&refused, refusal::of_cursor)),
        }
    });
}

/// The topic and key of an attached consumer, and the tenant that it is of.
pub(super) fn attached(connection: &Connection, id: u64) -> Option<(TopicId, ConsumerKey, Arc<str>)> {
    match connection.consumers.borrow().get(&id) {
        Some(ConsumerSlot::Ready(consumer)) => {
            Some((consumer.topic, consumer.key, consumer.counted.tenant().clone()))
        }
        _ => None,
    }
}

/// CONSUMER_STATS; errors ride in the answer.
pub(super) fn handle_consumer_stats(connection: &Rc<Connection>, request: &CommandConsumerStats) {
    let (id, request_id) = (request.consumer_id, request.request_id);
    let Some((topic, key, tenant)) = attached(connection, id) else {
        let refusal = Refusal::new(ServerError::ConsumerNotFound, "Consumer not found");
        return connection.send(&stats_failed(request_id, refusal));
    };
    answer_later(connection, |connection| async move {
        let who = connection.principal();
        let stats = connection
            .shard
            .caller(&who)
            .consumer_stats(topic, (connection.id, key))
            .await;
        let stats = match requests::counted(&connection, &tenant, stats) {
            Err(Refused::Denied(denied)) => {
                let refusal = refusal::of_denied(&denied);
                return connection.send(&stats_failed(request_id, refusal));
            }
            stats => stats.ok(),
        };
        let response = {
            let consumers = connection.consumers.borrow();
            let Some(ConsumerSlot::Ready(consumer)) = consumers.get(&id) else {
                drop(consumers);
                let text = "consumer was closed while its statistics were collected";
                let refusal = Refusal::new(ServerError::ConsumerNotFound, text);
                return connection.send(&stats_failed(request_id, refusal));
            };
            let stats = stats.unwrap_or_default();
            CommandConsumerStatsResponse {
                request_id,
                consumer_name: Some(consumer.name.to_string()),
                available_permits: Some(permits_of(consumer)),
                unacked_messages: Some(stats.unacked_messages),
                blocked_consumer_on_unacked_msgs: Some(stats.is_blocked),
                address: Some(connection.address.to_string()),
                connected_since: Some(pharos_runtime::iso_time(connection.connected_since_ms)),
                r#type: Some(format!("{:?}", consumer.kind)),
                msg_backlog: Some(stats.backlog),
                ..Default::default()
            }
        };
        connection.send(&Command::from(response));
    });
}

fn stats_failed(request_id: u64, refusal: Refusal) -> Command {
    Command::from(CommandConsumerStatsResponse {
        request_id,
        error_code: Some(refusal.code as i32),
        error_message: Some(refusal.message),
        ..Default::default()
    })
}

fn permits_of(consumer: &Consumer) -> u64 {
    let permits = match &consumer.attached {
        Attached::Listening(handle) => handle.with(|listener| listener.permits).unwrap_or(0),
        Attached::Dormant { permits } => i64::from(*permits),
        Attached::Dispatched { permits } => permits.get(),
    };
    u64::try_from(permits).unwrap_or(0)
}

/// A position that came over the wire as unsigned numbers.
pub(super) fn position_of(ledger: u64, entry: u64) -> Position {
    Position::new(ledger, entry)
}
