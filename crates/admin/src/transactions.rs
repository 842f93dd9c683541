//! Transactions: who coordinates them, what they are, what topics and subscriptions know of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};

use pharos_admin_api::query::CoordinatorQuery;
use pharos_admin_api::routes::transactions as routes;
use pharos_admin_api::{
    TransactionBufferStats, TransactionCoordinatorInfo, TransactionCoordinatorStats,
    TransactionInBufferStats, TransactionInPendingAckStats, TransactionMetadata, TransactionPendingAckStats,
};
use pharos_broker_admin::AdminError;
use pharos_coordinators::{CoordinatorStats, TransactionInfo, Transactions, TxnError};
use pharos_types::{Position, TopicName, TxnId};

use crate::body::QueryOf;
use crate::endpoint::{Endpoint, on};
use crate::error::{ApiError, ApiResult};
use crate::partitions::single;
use crate::paths::{PathParams, SubscriptionPath, TopicPath};
use crate::state::Admin;
use crate::topics::stored_only;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        on(&routes::COORDINATORS, coordinators),
        on(&routes::COORDINATOR_STATS, coordinator_stats),
        on(&routes::METADATA, metadata),
        on(&routes::SLOW, slow),
        on(&routes::ABORT, abort),
        on(&routes::BUFFER_STATS, buffer_stats),
        on(&routes::PENDING_ACK_STATS, pending_ack_stats),
    ]
}

/// Number of coordinators, if this is the topic by which clients find them.
pub(crate) fn coordinators_at(admin: &Admin, topic: &TopicName) -> Option<u32> {
    admin.options.transactions.as_ref()?.found_at(topic)
}

/// Transaction coordinators; without transactions, Pulsar's error.
fn of(admin: &Admin) -> ApiResult<&Arc<Transactions>> {
    let transactions = admin.options.transactions.as_ref();
    transactions.ok_or_else(|| {
        ApiError::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "This Broker is not configured with transactionCoordinatorEnabled=true.",
        )
    })
}

async fn coordinators(State(admin): State<Admin>) -> ApiResult<Json<Vec<TransactionCoordinatorInfo>>> {
    let all = 0..u64::from(of(&admin)?.serving());
    let info = |id| TransactionCoordinatorInfo {
        id,
        broker_service_url: admin.options.broker_url.clone(),
    };
    Ok(Json(all.map(info).collect()))
}

async fn coordinator_stats(
    State(admin): State<Admin>,
    QueryOf(query): QueryOf<CoordinatorQuery>,
) -> ApiResult<Json<Value>> {
    let transactions = of(&admin)?;
    if let Some(id) = query.coordinator_id {
        let stats = transactions.stats(id).ok_or_else(|| no_coordinator(id))?;
        return Ok(Json(json!(shown(stats))));
    }
    let all = (0..u64::from(transactions.serving())).filter_map(|id| transactions.stats(id));
    let all: BTreeMap<u64, TransactionCoordinatorStats> = all.map(|stats| (stats.id, shown(stats))).collect();
    Ok(Json(json!(all)))
}

async fn metadata(State(admin): State<Admin>, params: PathParams) -> ApiResult<Json<TransactionMetadata>> {
    let txn = txn_of(&params)?;
    let transactions = of(&admin)?;
    let info = transactions.get(txn).ok_or_else(|| no_transaction(txn))?;
    Ok(Json(with_places(transactions, info).await))
}

async fn slow(
    State(admin): State<Admin>,
    params: PathParams,
    QueryOf(query): QueryOf<CoordinatorQuery>,
) -> ApiResult<Json<BTreeMap<String, TransactionMetadata>>> {
    let transactions = of(&admin)?;
    let older_than_ms = params.number("timeout")?;
    let coordinators = match query.coordinator_id {
        Some(id) if transactions.stats(id).is_none() => return Err(no_coordinator(id)),
        Some(id) => id..id + 1,
        None => 0..u64::from(transactions.serving()),
    };
    let all = coordinators.flat_map(|id| transactions.slow(id, older_than_ms));
    Ok(Json(
        all.map(|info| (info.txn.to_string(), described(&info))).collect(),
    ))
}

async fn abort(State(admin): State<Admin>, params: PathParams) -> ApiResult<StatusCode> {
    let txn = txn_of(&params)?;
    of(&admin)?.abort(txn).await.map_err(|error| match error {
        TxnError::NotFound(_) | TxnError::NoCoordinator(_) => no_transaction(txn),
        TxnError::Status { .. } => ApiError::conflict(error.to_string()),
        other => ApiError::new(StatusCode::SERVICE_UNAVAILABLE, other.to_string()),
    })?;
    Ok(StatusCode::NO_CONTENT)
}

