//! The route table: every operation of the admin API, one row each.
//!
//! The server answers what the table has and nothing else; the OpenAPI document and the reference page are written from it.
//! A row says which thing of the broker it is about ([`Resource`]) and what it does there, so that the permission for it is asked
//! about in one place.
//!
//! ```
//! use pharos_admin_api::routes::{self, tenants};
//!
//! assert_eq!(tenants::CREATE.id(), "tenants.create");
//! assert!(routes::all().any(|route| route.path == "/admin/v2/tenants/{tenant}"));
//! ```

use pharos_auth::Action;

use crate::shape::{Described, Shape};

/// Declares the rows of one resource, each with its sentence, and the list of them.
macro_rules! table {
    ($resource:expr; $($summary:literal $name:ident = $route:expr;)*) => {
        $(
            #[doc = $summary]
            pub static $name: Route = $route.about($resource, $summary);
        )*
        pub(super) static ROWS: &[&Route] = &[$(&$name),*];
    };
}

pub mod brokers;
pub mod bundles;
pub mod clusters;
pub mod lookup;
pub mod messages;
pub mod namespace_policies;
pub mod namespaces;
pub mod offload;
pub mod policies;
pub mod schemas;
pub mod subscriptions;
pub mod tenants;
pub mod topic_policies;
pub mod topics;
pub mod transactions;

/// Name of the path parameter that is `persistent` or `non-persistent`.
pub const DOMAIN: &str = "domain";

/// HTTP method of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Method {
    /// Reads.
    Get,
    /// Makes, or replaces.
    Put,
    /// Changes, or asks for something to be done.
    Post,
    /// Removes.
    Delete,
}

impl Method {
    /// As on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Put => "PUT",
            Self::Post => "POST",
            Self::Delete => "DELETE",
        }
    }
}

/// What an operation is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// Names and addresses of clusters.
    Clusters,
    /// Tenants.
    Tenants,
    /// Namespaces, with their properties.
    Namespaces,
    /// Bundles of a namespace.
    Bundles,
    /// Policies of a namespace.
    NamespacePolicies,
    /// Topics, whole and partitioned, with their properties and stats.
    Topics,
    /// Policies of a topic.
    TopicPolicies,
    /// Subscriptions of a topic.
    Subscriptions,
    /// Stored messages of a topic.
    Messages,
    /// Schemas of a topic.
    Schemas,
    /// Brokers, their health and settings, and the metrics page.
    Brokers,
    /// Who serves a topic.
    Lookup,
    /// Transactions and who coordinates them.
    Transactions,
}

impl Resource {
    /// All, from the large to the small.
    pub const ALL: [Self; 13] = [
        Self::Clusters,
        Self::Brokers,
        Self::Tenants,
        Self::Namespaces,
        Self::NamespacePolicies,
        Self::Bundles,
        Self::Topics,
        Self::TopicPolicies,
        Self::Subscriptions,
        Self::Messages,
        Self::Schemas,
        Self::Lookup,
        Self::Transactions,
    ];

    /// What it is called in headings.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Clusters => "Clusters",
            Self::Tenants => "Tenants",
            Self::Namespaces => "Namespaces",
            Self::Bundles => "Bundles",
            Self::NamespacePolicies => "Policies of namespaces",
            Self::Topics => "Topics",
            Self::TopicPolicies => "Policies of topics",
            Self::Subscriptions => "Subscriptions",
            Self::Messages => "Stored messages",
            Self::Schemas => "Schemas",
            Self::Brokers => "Brokers",
            Self::Lookup => "Lookup",
            Self::Transactions => "Transactions",
        }
    }

    /// First part of the ids of its operations.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Clusters => "clusters",
            Self::Tenants => "tenants",
            Self::Namespaces => "namespaces",
            Self::Bundles => "bundles",
            Self::NamespacePolicies => "namespacePolicies",
            Self::Topics => "topics",
            Self::TopicPolicies => "topicPolicies",
            Self::Subscriptions => "subscriptions",
            Self::Messages => "messages",
            Self::Schemas => "schemas",
            Self::Brokers => "brokers",
            Self::Lookup => "lookup",
            Self::Transactions => "transactions",
        }
    }
}

