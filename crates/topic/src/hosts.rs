//! Number of producers or consumers of a topic per client address.

use std::collections::HashMap;

use pharos_types::steps::step;

/// Counts by address, without the port.
#[derive(Default)]
pub(super) struct Hosts(HashMap<Box<str>, usize>);

impl Hosts {
    /// Counts one of this peer address.
    pub(super) fn add(&mut self, address: &str) {
        step();
        let host = host(address);
        match self.0.get_mut(host) {
            Some(count) => *count += 1,
            None => _ = self.0.insert(host.into(), 1),
        }
    }

    /// One of this peer address left.
    pub(super) fn remove(&mut self, address: &str) {
        step();
        let host = host(address);
        let Some(count) = self.0.get_mut(host) else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            self.0.remove(host);
        }
        if self.0.is_empty() {
            self.0.shrink_to_fit();
        }
    }

    /// Number for the host of this peer address.
    pub(super) fn of(&self, address: &str) -> usize {
        step();
        self.0.get(host(address)).copied().unwrap_or(0)
    }
}

/// A peer's address without its port.
pub(super) fn host(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_do_not_count() {
        let mut hosts = Hosts::default();
        hosts.add("10.0.0.1:1");
        hosts.add("10.0.0.1:2");
        hosts.add("[::1]:2");
        assert_eq!(
            (hosts.of("10.0.0.1:3"), hosts.of("[::1]:9"), hosts.of("::1")),
            (2, 1, 0)
        );
        hosts.remove("10.0.0.1:1");
        hosts.remove("[::1]:2");
        assert_eq!(
            (hosts.of("10.0.0.1:3"), hosts.of("[::1]:9"), hosts.0.len()),
            (1, 0, 1)
        );
    }
}
