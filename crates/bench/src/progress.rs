//! Progress output of a run: one line that rewrites itself on a terminal, plain lines elsewhere. Always to stderr.

use std::io::{IsTerminal as _, Write as _};

use crate::clock;

/// Without a terminal a line is printed at most this often.
const PLAIN_NS: u64 = 5_000_000_000;

/// The progress line.
#[derive(Debug)]
pub(crate) struct Progress {
    terminal: bool,
    last_ns: u64,
    last: String,
}

impl Progress {
    /// Looks whether stderr is a terminal.
    pub(crate) fn new() -> Self {
        Self {
            terminal: std::io::stderr().is_terminal(),
            last_ns: 0,
            last: String::new(),
        }
    }

    /// Shows `done` of `total` as a bar with a text behind it.
    pub(crate) fn bar(&mut self, what: &str, done: u64, total: u64) {
        let share = if total == 0 {
            1.0
        } else {
            done as f64 / total as f64
        };
        let text = if self.terminal {
            format!(
                "{what} [{}] {:>3.0} % {done}/{total}",
                bar(share, 30),
                share * 100.0
            )
        } else {
            format!("{what} {done}/{total}")
        };
        self.show(text);
    }

    fn show(&mut self, text: String) {
        let now = clock::monotonic_ns();
        if text == self.last || (!self.terminal && now - self.last_ns < PLAIN_NS) {
            return;
        }
        self.last_ns = now;
        let end = if self.terminal { "\x1b[K\r" } else { "\n" };
        let _ = write!(std::io::stderr(), "{text}{end}");
        self.last = text;
    }

    /// Prints a line that stays.
    pub(crate) fn say(&mut self, text: &str) {
        let clear = if self.terminal { "\x1b[K" } else { "" };
        let _ = writeln!(std::io::stderr(), "{clear}{text}");
        self.last.clear();
    }

    /// Clears the line.
    pub(crate) fn clear(&mut self) {
        if self.terminal && !self.last.is_empty() {
            let _ = write!(std::io::stderr(), "\x1b[K");
            self.last.clear();
        }
    }
}

fn bar(share: f64, width: usize) -> String {
    let full = ((share.clamp(0.0, 1.0) * width as f64) as usize).min(width);
    "#".repeat(full) + &"-".repeat(width - full)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_always_as_wide() {
        assert_eq!(bar(0.0, 4), "----");
        assert_eq!(bar(0.5, 4), "##--");
        assert_eq!(bar(7.0, 4), "####");
    }
}
