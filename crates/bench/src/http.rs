//! The little HTTP the load tool speaks: one request, one answer, then the connection ends.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context as _, ensure};

use crate::session::resolve_with;

/// Longest wait for the next bytes of an answer.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Redirects followed before giving up.
const REDIRECTS_MAX: usize = 5;

/// `GET base/path`; the body of a 200 answer. Redirects are followed.
pub(crate) fn get(base: &str, path: &str) -> anyhow::Result<String> {
    let mut url = format!("{}{path}", base.trim_end_matches('/'));
    for _ in 0..REDIRECTS_MAX {
        let answer = exchange("GET", &url, "")?;
        match answer.location {
            Some(location) if (300..400).contains(&answer.status) => {
                url = if location.starts_with('/') {
                    format!("{}{location}", base.trim_end_matches('/'))
                } else {
                    location
                };
            }
            _ => {
                ensure!(answer.status == 200, "GET {url} answered {}", answer.status);
                return Ok(answer.body);
            }
        }
    }
    anyhow::bail!("GET {base}{path}: too many redirects")
}

/// `PUT base/path` with a JSON body; the status.
pub(crate) fn put(base: &str, path: &str, body: &str) -> anyhow::Result<u16> {
    let url = format!("{}{path}", base.trim_end_matches('/'));
    Ok(exchange("PUT", &url, body)?.status)
}

struct Answer {
    status: u16,
    location: Option<String>,
    body: String,
}

fn exchange(method: &str, url: &str, body: &str) -> anyhow::Result<Answer> {
    let address = resolve_with(url, "http://", 80)?;
    let rest = url.get("http://".len()..).unwrap_or_default();
    let path = rest.find('/').and_then(|at| rest.get(at..)).unwrap_or("/");
    let mut stream =
        TcpStream::connect_timeout(&address, TIMEOUT).with_context(|| format!("cannot reach {url}"))?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    // HTTP/1.0: the body ends with the connection, so there is no chunked encoding to undo.
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.0\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    // In one piece: a server may answer and close after its first read.
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream
        .read_to_end(&mut answer)
        .with_context(|| format!("no answer from {url}"))?;
    parse(&String::from_utf8_lossy(&answer)).with_context(|| format!("{url} does not speak HTTP"))
}

fn parse(answer: &str) -> Option<Answer> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split_whitespace().nth(1)?.parse().ok()?;
    let location = head.lines().skip(1).find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("location")
            .then(|| value.trim().to_owned())
    });
    Some(Answer {
        status,
        location,
        body: body.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_taken_apart() {
        let answer = parse("HTTP/1.1 302 Found\r\nlocation:  /metrics/\r\n\r\n").expect("an answer");
        assert_eq!(
            (answer.status, answer.location.as_deref()),
            (302, Some("/metrics/"))
        );
        assert_eq!(
            parse("HTTP/1.0 200 OK\r\n\r\nx\r\n\r\ny")
                .expect("an answer")
                .body,
            "x\r\n\r\ny"
        );
        assert!(parse("SSH-2.0").is_none());
    }
}
