//! Sizes and durations as people write them on a command line, and as they read them in a table.
//!
//! `k`, `KB` and `KiB` all mean 1024 bytes, as in Pulsar's own tools.

use std::time::Duration;

/// Parses `10KB`, `1m`, `300` into bytes.
///
/// # Errors
/// It is no size.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let split = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        other => return Err(format!("unknown size unit `{other}`; use B, KB, MB or GB")),
    };
    let number: f64 = number.parse().map_err(|_| format!("`{text}` is not a size"))?;
    Ok((number * factor as f64) as u64)
}

/// Parses `10`, `1.5s`, `250ms`, `2m` into a duration; a bare number is seconds.
///
/// # Errors
/// It is no duration.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let split = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let seconds = match unit.trim() {
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        other => return Err(format!("unknown time unit `{other}`; use us, ms, s, m or h")),
    };
    let number: f64 = number
        .parse()
        .map_err(|_| format!("`{text}` is not a duration"))?;
    Duration::try_from_secs_f64(number * seconds).map_err(|_| format!("`{text}` is not a duration"))
}

/// Bytes for people: `512 B`, `10.0 KiB`, `1.3 GiB`.
pub fn show_bytes(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = UNITS[0];
    for next in &UNITS[1..] {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    format!("{value:.1} {unit}")
}

/// Nanoseconds as milliseconds.
pub(crate) fn ns_to_ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_take_the_usual_suffixes() {
        assert_eq!(parse_bytes("300"), Ok(300));
        assert_eq!(parse_bytes("10KB"), Ok(10_240));
        assert_eq!(parse_bytes("1.5 MiB"), Ok(1_572_864));
        assert!(parse_bytes("10 parsec").is_err());
        assert!(parse_bytes("KB").is_err());
    }

    #[test]
    fn durations_take_the_usual_suffixes() {
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(parse_duration("1.5"), Ok(Duration::from_millis(1500)));
        assert!(parse_duration("soon").is_err());
    }

    #[test]
    fn shown_bytes_keep_one_digit() {
        assert_eq!(show_bytes(512), "512 B");
        assert_eq!(show_bytes(10_240), "10.0 KiB");
        assert_eq!(show_bytes(3 << 30), "3.0 GiB");
    }
}
