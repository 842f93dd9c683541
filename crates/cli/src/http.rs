//! A small blocking HTTP client for the admin API.

use std::time::Duration;

use pharos_admin_api::{ErrorData, paths};
use pharos_types::{NamespaceName, TopicName};
use serde::Serialize;
use serde::de::DeserializeOwned;
use ureq::http::Response;
use ureq::{Agent, Body, RequestBuilder};

use crate::Output;
use crate::context::Target;
use crate::error::{CliError, client_error};
use crate::https::agent;

/// Largest answer that is read: stats of a topic with a hundred thousand subscriptions fit.
const ANSWER_BYTES_MAX: u64 = 512 * 1024 * 1024;

/// Maximum number of redirects to the broker of a topic.
const ADMIN_REDIRECTS_MAX: u32 = 10;

/// Admin API of a broker.
pub(crate) struct AdminClient {
    agent: Agent,
    base: String,
    /// `Authorization` of every request.
    authorization: Option<String>,
    output: Output,
}

impl AdminClient {
    pub(crate) fn new(target: &Target, output: Output, timeout: Duration) -> Result<Self, CliError> {
        let url = &target.admin_url;
        let is_tls = url.starts_with("https://");
        if !is_tls && !url.starts_with("http://") {
            return Err(CliError::Usage(format!(
                "'{url}' is no admin URL: write http://HOST:PORT or https://HOST:PORT"
            )));
        }
        let agent = agent(is_tls.then_some(&target.tls), timeout, ADMIN_REDIRECTS_MAX)
            .map_err(|error| client_error(url, error))?;
        let authorization = match &target.credentials {
            Some(credentials) => credentials.header()?,
            None => None,
        };
        Ok(Self {
            agent,
            base: url.trim_end_matches('/').to_owned(),
            authorization,
            output,
        })
    }

    /// True if results are printed as JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.output == Output::Json
    }

    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, CliError> {
        let text = self.get_text(path)?;
        serde_json::from_str(&text).map_err(|error| self.odd(error))
    }

    pub(crate) fn get_text(&self, path: &str) -> Result<String, CliError> {
        let sent = self.known(self.agent.get(self.at(path))).call();
        self.read(sent)
    }

    pub(crate) fn put(&self, path: &str, body: &impl Serialize) -> Result<String, CliError> {
        let sent = self
            .known(self.agent.put(self.at(path)))
            .header("content-type", "application/json")
            .send(self.json(body)?);
        self.read(sent)
    }

    pub(crate) fn post(&self, path: &str, body: &impl Serialize) -> Result<String, CliError> {
        let sent = self
            .known(self.agent.post(self.at(path)))
            .header("content-type", "application/json")
            .send(self.json(body)?);
        self.read(sent)
    }

    pub(crate) fn post_empty(&self, path: &str) -> Result<String, CliError> {
        let sent = self.known(self.agent.post(self.at(path))).send_empty();
        self.read(sent)
    }

    pub(crate) fn put_empty(&self, path: &str) -> Result<String, CliError> {
        let sent = self.known(self.agent.put(self.at(path))).send_empty();
        self.read(sent)
    }

    pub(crate) fn delete(&self, path: &str) -> Result<String, CliError> {
        let sent = self.known(self.agent.delete(self.at(path))).call();
        self.read(sent)
    }

    /// A request that says who asks.
    fn known<B>(&self, request: RequestBuilder<B>) -> RequestBuilder<B> {
        match &self.authorization {
            Some(authorization) => request.header("authorization", authorization),
            None => request,
        }
    }

    fn at(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    fn json(&self, body: &impl Serialize) -> Result<String, CliError> {
        serde_json::to_string(body).map_err(|error| self.odd(error))
    }

    fn odd(&self, cause: impl ToString) -> CliError {
        CliError::Answer {
            url: self.base.clone(),
            cause: cause.to_string(),
        }
    }

    fn read(&self, sent: Result<Response<Body>, ureq::Error>) -> Result<String, CliError> {
        let unreachable = |error: &ureq::Error| CliError::Unreachable {
            url: self.base.clone(),
            cause: error.to_string(),
        };
        let mut response = sent.map_err(|error| unreachable(&error))?;
        let status = response.status().as_u16();
        let body = response
            .body_mut()
            .with_config()
            .limit(ANSWER_BYTES_MAX)
            .read_to_string();
        let body = body.map_err(|error| self.odd(error))?;
        if (200..300).contains(&status) {
            return Ok(body);
        }
        let reason = serde_json::from_str::<ErrorData>(&body).map_or(body, |error| error.reason);
        Err(CliError::Refused { status, reason })
    }
}

/// A topic as typed on the command line; short names mean `public/default`.
pub(crate) fn topic_path(text: &str) -> Result<String, CliError> {
    let topic: TopicName = text
        .parse()
        .map_err(|error| CliError::Usage(format!("{error}")))?;
    Ok(paths::topic(
        topic.domain().as_str(),
        topic.namespace().as_str(),
        topic.local(),
    ))
}

/// The full name of a topic as typed on the command line.
pub(crate) fn topic_name(text: &str) -> Result<String, CliError> {
    let topic: TopicName = text
        .parse()
        .map_err(|error| CliError::Usage(format!("{error}")))?;
    Ok(topic.to_string())
}

/// A namespace as typed on the command line.
pub(crate) fn namespace(text: &str) -> Result<NamespaceName, CliError> {
    text.parse()
        .map_err(|_| CliError::Usage(format!("'{text}' is no namespace: write TENANT/NAMESPACE")))
}