/// What a request brings.
#[derive(Clone, Copy, Debug)]
pub struct Body {
    /// Its form.
    pub shape: Shape,
    /// Whether it may be left out.
    pub is_optional: bool,
}

/// What comes back when all goes well.
#[derive(Clone, Copy, Debug)]
pub enum Answer {
    /// An empty body.
    Nothing,
    /// JSON of this form.
    Json(Shape),
    /// JSON of this form, or 204 and an empty body where nothing is set.
    JsonOrNothing(Shape),
    /// Plain text.
    Text,
    /// Plain text, or 204 and an empty body where nothing is set.
    TextOrNothing,
    /// A stored message; what is known about it is in headers that begin with `x-pulsar-`.
    Message,
}

/// One operation.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// How it is asked for.
    pub method: Method,
    /// Where, with the names of its parameters in braces.
    pub path: &'static str,
    /// What it is about.
    pub resource: Resource,
    /// What it does there; with the resource the only one of its name.
    pub operation: &'static str,
    /// What the caller is asked about before it does anything. A row without one does not compile.
    pub action: Action,
    /// What it does, in a sentence.
    pub summary: &'static str,
    /// What may stand behind the `?`.
    pub query: Option<Shape>,
    /// What the request brings.
    pub body: Option<Body>,
    /// What comes back when all goes well.
    pub answer: Answer,
    /// The status of that.
    pub status: u16,
    /// Statuses of what may be wrong, beside those that any operation may answer ([`COMMON_FAILURES`]).
    pub fails: &'static [u16],
}

/// Statuses that any operation may answer: a malformed request, a caller that has to prove who it is or may not do this (every row
/// has an [`action`](Route::action), and is asked about), a wrong name, and what is wrong with the broker itself.
pub const COMMON_FAILURES: &[u16] = &[400, 401, 403, 412, 500, 503];

impl Route {
    const fn new(method: Method, path: &'static str, operation: &'static str, action: Action) -> Self {
        Self {
            method,
            path,
            resource: Resource::Brokers,
            operation,
            action,
            summary: "",
            query: None,
            body: None,
            answer: Answer::Nothing,
            status: 204,
            fails: &[],
        }
    }

    const fn get(path: &'static str, operation: &'static str, action: Action) -> Self {
        Self::new(Method::Get, path, operation, action)
    }

    const fn put(path: &'static str, operation: &'static str, action: Action) -> Self {
        Self::new(Method::Put, path, operation, action)
    }

    const fn post(path: &'static str, operation: &'static str, action: Action) -> Self {
        Self::new(Method::Post, path, operation, action)
    }

    const fn delete(path: &'static str, operation: &'static str, action: Action) -> Self {
        Self::new(Method::Delete, path, operation, action)
    }

    const fn about(self, resource: Resource, summary: &'static str) -> Self {
        Self {
            resource,
            summary,
            ..self
        }
    }

    const fn query<T: Described>(self) -> Self {
        Self {
            query: Some(Shape::of::<T>()),
            ..self
        }
    }

    const fn takes<T: Described>(self) -> Self {
        Self {
            body: Some(Body {
                shape: Shape::of::<T>(),
                is_optional: false,
            }),
            ..self
        }
    }

    const fn may_take<T: Described>(self) -> Self {
        Self {
            body: Some(Body {
                shape: Shape::of::<T>(),
                is_optional: true,
            }),
            ..self
        }
    }

    const fn answers(self, status: u16, answer: Answer) -> Self {
        Self {
            answer,
            status,
            ..self
        }
    }

    /// Nothing comes back.
    const fn done(self, status: u16) -> Self {
        self.answers(status, Answer::Nothing)
    }

