//! Audit events: the one place that sees every decision passes it to an [`AuditLog`].

use crate::{Action, Denied, Principal, Resource};

/// Keeps what was asked and how it was decided.
///
/// Told on the threads that serve connections: it takes what it is told, or lets it go and counts that, and never waits.
pub trait AuditLog: Send + Sync {
    /// `who` asked for this. `refused`: why not; `None`: it was allowed.
    fn note(&self, who: &Principal, event: AuditEvent<'_>, refused: Option<&str>);
}

/// Audited request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditEvent<'a> {
    /// To be let in.
    Authenticate,
    /// To do this to that.
    Do(Action, Resource<'a>),
}

/// Selection of decisions to record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum AuditLevel {
    /// No others.
    Denied,
    /// Actions that create a producer or consumer, show messages, or change something.
    #[default]
    Changes,
    /// All but lookups and what is asked to see whether the broker is well.
    All,
}

impl AuditLevel {
    /// True if an event is recorded.
    #[must_use]
    pub fn keeps(self, event: AuditEvent<'_>, is_allowed: bool) -> bool {
        if !is_allowed {
            return true;
        }
        match event {
            AuditEvent::Authenticate => self == Self::All,
            AuditEvent::Do(action, _) => match effect_of(action) {
                Effect::Change => self >= Self::Changes,
                Effect::Look => self >= Self::All,
                Effect::Probe => false,
            },
        }
    }
}

/// Effect of an action, as far as audit levels distinguish it.
enum Effect {
    /// A client is let in, messages are shown, or something becomes different.
    Change,
    /// Something is shown that is stored.
    Look,
    /// Asked all the time by clients and by what watches the broker.
    Probe,
}

fn effect_of(action: Action) -> Effect {
    use Action as A;
    match action {
        // Of many permissions each is kept by itself.
        A::ReadVersion
        | A::ReadHealth
        | A::ReadStatus
        | A::ReadMetrics
        | A::Lookup
        | A::UpdateManyPermissions => Effect::Probe,
        A::ReadBroker
        | A::ListClusters
        | A::ReadCluster
        | A::ListTenants
        | A::ReadTenant
        | A::ListNamespaces
        | A::ReadNamespace
        | A::ListTopics
        | A::ReadPolicy
        | A::ReadPermissions
        | A::ReadTopic
        | A::ReadStats
        | A::ReadSchema
        | A::ListSubscriptions
        | A::ReadSubscription
        | A::ReadTransactions
        | A::ReadTransaction
        | A::AskUnknown => Effect::Look,
        A::UpdateBroker
        | A::UpdateCluster
        | A::CreateTenant
        | A::UpdateTenant
        | A::DeleteTenant
        | A::CreateNamespace
        | A::UpdateNamespace
        | A::DeleteNamespace
        | A::UpdateBundles
        | A::UpdatePolicy
        | A::ChooseBookies
        | A::UpdatePermissions
        | A::Produce
        | A::ProduceWithSubscription
        | A::Consume
        | A::CreateTopic
        | A::UpdateTopic
        | A::DeleteTopic
        | A::ReadMessages
        | A::Terminate
        | A::Unload
        | A::UnloadNamespace
        | A::Trim
        | A::Compact
        | A::Offload
        | A::UpdateSchema
        | A::DeleteSchema
        | A::CreateSubscription
        | A::UpdateSubscription
        | A::DeleteSubscription
        | A::ResetCursor
        | A::Seek
        | A::SkipMessages
        | A::AbortTransaction
        | A::ManageFunctions
        | A::ManageSources
        | A::ManageSinks
        | A::ManagePackages => Effect::Change,
    }
}

/// Reason of a refusal, in a few words.
pub(crate) fn reason(denied: &Denied, action: Action) -> String {
    match denied {
        Denied::NotAuthenticated(_) => "not authenticated".to_owned(),
        Denied::NoTenant => "the tenant does not exist".to_owned(),
        Denied::NotAuthorized(_) => format!("not authorized: needs {}", action.need()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_keeps_what_the_one_below_keeps_and_refusals_always() {
        let levels = [AuditLevel::Denied, AuditLevel::Changes, AuditLevel::All];
        for action in Action::ALL {
            let event = AuditEvent::Do(*action, Resource::Cluster);
            let kept = levels.map(|level| level.keeps(event, true));
            assert!(kept.is_sorted(), "{action}: {kept:?}");
            assert!(levels.iter().all(|level| level.keeps(event, false)));
        }
        let kept = |action| levels.map(|level| level.keeps(AuditEvent::Do(action, Resource::Cluster), true));
        assert_eq!(kept(Action::Consume), [false, true, true]);
        assert_eq!(kept(Action::ReadTenant), [false, false, true]);
        assert_eq!(kept(Action::ReadMetrics), [false, false, false]);
    }
}
