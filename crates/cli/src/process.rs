//! Long work of the broker that was asked for before: looked at once, or until it has ended.

use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::error::CliError;
use crate::http::AdminClient;

/// Pause between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// Returns the status at `path`; with `wait`, once it is not `RUNNING` any more.
pub(crate) fn look<S: DeserializeOwned>(
    client: &AdminClient,
    path: &str,
    wait: bool,
    status: impl Fn(&S) -> &str,
) -> Result<S, CliError> {
    loop {
        let found: S = client.get(path)?;
        if !wait || status(&found) != "RUNNING" {
            return Ok(found);
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}
