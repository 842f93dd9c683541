//! The one list of settings.
//!
//! Always true: each row's key, flag and environment variable are unique, and its default is what [`Settings::default`]
//! says.

use std::time::Duration;

use super::{ByteSize, Limit, Settings, Value};

/// One setting.
pub struct Setting {
    /// Key in the file; a dot is a section.
    pub key: &'static str,
    /// Heading under which help and reference show it.
    pub group: &'static str,
    /// What kind of value it takes.
    pub kind: &'static str,
    /// What it does, in a sentence or two.
    pub help: &'static str,
    /// Pulsar's key of the same effect; empty when there is none.
    pub pulsar_key: &'static str,
    /// Release that brought it.
    pub since: &'static str,
    /// Reads a text into the settings.
    pub set: fn(&mut Settings, &str) -> Result<(), String>,
    /// Prints the value.
    pub get: fn(&Settings) -> String,
}

impl Setting {
    /// Its flag without the dashes: `ledger.max_size` is `ledger-max-size`.
    #[must_use]
    pub fn flag(&self) -> String {
        self.key.replace(['.', '_'], "-")
    }

    /// Its environment variable: `ledger.max_size` is `PHAROS_LEDGER_MAX_SIZE`.
    #[must_use]
    pub fn env(&self) -> String {
        format!("PHAROS_{}", self.key.replace('.', "_").to_uppercase())
    }

    /// Its default as text.
    #[must_use]
    pub fn default(&self) -> String {
        (self.get)(&Settings::default())
    }
}

/// What a setting's type is called; the function only serves to name its field.
const fn kind_of<T: Value>(_: fn(&Settings) -> &T) -> &'static str {
    T::KIND
}

/// A row. `path as Shape` is for a field of another crate's type: `Shape` says how it is written.
macro_rules! setting {
    ($group:literal, $key:literal, $pulsar:literal, $($field:ident).+ as $shape:ty, $help:literal) => {
        Setting {
            key: $key,
            group: $group,
            kind: <$shape as Value>::KIND,
            help: $help,
            pulsar_key: $pulsar,
            since: "0.1.0",
            set: |settings, text| <$shape as Value>::parse(text).map(|value| settings.$($field).+ = value.into()),
            get: |settings| <$shape>::from(settings.$($field).+).show(),
        }
    };
    ($group:literal, $key:literal, $pulsar:literal, $($field:ident).+, $help:literal) => {
        Setting {
            key: $key,
            group: $group,
            kind: kind_of(|settings| &settings.$($field).+),
            help: $help,
            pulsar_key: $pulsar,
            since: "0.1.0",
            set: |settings, text| Value::parse(text).map(|value| settings.$($field).+ = value),
            get: |settings| settings.$($field).+.show(),
        }
    };
}

