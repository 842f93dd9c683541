//! Topics of a broker with two shards, all in memory, with clients that live on the shards.

mod harness;

mod attach;
mod clients;
mod damage;
mod dedup;
mod deletes;
mod dispatched;
mod encoding;
mod faults;
mod grants;
mod newest;
mod skips;
mod stops;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pharos_dispatch::KeySharedSpec;
use pharos_feed::OwnedAck;
use pharos_feed::ids::{ProducerKey, ShardId, TopicId};
use pharos_ledger::LedgerEngine as _;
use pharos_ledger::memory::MemoryEngine;
use pharos_mesh::Options;
use pharos_metadata::Memory;
use pharos_requests::error::{ProducerError, SubscribeError, TopicError};
use pharos_runtime::clock;
use pharos_topic::{Access, AccessMode, StartAt, SubscriptionType};
use pharos_types::TopicName;

use crate::shard::{ConnectionEvent, Shard};
use harness::*;
