//! HTTP client of the load tool: the broker's metrics page, and partitioned topics.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use pharos_cli::{KnownBroker, with_tls};
use ureq::config::Config;
use ureq::{Agent, RequestBuilder};

/// Longest time of an answer.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Redirects followed before giving up.
const REDIRECTS_MAX: u32 = 5;
/// Largest answer that is read: the metrics page has some kilobytes for each topic.
const ANSWER_BYTES_MAX: u64 = 512 << 20;

/// The HTTP door of a broker.
#[derive(Clone, Debug)]
pub(crate) struct HttpDoor {
    agent: Agent,
    base: String,
    /// Says who asks: a secret.
    authorization: Option<Authorization>,
}

#[derive(Clone)]
struct Authorization(String);

impl std::fmt::Debug for Authorization {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authorization")
    }
}

impl HttpDoor {
    /// At `base`, which asks for nothing.
    pub(crate) fn plain(base: &str) -> Self {
        Self {
            agent: config().into(),
            base: base.trim_end_matches('/').to_owned(),
            authorization: None,
        }
    }

    /// At `base`, as who it is that flags and context say.
    ///
    /// # Errors
    /// There are no credentials to be had now, or the files for TLS cannot be used.
    pub(crate) fn of(base: &str, known: &KnownBroker) -> anyhow::Result<Self> {
        let agent = match base.starts_with("https://") {
            true => with_tls(config(), &known.tls)?,
            false => config().into(),
        };
        Ok(Self {
            agent,
            authorization: known.authorization()?.map(Authorization),
            ..Self::plain(base)
        })
    }

    /// The body of a 200 answer. Redirects are followed.
    ///
    /// # Errors
    /// No whole answer, or another status.
    pub(crate) fn get(&self, path: &str) -> anyhow::Result<String> {
        let url = self.at(path);
        let answer = self.known(self.agent.get(&url)).call();
        let mut answer = answer.with_context(|| format!("no answer from {url}"))?;
        let status = answer.status().as_u16();
        ensure!(status == 200, "GET {url} answered {status}");
        let body = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX);
        body.read_to_string()
            .with_context(|| format!("no whole answer from {url}"))
    }

    /// `PUT` with a JSON body; the status.
    ///
    /// # Errors
    /// No answer.
    pub(crate) fn put(&self, path: &str, body: &str) -> anyhow::Result<u16> {
        let url = self.at(path);
        let request = self.known(self.agent.put(&url));
        let sent = request.header("content-type", "application/json").send(body);
        let answer = sent.with_context(|| format!("no answer from {url}"))?;
        Ok(answer.status().as_u16())
    }

    fn known<B>(&self, request: RequestBuilder<B>) -> RequestBuilder<B> {
        match &self.authorization {
            Some(Authorization(text)) => request.header("authorization", text),
            None => request,
        }
    }

    fn at(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }
}

/// `GET base/path`; the body of a 200 answer. Redirects are followed.
///
/// # Errors
/// No whole answer, or another status.
pub fn get(base: &str, path: &str) -> anyhow::Result<String> {
    HttpDoor::plain(base).get(path)
}

/// `PUT base/path` with a JSON body; the status.
///
/// # Errors
/// No answer.
pub fn put(base: &str, path: &str, body: &str) -> anyhow::Result<u16> {
    HttpDoor::plain(base).put(path, body)
}

fn config() -> Config {
    Agent::config_builder()
        .timeout_global(Some(TIMEOUT))
        .max_redirects(REDIRECTS_MAX)
        .http_status_as_error(false)
        // The broker that is measured is asked, and none in between.
        .proxy(None)
        .build()
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;

    /// Answers connections with these, one after the other; where it listens.
    fn server(answers: Vec<String>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let base = format!("http://{}/", listener.local_addr().expect("an address"));
        std::thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().expect("a connection");
                let _ = stream.read(&mut [0; 4096]).expect("a request");
                stream.write_all(answer.as_bytes()).expect("written");
            }
        });
        base
    }

    fn answer(head: &str, body: &str) -> String {
        let length = body.len();
        format!("HTTP/1.1 {head}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}")
    }

    #[test]
    fn a_redirect_is_followed_and_what_is_not_200_is_an_error() {
        let moved = answer("302 Found\r\nlocation: /metrics/", "");
        let base = server(vec![
            moved,
            answer("200 OK", "a 1\n"),
            answer("404 Not Found", "no"),
        ]);
        assert_eq!(get(&base, "/metrics").expect("a page"), "a 1\n");
        let error = get(&base, "/none").expect_err("nothing there");
        assert!(error.to_string().ends_with("/none answered 404"), "{error}");
    }

    #[test]
    fn a_put_says_its_status() {
        let base = server(vec![answer("409 Conflict", "it is there")]);
        assert_eq!(put(&base, "/partitions", "4").expect("an answer"), 409);
    }
}
