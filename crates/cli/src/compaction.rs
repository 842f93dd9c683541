//! `pharos topics compact` and `pharos topics compaction-status`.

use pharos_admin_api::LongRunningProcessStatus;

use crate::error::CliError;
use crate::http::{AdminClient, topic_path};
use crate::{output, process};

/// Asks for a topic to be compacted.
pub(crate) fn begin(client: &AdminClient, topic: &str) -> Result<String, CliError> {
    client.put_empty(&format!("{}/compaction", topic_path(topic)?))?;
    Ok(format!(
        "compacting has begun; see pharos topics compaction-status {topic}\n"
    ))
}

/// Shows, or waits for, what came of the last compaction.
pub(crate) fn status(client: &AdminClient, topic: &str, wait: bool) -> Result<String, CliError> {
    let path = format!("{}/compaction", topic_path(topic)?);
    let status = process::look(client, &path, wait, |status: &LongRunningProcessStatus| {
        &status.status
    })?;
    if client.is_json() {
        return output::json(&status);
    }
    Ok(match status.status.as_str() {
        "NOT_RUN" => "the topic was not compacted since it was loaded\n".to_owned(),
        "RUNNING" => "compacting is under way\n".to_owned(),
        "SUCCESS" => "compacting is done\n".to_owned(),
        _ => format!("compacting failed: {}\n", status.last_error),
    })
}
