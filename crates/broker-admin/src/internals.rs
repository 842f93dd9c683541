//! Ledgers and cursors of a topic, loaded or as stored.

use std::collections::BTreeMap;

use pharos_admin_api::{
    CursorInfo, CursorStats, LedgerInfo, LedgerSummary, ManagedLedgerInfo, PersistentTopicInternalStats,
    PositionInfo,
};
use pharos_managed_ledger as stored;
use pharos_types::{Ordinal, TopicName};

use crate::broadcast::lowest;
use crate::error::AdminError;
use crate::gather::Live;
use crate::homes::{Homes, check_stored};
use pharos_replication::cursor_name;
use pharos_runtime::iso_time;
use pharos_topic::{LogFigures, ReplicatorFigures, SubscriptionFigures, TopicFigures, Wanted};

/// Returns the stored metadata of a log.
async fn stored_info(homes: &Homes, name: &str) -> Result<Option<stored::ManagedLedgerInfo>, AdminError> {
    let internal = |error: &dyn std::fmt::Display| AdminError::Internal(error.to_string());
    let key = format!("{}{name}", stored::INFO_PREFIX);
    let read = homes.broker.shared.metadata.get(&key).await;
    let Some(item) = read.map_err(|error| internal(&error))? else {
        return Ok(None);
    };
    let layout = homes.broker.shared.options.managed_ledger.layout;
    let parsed = stored::ManagedLedgerInfo::parse_as(layout, name, &item.value);
    parsed.map(Some).map_err(|error| internal(&error))
}

/// Ledgers and cursors of a topic, which is loaded; `metadata`: with the engine's own description of each ledger.
pub(crate) async fn stats(
    homes: &Homes,
    name: TopicName,
    metadata: bool,
) -> Result<PersistentTopicInternalStats, AdminError> {
    let wanted = Wanted {
        details: true,
        ..Wanted::default()
    };
    let (figures, live) = homes.gather(name, wanted).await?;
    let layout = homes.broker.shared.options.managed_ledger.layout;
    let mut stats = log_stats(&figures.log);
    stats.entries_added_counter = figures.counters.entries_in;
    if metadata {
        for ledger in &mut stats.ledgers {
            ledger.metadata = Some(format!(
                "ledger {} of {}",
                ledger.ledger_id,
                stored::storage_name(&figures.name, layout)
            ));
        }
    }
    for subscription in &figures.subscriptions {
        let cursor = cursor_stats(&figures, subscription, &live);
        stats.waiting_cursors_count += u32::from(cursor.waiting_read_op);
        stats.cursors.insert(subscription.name.clone(), cursor);
    }
    for replicator in &figures.replication {
        let (name, cursor) = replicator_cursor(&figures.log, replicator);
        stats.cursors.insert(name, cursor);
    }
    if let Some((ledger, horizon, entries, bytes)) = figures.log.compacted {
        stats.compacted_ledger = LedgerInfo {
            ledger_id: signed(ledger.0),
            entries: signed(entries),
            size: signed(bytes),
            ..LedgerInfo::default()
        };
        let position = mark_delete_text(&figures.log, horizon);
        let cursor = CursorStats {
            mark_delete_position: position.clone(),
            read_position: position,
            number_of_entries_since_first_not_acked_message: horizon.count_to(figures.log.end),
            state: "Open".to_owned(),
            properties: BTreeMap::from([("CompactedTopicLedger".to_owned(), signed(ledger.0))]),
            ..CursorStats::default()
        };
        stats.cursors.insert("__compaction".into(), cursor);
    }
    Ok(stats)
}

/// Returns the stored metadata; cursors are included only for a loaded topic, since only the loaded topic may open
/// their log.
pub(crate) async fn info(homes: &Homes, name: TopicName) -> Result<ManagedLedgerInfo, AdminError> {
    check_stored(&name)?;
    let home = homes.home(&name).await?;
    homes.check_exists(&name)?;
    let layout = homes.broker.shared.options.managed_ledger.layout;
    let log_name = stored::storage_name(&name, layout);
    let Some(info) = stored_info(homes, &log_name).await? else {
        return Err(AdminError::NotFound(format!("Topic {name} has no ledgers yet")));
    };
    let wanted = Wanted {
        details: true,
        ..Wanted::default()
    };
    let is_loaded = homes.broker.is_loaded(home, name.clone());
    let info = match &info.shadow {
        Some(shadow) => stored_info(homes, &shadow.source).await?.unwrap_or_default(),
        None => info,
    };
    let mut shown = info_of(&info);
    if is_loaded.await? {
        let (figures, live) = homes.gather(name, wanted).await?;
        shown.cursors = figures
            .subscriptions
            .iter()
            .filter(|subscription| subscription.is_durable)
            .map(|subscription| {
                (
                    subscription.name.clone(),
                    cursor_info(&figures, subscription, &live),
                )
            })
            .collect();
    }
    Ok(shown)
}

fn info_of(info: &stored::ManagedLedgerInfo) -> ManagedLedgerInfo {
    let summary = |row: &stored::LedgerInfo| LedgerSummary {
        ledger_id: row.ledger_id,
        entries: row.closed_at_ms.map(|_| row.entries),
        size: row.closed_at_ms.map(|_| row.bytes),
        timestamp: row.closed_at_ms.map(signed),
        is_offloaded: info.offloaded(row.ledger_id).is_some(),
        offloaded_context_uuid: info
            .offloaded(row.ledger_id)
            .map(|offloaded| offloaded.id().to_string()),
    };
    let terminated_at = info
        .ledgers
        .iter()
        .rev()
        .find(|row| row.entries > 0)
        .filter(|_| info.terminated);
    ManagedLedgerInfo {
        version: signed(info.writer_epoch),
        creation_date: Some(iso_time(info.created_ms)),
        modification_date: None,
        ledgers: info.ledgers.iter().map(summary).collect(),
        terminated_position: terminated_at.map(|row| PositionInfo {
            ledger_id: signed(row.ledger_id),
            entry_id: signed(row.entries) - 1,
        }),
        cursors: BTreeMap::new(),
        properties: info.properties.clone(),
    }
}

