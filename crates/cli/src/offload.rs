//! `pharos topics offload` and `pharos topics offload-status`.

use pharos_admin_api::{LedgerInfo, MessageIdJson, OffloadProcessStatus, PersistentTopicInternalStats};

use crate::error::CliError;
use crate::http::{AdminClient, topic_path};
use crate::{output, process};

/// Asks for the closed ledgers to be offloaded that are not among the newest `keep` bytes.
pub(crate) fn begin(client: &AdminClient, topic: &str, keep: &str) -> Result<String, CliError> {
    let (path, keep) = (topic_path(topic)?, bytes(keep)?);
    let stats: PersistentTopicInternalStats = client.get(&format!("{path}/internalStats"))?;
    let Some(before) = first_kept(&stats, keep) else {
        return Ok(format!(
            "nothing to offload: the topic has no more than {keep} bytes\n"
        ));
    };
    let before = MessageIdJson {
        ledger_id: before,
        entry_id: 0,
        partition_index: -1,
        batch_index: None,
        batch_size: None,
    };
    client.put(&format!("{path}/offload"), &before)?;
    Ok(format!(
        "offloading the ledgers before {} has begun; see pharos topics offload-status {topic}\n",
        before.ledger_id
    ))
}

/// The oldest ledger that stays; `None` when all do.
fn first_kept(stats: &PersistentTopicInternalStats, keep: i64) -> Option<i64> {
    let last = stats.ledgers.last()?.ledger_id;
    let current = i64::try_from(stats.current_ledger_size).unwrap_or(i64::MAX);
    let size = |ledger: &LedgerInfo| {
        if ledger.ledger_id == last {
            current.max(ledger.size)
        } else {
            ledger.size
        }
    };
    let (mut kept, mut first) = (0i64, last);
    for ledger in stats.ledgers.iter().rev() {
        kept = kept.saturating_add(size(ledger));
        if kept > keep {
            return Some(first);
        }
        first = ledger.ledger_id;
    }
    None
}

/// Shows, or waits for, what came of the last offload.
pub(crate) fn status(client: &AdminClient, topic: &str, wait: bool) -> Result<String, CliError> {
    let path = format!("{}/offload", topic_path(topic)?);
    let status = process::look(client, &path, wait, |status: &OffloadProcessStatus| {
        &status.status
    })?;
    if client.is_json() {
        return output::json(&status);
    }
    Ok(match status.status.as_str() {
        "NOT_RUN" => "no offload was asked for since the topic was loaded\n".to_owned(),
        "RUNNING" => "offloading is under way\n".to_owned(),
        "SUCCESS" => match status.first_unoffloaded_message {
            Some(first) => format!(
                "offloading is done; the first message that stays is {}:{}\n",
                first.ledger_id, first.entry_id
            ),
            None => "offloading is done\n".to_owned(),
        },
        _ => format!("offloading failed: {}\n", status.last_error),
    })
}

/// A number of bytes, with K, M, G or T for powers of 1024, as `pulsar-admin` takes it.
fn bytes(text: &str) -> Result<i64, CliError> {
    let wrong = || {
        CliError::Usage(format!(
            "'{text}' is no size: write a number, also with K, M, G or T"
        ))
    };
    let scale = match text.chars().last().map(|last| last.to_ascii_uppercase()) {
        Some('K') => 10,
        Some('M') => 20,
        Some('G') => 30,
        Some('T') => 40,
        _ => 0,
    };
    let number = if scale > 0 {
        text.get(..text.len() - 1).unwrap_or_default()
    } else {
        text
    };
    let number: i64 = number.parse().map_err(|_| wrong())?;
    let bytes = number.checked_mul(1 << scale).filter(|bytes| *bytes >= 0);
    bytes.ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(bytes("0").unwrap(), 0);
        assert_eq!(bytes("10M").unwrap(), 10 << 20);
        assert_eq!(bytes("2g").unwrap(), 2 << 30);
        for wrong in ["", "M", "-1", "1X", "9999999999T"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_newest_bytes_stay() {
        let ledger = |ledger_id, size| LedgerInfo {
            ledger_id,
            size,
            ..LedgerInfo::default()
        };
        let stats = PersistentTopicInternalStats {
            ledgers: vec![ledger(1, 30), ledger(4, 30), ledger(9, 0)],
            current_ledger_size: 5,
            ..PersistentTopicInternalStats::default()
        };
        assert_eq!(first_kept(&stats, 0), Some(9));
        assert_eq!(first_kept(&stats, 10), Some(9));
        assert_eq!(first_kept(&stats, 35), Some(4));
        assert_eq!(first_kept(&stats, 65), None);
    }
}
