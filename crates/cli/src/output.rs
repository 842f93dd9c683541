//! Results as text.

use std::fmt::Write as _;

use serde::Serialize;

use crate::error::CliError;
use crate::http::AdminClient;

/// A list: one item per line, or a JSON array.
pub(crate) fn list(client: &AdminClient, items: &[String]) -> Result<String, CliError> {
    if client.is_json() {
        return json(&items);
    }
    Ok(items.iter().fold(String::new(), |mut text, item| {
        text.push_str(item);
        text.push('\n');
        text
    }))
}

/// Anything as indented JSON.
pub(crate) fn json(value: &impl Serialize) -> Result<String, CliError> {
    let mut text = serde_json::to_string_pretty(value).map_err(|error| CliError::Usage(error.to_string()))?;
    text.push('\n');
    Ok(text)
}

/// Names and values below each other, values aligned.
pub(crate) fn pairs(rows: &[(&str, String)]) -> String {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    let mut text = String::new();
    for (name, value) in rows {
        let _ = writeln!(text, "{name:width$}  {value}");
    }
    text
}

/// A table with a head; columns are as wide as their widest cell.
pub(crate) fn table<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let mut widths = head.map(str::len);
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    let mut line = |cells: &[String; N]| {
        let mut out = String::new();
        for (width, cell) in widths.iter().zip(cells) {
            let _ = write!(out, "{cell:width$}  ");
        }
        text.push_str(out.trim_end());
        text.push('\n');
    };
    line(&head.map(str::to_owned));
    rows.iter().for_each(&mut line);
    text
}
