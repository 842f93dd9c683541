//! What the paths of all policies have in common: each is read, set and removed at one place.

use super::{Route, namespace_policies, topic_policies};

/// The operations on one policy of namespaces, or on one of topics.
#[derive(Clone, Copy, Debug)]
pub struct PolicyRoutes {
    /// Last part of the path: `retention`.
    pub name: &'static str,
    /// Reads it.
    pub read: Route,
    /// Sets it.
    pub set: Route,
    /// Removes it, so that what stands above holds.
    pub remove: Route,
}

impl PolicyRoutes {
    fn rows(&'static self) -> [&'static Route; 3] {
        [&self.read, &self.set, &self.remove]
    }
}

/// The rows of all policies.
pub(super) fn rows() -> impl Iterator<Item = &'static Route> {
    let all = namespace_policies::POLICIES
        .iter()
        .chain(topic_policies::POLICIES);
    all.flat_map(PolicyRoutes::rows)
}
