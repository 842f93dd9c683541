//! Transactions: coordinators, what takes part, what topics and subscriptions know; ending one by force.

use std::collections::BTreeMap;

use serde_json::Value;

use pharos_auth::Action;

use super::{Resource, Route};
use crate::query::CoordinatorQuery;
use crate::{
    TransactionBufferStats, TransactionCoordinatorInfo, TransactionMetadata, TransactionPendingAckStats,
};

macro_rules! at {
    ($rest:literal) => {
        concat!("/admin/v3/transactions", $rest)
    };
}

table! { Resource::Transactions;
    "Lists the transaction coordinators and where they are."
    COORDINATORS = Route::get(at!("/coordinators"), "coordinators", Action::ReadTransactions).json::<Vec<TransactionCoordinatorInfo>>();
    "Numbers of all transaction coordinators by their number, or of one."
    COORDINATOR_STATS = Route::get(at!("/coordinatorStats"), "coordinatorStats", Action::ReadTransactions).query::<CoordinatorQuery>()
        .json::<Value>().fails(&[404]);
    "A transaction that has not ended."
    METADATA = Route::get(at!("/transactionMetadata/{mostSigBits}/{leastSigBits}"), "metadata", Action::ReadTransaction)
        .json::<TransactionMetadata>().fails(&[404]);
    "Transactions that were made so many milliseconds ago and have not ended."
    SLOW = Route::get(at!("/slowTransactions/{timeout}"), "slow", Action::ReadTransactions).query::<CoordinatorQuery>()
        .json::<BTreeMap<String, TransactionMetadata>>().fails(&[404]);
    "Aborts a transaction of any role; answered when every participant has heard of it."
    ABORT = Route::post(at!("/abortTransaction/{mostSigBits}/{leastSigBits}"), "abort", Action::AbortTransaction).fails(&[404, 409]);
    "What a topic knows of its transactions."
    BUFFER_STATS = Route::get(at!("/transactionBufferStats/{tenant}/{namespace}/{topic}"), "bufferStats", Action::ReadStats)
        .json::<TransactionBufferStats>().fails(&[404, 405]);
    "What a subscription has acknowledged in transactions that have not ended."
    PENDING_ACK_STATS = Route::get(at!("/pendingAckStats/{tenant}/{namespace}/{topic}/{subscription}"), "pendingAckStats", Action::ReadSubscription)
        .json::<TransactionPendingAckStats>().fails(&[404, 405]);
}
