//! The question, and what answers it.

use std::fmt;
use std::sync::Arc;

use crate::audit::{AuditEvent, AuditLog, reason};
use crate::{Action, Principal, Resource};

/// Decides who may do what.
///
/// Asked on the threads that serve connections, once for each action and never for a message: it answers from memory and
/// does not wait.
pub trait Authorizer: Send + Sync {
    /// Decides if `who` may perform `action` on `resource`. The resource need not exist.
    ///
    /// # Errors
    /// [`Denied`]: not permitted.
    fn authorize(&self, who: &Principal, action: Action, resource: Resource<'_>) -> Result<(), Denied>;

    /// True if `who` may connect in this way: a proxy must name an original principal, and only a proxy may.
    fn may_connect(&self, _who: &Principal) -> bool {
        true
    }
}

/// A caller may not do what it asked for. Nothing was done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// The action needs a caller that proved who it is, and this one did not.
    #[error("{0} needs authentication")]
    NotAuthenticated(String),
    /// The caller is known, and may not do this.
    #[error("{0} is not authorized")]
    NotAuthorized(String),
    /// The caller is known, and what it asks about belongs to a tenant that does not exist. In the words of Pulsar.
    #[error("Tenant does not exist")]
    NoTenant,
}

impl Denied {
    /// The answer to a caller that may not do this: says that it has to prove who it is when it did not.
    #[must_use]
    pub fn to(who: &Principal, action: Action, resource: Resource<'_>) -> Self {
        let what = format!("{action} on {resource} by {who}");
        if who.is_authenticated() {
            Self::NotAuthorized(what)
        } else {
            Self::NotAuthenticated(what)
        }
    }
}

/// The way to the authorizer: what every action asks. Cheap to clone.
#[derive(Clone, Default)]
pub struct Access {
    /// `None`: everything is allowed.
    authorizer: Option<Arc<dyn Authorizer>>,
    /// Audit log to notify.
    audit: Option<Arc<dyn AuditLog>>,
}

impl Access {
    /// Every caller may do everything: no authentication is configured.
    #[must_use]
    pub fn everyone() -> Self {
        Self::default()
    }

    /// Access decided by this authorizer.
    #[must_use]
    pub fn by(authorizer: Arc<dyn Authorizer>) -> Self {
        Self {
            authorizer: Some(authorizer),
            audit: None,
        }
    }

    /// Adds an audit log that receives each decision.
    #[must_use]
    pub fn told_to(self, audit: Arc<dyn AuditLog>) -> Self {
        Self {
            audit: Some(audit),
            ..self
        }
    }

    /// Checks that `who` may perform `action` on `resource`.
    ///
    /// Called once per action, before anything is created or changed for it.
    ///
    /// # Errors
    /// [`Denied`]: not permitted; the caller is told.
    pub fn check(&self, who: &Principal, action: Action, resource: Resource<'_>) -> Result<(), Denied> {
        let decided = match &self.authorizer {
            Some(authorizer) => authorizer.authorize(who, action, resource),
            None => Ok(()),
        };
        if let Some(audit) = &self.audit {
            let event = AuditEvent::Do(action, resource);
            match &decided {
                Ok(()) => audit.note(who, event, None),
                Err(denied) => audit.note(who, event, Some(&reason(denied, action))),
            }
        }
        decided
    }

    /// Tells the log who was let in or, with the reason, who was not.
    pub fn note_authentication(&self, who: &Principal, refused: Option<&str>) {
        if let Some(audit) = &self.audit {
            audit.note(who, AuditEvent::Authenticate, refused);
        }
    }

    /// True if `who` may connect in this way: a proxy must name an original principal, and only a proxy may. Called
    /// once per connection.
    #[must_use]
    pub fn may_connect(&self, who: &Principal) -> bool {
        let authorizer = self.authorizer.as_ref();
        authorizer.is_none_or(|authorizer| authorizer.may_connect(who))
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = if self.authorizer.is_some() {
            "by an authorizer"
        } else {
            "everyone"
        };
        write!(f, "Access({who})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct OnlyHealth;

    impl Authorizer for OnlyHealth {
        fn authorize(&self, who: &Principal, action: Action, resource: Resource<'_>) -> Result<(), Denied> {
            match action {
                Action::ReadHealth => Ok(()),
                _ => Err(Denied::to(who, action, resource)),
            }
        }
    }

    #[test]
    fn what_the_authorizer_says_is_what_the_caller_hears() {
        let (caller, topic) = (Principal::anonymous("/10.0.0.1:1"), "t".parse().unwrap());
        let wish = (Action::Produce, Resource::Topic(&topic));
        assert_eq!(Access::everyone().check(&caller, wish.0, wish.1), Ok(()));
        let access = Access::by(Arc::new(OnlyHealth));
        assert_eq!(
            access.check(&caller, Action::ReadHealth, Resource::Cluster),
            Ok(())
        );
        let denied = access.check(&caller, wish.0, wish.1).unwrap_err();
        assert_eq!(
            denied.to_string(),
            "produce on topic persistent://public/default/t by anonymous at /10.0.0.1:1 needs authentication"
        );
    }
}
