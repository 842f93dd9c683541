//! Settings of listeners by name: `inner:pulsar://10.0.0.1:6650,outer:pulsar+ssl://broker1.example.com:6651`.

use std::net::SocketAddr;

use pharos_cluster::Listeners;

use super::{Settings, Value, is_name};

/// What is spoken at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Pulsar's protocol.
    Pulsar,
    /// The same over TLS.
    PulsarSsl,
    /// The admin API.
    Http,
    /// The same over TLS.
    Https,
}

impl Scheme {
    const ALL: [Self; 4] = [Self::Pulsar, Self::PulsarSsl, Self::Http, Self::Https];

    fn name(self) -> &'static str {
        match self {
            Self::Pulsar => "pulsar",
            Self::PulsarSsl => "pulsar+ssl",
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// Whether a connection there begins with TLS.
    pub(crate) fn is_tls(self) -> bool {
        matches!(self, Self::PulsarSsl | Self::Https)
    }

    fn is_http(self) -> bool {
        matches!(self, Self::Http | Self::Https)
    }
}

/// One address of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerUrl {
    /// Name of the listener.
    pub name: String,
    /// What is spoken there.
    pub scheme: Scheme,
    /// `host:port`.
    pub address: String,
}

impl ListenerUrl {
    /// The address without its name.
    #[must_use]
    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme.name(), self.address)
    }

    /// As an address to listen on.
    #[must_use]
    pub fn socket(&self) -> Option<SocketAddr> {
        self.address.parse().ok()
    }
}

/// Addresses of listeners; none is a value too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListenerUrlList(pub Vec<ListenerUrl>);

impl Value for ListenerUrlList {
    const KIND: &'static str = "listeners";

    fn parse(text: &str) -> Result<Self, String> {
        let each = text.split(',').map(str::trim).filter(|text| !text.is_empty());
        Ok(Self(each.map(parse_one).collect::<Result<_, _>>()?))
    }

    fn show(&self) -> String {
        let each: Vec<String> = self
            .0
            .iter()
            .map(|it| format!("{}:{}", it.name, it.url()))
            .collect();
        each.join(",")
    }
}

fn parse_one(text: &str) -> Result<ListenerUrl, String> {
    let form = || format!("'{text}' is not name:pulsar://host:port, or that with pulsar+ssl, http or https");
    let (name, url) = text.split_once(':').ok_or_else(form)?;
    let (scheme, address) = url.split_once("://").ok_or_else(form)?;
    let scheme = Scheme::ALL
        .into_iter()
        .find(|it| it.name() == scheme)
        .ok_or_else(form)?;
    let (host, port) = address.rsplit_once(':').ok_or_else(form)?;
    let is_host = !host.is_empty() && !host.contains(['/', ' ', '@']);
    let is_port = port.parse::<u16>().is_ok_and(|port| port != 0);
    if !is_name(name) || name.contains(':') || !is_host || !is_port {
        return Err(form());
    }
    Ok(ListenerUrl {
        name: name.to_owned(),
        scheme,
        address: address.to_owned(),
    })
}

impl Settings {
    /// Addresses by the name of a listener.
    #[must_use]
    pub(crate) fn listeners(&self) -> Listeners {
        let mut listeners = Listeners::new();
        for it in &self.advertised_listeners.0 {
            let urls = listeners.entry(it.name.clone()).or_default();
            *match it.scheme {
                Scheme::Pulsar => &mut urls.broker_service_url,
                Scheme::PulsarSsl => &mut urls.broker_service_url_tls,
                Scheme::Http => &mut urls.broker_http_url,
                Scheme::Https => &mut urls.broker_https_url,
            } = Some(it.url());
        }
        listeners
    }

    /// The listener whose addresses hear other brokers, and clients that are of none.
    #[must_use]
    pub(crate) fn internal_listener(&self) -> Option<String> {
        let named = Some(self.internal_listener_name.clone()).filter(|name| !name.is_empty());
        let first = self.advertised_listeners.0.iter().find(|it| !it.scheme.is_http());
        named.or_else(|| first.map(|first| first.name.clone()))
    }