/// All settings, in the order of the reference page.
#[rustfmt::skip]
pub static SETTINGS: &[Setting] = &[
    setting!("Node", "data_dir", "", data_dir,
        "Directory of everything durable; made when it does not exist."),
    setting!("Node", "pulsar_listen", "bindAddress, brokerServicePort", pulsar_listen,
        "Address of the Pulsar protocol; port 0 takes a free one."),
    setting!("Node", "http_listen", "bindAddress, webServicePort", http_listen,
        "Address of the admin API, the metrics page and the status page; port 0 takes a free one."),
    setting!("Node", "advertised_address", "advertisedAddress", advertised_address,
        "Host name or IPv4 address told to clients. Empty: the listen address, or 127.0.0.1 when that is 0.0.0.0."),
    setting!("Node", "http_allowed_hosts", "", http_allowed_hosts,
        "Names by which the HTTP server may be asked over loopback, with commas between, besides localhost, addresses of loopback, this machine's name and advertised_address. Others are refused, so that no web page can use the admin API through a name that it made to point here."),
    setting!("Node", "allow_unauthenticated_listen", "", allow_unauthenticated_listen,
        "Lets pulsar_listen and http_listen be addresses of other networks than loopback although authentication.enabled is false: all who can reach them may do anything."),
    setting!("Node", "cluster_name", "clusterName", cluster_name,
        "Name of the cluster, shown to admin tools and in metrics."),
    setting!("Node", "shards", "numIOThreads", shards,
        "Data threads, each with its own connections and topics; 0 is one per core."),
    setting!("Node", "keep_cpus_awake", "", keep_cpus_awake,
        "Asks Linux to keep all processors from sleeping while the broker runs (/dev/cpu_dma_latency, as root): single messages are answered sooner, for the power of processors that never rest."),
    setting!("Node", "shutdown_timeout", "brokerShutdownTimeoutMs", shutdown_timeout,
        "How long a stop may take before the process exits anyway; nothing acknowledged is lost then either."),
    setting!("Cluster", "engine", "", cluster.engine,
        "What keeps messages: embedded is this broker on this machine; bookkeeper is Apache's bookies, which several brokers share."),
    setting!("Cluster", "metadata", "metadataStoreUrl", cluster.metadata,
        "Where metadata is: embedded is in data_dir; with engine = bookkeeper the ZooKeeper servers, with commas between, and the path below which everything is, which must be empty or made by Pharos."),
    setting!("Cluster", "metadata_session_timeout", "metadataStoreSessionTimeoutMillis", cluster.session_timeout,
        "After this time without a word from this broker others take over its topics. ZooKeeper grants nothing below two or above twenty of its ticks."),
    setting!("Cluster", "metadata_outage_max", "", cluster.outage_max,
        "How long this broker serves on what it has loaded while ZooKeeper cannot be reached; then it closes it. 0 closes it once others may have it."),
    setting!("Cluster", "bookkeeper.metadata_service_uri", "bookkeeperMetadataServiceUri", cluster.bookkeeper_uri,
        "Where the bookies are registered. Empty: in ledgers below the path of metadata."),
    setting!("Cluster", "bookkeeper.ensemble_size", "managedLedgerDefaultEnsembleSize", cluster.ensemble_size,
        "Bookies that a new ledger is spread over."),
    setting!("Cluster", "bookkeeper.write_quorum", "managedLedgerDefaultWriteQuorum", cluster.write_quorum,
        "Copies of each entry."),
    setting!("Cluster", "bookkeeper.ack_quorum", "managedLedgerDefaultAckQuorum", cluster.ack_quorum,
        "Copies that bookies must have stored before a message is acknowledged."),
    setting!("TLS", "pulsar_listen_tls", "bindAddress, brokerServicePortTls", tls.pulsar_listen,
        "Address of the Pulsar protocol over TLS, by convention port 6651; port 0 takes a free one. Empty: none, or with tls.self_signed port 6651 of the address of pulsar_listen."),
    setting!("TLS", "http_listen_tls", "bindAddress, webServicePortTls", tls.http_listen,
        "Address of the admin API over TLS, by convention port 8443; port 0 takes a free one. Empty: none, or with tls.self_signed port 8443 of the address of http_listen."),
    setting!("TLS", "tls.certificate_file", "tlsCertificateFilePath", tls.certificate_file,
        "The certificate in PEM, followed by those between it and the authority that clients trust."),
    setting!("TLS", "tls.key_file", "tlsKeyFilePath", tls.key_file,
        "Its private key in PEM (PKCS#8, PKCS#1 or SEC1), not encrypted."),
    setting!("TLS", "tls.trust_certs_file", "tlsTrustCertsFilePath", tls.trust_certs_file,
        "Certificates in PEM of the authorities that vouch for clients. With it clients are asked for a certificate: one that has none gets in, one whose certificate is not trusted does not. Empty: clients are not asked."),
    setting!("TLS", "tls.require_trusted_client_cert_on_connect", "tlsRequireTrustedClientCertOnConnect", tls.require_trusted_client_cert_on_connect,
        "Whether only clients get in that have a trusted certificate."),
    setting!("TLS", "tls.allow_insecure_connection", "tlsAllowInsecureConnection", tls.allow_insecure_connection,
        "Whether clients also get in with a certificate that is not trusted. What it says then proves nothing."),
    setting!("TLS", "tls.protocols", "tlsProtocols", tls.protocols,
        "Versions that are spoken, with commas between: TLSv1.2, TLSv1.3. Empty: both. There are no older ones."),
    setting!("TLS", "tls.ciphers", "tlsCiphers", tls.ciphers,
        "Names of cipher suites with commas between, the preferred first. Empty: all that are safe."),
    setting!("TLS", "tls.cert_refresh_check_duration", "tlsCertRefreshCheckDurationSec", tls.cert_refresh_check_duration,
        "How often certificate, key and trusted authorities are read again; changed ones hold for connections from then on. 0 is never."),
    setting!("TLS", "tls.handshake_timeout", "", tls.handshake_timeout,
        "How long a TLS handshake may take, and how long a PROXY header."),
    setting!("TLS", "tls.max_handshakes", "", tls.max_handshakes,
        "TLS handshakes under way at once, for each listener; a further connection waits for its turn, at most 30 seconds."),
    setting!("TLS", "tls.max_handshakes_per_address", "", tls.max_handshakes_per_address,
        "The same of one address, or of one /64 network with IPv6."),
    setting!("TLS", "tls.self_signed", "", tls.self_signed,
        "For a first try: makes a certificate and a key in the folder tls of data_dir, unless they are there or others are named, and listens for TLS."),
    setting!("TLS", "proxy_protocol", "haProxyProtocolEnabled", tls.proxy_protocol,
        "Whether connections to the Pulsar protocol begin with a PROXY header (v1 or v2) in which a load balancer says where they come from: off, optional (as Pulsar has it) or required. Only the balancer may reach such a port: what a header says is believed."),
    setting!("TLS", "http_proxy_protocol", "webServiceHaProxyProtocolEnabled", tls.http_proxy_protocol,
        "The same for the admin API."),
    setting!("Log", "log_format", "", log_format,
        "Form of the log on standard error; auto is human on a terminal and json elsewhere."),
    setting!("Log", "log_level", "", log_level,
        "What is logged: off, error, warn, info, debug or trace, also per module, such as info,pharos_broker=debug. Without a level for all it is info for all others. Anything else is refused."),
    setting!("Authentication", "authentication.enabled", "authenticationEnabled", authentication.enabled,
        "Whether clients of every door are asked who they are."),
    setting!("Authentication", "authentication.providers", "authenticationProviders", authentication.providers,
        "What may say who a client is, asked in this order: token (signed tokens), openid (access tokens of other issuers), basic (names and passwords), tls (client certificates), with commas between; also Pulsar's classes, such as org.apache.pulsar.broker.authentication.AuthenticationProviderToken."),
    setting!("Authentication", "authentication.refresh_check_interval", "authenticationRefreshCheckSeconds", authentication.refresh_check_interval,
        "How often it is looked whether what a client showed has expired. Then it is asked for new credentials; a client that cannot answer, or has not by the next look, is disconnected."),
    setting!("Authentication", "authentication.anonymous_user_role", "anonymousUserRole", authentication.anonymous_user_role,
        "The role of clients that show nothing; empty: they are refused. Who shows something that is refused does not get it."),
    setting!("Authentication", "authentication.strict_auth_method", "strictAuthMethod", authentication.strict_auth_method,
        "Whether credentials of a kind that no provider takes are refused, instead of counting as none."),
    setting!("Authentication", "authentication.authenticate_original_auth_data", "authenticateOriginalAuthData", authentication.authenticate_original_auth_data,
        "Whether the credentials that a proxy hands on of its client are checked here as well; otherwise the proxy is believed."),
    setting!("Authentication", "authentication.metrics_endpoint", "authenticateMetricsEndpoint", authentication.metrics_endpoint,
        "Whether the metrics page needs a role."),
    setting!("Authentication", "authentication.token_secret_key", "tokenSecretKey", authentication.token_secret_key,
        "The secret by which tokens are signed (HS256, HS384, HS512), 32 bytes or more: file:///PATH, data:;base64,KEY, a path, or base64. Goes before the public key."),
    setting!("Authentication", "authentication.token_public_key", "tokenPublicKey", authentication.token_public_key,
        "The public key of those who sign tokens, in the same forms: DER of X.509, or PEM."),
    setting!("Authentication", "authentication.token_public_alg", "tokenPublicAlg", authentication.token_public_alg,
        "What kind of key that is: RS256, RS384, RS512, PS256, PS384 or PS512 for RSA, ES256 or ES384 for elliptic curves."),
    setting!("Authentication", "authentication.token_auth_claim", "tokenAuthClaim", authentication.token_auth_claim,
        "The claim of a token that holds the role: a text, or a list of which the first counts."),
    setting!("Authentication", "authentication.token_audience_claim", "tokenAudienceClaim", authentication.token_audience_claim,
        "The claim of a token that must name the audience; empty: any token is taken."),
    setting!("Authentication", "authentication.token_audience", "tokenAudience", authentication.token_audience,
        "The audience that tokens must be for."),
    setting!("Authentication", "authentication.token_allowed_clock_skew", "tokenAllowedClockSkewSeconds", authentication.token_allowed_clock_skew,
        "By how much the clock of those who sign tokens may be wrong."),
    setting!("Authentication", "authentication.basic_auth_conf", "basicAuthConf", authentication.basic_auth_conf,
        "The file of names and passwords, as htpasswd -B writes it (bcrypt; SHA-crypt as well): file:///PATH, data:;base64,TEXT or a path."),
    setting!("Authentication", "authentication.max_password_failures", "", authentication.max_password_failures,
        "Wrong passwords of one address (one /64 network with IPv6) in authentication.password_failure_period; then passwords from there are refused unseen until time has passed, except for names whose password was right from there before. Tokens and certificates are not concerned. 0 is no limit: for a network whose many users share an address and are kept out by one who guesses."),
    setting!("Authentication", "authentication.password_failure_period", "", authentication.password_failure_period,
        "After this time without a wrong password all of authentication.max_password_failures are there again."),
    setting!("OpenID", "openid.allowed_token_issuers", "openIDAllowedTokenIssuers", openid.allowed_token_issuers,
        "Issuers whose access tokens (OAuth2, OpenID Connect) the provider openid takes: their URLs as their tokens name them, with commas between. Each is asked for its keys by its discovery document."),
    setting!("OpenID", "openid.allowed_audiences", "openIDAllowedAudiences", openid.allowed_audiences,
        "Audiences of which a token must name one, with commas between."),
    setting!("OpenID", "openid.role_claim", "openIDRoleClaim", openid.role_claim,
        "The claim that holds the role: a text, or a list of which the first counts."),
    setting!("OpenID", "openid.accepted_time_leeway", "openIDAcceptedTimeLeewaySeconds", openid.accepted_time_leeway,
        "By how much the clock of an issuer may be wrong."),
    setting!("OpenID", "openid.cache_size", "openIDCacheSize", openid.cache_size,
        "Of how many issuers the keys are kept at once; that of the one not used for longest are asked for again when needed."),
    setting!("OpenID", "openid.cache_refresh_after_write", "openIDCacheRefreshAfterWriteSeconds", openid.cache_refresh_after_write,
        "When an issuer is asked again for its keys, in the background."),
    setting!("OpenID", "openid.cache_expiration", "openIDCacheExpirationSeconds", openid.cache_expiration,
        "How long keys are used of an issuer that does not answer any more."),
    setting!("OpenID", "openid.key_id_cache_miss_refresh", "openIDKeyIdCacheMissRefreshSeconds", openid.key_id_cache_miss_refresh,
        "When a token names a key that is not known, its issuer is asked at once, but not more often than this."),
    setting!("OpenID", "openid.http_connection_timeout", "openIDHttpConnectionTimeoutMillis", openid.http_connection_timeout,
        "How long a connection to an issuer may take. A client waits at most 15 seconds for its issuer."),
    setting!("OpenID", "openid.http_read_timeout", "openIDHttpReadTimeoutMillis", openid.http_read_timeout,
        "How long an issuer may be silent before it answers."),
    setting!("OpenID", "openid.token_issuer_trust_certs_file", "openIDTokenIssuerTrustCertsFilePath", openid.token_issuer_trust_certs_file,
        "Certificates in PEM of the authorities that vouch for issuers. Empty: those of the system."),
    setting!("OpenID", "openid.require_issuers_use_https", "openIDRequireIssuersUseHttps", openid.require_issuers_use_https,
        "Whether issuers and their keys are asked for over TLS only. Without it who stands between can let anyone in: for tests."),
    setting!("Authorization", "authorization.enabled", "authorizationEnabled", authorization.enabled,
        "Whether roles are told apart. Then nothing is allowed that was not granted; otherwise every client with a role may do everything."),
    setting!("Authorization", "authorization.provider", "authorizationProvider", authorization.provider,
        "What decides; there is only Pulsar's own."),
    setting!("Authorization", "authorization.super_user_roles", "superUserRoles", authorization.super_user_roles,
        "Roles that may do everything, with commas between."),
    setting!("Authorization", "authorization.proxy_roles", "proxyRoles", authorization.proxy_roles,
        "Roles that ask for others, with commas between: each of their requests must be allowed to both."),
    setting!("Authorization", "authorization.allow_wildcards_matching", "authorizationAllowWildcardsMatching", authorization.allow_wildcards_matching,
        "Whether a * at the start or end of a granted role stands for any text."),
    setting!("Limits", "limits.max_connections_per_address", "brokerMaxConnectionsPerIp", limits.max_connections_per_address,
        "Connections that one address (one /64 network with IPv6) may have open, at the Pulsar listeners together and at the HTTP listeners together; 0 is no limit. Behind a balancer without PROXY headers all clients have its address."),
    setting!("Limits", "limits.max_connection_rate_per_address", "", limits.max_connection_rate_per_address,
        "New connections of one address a second; after a quiet time it may open those of 20 seconds at once. More are closed, before TLS. 0 is no limit."),
    setting!("Limits", "limits.max_connections_per_role", "", limits.max_connections_per_role,
        "Pulsar connections that one role may have open; those of a proxy count for the role that it asks for. 0 is no limit."),
    setting!("Limits", "limits.max_connection_rate_per_role", "", limits.max_connection_rate_per_role,
        "New Pulsar connections of one role a second; after a quiet time it may open those of 20 seconds at once. 0 is no limit."),
    setting!("Limits", "limits.max_producers_per_connection", "", limits.max_producers_per_connection,
        "Producers of one connection; 0 is no limit."),
    setting!("Limits", "limits.max_consumers_per_connection", "", limits.max_consumers_per_connection,
        "Consumers of one connection; 0 is no limit."),
    setting!("Limits", "limits.max_watchers_per_connection", "", limits.max_watchers_per_connection,
        "Watches of lists of topics (consumers by pattern) of one connection; 0 is no limit."),
    setting!("Limits", "limits.max_requests_per_connection", "", limits.max_requests_per_connection,
        "Requests of one connection that may wait for their answer, sends and acknowledgements apart; with more it is not read until some are answered. 0 is no limit."),
    setting!("Limits", "limits.max_producers_per_tenant", "", limits.max_producers_per_tenant,
        "Producers on topics of one tenant, on this broker; 0 is no limit."),
    setting!("Limits", "limits.max_consumers_per_tenant", "", limits.max_consumers_per_tenant,
        "Consumers on topics of one tenant, on this broker; 0 is no limit."),
    setting!("Limits", "limits.max_topics_per_tenant", "", limits.max_topics_per_tenant,
        "Topics of one tenant, partitions counted one by one; 0 is no limit. Per namespace: policies.max_topics_per_namespace."),
    setting!("Audit", "audit.enabled", "", audit.enabled,
        "Whether it is kept who asked for what, by which door, and whether it was allowed: a line of JSON for each decision."),
    setting!("Audit", "audit.file", "", audit.file,
        "The file; earlier ones have numbers behind the name. Empty: audit/audit.log in data_dir."),
    setting!("Audit", "audit.level", "", audit.level,
        "Which decisions are kept: denied keeps refusals only; changes also what lets a producer or consumer in, shows messages or changes something; all also what shows what is stored, and who was let in. Lookups and looks at the broker's health are kept when they are refused only; sends and acknowledgements are no decisions."),
    setting!("Audit", "audit.max_size", "", audit.max_size,
        "Size at which a new file begins."),
    setting!("Audit", "audit.max_files", "", audit.max_files,
        "Earlier files that are kept."),
    setting!("Protocol", "max_message_size", "maxMessageSize", protocol.max_message_size,
        "Largest message; clients learn it when they connect."),
    setting!("Protocol", "keep_alive_interval", "keepAliveIntervalSeconds", protocol.keep_alive_interval,
        "A silent connection is pinged after this time and closed after twice this time."),
    setting!("Protocol", "max_consumer_metadata_size", "maxConsumerMetadataSize", protocol.max_consumer_metadata_size,
        "Largest metadata a consumer may send when it subscribes."),
    setting!("Protocol", "connection_liveness_check_timeout", "connectionLivenessCheckTimeoutMillis", protocol.connection_liveness_check_timeout,
        "When another client wants an exclusive place, its holder is asked whether it lives and has this long to answer."),
    setting!("Topics", "allow_auto_topic_creation", "allowAutoTopicCreation", policies.broker.auto_topic_creation.allow,
        "Whether a topic is made when a client first names it; a namespace may say otherwise."),
    setting!("Topics", "allow_auto_topic_creation_type", "allowAutoTopicCreationType", policies.broker.auto_topic_creation.kind,
        "Kind of topic made on first use."),
    setting!("Topics", "default_num_partitions", "defaultNumPartitions", policies.broker.auto_topic_creation.partitions,
        "Partitions of a partitioned topic made on first use."),
    setting!("Topics", "allow_auto_subscription_creation", "allowAutoSubscriptionCreation", policies.broker.auto_subscription_creation.allow,
        "Whether a durable subscription is made when a consumer first names it; a namespace may say otherwise."),
    setting!("Topics", "force_delete_namespace_allowed", "forceDeleteNamespaceAllowed", topics.force_delete_namespace_allowed,
        "Whether a namespace may be deleted by force, together with its topics."),
    setting!("Topics", "force_delete_tenant_allowed", "forceDeleteTenantAllowed", topics.force_delete_tenant_allowed,
        "Whether a tenant may be deleted by force; when it has namespaces, force_delete_namespace_allowed must be set as well."),
    setting!("Topics", "auto_skip_non_recoverable_data", "autoSkipNonRecoverableData", topics.auto_skip_non_recoverable_data,
        "Whether consumers are moved past entries that are damaged or missing, which count as acknowledged; otherwise they wait in front of them."),
    setting!("Topics", "max_unacked_messages_per_consumer", "maxUnackedMessagesPerConsumer", policies.broker.max_unacked_per_consumer,
        "Shared and Key_Shared: a consumer with this many unacknowledged messages gets no more; 0 is no limit."),
    setting!("Topics", "max_unacked_messages_per_subscription", "maxUnackedMessagesPerSubscription", policies.broker.max_unacked_per_subscription,
        "Shared and Key_Shared: a subscription with this many unacknowledged messages stands still; 0 is no limit."),
    setting!("Topics", "delayed_delivery_tick_time", "delayedDeliveryTickTimeMillis", policies.broker.delayed_delivery.tick,
        "How often messages whose time has come are looked for; one may come early by this much."),
    setting!("Topics", "delayed_delivery_strict", "isDelayedDeliveryDeliverAtTimeStrict", policies.broker.delayed_delivery.strict,
        "Whether delayed messages always wait for their time, instead of coming up to one tick early when others are dealt."),
    setting!("Topics", "active_consumer_failover_delay", "activeConsumerFailoverDelayTimeMillis", topics.active_consumer_failover_delay,
        "Failover: pause before a consumer becomes the active one, the first as well, so that those who come together are all there when one is chosen."),
    setting!("Topics", "cursor_flush_interval", "managedLedgerCursorPositionFlushSeconds", policies.broker.persistence.cursor_flush_interval,
        "How often acknowledged positions are stored; after a crash at most this much is delivered again. When those of Exclusive, Failover and broadcast consumers move on more than 1,000 topics a second and shard, they are stored for 1,000 topics a second, and it takes that much longer."),
    setting!("Topics", "unload_idle_after", "", topics.unload_idle_after,
        "A topic that no client uses or asks about for this long is unloaded; it comes back when it is asked for."),
    setting!("Topics", "max_unwritten_size", "", topics.max_unwritten_size,
        "Memory for messages that were given to consumers and that their sockets have not taken. Near it, connections that take nothing keep none of theirs, which are read again when they do; at it, Shared and Key_Shared subscriptions wait."),
    setting!("Policies", "policies.message_ttl", "ttlDurationDefaultInSeconds", policies.broker.message_ttl as Duration,
        "Age by publish time after which a message counts as acknowledged on every subscription; 0 is never."),
    setting!("Policies", "policies.message_expiry_check_interval", "messageExpiryCheckIntervalInMinutes", policies.message_expiry_check_interval,
        "How often messages beyond their time to live are looked for."),
    setting!("Policies", "policies.backlog_quota_size", "backlogQuotaDefaultLimitBytes", policies.broker.backlog_quotas.size as Limit<ByteSize>,
        "Stored bytes from the slowest subscription to the end of a topic."),
    setting!("Policies", "policies.backlog_quota_time", "backlogQuotaDefaultLimitSecond", policies.broker.backlog_quotas.age as Limit<Duration>,
        "Age of the oldest message that a subscription has not acknowledged."),
    setting!("Policies", "policies.backlog_quota_policy", "backlogQuotaDefaultRetentionPolicy", policies.broker.backlog_quotas.action,
        "Beyond a quota: producers are turned away and try again, or fail, or slow subscriptions are moved on."),
    setting!("Policies", "policies.backlog_quota_check_interval", "backlogQuotaCheckIntervalInSeconds", policies.backlog_quota_check_interval,
        "How often backlogs are measured, besides when a producer comes."),
    setting!("Policies", "policies.max_producers_per_topic", "maxProducersPerTopic", policies.broker.max_producers,
        "Producers of a topic; 0 is no limit."),
    setting!("Policies", "policies.max_same_address_producers_per_topic", "maxSameAddressProducersPerTopic", policies.broker.max_same_address_producers,
        "Producers of a topic from one address; 0 is no limit."),
    setting!("Policies", "policies.max_consumers_per_topic", "maxConsumersPerTopic", policies.broker.max_consumers,
        "Consumers of a topic; 0 is no limit."),
    setting!("Policies", "policies.max_same_address_consumers_per_topic", "maxSameAddressConsumersPerTopic", policies.broker.max_same_address_consumers,
        "Consumers of a topic from one address; 0 is no limit."),
    setting!("Policies", "policies.max_consumers_per_subscription", "maxConsumersPerSubscription", policies.broker.max_consumers_per_subscription,
        "Consumers of a subscription; 0 is no limit."),
    setting!("Policies", "policies.max_subscriptions_per_topic", "maxSubscriptionsPerTopic", policies.broker.max_subscriptions,
        "Durable subscriptions of a topic; 0 is no limit."),
    setting!("Policies", "policies.max_topics_per_namespace", "maxTopicsPerNamespace", policies.broker.max_topics_per_namespace,
        "Topics of a namespace, partitions counted one by one; 0 is no limit."),
    setting!("Policies", "policies.max_partitions_per_topic", "maxNumPartitionsPerPartitionedTopic", policies.max_partitions_per_topic,
        "Partitions of a partitioned topic; 0 is no limit."),
    setting!("Policies", "policies.max_publish_rate_messages", "maxPublishRatePerTopicInMessages", policies.broker.publish_rate.messages,
        "Messages a second that may be published to a topic; more wait, and their producers with them. 0 is no limit."),
    setting!("Policies", "policies.max_publish_rate_bytes", "maxPublishRatePerTopicInBytes", policies.broker.publish_rate.bytes as ByteSize,
        "The same in bytes."),
    setting!("Policies", "policies.delayed_delivery", "delayedDeliveryEnabled", policies.broker.delayed_delivery.active,
        "Whether messages wait for the time that their producer gave them."),
    setting!("Policies", "policies.delete_inactive_topics", "brokerDeleteInactiveTopicsEnabled", policies.broker.inactive_topics.delete,
        "Whether unused topics are deleted, with what is stored in them. Retention keeps them as long as their data."),
    setting!("Policies", "policies.delete_inactive_topics_check_interval", "brokerDeleteInactiveTopicsFrequencySeconds", policies.delete_inactive_topics_check_interval,
        "How often unused topics are looked for."),
    setting!("Policies", "policies.delete_inactive_topics_mode", "brokerDeleteInactiveTopicsMode", policies.broker.inactive_topics.mode,
        "Which topics: without producers and subscriptions, or also those whose subscriptions have neither consumers nor backlog."),
    setting!("Policies", "policies.delete_inactive_topics_after", "brokerDeleteInactiveTopicsMaxInactiveDurationSeconds", policies.broker.inactive_topics.after,
        "How long a topic must have been unused; 0 is as long as the interval."),
    setting!("Policies", "policies.delete_inactive_partitioned_topics", "brokerDeleteInactivePartitionedTopicMetadataEnabled", policies.delete_inactive_partitioned_topics,
        "Whether a partitioned topic goes when the last of its partitions was deleted for not being used."),
    setting!("Policies", "policies.subscription_expiration_time", "subscriptionExpirationTimeMinutes", policies.broker.subscription_expiration as Duration,
        "How long a durable subscription lives without consumers; counted anew when its topic is loaded. 0 is for ever."),
    setting!("Policies", "policies.subscription_expiry_check_interval", "subscriptionExpiryCheckIntervalInMinutes", policies.subscription_expiry_check_interval,
        "How often subscriptions without consumers are looked for."),
    setting!("Broadcast", "broadcast.absent_retention", "", broadcast.absent_retention,
        "How long the place of an absent named consumer of a broadcast subscription is kept, counted from when it left."),
    setting!("Broadcast", "broadcast.absent_backlog", "", broadcast.absent_backlog,
        "How much backlog an absent consumer may hold before its place is given up; all absent consumers of a topic hold the same."),
    setting!("Managed ledger", "ledger.max_entries", "managedLedgerMaxEntriesPerLedger", ledger.max_entries,
        "A topic begins a new ledger after this many entries. Data is deleted by whole ledgers."),
    setting!("Managed ledger", "ledger.max_size", "managedLedgerMaxSizePerLedgerMbytes", ledger.max_size,
        "A topic begins a new ledger after this many bytes."),
    setting!("Managed ledger", "ledger.max_rollover_time", "managedLedgerMaxLedgerRolloverTimeMinutes", ledger.max_rollover_time,
        "A topic begins a new ledger when the last one is this old."),
    setting!("Managed ledger", "ledger.min_rollover_time", "managedLedgerMinLedgerRolloverTimeMinutes", ledger.min_rollover_time,
        "Never before it is this old, whatever the other limits say."),
    setting!("Managed ledger", "ledger.inactive_rollover_time", "managedLedgerInactiveLedgerRolloverTimeSeconds", ledger.inactive_rollover_time,
        "A topic begins a new ledger when no message came for this long, however young the last one is; 0 is never."),
    setting!("Managed ledger", "ledger.default_retention_time", "defaultRetentionTimeInMinutes", policies.broker.retention.time as Limit<Duration>,
        "How long data is kept after every subscription acknowledged it; a namespace may say otherwise."),
    setting!("Managed ledger", "ledger.default_retention_size", "defaultRetentionSizeInMB", policies.broker.retention.bytes as Limit<ByteSize>,
        "How much acknowledged data a topic keeps; a namespace may say otherwise."),
    setting!("Managed ledger", "ledger.retention_check_interval", "retentionCheckIntervalInSeconds", ledger.retention_check_interval,
        "How often ledgers that are not needed any more are deleted."),
    setting!("Managed ledger", "ledger.cache_size", "managedLedgerCacheSizeMB", ledger.cache_size,
        "Memory for the newest entries of all topics, from which stream consumers at the tail are served: half at the topics' homes, half with the shards that deliver, where entries stay for some seconds at most."),
    setting!("Managed ledger", "ledger.catch_up_read_cache_size", "", ledger.catch_up_read_cache_size,
        "Memory for entries of all topics that are read back for stream consumers and subscriptions that are behind, in equal parts for the shards; further reads wait until some of it is delivered."),
    setting!("Storage", "storage.sync", "journalSyncData", policies.broker.durability,
        "sync: a message is acknowledged when it is on the device. async: when the operating system has it; a power cut may lose the last moments. bypass: when it is in memory; a crash may lose what was not yet written to the entry logs, which is at most storage.flush_interval old."),
    setting!("Storage", "storage.journal_dirs", "journalDirectories", storage.journal_dirs,
        "Directories of the journals, with commas between, each best on a device of its own; empty is journal in data_dir. Journals may be added; after a clean stop also moved and removed."),
    setting!("Storage", "storage.ledger_dirs", "ledgerDirectories", storage.ledger_dirs,
        "Directories of the entry logs, with commas between; empty is ledgers in data_dir. More may be added, none removed."),
    setting!("Storage", "storage.segment_size", "journalMaxSizeMB", storage.segment_size,
        "Size of one journal segment."),
    setting!("Storage", "storage.journal_size", "", storage.journal_size,
        "A journal that has this much which is only in memory besides makes the engine write it to the entry logs."),
    setting!("Storage", "storage.journal_backups", "journalMaxBackups", storage.journal_backups,
        "Old journal segments that are kept although nothing needs them."),
    setting!("Storage", "storage.group_commit_wait", "journalMaxGroupWaitMSec", storage.group_commit_wait,
        "A group commit begins at least so long after the one before, if that one was for several topics; half of it if it held several entries of one. Many small ones cost more than they gain. A single writer never waits; 0 syncs whatever is there, as journalFlushWhenQueueEmpty would. One sync always covers all that waits (journalAdaptiveGroupWrites)."),
    setting!("Storage", "storage.group_commit_bytes", "journalBufferedWritesThreshold", storage.group_commit_bytes,
        "The most that one group commit writes; one message may always be larger."),
    setting!("Storage", "storage.group_commit_entries", "journalBufferedEntriesThreshold", storage.group_commit_entries,
        "The most messages or batches that one group commit writes; 0 is any number."),
    setting!("Storage", "storage.sync_interval", "journalPageCacheFlushIntervalMSec", storage.sync_interval,
        "With async: when written data is synced at the latest."),
    setting!("Storage", "storage.io", "", storage.io,
        "direct writes past the page cache where the file system can; buffered writes through it."),
    setting!("Storage", "storage.queue_size", "", storage.queue_size,
        "Bytes of all topics that may wait for a journal; beyond it publishers are slowed down."),
    setting!("Storage", "storage.write_cache_size", "dbStorage_writeCacheMaxSizeMb", storage.write_cache_size,
        "Memory for messages that are not yet in the entry logs, in two halves: one is filled while the other is written. When both are full, publishers are slowed down."),
    setting!("Storage", "storage.flush_interval", "flushInterval", storage.flush_interval,
        "How long a message is in memory before it is written to the entry logs, at most."),
    setting!("Storage", "storage.flush_rate", "", storage.flush_rate,
        "How much a second is written to the entry logs."),
    setting!("Storage", "storage.entry_log_size", "logSizeLimit", storage.entry_log_size,
        "Size of one entry log; space is given back by whole logs."),
    setting!("Storage", "storage.read_cache_size", "dbStorage_readAheadCacheMaxSizeMb", storage.read_cache_size,
        "Memory for what was read from the entry logs, shared by all readers."),
    setting!("Storage", "storage.read_rate", "", storage.read_rate,
        "How much a second is read from a device while a journal is busy, so that backlogs do not slow publishers down."),
    setting!("Storage", "storage.minor_compaction_threshold", "minorCompactionThreshold", storage.minor_compaction_threshold,
        "An entry log of which less than this share is needed is rewritten at the next minor compaction."),
    setting!("Storage", "storage.minor_compaction_interval", "minorCompactionInterval", storage.minor_compaction_interval,
        "How often that is looked for; 0 is never."),
    setting!("Storage", "storage.major_compaction_threshold", "majorCompactionThreshold", storage.major_compaction_threshold,
        "The same for the major compaction, which also begins when a device has no room."),
    setting!("Storage", "storage.major_compaction_interval", "majorCompactionInterval", storage.major_compaction_interval,
        "How often that is looked for; 0 is never."),
    setting!("Storage", "storage.compaction_rate", "compactionRateByBytes", storage.compaction_rate,
        "How much a second compaction copies."),
    setting!("Storage", "storage.salvage", "managedLedgerForceRecovery", storage.salvage,
        "Open ledgers whose last entries may have been lost to damage, instead of refusing; says so in the log."),
    setting!("Storage", "storage.accept_metadata", "", storage.accept_metadata,
        "Start although the metadata store is missing, older than the ledgers or of others. All ledgers that are there are kept, named or not."),
    setting!("Tiered storage", "offload.driver", "managedLedgerOffloadDriver", offload.driver,
        "Where closed ledgers are offloaded to: aws-s3, S3 or filesystem. Empty: nowhere, unless a namespace or topic says where."),
    setting!("Tiered storage", "offload.threshold_size", "managedLedgerOffloadAutoTriggerSizeThresholdBytes", offload.threshold_size,
        "Bytes of a topic's closed ledgers that are not offloaded, the newest; 0 offloads each ledger when it is closed."),
    setting!("Tiered storage", "offload.threshold_time", "managedLedgerOffloadThresholdInSeconds", offload.threshold_time,
        "Ledgers that were closed this long ago are offloaded."),
    setting!("Tiered storage", "offload.deletion_lag", "managedLedgerOffloadDeletionLagMs", offload.deletion_lag,
        "How long the broker keeps its own copy of an offloaded ledger."),
    setting!("Tiered storage", "offload.read_priority", "managedLedgerDataReadPriority", offload.read_priority,
        "Which copy is read while there are two; the other one when that fails."),
    setting!("Tiered storage", "offload.s3_bucket", "s3ManagedLedgerOffloadBucket", offload.s3_bucket,
        "Bucket of the drivers aws-s3 and S3. Credentials come from the environment (AWS_ACCESS_KEY_ID, …) or the machine's role."),
    setting!("Tiered storage", "offload.s3_region", "s3ManagedLedgerOffloadRegion", offload.s3_region,
        "Its region; empty is us-east-1."),
    setting!("Tiered storage", "offload.s3_endpoint", "s3ManagedLedgerOffloadServiceEndpoint", offload.s3_endpoint,
        "URL of a service that speaks S3; empty is Amazon's."),
    setting!("Tiered storage", "offload.s3_server_side_encryption", "", offload.s3_server_side_encryption,
        "How S3 encrypts objects that are written from now on: bucket-default says nothing and leaves it to the bucket, AES256 is with keys of S3 (SSE-S3), aws:kms with a key of the key management service (SSE-KMS). Other stores may refuse the last two."),
    setting!("Tiered storage", "offload.s3_kms_key_id", "", offload.s3_kms_key_id,
        "With aws:kms: id or ARN of the key; empty is the one that the service keeps for S3."),
    setting!("Tiered storage", "offload.filesystem_uri", "fileSystemURI", offload.filesystem_uri,
        "Folder of the driver filesystem, as file:///path. Policies may name this folder and those below it only."),
    setting!("Tiered storage", "offload.max_block_size", "s3ManagedLedgerOffloadMaxBlockSizeInBytes", offload.max_block_size,
        "Part of an upload. Each ledger that is being offloaded takes two to three of them in memory."),
    setting!("Tiered storage", "offload.read_buffer_size", "s3ManagedLedgerOffloadReadBufferSizeInBytes", offload.read_buffer_size,
        "How much is fetched when offloaded messages are read in order."),
    setting!("Tiered storage", "offload.read_cache_size", "", offload.read_cache_size,
        "Memory for what was fetched, from which the next reads of all topics are served."),
    setting!("Tiered storage", "offload.max_threads", "managedLedgerOffloadMaxThreads", offload.max_threads,
        "Ledgers that are offloaded at the same time; of one topic always one after the other."),
    setting!("Tiered storage", "offload.read_threads", "managedLedgerOffloadReadThreads", offload.read_threads,
        "Fetches from object stores at the same time."),
    setting!("Metrics", "metrics.topics", "exposeTopicLevelMetricsInPrometheus", metrics.topics,
        "Whether the metrics page shows single topics; false shows their sum per namespace."),
];

/// The setting with this key.
#[must_use]
pub fn by_key(key: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.key == key)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn keys_flags_and_variables_are_unique() {
        let keys: HashSet<_> = SETTINGS.iter().map(|s| s.key).collect();
        let flags: HashSet<_> = SETTINGS.iter().map(Setting::flag).collect();
        let variables: HashSet<_> = SETTINGS.iter().map(Setting::env).collect();
        assert_eq!(
            (keys.len(), flags.len(), variables.len()),
            (SETTINGS.len(), SETTINGS.len(), SETTINGS.len())
        );
    }

    #[test]
    fn every_default_is_read_back_to_itself() {
        for setting in SETTINGS {
            let mut settings = Settings::default();
            (setting.set)(&mut settings, &setting.default()).unwrap();
            assert_eq!(settings, Settings::default(), "{}", setting.key);
        }
    }

    #[test]
    fn the_defaults_have_no_faults() {
        assert_eq!(Settings::default().faults(), Vec::<String>::new());
    }
}
