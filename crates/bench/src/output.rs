//! Standard output.

use std::io::Write as _;

/// Prints a result to standard output.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    Ok(writeln!(std::io::stdout().lock(), "{text}")?)
}