    /// What the settings of listeners cannot mean together.
    pub(super) fn listener_faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let (advertised, bound) = (&self.advertised_listeners.0, &self.bind_addresses.0);
        for (at, it) in advertised.iter().enumerate() {
            let before = advertised.get(..at).unwrap_or_default();
            if before
                .iter()
                .any(|other| other.name == it.name && other.scheme == it.scheme)
            {
                faults.push(format!(
                    "advertised_listeners names the listener {} twice",
                    it.name
                ));
            }
        }
        let is_of = |it: &ListenerUrl, name: &str| it.name == name && !it.scheme.is_http();
        let is_known = |name: &str| advertised.iter().any(|it| is_of(it, name));
        for it in advertised {
            if it.scheme.is_http() && !is_known(&it.name) {
                faults.push(format!(
                    "advertised_listeners has {}:{} and no pulsar or pulsar+ssl of that name",
                    it.name,
                    it.url()
                ));
            }
        }
        let internal = &self.internal_listener_name;
        if !internal.is_empty() && !is_known(internal) {
            faults.push(format!(
                "internal_listener_name is {internal}, which is not in advertised_listeners"
            ));
        }
        for it in bound {
            if !is_known(&it.name) {
                faults.push(format!(
                    "bind_addresses has the listener {}, which is not in advertised_listeners",
                    it.name
                ));
            }
            if it.scheme.is_http() {
                faults.push(format!(
                    "bind_addresses has {}: the admin API listens at http_listen and http_listen_tls only",
                    it.url()
                ));
            }
            if it.socket().is_none() {
                faults.push(format!(
                    "bind_addresses has {}, which is no IP address and port to listen on",
                    it.address
                ));
            }
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> ListenerUrlList {
        ListenerUrlList::parse(text).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn listeners_are_read_as_pulsar_writes_them() {
        let text =
            "inner:pulsar://10.0.0.1:6650,inner:pulsar+ssl://10.0.0.1:6651,outer:pulsar://b.example.com:6650";
        assert_eq!(list(text).show(), text);
        assert_eq!(list(&text.replace(',', " , ")).show(), text);
        let text = "i:pulsar://a:1,i:http://a:8080,i:https://a:8443";
        assert_eq!(list(text).show(), text);
        assert_eq!(list("").0, []);
        for bad in [
            "inner",
            "inner:pulsar://a",
            "inner:pulsar://a:0",
            "inner:kafka://a:1",
            ":pulsar://a:1",
            "i:pulsar://:1",
            "i:ftp://a:8080",
            "pulsar://a:1",
        ] {
            assert!(ListenerUrlList::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn listeners_that_contradict_each_other_are_refused() {
        let faults = |advertised, internal: &str, bound| {
            let settings = Settings {
                advertised_listeners: list(advertised),
                internal_listener_name: internal.to_owned(),
                bind_addresses: list(bound),
                ..Settings::default()
            };
            settings.listener_faults().len()
        };
        let one = "a:pulsar://a:1,a:pulsar+ssl://a:2,b:pulsar://b:1";
        assert_eq!(faults(one, "", ""), 0);
        assert_eq!(faults(one, "b", "b:pulsar://127.0.0.1:7"), 0);
        assert_eq!(faults(one, "c", ""), 1);
        assert_eq!(faults(one, "", "c:pulsar://127.0.0.1:7"), 1);
        assert_eq!(faults(one, "", "b:pulsar://host:7"), 1);
        assert_eq!(faults("a:pulsar://a:1,a:pulsar://a:2", "", ""), 1);
        assert_eq!(faults("a:pulsar://a:1,a:http://a:2", "", ""), 0);
        assert_eq!(faults("a:pulsar://a:1,b:http://a:2", "", ""), 1);
        assert_eq!(faults("a:pulsar://a:1", "", "a:http://127.0.0.1:7"), 1);
        assert_eq!(faults("", "", ""), 0);
    }

    #[test]
    fn the_first_listener_is_the_internal_one() {
        let mut settings = Settings {
            advertised_listeners: list("b:pulsar://b:1,a:pulsar+ssl://a:2,a:https://a:3"),
            ..Settings::default()
        };
        assert_eq!(settings.internal_listener().as_deref(), Some("b"));
        settings.internal_listener_name = "a".to_owned();
        assert_eq!(settings.internal_listener().as_deref(), Some("a"));
        let listeners = settings.listeners();
        assert_eq!(
            listeners["a"].broker_service_url_tls.as_deref(),
            Some("pulsar+ssl://a:2")
        );
        assert_eq!(listeners["a"].broker_https_url.as_deref(), Some("https://a:3"));
        assert_eq!(listeners["b"].broker_service_url.as_deref(), Some("pulsar://b:1"));
    }
}