async fn buffer_stats(
    State(admin): State<Admin>,
    TopicPath(topic): TopicPath,
) -> ApiResult<Json<TransactionBufferStats>> {
    let transactions = of(&admin)?;
    single(&admin, &topic, "Statistics of transactions")?;
    stored_only(&topic, "Statistics of transactions")?;
    let figures = transactions
        .topic_figures(&topic)
        .await
        .map_err(AdminError::from)?;
    let open = figures
        .open
        .iter()
        .map(|(txn, first)| (txn.to_string(), in_buffer(*first)));
    let none = (figures.stats, figures.open.len()) == (Default::default(), 0);
    Ok(Json(TransactionBufferStats {
        state: state_of(none),
        max_read_position: figures
            .readable
            .map_or_else(|| "-1:-1".to_owned(), |at| at.to_string()),
        ongoing_txn_size: figures.stats.open as u64,
        total_aborted_transactions: figures.stats.aborted as u64,
        ongoing_transactions: open.collect(),
    }))
}

async fn pending_ack_stats(
    State(admin): State<Admin>,
    SubscriptionPath(topic, name): SubscriptionPath,
) -> ApiResult<Json<TransactionPendingAckStats>> {
    let transactions = of(&admin)?;
    single(&admin, &topic, "Statistics of transactions")?;
    stored_only(&topic, "Statistics of transactions")?;
    let figures = transactions
        .pending_figures(&topic, &name)
        .await
        .map_err(AdminError::from)?;
    let missing = || ApiError::not_found(format!("Subscription {} not found", name.as_str()));
    let (stats, open) = figures.ok_or_else(missing)?;
    Ok(Json(TransactionPendingAckStats {
        state: state_of(stats.transactions == 0),
        ongoing_txn_size: stats.transactions as u64,
        pending_ack_entries: stats.entries as u64,
        ongoing_transactions: open.iter().map(TxnId::to_string).collect(),
    }))
}

fn state_of(none: bool) -> String {
    if none { "None" } else { "Ready" }.to_owned()
}

fn in_buffer(first: Option<Position>) -> TransactionInBufferStats {
    TransactionInBufferStats {
        start_position: first.map(|at| at.to_string()),
        aborted: false,
    }
}

/// Metadata of a transaction, with the positions of its first messages.
async fn with_places(transactions: &Transactions, info: TransactionInfo) -> TransactionMetadata {
    let mut described = described(&info);
    for (topic, added) in &info.transaction.topics {
        // A topic that cannot be had has no place to show.
        let Ok(figures) = transactions.topic_figures(topic).await else {
            continue;
        };
        let first = figures.open.iter().find(|(txn, _)| *txn == info.txn);
        if let Some((_, first)) = first {
            let shown = in_buffer(*first);
            described
                .produced_partitions
                .insert(added.called.to_string(), shown);
        }
    }
    described
}

fn described(info: &TransactionInfo) -> TransactionMetadata {
    let TransactionInfo { txn, transaction } = info;
    let topics = transaction.topics.values();
    let mut acked: BTreeMap<String, BTreeMap<String, TransactionInPendingAckStats>> = BTreeMap::new();
    for ((_, subscription), added) in &transaction.subscriptions {
        let of_topic = acked.entry(added.called.to_string()).or_default();
        of_topic.insert(
            subscription.as_str().to_owned(),
            TransactionInPendingAckStats::default(),
        );
    }
    TransactionMetadata {
        txn_id: txn.to_string(),
        open_timestamp: signed(transaction.opened_ms),
        timeout_at: signed(transaction.timeout_ms),
        status: transaction.status.to_string(),
        produced_partitions: topics
            .map(|added| (added.called.to_string(), TransactionInBufferStats::default()))
            .collect(),
        acked_partitions: acked,
        owner: transaction.owner.as_deref().map(str::to_owned),
    }
}

fn shown(stats: CoordinatorStats) -> TransactionCoordinatorStats {
    TransactionCoordinatorStats {
        state: "Ready".to_owned(),
        least_sig_bits: stats.last.map_or(-1, signed),
        low_water_mark: signed(stats.low_watermark),
        ongoing_txn_size: stats.active,
        recover_start_time: 0,
        recover_end_time: 0,
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn txn_of(params: &PathParams) -> ApiResult<TxnId> {
    Ok(TxnId {
        most: params.number("mostSigBits")?,
        least: params.number("leastSigBits")?,
    })
}

fn no_transaction(txn: TxnId) -> ApiError {
    ApiError::not_found(format!("Transaction {txn} not found: it has ended, or never was"))
}

fn no_coordinator(id: u64) -> ApiError {
    ApiError::not_found(format!("Transaction coordinator {id} not found"))
}
