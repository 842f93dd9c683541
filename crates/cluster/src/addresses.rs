//! Addresses of a broker for clients, as Pulsar stores them under a bundle that the broker owns.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Addresses of a broker for clients.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BrokerAddresses {
    /// `pulsar://host:port`.
    pub native_url: String,
    /// `pulsar+ssl://host:port`, where it speaks TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub native_url_tls: Option<String>,
    /// `http://host:port`.
    pub http_url: String,
    /// `https://host:port`, where it speaks TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_url_tls: Option<String>,
    /// True if the broker is about to release the bundle.
    pub disabled: bool,
    /// Further addresses by the name of a listener.
    pub advertised_listeners: Listeners,
}

/// Addresses of a broker by the name of a listener.
pub type Listeners = BTreeMap<String, ListenerUrls>;

/// Addresses of a broker for clients of one listener; at least one of the first two is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListenerUrls {
    /// `pulsar://host:port`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broker_service_url: Option<String>,
    /// `pulsar+ssl://host:port`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broker_service_url_tls: Option<String>,
    /// `http://host:port`; where it is not there, clients of the listener hear that of the broker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broker_http_url: Option<String>,
    /// `https://host:port`; the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broker_https_url: Option<String>,
}

impl BrokerAddresses {
    /// `host:port` of the HTTP server, by which Pulsar knows a broker.
    #[must_use]
    pub fn broker_id(&self) -> &str {
        match self.http_url.split_once("://") {
            Some((_, id)) => id,
            None => &self.http_url,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_are_stored_as_pulsar_stores_them() {
        let text = r#"{"nativeUrl":"pulsar://a:1","httpUrl":"http://a:3","disabled":false,"advertisedListeners":{"outer":{"brokerServiceUrl":"pulsar://b:1","brokerServiceUrlTls":"pulsar+ssl://b:2","brokerHttpUrl":"http://b:3","brokerHttpsUrl":"https://b:4"}}}"#;
        let addresses: BrokerAddresses = serde_json::from_str(text).unwrap_or_default();
        let outer = addresses
            .advertised_listeners
            .get("outer")
            .cloned()
            .unwrap_or_default();
        assert_eq!(outer.broker_service_url_tls.as_deref(), Some("pulsar+ssl://b:2"));
        assert_eq!(outer.broker_https_url.as_deref(), Some("https://b:4"));
        assert_eq!(serde_json::to_string(&addresses).unwrap_or_default(), text);
    }

    #[test]
    fn addresses_are_stored_as_pulsar_stores_them() {
        let text = r#"{"nativeUrl":"pulsar://127.0.0.1:6750","httpUrl":"http://127.0.0.1:8180","disabled":false,"advertisedListeners":{}}"#;
        let addresses: BrokerAddresses = serde_json::from_str(text).unwrap_or_default();
        assert_eq!(addresses.native_url, "pulsar://127.0.0.1:6750");
        assert_eq!(serde_json::to_string(&addresses).unwrap_or_default(), text);
        let text = r#"{"nativeUrl":"pulsar://a:1","nativeUrlTls":"pulsar+ssl://a:2","httpUrl":"http://a:3","httpUrlTls":"https://a:4","disabled":false,"advertisedListeners":{}}"#;
        let addresses: BrokerAddresses = serde_json::from_str(text).unwrap_or_default();
        assert_eq!(serde_json::to_string(&addresses).unwrap_or_default(), text);
    }
}
