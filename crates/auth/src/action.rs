//! Actions that callers request, and the permission that each needs.

use std::fmt;

use pharos_types::{NamespaceName, SubscriptionName, TopicName};

use crate::Need;

macro_rules! actions {
    ($($(#[$doc:meta])* $action:ident = $name:literal => $need:ident,)+) => {
        /// Requested action. One command or request is one action.
        ///
        /// An action is independent of its origin: creating a topic is [`Action::CreateTopic`] for every request that
        /// creates one. Sends, acknowledgements and permits have none: they are covered by creating the producer or
        /// consumer.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Action {
            $($(#[$doc])* $action,)+
        }

        impl Action {
            /// Every action, in the order of the list.
            pub const ALL: &'static [Self] = &[$(Self::$action),+];

            /// Its name in lower case, words joined by hyphens: for logs and messages.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$action => $name,)+
                }
            }

            /// Permission needed with authorization on: the permission table.
            #[must_use]
            pub fn need(self) -> Need {
                match self {
                    $(Self::$action => Need::$need,)+
                }
            }
        }
    };
}

actions! {
    /// See the brokers, their settings and dynamic configuration.
    ReadBroker = "read-broker" => SuperUser,
    /// See which version the broker is.
    ReadVersion = "read-version" => AnyRole,
    /// Change a broker's configuration, or have it do its regular work now.
    UpdateBroker = "update-broker" => SuperUser,
    /// Ask whether the broker is well.
    ReadHealth = "read-health" => AnyRole,
    /// Ask whether the process answers at all.
    ReadStatus = "read-status" => Nothing,
    /// See the metrics of the broker.
    ReadMetrics = "read-metrics" => Metrics,
    /// See which clusters there are.
    ListClusters = "list-clusters" => AnyRole,
    /// See what is stored of a cluster.
    ReadCluster = "read-cluster" => SuperUser,
    /// Create, change or delete a cluster.
    UpdateCluster = "update-cluster" => SuperUser,

    /// See which tenants there are.
    ListTenants = "list-tenants" => SuperUser,
    /// See what is stored of a tenant.
    ReadTenant = "read-tenant" => TenantAdmin,
    /// Create a tenant.
    CreateTenant = "create-tenant" => SuperUser,
    /// Change a tenant.
    UpdateTenant = "update-tenant" => SuperUser,
    /// Delete a tenant.
    DeleteTenant = "delete-tenant" => SuperUser,

    /// See which namespaces a tenant has.
    ListNamespaces = "list-namespaces" => TenantAdmin,
    /// See what is stored of a namespace, its bundles and properties.
    ReadNamespace = "read-namespace" => TenantAdmin,
    /// Create a namespace.
    CreateNamespace = "create-namespace" => TenantAdmin,
    /// Change a namespace's properties.
    UpdateNamespace = "update-namespace" => TenantAdmin,
    /// Delete a namespace.
    DeleteNamespace = "delete-namespace" => TenantAdmin,
    /// Split a bundle of a namespace, or delete what is in one.
    UpdateBundles = "update-bundles" => SuperUser,
    /// See which topics a namespace has, or watch that list.
    ListTopics = "list-topics" => ProduceOrConsume,

    /// See a policy of a namespace or topic.
    ReadPolicy = "read-policy" => TenantAdmin,
    /// Set or remove a policy of a namespace or topic.
    UpdatePolicy = "update-policy" => TenantAdmin,
    /// Say on which bookies the entries of a namespace are.
    ChooseBookies = "choose-bookies" => SuperUser,
    /// See who may do what in a namespace or on a topic.
    ReadPermissions = "read-permissions" => TenantAdmin,
    /// Change who may do what in a namespace or on a topic.
    UpdatePermissions = "update-permissions" => TenantAdmin,
    /// Change who may do what on topics that a request lists. Each of them is asked about by itself, before any is changed.
    UpdateManyPermissions = "update-many-permissions" => AnyRole,

    /// Find the broker of a topic, or how many partitions the topic has. Either may create the topic.
    Lookup = "lookup" => ProduceOrConsume,
    /// Attach a producer. Creates the topic and stores the producer's schema where that is allowed.
    Produce = "produce" => Produce,
    /// Attach a producer and create this subscription with it.
    ProduceWithSubscription = "produce-with-subscription" => ProduceAndConsume,
    /// Attach a consumer to a subscription. Creates the topic and the subscription where that is allowed.
    Consume = "consume" => Consume,
    /// Create a topic.
    CreateTopic = "create-topic" => TenantAdmin,
    /// See a topic's partitions and properties.
    ReadTopic = "read-topic" => ProduceOrConsume,
    /// Change a topic's partitions or properties.
    UpdateTopic = "update-topic" => TenantAdmin,
    /// Delete a topic.
    DeleteTopic = "delete-topic" => TenantAdmin,
    /// See what a topic has and does: statistics, ledgers, positions.
    ReadStats = "read-stats" => ProduceOrConsume,
    /// Read messages without consuming them.
    ReadMessages = "read-messages" => Consume,
    /// End a topic: no more messages.
    Terminate = "terminate" => TenantAdmin,
    /// Close a topic, to be loaded again when asked for.
    Unload = "unload" => TenantAdmin,
    /// Close the topics of a namespace or bundle, to be loaded again when asked for.
    UnloadNamespace = "unload-namespace" => SuperUser,
    /// Delete messages that every subscription has acknowledged, or all messages.
    Trim = "trim" => TenantAdmin,
    /// Compact a topic by key.
    Compact = "compact" => TenantAdmin,
    /// Move closed ledgers to the object store.
    Offload = "offload" => TenantAdmin,

    /// See the schemas of a topic.
    ReadSchema = "read-schema" => ProduceOrConsume,
    /// Add a schema to a topic.
    UpdateSchema = "update-schema" => Produce,
    /// Delete the schemas of a topic.
    DeleteSchema = "delete-schema" => TenantAdmin,

    /// See which subscriptions a topic has.
    ListSubscriptions = "list-subscriptions" => Consume,
    /// See a subscription: its position, its properties, its consumers.
    ReadSubscription = "read-subscription" => Consume,
    /// Create a subscription.
    CreateSubscription = "create-subscription" => ConsumeForAll,
    /// Change a subscription's properties.
    UpdateSubscription = "update-subscription" => ConsumeForAll,
    /// Delete a subscription.
    DeleteSubscription = "delete-subscription" => ConsumeForAll,
    /// Move a subscription's cursor.
    ResetCursor = "reset-cursor" => ConsumeForAll,
    /// Move the cursor of one's own consumer: seek.
    Seek = "seek" => Consume,
    /// Acknowledge messages for a subscription without its consumers: skip, expire, clear its backlog.
    SkipMessages = "skip-messages" => ConsumeForAll,

    /// See transactions of all roles, and who coordinates them.
    ReadTransactions = "read-transactions" => SuperUser,
    /// See one transaction of any role by its id.
    ReadTransaction = "read-transaction" => AnyRole,
    /// Abort a transaction that someone else made.
    AbortTransaction = "abort-transaction" => SuperUser,

    /// See or change the functions of a namespace.
    ManageFunctions = "manage-functions" => Functions,
    /// See or change the sources of a namespace.
    ManageSources = "manage-sources" => Sources,
    /// See or change the sinks of a namespace.
    ManageSinks = "manage-sinks" => Sinks,
    /// See or change the packages of a namespace.
    ManagePackages = "manage-packages" => Packages,
    /// Ask for what this broker does not have.
    AskUnknown = "ask-unknown" => AnyRole,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Resource of an action: the narrowest one that covers all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource<'a> {
    /// The cluster and its brokers.
    Cluster,
    /// A tenant, by name. It need not exist, and neither need any other resource.
    Tenant(&'a str),
    /// A namespace.
    Namespace(&'a NamespaceName),
    /// A topic; of a partitioned one the whole or one partition, as the caller named it.
    Topic(&'a TopicName),
    /// A subscription of a topic.
    Subscription(&'a TopicName, &'a SubscriptionName),
    /// A consumer of a subscription, by the name that its client gave it.
    Consumer(&'a TopicName, &'a SubscriptionName, &'a str),
}

impl<'a> Resource<'a> {
    /// The tenant that it belongs to.
    #[must_use]
    pub fn tenant(self) -> Option<&'a str> {
        match self {
            Self::Cluster => None,
            Self::Tenant(tenant) => Some(tenant),
            _ => self.namespace().map(NamespaceName::tenant),
        }
    }

    /// The namespace that it is or belongs to.
    #[must_use]
    pub fn namespace(self) -> Option<&'a NamespaceName> {
        match self {
            Self::Cluster | Self::Tenant(_) => None,
            Self::Namespace(namespace) => Some(namespace),
            _ => self.topic().map(TopicName::namespace),
        }
    }

    /// The topic that it is or belongs to.
    #[must_use]
    pub fn topic(self) -> Option<&'a TopicName> {
        match self {
            Self::Topic(topic) | Self::Subscription(topic, _) | Self::Consumer(topic, ..) => Some(topic),
            Self::Cluster | Self::Tenant(_) | Self::Namespace(_) => None,
        }
    }

    /// The subscription that it is or belongs to.
    #[must_use]
    pub fn subscription(self) -> Option<&'a SubscriptionName> {
        match self {
            Self::Subscription(_, subscription) | Self::Consumer(_, subscription, _) => Some(subscription),
            _ => None,
        }
    }

    /// The consumer that it is.
    #[must_use]
    pub fn consumer(self) -> Option<&'a str> {
        match self {
            Self::Consumer(_, _, name) => Some(name),
            _ => None,
        }
    }
}

impl fmt::Display for Resource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster => f.write_str("the cluster"),
            Self::Tenant(tenant) => write!(f, "tenant {tenant}"),
            Self::Namespace(namespace) => write!(f, "namespace {namespace}"),
            Self::Topic(topic) => write!(f, "topic {topic}"),
            Self::Subscription(topic, name) => write!(f, "subscription {} of topic {topic}", name.as_str()),
            Self::Consumer(topic, subscription, name) => {
                write!(
                    f,
                    "consumer {name} of {}",
                    Self::Subscription(topic, subscription)
                )
            }
        }
    }
}
