//! Retry pace of a replicator: short pauses at first, longer ones while no try succeeds.

use std::time::Duration;

/// The first pause.
const FIRST: Duration = Duration::from_millis(100);

/// Pauses between tries.
#[derive(Clone, Debug)]
pub struct RetryPace {
    next: Duration,
    /// Sets those apart that fail together.
    spread: u64,
}

impl RetryPace {
    /// No pause is longer.
    pub const CEILING: Duration = Duration::from_secs(30);

    /// `seed`: another one for each that may fail together with others.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            next: FIRST,
            spread: seed % 256,
        }
    }

    /// The pause before the next try: twice the last one, up to [`CEILING`](Self::CEILING), and less by up to a quarter.
    pub fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(Self::CEILING);
        let quarter = pause / 4;
        pause - quarter.mul_f64(self.spread as f64 / 256.0)
    }

    /// Something came of it: the next pause is the first again.
    pub fn succeeded(&mut self) {
        self.next = FIRST;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_ceiling_and_begin_anew() {
        for seed in [0, 1, 255, 12_345] {
            let mut pace = RetryPace::new(seed);
            let mut expected = FIRST;
            for _ in 0..20 {
                let pause = pace.pause();
                assert!(
                    pause <= expected && pause >= expected * 3 / 4,
                    "{pause:?} of {expected:?}"
                );
                expected = (expected * 2).min(RetryPace::CEILING);
            }
            pace.succeeded();
            assert!(pace.pause() <= FIRST);
        }
    }
}
