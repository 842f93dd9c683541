//! What a caller must be allowed to do for a row of the table.

use pharos_auth::Action;

use super::{Method, Resource, Route};

impl Route {
    /// What the caller is asked about before the operation does anything.
    #[must_use]
    pub fn action(&self) -> Action {
        match self.resource {
            Resource::Clusters => match self.method {
                Method::Get if self.operation == "list" => Action::ListClusters,
                Method::Get => Action::ReadCluster,
                Method::Put | Method::Post | Method::Delete => Action::UpdateCluster,
            },
            Resource::Brokers => of_broker(self.operation),
            Resource::Tenants => match self.method {
                Method::Get if self.operation == "list" => Action::ListTenants,
                Method::Get => Action::ReadTenant,
                Method::Put => Action::CreateTenant,
                Method::Post => Action::UpdateTenant,
                Method::Delete => Action::DeleteTenant,
            },
            Resource::Namespaces => of_namespace(self.operation, self.is_read()),
            Resource::Bundles => match self.operation {
                "unload" => Action::UnloadNamespace,
                "clearBacklog" | "clearSubscriptionBacklog" => Action::SkipMessages,
                _ => Action::UpdateBundles,
            },
            Resource::NamespacePolicies | Resource::TopicPolicies => match self.method {
                Method::Get => Action::ReadPolicy,
                Method::Put | Method::Post | Method::Delete => Action::UpdatePolicy,
            },
            Resource::Topics => of_topic(self.operation, self.is_read()),
            Resource::Subscriptions => of_subscription(self.operation, self.is_read()),
            Resource::Messages => Action::ReadMessages,
            Resource::Schemas => match self.operation {
                "add" => Action::UpdateSchema,
                "delete" => Action::DeleteSchema,
                _ => Action::ReadSchema,
            },
            Resource::Lookup => Action::Lookup,
        }
    }
}

fn of_broker(operation: &str) -> Action {
    match operation {
        "health" | "ready" => Action::ReadHealth,
        "status" => Action::ReadStatus,
        "version" => Action::ReadVersion,
        "metrics" | "metricsDirectory" => Action::ReadMetrics,
        "checkBacklogQuotas" | "setRack" | "removeRack" => Action::UpdateBroker,
        _ => Action::ReadBroker,
    }
}

fn of_namespace(operation: &str, is_read: bool) -> Action {
    match operation {
        "list" => Action::ListNamespaces,
        "create" => Action::CreateNamespace,
        "delete" => Action::DeleteNamespace,
        "topics" => Action::ListTopics,
        "permissions" | "subscriptionPermissions" => Action::ReadPermissions,
        "grant" | "revoke" | "grantSubscription" | "revokeSubscription" => Action::UpdatePermissions,
        "grantOnTopics" | "revokeOnTopics" => Action::UpdateManyPermissions,
        "unload" => Action::UnloadNamespace,
        "clearBacklog" | "clearSubscriptionBacklog" => Action::SkipMessages,
        _ if is_read => Action::ReadNamespace,
        _ => Action::UpdateNamespace,
    }
}

fn of_topic(operation: &str, is_read: bool) -> Action {
    match operation {
        "list" | "listPartitioned" => Action::ListTopics,
        "create" | "createPartitioned" => Action::CreateTopic,
        "delete" | "deletePartitioned" => Action::DeleteTopic,
        "permissions" => Action::ReadPermissions,
        "grant" | "revoke" => Action::UpdatePermissions,
        "terminate" | "terminatePartitions" => Action::Terminate,
        "unload" => Action::Unload,
        "trim" | "truncate" => Action::Trim,
        "compact" => Action::Compact,
        "offload" => Action::Offload,
        "partitions" | "properties" | "shadows" => Action::ReadTopic,
        _ if is_read => Action::ReadStats,
        _ => Action::UpdateTopic,
    }
}

fn of_subscription(operation: &str, is_read: bool) -> Action {
    match operation {
        "list" => Action::ListSubscriptions,
        "create" => Action::CreateSubscription,
        "delete" => Action::DeleteSubscription,
        "resetTo" | "resetToTime" => Action::ResetCursor,
        "skip" | "skipAll" | "expireTo" | "expireOlder" | "expireAllOlder" => Action::SkipMessages,
        "backlogSize" => Action::ReadStats,
        "analyzeBacklog" => Action::ReadSubscription,
        _ if is_read => Action::ReadSubscription,
        _ => Action::UpdateSubscription,
    }
}
