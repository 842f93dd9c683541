//! Settings of listeners by name: `inner:pulsar://10.0.0.1:6650,outer:pulsar+ssl://broker1.example.com:6651`.

use std::net::SocketAddr;

use pharos_cluster::Listeners;

use super::{Settings, Value, is_name};

/// One address of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerUrl {
    /// Name of the listener.
    pub name: String,
    /// Whether it is `pulsar+ssl`.
    pub is_tls: bool,
    /// `host:port`.
    pub address: String,
}

impl ListenerUrl {
    /// The address without its name.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.is_tls { "pulsar+ssl" } else { "pulsar" };
        format!("{scheme}://{}", self.address)
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
    let form = || format!("'{text}' is not name:pulsar://host:port or name:pulsar+ssl://host:port");
    let (name, url) = text.split_once(':').ok_or_else(form)?;
    let (scheme, address) = url.split_once("://").ok_or_else(form)?;
    let is_tls = match scheme {
        "pulsar" => false,
        "pulsar+ssl" => true,
        "http" | "https" => {
            return Err(format!(
                "'{text}': listeners of the admin API have no names here, only pulsar and pulsar+ssl"
            ));
        }
        _ => return Err(form()),
    };
    let (host, port) = address.rsplit_once(':').ok_or_else(form)?;
    let is_host = !host.is_empty() && !host.contains(['/', ' ', '@']);
    let is_port = port.parse::<u16>().is_ok_and(|port| port != 0);
    if !is_name(name) || name.contains(':') || !is_host || !is_port {
        return Err(form());
    }
    Ok(ListenerUrl {
        name: name.to_owned(),
        is_tls,
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
            match it.is_tls {
                true => urls.broker_service_url_ssl = Some(it.url()),
                false => urls.broker_service_url = Some(it.url()),
            }
        }
        listeners
    }

    /// The listener whose addresses hear other brokers, and clients that are of none.
    #[must_use]
    pub(crate) fn internal_listener(&self) -> Option<String> {
        let named = Some(self.internal_listener_name.clone()).filter(|name| !name.is_empty());
        named.or_else(|| {
            self.advertised_listeners
                .0
                .first()
                .map(|first| first.name.clone())
        })
    }

    /// What the settings of listeners cannot mean together.
    pub(super) fn listener_faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let (advertised, bound) = (&self.advertised_listeners.0, &self.bind_addresses.0);
        for (at, it) in advertised.iter().enumerate() {
            let before = advertised.get(..at).unwrap_or_default();
            if before
                .iter()
                .any(|other| other.name == it.name && other.is_tls == it.is_tls)
            {
                faults.push(format!(
                    "advertised_listeners names the listener {} twice",
                    it.name
                ));
            }
        }
        let is_known = |name: &str| advertised.iter().any(|it| it.name == name);
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
        assert_eq!(list("").0, []);
        for bad in [
            "inner",
            "inner:pulsar://a",
            "inner:pulsar://a:0",
            "inner:kafka://a:1",
            ":pulsar://a:1",
            "i:pulsar://:1",
            "i:http://a:8080",
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
        assert_eq!(faults("", "", ""), 0);
    }

    #[test]
    fn the_first_listener_is_the_internal_one() {
        let mut settings = Settings {
            advertised_listeners: list("b:pulsar://b:1,a:pulsar+ssl://a:2"),
            ..Settings::default()
        };
        assert_eq!(settings.internal_listener().as_deref(), Some("b"));
        settings.internal_listener_name = "a".to_owned();
        assert_eq!(settings.internal_listener().as_deref(), Some("a"));
        let listeners = settings.listeners();
        assert_eq!(
            listeners["a"].broker_service_url_ssl.as_deref(),
            Some("pulsar+ssl://a:2")
        );
        assert_eq!(listeners["b"].broker_service_url.as_deref(), Some("pulsar://b:1"));
    }
}
