//! Stories: requests and what they must be answered, with clients in between.
//!
//! The stories are `scenarios/*.txt`. A line that starts with a method is a request, its body behind the path; the next
//! line is the answer: a status, then nothing, or `=` and the exact JSON, or `~` and JSON that the answer must contain,
//! or `:` and text that it must contain. Lines that start with `#` are for the reader.
//!
//! `SEND <topic> <text>…` publishes messages, one after the other; `<text.ledger>` and `<text.entry>` say from there on where each is
//! stored. `JOIN <topic> <subscription> <consumer>` attaches an exclusive consumer, which stays and takes nothing. Neither has an answer.

use std::collections::BTreeMap;

use pharos_client::{ConnectOptions, Connection, ConsumerOptions, OutgoingMessage, ProducerOptions};
use pharos_runtime::clock;
use serde_json::Value;
use tokio::runtime::Handle;

use crate::door::{Door, ask};
use crate::table;

/// State of a story.
pub(crate) struct Story<'a> {
    name: &'a str,
    door: &'a Door,
    /// Values of the words in angle brackets.
    words: BTreeMap<String, String>,
    clients: Vec<Client>,
}

/// A client that stays until the story ends.
struct Client {
    _consumer: pharos_client::Consumer,
    _connection: Connection,
}

impl<'a> Story<'a> {
    pub(crate) fn new(name: &'a str, door: &'a Door) -> Self {
        Self {
            name,
            door,
            words: BTreeMap::new(),
            clients: Vec::new(),
        }
    }

    /// Tells it. Blocks; the caller is a thread of a runtime.
    pub(crate) fn tell(&mut self, text: &str) {
        let mut lines = text
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
        while let Some((number, line)) = lines.next() {
            let line = self.spoken(line);
            let place = format!("{}:{}: {line}", self.name, number + 1);
            let (verb, rest) = line.split_once(' ').unwrap();
            let (first, more) = rest.split_once(' ').unwrap_or((rest, ""));
            match verb {
                "SEND" => Handle::current().block_on(self.send(first, more)),
                "JOIN" => Handle::current().block_on(self.join(first, more)),
                method => {
                    let (_, wanted) = lines.next().unwrap();
                    let answer = ask(self.door.address, method, first, more);
                    check(&place, &self.spoken(wanted), &answer);
                    table::check(&place, method, first, answer.0);
                }
            }
        }
    }

    /// A line with the words in angle brackets put in.
    fn spoken(&self, line: &str) -> String {
        let mut line = line.to_owned();
        for (word, meaning) in &self.words {
            line = line.replace(&format!("<{word}>"), meaning);
        }
        line
    }

    async fn connect(&self) -> Connection {
        let connected = Connection::connect(&self.door.service_url, ConnectOptions::default());
        connected.await.unwrap()
    }

    async fn send(&mut self, topic: &str, texts: &str) {
        let connection = self.connect().await;
        let producer = connection.producer(topic, ProducerOptions::default()).await;
        let producer = producer.unwrap();
        for text in texts.split(' ') {
            let id = producer
                .send(OutgoingMessage::new(text.to_owned()))
                .await
                .unwrap()
                .message_id;
            self.words
                .insert(format!("{text}.ledger"), id.ledger_id.to_string());
            self.words
                .insert(format!("{text}.entry"), id.entry_id.to_string());
        }
        producer.close().await.unwrap();
        // What the story asks for next is later by the clock than what was published.
        let published = clock::wall_ms();
        while clock::wall_ms() == published {
            tokio::task::yield_now().await;
        }
    }

    async fn join(&mut self, topic: &str, names: &str) {
        let (subscription, name) = names.split_once(' ').unwrap();
        let connection = self.connect().await;
        let options = ConsumerOptions::exclusive(subscription).name(name);
        let consumer = connection.subscribe(topic, options).await.unwrap();
        self.clients.push(Client {
            _consumer: consumer,
            _connection: connection,
        });
    }
}

/// True if `found` has everything that `wanted` has; objects may have more.
fn contains(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => wanted
            .iter()
            .all(|(name, value)| found.get(name).is_some_and(|found| contains(found, value))),
        (found, wanted) => found == wanted,
    }
}

fn check(place: &str, wanted: &str, (status, kind, body): &(u16, String, String)) {
    let (code, rest) = wanted.split_once(' ').unwrap_or((wanted, ""));
    let context = format!("{place}\nwanted {wanted}\nfound {status} {body}");
    assert_eq!(code, status.to_string(), "{context}");
    if *status >= 400 {
        assert!(kind.starts_with("application/json"), "{context}");
        let error: Value = serde_json::from_str(body).unwrap();
        assert!(
            error["reason"].as_str().is_some_and(|reason| !reason.is_empty()),
            "{context}"
        );
    }
    let json = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_else(|e| panic!("{e}: {context}"));
    match rest.split_at_checked(1) {
        None => {}
        Some(("=", wanted)) => assert_eq!(json(body), json(wanted), "{context}"),
        Some(("~", wanted)) => assert!(contains(&json(body), &json(wanted)), "{context}"),
        Some((":", wanted)) => assert!(body.contains(wanted.trim()), "{context}"),
        Some(other) => panic!("{other:?} is no way to compare: {place}"),
    }
}
