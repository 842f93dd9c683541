//! Settings of transactions.

use std::time::Duration;

use super::{Engine, Settings};

/// Whether there are transactions, and what each may have.
#[derive(Clone, Debug, PartialEq)]
pub struct TransactionSettings {
    /// Whether there are any.
    pub enabled: bool,
    /// Coordinators.
    pub coordinators: u32,
    /// Open transactions of each.
    pub max_active_per_coordinator: u32,
    /// Open transactions of one role at each.
    pub max_active_per_role: u32,
    /// The longest timeout.
    pub max_timeout: Duration,
}

impl Default for TransactionSettings {
    fn default() -> Self {
        Self {
            enabled: false,
            coordinators: 16,
            max_active_per_coordinator: 10_000,
            max_active_per_role: 1_000,
            max_timeout: Duration::from_secs(3 * 3600),
        }
    }
}

impl TransactionSettings {
    /// What does not go together.
    pub(super) fn faults(&self, all: &Settings) -> Vec<String> {
        let mut faults = Vec::new();
        if self.enabled && all.cluster.engine == Engine::BookKeeper {
            faults
                .push("transactions.enabled: there are no transactions with engine = bookkeeper".to_owned());
        }
        if !(1..=1024).contains(&self.coordinators) {
            faults.push("transactions.coordinators must be from 1 to 1024".to_owned());
        }
        if self.max_timeout.is_zero() {
            faults.push("transactions.max_timeout must not be 0".to_owned());
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_has_no_transactions() {
        let mut settings = Settings::default();
        settings.transactions.enabled = true;
        assert_eq!(settings.faults(), Vec::<String>::new());
        settings.cluster.engine = Engine::BookKeeper;
        let faults = settings.transactions.faults(&settings);
        assert_eq!(
            faults,
            ["transactions.enabled: there are no transactions with engine = bookkeeper"]
        );
    }
}
