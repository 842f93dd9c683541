//! Messages and bytes a second over about the last minute, from counters noted now and then.
//!
//! Always true: at most [`SAMPLES_MAX`] samples, in the order of time; the oldest is the place rates count from.

use std::collections::VecDeque;

use crate::Sent;

/// Samples kept.
const SAMPLES_MAX: usize = 7;
/// Samples lie at least this far apart.
const SPACING_MS: u64 = 9_000;
/// Rates count from no further back than this, once there is a younger sample.
const SPAN_MS: u64 = 60_000;
/// Times shorter than this say nothing about a rate.
const ELAPSED_MS_MIN: u64 = 1_000;

/// A second's worth.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Messages.
    pub messages: f64,
    /// Bytes.
    pub bytes: f64,
}

/// Counters over time.
#[derive(Clone, Debug)]
pub struct RateWindow {
    samples: VecDeque<(u64, Sent)>,
}

impl RateWindow {
    /// Counters that are zero at `now_ms`.
    #[must_use]
    pub fn new(now_ms: u64) -> Self {
        Self {
            samples: VecDeque::from([(now_ms, Sent::default())]),
        }
    }

    /// Time of the last sample.
    #[must_use]
    pub fn last_ms(&self) -> u64 {
        self.samples.back().map_or(0, |(at_ms, _)| *at_ms)
    }

    /// Notes the counters, if it is time to.
    pub fn sample(&mut self, now_ms: u64, total: Sent) {
        if now_ms.saturating_sub(self.last_ms()) < SPACING_MS && !self.samples.is_empty() {
            return;
        }
        self.samples.push_back((now_ms, total));
        let is_old = |sample: Option<&(u64, Sent)>| {
            sample.is_some_and(|(at_ms, _)| now_ms.saturating_sub(*at_ms) >= SPAN_MS)
        };
        while self.samples.len() > SAMPLES_MAX || is_old(self.samples.get(1)) {
            self.samples.pop_front();
        }
    }

    /// The rates up to now.
    #[must_use]
    pub fn rates(&self, now_ms: u64, total: Sent) -> Rates {
        let Some((from_ms, from)) = self.samples.front() else {
            return Rates::default();
        };
        let seconds = now_ms.saturating_sub(*from_ms).max(ELAPSED_MS_MIN) as f64 / 1000.0;
        Rates {
            messages: total.messages.saturating_sub(from.messages) as f64 / seconds,
            bytes: total.bytes.saturating_sub(from.bytes) as f64 / seconds,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(messages: u64) -> Sent {
        Sent {
            messages,
            bytes: messages * 10,
        }
    }

    #[test]
    fn a_burst_is_forgotten_after_a_minute() {
        let mut window = RateWindow::new(0);
        for at_s in 1..=6 {
            window.sample(at_s * 10_000, total(600));
        }
        assert_eq!(window.rates(60_000, total(600)).messages, 10.0);
        assert_eq!(window.rates(60_000, total(600)).bytes, 100.0);
        for at_s in 7..=8 {
            window.sample(at_s * 10_000, total(600));
        }
        assert_eq!(window.rates(80_000, total(600)), Rates::default());
        assert!(window.samples.len() <= SAMPLES_MAX);
    }

    #[test]
    fn an_early_question_is_answered_since_the_start() {
        let window = RateWindow::new(5_000);
        assert_eq!(window.rates(5_000, total(7)).messages, 7.0);
        assert_eq!(window.rates(7_000, total(7)).messages, 3.5);
    }
}
