//! What the load tool asks of a broker over HTTP: its metrics page, and partitioned topics.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use ureq::Agent;

/// Longest time of an answer.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Redirects followed before giving up.
const REDIRECTS_MAX: u32 = 5;
/// Largest answer that is read: the metrics page has some kilobytes for each topic.
const ANSWER_BYTES_MAX: u64 = 512 << 20;

/// `GET base/path`; the body of a 200 answer. Redirects are followed.
///
/// # Errors
/// No whole answer, or another status.
pub fn get(base: &str, path: &str) -> anyhow::Result<String> {
    let url = at(base, path);
    let answer = agent().get(&url).call();
    let mut answer = answer.with_context(|| format!("no answer from {url}"))?;
    let status = answer.status().as_u16();
    ensure!(status == 200, "GET {url} answered {status}");
    let body = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX);
    body.read_to_string()
        .with_context(|| format!("no whole answer from {url}"))
}

/// `PUT base/path` with a JSON body; the status.
///
/// # Errors
/// No answer.
pub fn put(base: &str, path: &str, body: &str) -> anyhow::Result<u16> {
    let url = at(base, path);
    let sent = agent()
        .put(&url)
        .header("content-type", "application/json")
        .send(body);
    let answer = sent.with_context(|| format!("no answer from {url}"))?;
    Ok(answer.status().as_u16())
}

fn at(base: &str, path: &str) -> String {
    format!("{}{path}", base.trim_end_matches('/'))
}

fn agent() -> Agent {
    let config = Agent::config_builder()
        .timeout_global(Some(TIMEOUT))
        .max_redirects(REDIRECTS_MAX)
        .http_status_as_error(false)
        // The broker that is measured is asked, and none in between.
        .proxy(None)
        .build();
    config.into()
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
