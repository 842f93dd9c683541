//! Topics: making, listing, deleting, looking at, and what one does to a whole topic.

use std::collections::BTreeMap;

use serde_json::Value;

use pharos_auth::Action;

use super::{Resource, Route};
use crate::query::{
    CreatePartitionedQuery, ForceQuery, InternalStatsQuery, PartitionsQuery, PropertyQuery, StatsQuery,
    TopicsQuery,
};
use crate::{
    LongRunningProcessStatus, ManagedLedgerInfo, MessageIdJson, PartitionedTopicInternalStats,
    PartitionedTopicMetadata, PartitionedTopicStats, PersistentTopicInternalStats, TopicStats,
};

macro_rules! at {
    ($rest:literal) => {
        concat!("/admin/v2/{domain}/{tenant}/{namespace}/{topic}", $rest)
    };
}

const ALL: &str = "/admin/v2/{domain}/{tenant}/{namespace}";
const ONE: &str = at!("");
const PARTITIONS_PATH: &str = at!("/partitions");

table! { Resource::Topics;
    "Lists the topics of a namespace that are in one domain, partitions one by one."
    LIST = Route::get(ALL, "list", Action::ListTopics).query::<TopicsQuery>().json::<Vec<String>>().fails(&[404]);
    "Lists the partitioned topics of a namespace that are in one domain."
    LIST_PARTITIONED = Route::get("/admin/v2/{domain}/{tenant}/{namespace}/partitioned", "listPartitioned", Action::ListTopics)
        .query::<TopicsQuery>().json::<Vec<String>>().fails(&[404]);
    "Makes a topic that is not partitioned, with properties if any are given."
    CREATE = Route::put(ONE, "create", Action::CreateTopic).may_take::<BTreeMap<String, String>>().fails(&[404, 409, 501]);
    "Deletes a topic that is not partitioned; with `force` also when producers or consumers are on it."
    DELETE = Route::delete(ONE, "delete", Action::DeleteTopic).query::<ForceQuery>().fails(&[404, 409]);
    "How many partitions a topic has; 0 when it is not partitioned."
    PARTITIONS = Route::get(PARTITIONS_PATH, "partitions", Action::ReadTopic).query::<PartitionsQuery>()
        .json::<PartitionedTopicMetadata>().fails(&[404]);
    "Makes a partitioned topic; the body is the number of partitions, or an object that has properties as well."
    CREATE_PARTITIONED = Route::put(PARTITIONS_PATH, "createPartitioned", Action::CreateTopic).query::<CreatePartitionedQuery>()
        .takes::<Value>().fails(&[404, 406, 409, 501]);
    "Gives a partitioned topic more partitions; the body is their number."
    GROW_PARTITIONED = Route::post(PARTITIONS_PATH, "growPartitioned", Action::UpdateTopic).takes::<Value>().fails(&[404, 406, 409, 422]);
    "Deletes a partitioned topic; with `force` also when producers or consumers are on it."
    DELETE_PARTITIONED = Route::delete(PARTITIONS_PATH, "deletePartitioned", Action::DeleteTopic).query::<ForceQuery>().fails(&[404]);
    "Makes the partitions that the metadata names and that are not there."
    CREATE_MISSED_PARTITIONS = Route::post(at!("/createMissedPartitions"), "createMissedPartitions", Action::UpdateTopic).fails(&[404, 409]);
    "The id of the last message."
    LAST_MESSAGE_ID = Route::get(at!("/lastMessageId"), "lastMessageId", Action::ReadStats).json::<MessageIdJson>().fails(&[404, 405]);
    "The id of the first message published at or after a time in milliseconds since 1970."
    MESSAGE_ID_BY_TIME = Route::get(at!("/messageid/{timestamp}"), "messageIdByTime", Action::ReadStats)
        .json::<MessageIdJson>().fails(&[404, 405, 501]);
    "Lets no more messages in, and says the id of the last one."
    TERMINATE = Route::post(at!("/terminate"), "terminate", Action::Terminate).json::<MessageIdJson>().fails(&[404, 405]);
    "Lets no more messages into any partition, and says the id of the last one of each."
    TERMINATE_PARTITIONS = Route::post(at!("/terminate/partitions"), "terminatePartitions", Action::Terminate)
        .json::<BTreeMap<u32, MessageIdJson>>().fails(&[404, 405]);
    "Disconnects the clients of a topic and takes it out of memory until it is used again."
    UNLOAD = Route::put(at!("/unload"), "unload", Action::Unload).fails(&[404]);
    "Deletes the ledgers that no subscription and no retention needs, now."
    TRIM = Route::post(at!("/trim"), "trim", Action::Trim).fails(&[404, 405]);
    "Moves every subscription to the end and deletes the closed ledgers."
    TRUNCATE = Route::delete(at!("/truncate"), "truncate", Action::Trim).fails(&[404, 501]);
    "The stats of a topic that is not partitioned."
    STATS = Route::get(at!("/stats"), "stats", Action::ReadStats).query::<StatsQuery>().json::<TopicStats>().fails(&[404]);
    "The stats of a partitioned topic: the sum, and those of each partition."
    PARTITIONED_STATS = Route::get(at!("/partitioned-stats"), "partitionedStats", Action::ReadStats).query::<StatsQuery>()
        .json::<PartitionedTopicStats>().fails(&[404]);
    "The ledgers and cursors of a topic; loads it."
    INTERNAL_STATS = Route::get(at!("/internalStats"), "internalStats", Action::ReadStats).query::<InternalStatsQuery>()
        .json::<PersistentTopicInternalStats>().fails(&[404]);
    "The ledgers and cursors of each partition."
    PARTITIONED_INTERNAL_STATS = Route::get(at!("/partitioned-internalStats"), "partitionedInternalStats", Action::ReadStats)
        .json::<PartitionedTopicInternalStats>().fails(&[404]);
    "The ledgers and cursors of a topic as they are stored; of a partitioned topic under `partitions`."
    INTERNAL_INFO = Route::get(at!("/internal-info"), "internalInfo", Action::ReadStats).json::<ManagedLedgerInfo>().fails(&[404, 405]);
    "The properties of a topic."
    PROPERTIES = Route::get(at!("/properties"), "properties", Action::ReadTopic).json::<BTreeMap<String, String>>().fails(&[404]);
    "Adds properties, or replaces those of the same names."
    SET_PROPERTIES = Route::put(at!("/properties"), "setProperties", Action::UpdateTopic).takes::<BTreeMap<String, String>>()
        .fails(&[404, 409, 501]);
    "Removes one property."
    REMOVE_PROPERTY = Route::delete(at!("/properties"), "removeProperty", Action::UpdateTopic).query::<PropertyQuery>().fails(&[404, 409]);
    "What roles may do on a topic: by its own grants, and those of its namespace and partitioned topic."
    PERMISSIONS = Route::get(at!("/permissions"), "permissions", Action::ReadPermissions).json::<BTreeMap<String, Vec<String>>>().fails(&[404]);
    "Grants a role these permissions on a topic and its partitions, in place of those it had."
    GRANT = Route::post(at!("/permissions/{role}"), "grant", Action::UpdatePermissions).takes::<Vec<String>>().fails(&[404, 409]);
    "Takes the permissions on a topic from a role; 412 where it has none."
    REVOKE = Route::delete(at!("/permissions/{role}"), "revoke", Action::UpdatePermissions).fails(&[404, 409]);
    "What came of the last compaction since the topic was loaded."
    COMPACTION_STATUS = Route::get(at!("/compaction"), "compactionStatus", Action::ReadStats).json::<LongRunningProcessStatus>().fails(&[404, 405]);
    "Begins to compact a topic, or its partitions; 409 while one is compacted."
    COMPACT = Route::put(at!("/compaction"), "compact", Action::Compact).fails(&[404, 405, 409]);
    "The shadow topics of a topic: those that show what is published to it."
    SHADOWS = Route::get(at!("/shadowTopics"), "shadows", Action::ReadTopic).json::<Vec<String>>().fails(&[404]);
    "Names the shadow topics of a topic, in place of those it had; each was made with the property `PULSAR.SHADOW_SOURCE`. 412 for one that was not."
    SET_SHADOWS = Route::put(at!("/shadowTopics"), "setShadows", Action::UpdateTopic).takes::<Vec<String>>().fails(&[400, 404, 412]);
    "Names no shadow topics any more: those there are get nothing new."
    REMOVE_SHADOWS = Route::delete(at!("/shadowTopics"), "removeShadows", Action::UpdateTopic).fails(&[404, 412]);
}
