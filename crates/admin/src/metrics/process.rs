//! Metrics of the process, from `/proc`. What cannot be read is left out.

use std::fs;

use super::page::Page;

/// Clock ticks a second in `/proc/self/stat`; 100 on every Linux that Pharos runs on.
const TICKS_A_SECOND: f64 = 100.0;
/// `/proc/self/statm` counts in these.
const PAGE_BYTES: f64 = 4096.0;

pub(super) fn write(page: &mut Page) {
    let none: [(&'static str, String); 0] = [];
    if let Some(seconds) = cpu_seconds() {
        let help = "Processor time in user and system mode.";
        page.single("process_cpu_seconds_total", help, "counter", &none, seconds);
    }
    if let Some(bytes) = resident_bytes() {
        page.single(
            "process_resident_memory_bytes",
            "Memory in use.",
            "gauge",
            &none,
            bytes,
        );
    }
    if let Some(count) = open_files() {
        page.single(
            "process_open_fds",
            "Open file descriptors.",
            "gauge",
            &none,
            count,
        );
    }
}

fn cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The program's name stands in brackets and may hold anything; what follows the last bracket is fixed.
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let user: f64 = fields.get(11)?.parse().ok()?;
    let system: f64 = fields.get(12)?.parse().ok()?;
    Some((user + system) / TICKS_A_SECOND)
}

fn resident_bytes() -> Option<f64> {
    let statm = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: f64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * PAGE_BYTES)
}

/// Newer kernels say the number as the size of the directory; counting 100,000 entries one by one would take a while.
#[expect(clippy::cast_precision_loss, reason = "the format has floating point only")]
fn open_files() -> Option<f64> {
    let size = fs::metadata("/proc/self/fd").ok()?.len();
    if size > 0 {
        return Some(size as f64);
    }
    Some(fs::read_dir("/proc/self/fd").ok()?.count() as f64)
}