    const fn with_status(self, status: u16) -> Self {
        Self { status, ..self }
    }

    const fn message(self) -> Self {
        self.answers(200, Answer::Message)
    }

    const fn json<T: Described>(self) -> Self {
        self.answers(200, Answer::Json(Shape::of::<T>()))
    }

    const fn json_or_nothing<T: Described>(self) -> Self {
        self.answers(200, Answer::JsonOrNothing(Shape::of::<T>()))
    }

    const fn text(self) -> Self {
        self.answers(200, Answer::Text)
    }

    const fn text_or_nothing(self) -> Self {
        self.answers(200, Answer::TextOrNothing)
    }

    const fn fails(self, fails: &'static [u16]) -> Self {
        Self { fails, ..self }
    }

    /// The name of the operation: `tenants.create`.
    #[must_use]
    pub fn id(&self) -> String {
        format!("{}.{}", self.resource.as_str(), self.operation)
    }

    /// Whether it only looks.
    #[must_use]
    pub fn is_read(&self) -> bool {
        self.method == Method::Get
    }

    /// Whether the answer may be 307 and the address of another broker, which serves the topic of the path, or has the bundle.
    #[must_use]
    pub fn may_be_elsewhere(&self) -> bool {
        if self.resource == Resource::Bundles {
            return matches!(self.operation, "unload" | "split");
        }
        self.resource != Resource::Lookup && self.path_parameters().any(|name| name == "topic")
    }

    /// The names of the parameters in its path, in their order.
    pub fn path_parameters(&self) -> impl Iterator<Item = &'static str> {
        self.path.split('/').filter_map(parameter)
    }

    /// The parameters of a path that this row was found for, as they stand in it: neither decoded nor checked.
    pub fn parameters_of<'a>(&self, path: &'a str) -> impl Iterator<Item = (&'static str, &'a str)> {
        let parts = self.path.split('/').zip(path.split('/'));
        parts.filter_map(|(part, value)| Some((parameter(part)?, value)))
    }
}

/// The name in a part `{name}` of a path.
fn parameter(part: &str) -> Option<&str> {
    part.strip_prefix('{')?.strip_suffix('}')
}

/// The whole table.
pub fn all() -> impl Iterator<Item = &'static Route> {
    let rows = [
        clusters::ROWS,
        brokers::ROWS,
        tenants::ROWS,
        namespaces::ROWS,
        namespace_policies::ROWS,
        bundles::ROWS,
        topics::ROWS,
        offload::ROWS,
        topic_policies::ROWS,
        subscriptions::ROWS,
        messages::ROWS,
        schemas::ROWS,
        lookup::ROWS,
        transactions::ROWS,
    ];
    rows.into_iter().flatten().copied().chain(policies::rows())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_operation_has_a_name_and_a_place_of_its_own() {
        let (mut ids, mut places) = (BTreeSet::new(), BTreeSet::new());
        for route in all() {
            assert!(ids.insert(route.id()), "{}", route.id());
            assert!(
                places.insert((route.path, route.method)),
                "{} {}",
                route.method.as_str(),
                route.path
            );
            assert!(route.summary.ends_with('.'), "{}", route.id());
            let mut names = BTreeSet::new();
            assert!(
                route.path_parameters().all(|name| names.insert(name)),
                "{}",
                route.path
            );
        }
        assert!(ids.len() > 300, "{}", ids.len());
    }

    #[test]
    fn parameters_are_found_by_name_whatever_stands_before_them() {
        let found: Vec<_> = messages::BY_ID
            .parameters_of("/admin/v2/persistent/t/n/a%2Fb/ledger/3/entry/4")
            .collect();
        let wanted = [
            ("domain", "persistent"),
            ("tenant", "t"),
            ("namespace", "n"),
            ("topic", "a%2Fb"),
        ];
        assert_eq!(found[..4], wanted);
        assert_eq!(found[4..], [("ledger", "3"), ("entry", "4")]);
    }
}