fn cursor_info(topic: &TopicFigures, subscription: &SubscriptionFigures, live: &Live) -> CursorInfo {
    let place = topic.log.table.mark_delete(lowest(topic, subscription, live));
    CursorInfo {
        cursors_ledger_id: -1,
        mark_delete: place.map(|mark| PositionInfo {
            ledger_id: signed(mark.ledger.0),
            entry_id: mark.entry.map_or(-1, |entry| signed(entry.0)),
        }),
        properties: subscription.properties.iter().cloned().collect(),
        ..CursorInfo::default()
    }
}

fn log_stats(log: &LogFigures) -> PersistentTopicInternalStats {
    let open = log.rows.last().filter(|_| !log.is_terminated);
    let ledger = |row: &stored::LedgerRow| {
        let is_open = open.is_some_and(|open| open.id == row.id);
        LedgerInfo {
            ledger_id: signed(row.id.0),
            entries: if is_open { 0 } else { signed(row.entries) },
            size: if is_open { 0 } else { signed(row.bytes) },
            offloaded: log.offload.ledgers.contains(&row.id),
            ..LedgerInfo::default()
        }
    };
    let state = match (log.is_terminated, log.has_fault) {
        (true, _) => "Terminated",
        (false, true) => "Fenced",
        (false, false) => "LedgerOpened",
    };
    let unreadable = log
        .unreadable
        .iter()
        .filter_map(|place| log.table.position_of(*place));
    PersistentTopicInternalStats {
        unreadable_positions: unreadable.map(|position| position.to_string()).collect(),
        number_of_entries: log.first.count_to(log.end),
        total_size: log.bytes,
        current_ledger_entries: open.map_or(0, |row| row.entries),
        current_ledger_size: open.map_or(0, |row| row.bytes),
        last_ledger_created_timestamp: None,
        pending_add_entries_count: u32::try_from(log.pending).unwrap_or(u32::MAX),
        last_confirmed_entry: mark_delete_text(log, log.end),
        state: state.to_owned(),
        ledgers: log.rows.iter().map(ledger).collect(),
        properties: log.properties.clone(),
        ..PersistentTopicInternalStats::default()
    }
}

fn cursor_stats(topic: &TopicFigures, subscription: &SubscriptionFigures, live: &Live) -> CursorStats {
    let log = &topic.log;
    let acked_to = lowest(topic, subscription, live);
    let slowest = subscription
        .cursors
        .iter()
        .find(|cursor| live.acks(cursor).acked_to == acked_to);
    let next = slowest
        .and_then(|cursor| live.of(cursor))
        .map_or(acked_to, |stream| stream.next);
    let ranges = slowest
        .map(|cursor| live.acks(cursor).ranges.as_slice())
        .unwrap_or_default();
    let backlog = slowest.map_or(0, |cursor| live.acks(cursor).backlog);
    CursorStats {
        mark_delete_position: mark_delete_text(log, acked_to),
        read_position: log
            .table
            .position_of(next)
            .map_or_else(|| mark_delete_text(log, next), |position| position.to_string()),
        waiting_read_op: next >= log.end,
        messages_consumed_counter: signed(topic.counters.entries_in) - signed(backlog),
        cursor_ledger: -1,
        cursor_ledger_last_entry: -1,
        individually_deleted_messages: ranges_text(log, ranges),
        state: "Open".to_owned(),
        active: subscription.consumer_count > 0,
        number_of_entries_since_first_not_acked_message: acked_to.count_to(next),
        total_non_contiguous_deleted_messages_range: u32::try_from(ranges.len()).unwrap_or(u32::MAX),
        ..CursorStats::default()
    }
}

/// The cursor of a replicator, which has no holes.
fn replicator_cursor(log: &LogFigures, replicator: &ReplicatorFigures) -> (String, CursorStats) {
    let position = mark_delete_text(log, replicator.place);
    let cursor = CursorStats {
        mark_delete_position: position.clone(),
        read_position: log
            .table
            .position_of(replicator.place)
            .map_or(position, |position| position.to_string()),
        waiting_read_op: replicator.place >= log.end,
        cursor_ledger: -1,
        cursor_ledger_last_entry: -1,
        individually_deleted_messages: ranges_text(log, &[]),
        state: "Open".to_owned(),
        active: replicator.connected.is_some(),
        ..CursorStats::default()
    };
    (cursor_name(&replicator.remote), cursor)
}

/// `[(3:1..3:5],(3:7..3:8]]`: each range without its first position and with its last.
fn ranges_text(log: &LogFigures, ranges: &[(Ordinal, Ordinal)]) -> String {
    let texts: Vec<String> = ranges
        .iter()
        .map(|(start, end)| {
            format!(
                "({}..{}]",
                mark_delete_text(log, *start),
                mark_delete_text(log, *end)
            )
        })
        .collect();
    format!("[{}]", texts.join(","))
}

/// The last position before a place, `ledger:entry`; entry -1 before the first of a ledger.
pub(crate) fn mark_delete_text(log: &LogFigures, acked_to: Ordinal) -> String {
    match log.table.mark_delete(acked_to) {
        Some(mark) => match mark.entry {
            Some(entry) => format!("{}:{entry}", mark.ledger),
            None => format!("{}:-1", mark.ledger),
        },
        None => "-1:-1".to_owned(),
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
