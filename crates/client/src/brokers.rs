//! Several brokers behind one service URL: a connection to each that serves a topic of ours.

use std::collections::HashMap;
use std::time::Duration;

use crate::stream::Address;
use crate::{AssignedBroker, ClientError, ConnectOptions, Connection};

/// Brokers that may point to one another before the client gives up.
const HOPS_MAX: usize = 20;

/// Time limit for one of several addresses before the next is tried.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// The brokers of a cluster, found by lookups from one of them. One connection each, made when it is needed first.
/// A clone shares those that are there.
#[derive(Clone, Debug)]
pub struct Brokers {
    /// The addresses that were given, with their scheme. One of them answers the first question of each lookup.
    addresses: Vec<String>,
    /// Index of the address that last accepted a connection.
    current: usize,
    options: ConnectOptions,
    /// By address, as the brokers tell it.
    connections: HashMap<String, Connection>,
}

impl Brokers {
    /// Connects to the first of those given that lets us in. `service_url`: an address as of [`Connection::connect`], or
    /// several of one scheme: `pulsar://a:6650,b:6650`.
    ///
    /// # Errors
    /// As [`Connection::connect`]; that of the last when none lets us in.
    pub async fn connect(service_url: &str, options: ConnectOptions) -> Result<Self, ClientError> {
        let mut brokers = Self {
            addresses: addresses(service_url)?,
            current: 0,
            options,
            connections: HashMap::new(),
        };
        brokers.first().await?;
        Ok(brokers)
    }

    /// The connection to the address that let us in last. When it has ended it is made anew, there or at the next
    /// address that lets us in.
    ///
    /// # Errors
    /// As [`Brokers::connect`].
    pub async fn first(&mut self) -> Result<Connection, ClientError> {
        let count = self.addresses.len();
        let mut last = None;
        for _ in 0..count {
            let address = self.address().to_owned();
            let connecting = self.connection(&address);
            let outcome = match count {
                1 => connecting.await,
                _ => match tokio::time::timeout(CONNECT_WITHIN, connecting).await {
                    Ok(outcome) => outcome,
                    Err(_) => Err(ClientError::TimedOut { what: "CONNECT" }),
                },
            };
            match outcome {
                Err(error) if error.is_transient() => {
                    self.current = (self.current + 1) % count;
                    last = Some(error);
                }
                outcome => return outcome,
            }
        }
        Err(last.unwrap_or_else(|| ClientError::Address(String::new())))
    }

    /// A connection to the broker that serves a topic now, which loads it if no broker has.
    ///
    /// # Errors
    /// `Redirected` when brokers point to one another for ever; as [`Connection::lookup`] and [`Connection::connect`].
    pub async fn serving(&mut self, topic: &str) -> Result<Connection, ClientError> {
        let mut connection = self.first().await?;
        let mut asked = self.address().to_owned();
        let mut authoritative = false;
        for _ in 0..HOPS_MAX {
            let found = match connection.lookup_as(topic, authoritative).await {
                Err(ClientError::Redirected {
                    url,
                    authoritative: known,
                }) => {
                    connection = self.connection(&url).await?;
                    asked = url;
                    authoritative = known;
                    continue;
                }
                Err(error @ ClientError::TimedOut { .. }) => {
                    self.discard(&connection);
                    return Err(error);
                }
                found => found?,
            };
            let encrypted = self.address().starts_with("pulsar+ssl://");
            let url = match encrypted {
                true => found.broker_url_tls,
                false => found.broker_url,
            };
            if found.through_proxy {
                return self.through_proxy(&url).await;
            }
            if url.is_empty() {
                let wanted = if encrypted { "with TLS" } else { "without TLS" };
                let told = format!("{topic}: the broker that serves it has no address {wanted}");
                return Err(ClientError::Address(told));
            }
            return self.connection(&url).await;
        }
        Err(ClientError::Redirected {
            url: asked,
            authoritative,
        })
    }

    /// A connection to the broker that a consumer was assigned to.
    ///
    /// # Errors
    /// `Address`: it has none of the kind that is used here; as [`Connection::connect`].
    pub async fn assigned(&mut self, assigned: &AssignedBroker) -> Result<Connection, ClientError> {
        let encrypted = self.address().starts_with("pulsar+ssl://");
        let url = match encrypted {
            true => assigned.url_tls.clone(),
            false => assigned.url.clone(),
        };
        let none = || ClientError::Address("the assigned broker has no address of this kind".to_owned());
        self.connection(&url.ok_or_else(none)?).await
    }

    /// Uses a connection no more on which an answer did not come: its broker may have gone without a word.
    pub fn discard(&mut self, connection: &Connection) {
        self.connections.retain(|_, known| !known.is_same(connection));
    }

    /// The address that let us in last.
    fn address(&self) -> &str {
        self.addresses.get(self.current).map_or("", String::as_str)
    }

    async fn connection(&mut self, address: &str) -> Result<Connection, ClientError> {
        self.remember(address, address, self.options.clone()).await
    }

    /// A connection of its own to the proxy, which passes it on to the broker that it names.
    async fn through_proxy(&mut self, broker_url: &str) -> Result<Connection, ClientError> {
        let mut options = self.options.clone();
        let broker = broker_url
            .split_once("://")
            .map_or(broker_url, |(_, broker)| broker);
        options.command.proxy_to_broker_url = Some(broker.to_owned());
        let (address, key) = (
            self.address().to_owned(),
            format!("through the proxy: {broker_url}"),
        );
        self.remember(&key, &address, options).await
    }

    async fn remember(
        &mut self,
        key: &str,
        address: &str,
        options: ConnectOptions,
    ) -> Result<Connection, ClientError> {
        if let Some(known) = self.connections.get(key)
            && known.end_reason().is_none()
        {
            return Ok(known.clone());
        }
        let made = Connection::connect(address, options).await?;
        self.connections.insert(key.to_owned(), made.clone());
        Ok(made)
    }
}

/// Takes a service URL apart: its addresses, each with the scheme of all.
fn addresses(service_url: &str) -> Result<Vec<String>, ClientError> {
    let (scheme, rest) = match service_url.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), service_url),
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    rest.split(',')
        .map(|authority| {
            let address = format!("{scheme}{authority}");
            match Address::parse(&address) {
                Ok(_) => Ok(address),
                // The whole of it, as it was given.
                Err(_) => Err(ClientError::Address(service_url.to_owned())),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_url_has_one_address_or_several() {
        assert_eq!(addresses("a:1").unwrap(), ["a:1"]);
        assert_eq!(addresses("pulsar://a:1/").unwrap(), ["pulsar://a:1"]);
        assert_eq!(
            addresses("pulsar+ssl://a:1,[::1]:2,c:3/").unwrap(),
            ["pulsar+ssl://a:1", "pulsar+ssl://[::1]:2", "pulsar+ssl://c:3"]
        );
        for wrong in [
            "",
            "pulsar://a:1,",
            "pulsar://a:1,b",
            "pulsar://a:1,pulsar://b:2",
            "http://a:1",
        ] {
            assert!(
                matches!(addresses(wrong), Err(ClientError::Address(text)) if text == wrong),
                "{wrong}"
            );
        }
    }
}
