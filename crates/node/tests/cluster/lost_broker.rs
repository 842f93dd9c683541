//! `pharos consume` and `pharos produce` go on when their broker is lost and comes back, or another has an address for
//! them.

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command as Process, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};

use crate::support::{Node, PATIENCE, publish, receive, soon};
use pharos_client::{ConsumerOptions, ProducerOptions, RawConnection};
use pharos_wire::command::Command;
use pharos_wire::proto::{self, ServerError, command_lookup_topic_response::LookupType};
use tokio::net::TcpListener;

/// A port that is free now and that no system gives out by itself, so that it is free again after its broker's end.
fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for _ in 0..10_000 {
        let turn = std::process::id() * 7 + NEXT.fetch_add(1, Ordering::Relaxed);
        let port = 20_000 + u16::try_from(turn % 10_000).unwrap();
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no port is free");
}

fn serve_at(data: &Path, port: u16) -> Node {
    let listen = format!("127.0.0.1:{port}");
    Node::start(data, &["--pulsar-listen", &listen])
}

/// A command of ours as a process; killed when dropped.
struct Tool {
    child: Child,
    input: Option<ChildStdin>,
    output: Receiver<String>,
    talk: Receiver<String>,
}

impl Tool {
    fn start(arguments: &[&str]) -> Self {
        let mut process = Process::new(env!("CARGO_BIN_EXE_pharos"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PHAROS_") {
                process.env_remove(name);
            }
        }
        process.args(arguments);
        process
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = process.spawn().unwrap();
        Self {
            input: child.stdin.take(),
            output: lines(child.stdout.take().unwrap()),
            talk: lines(child.stderr.take().unwrap()),
            child,
        }
    }

    fn say(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    fn expect_output(&self, line: &str) {
        assert_eq!(self.output.recv_timeout(PATIENCE).as_deref(), Ok(line));
    }

    /// The next line of its talk, which must have this in it.
    fn expect_talk(&self, part: &str) {
        let line = self.talk.recv_timeout(PATIENCE).unwrap();
        assert!(line.contains(part), "expected {part}: {line}");
    }

    /// Waits for its end: its exit code, after which it says nothing more.
    fn end(mut self) -> Option<i32> {
        drop(self.input.take());
        // The ends of both pipes, so that no line is missed.
        let more: Vec<String> = self.output.iter().chain(self.talk.iter()).collect();
        assert!(more.is_empty(), "{more:?}");
        self.child.wait().unwrap().code()
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("it said: {:?}", self.talk.iter().collect::<Vec<_>>());
        }
    }
}

fn lines(from: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = sync_channel(1000);
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines() {
            if sender.send(line.unwrap()).is_err() {
                return;
            }
        }
    });
    receiver
}

#[tokio::test]
async fn a_consumer_goes_on_when_its_broker_is_back() {
    for kind in ["exclusive", "broadcast"] {
        let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
        let node = serve_at(dir.path(), port);
        let url = node.pulsar.clone();
        let producer = node.client().await;
        let producer = producer.producer("t", ProducerOptions::default()).await.unwrap();
        publish(&producer, 0..3).await;
        let consume = [
            "consume", "t", "-s", "s", "--from", "earliest", "--type", kind, "--name", "me",
        ];
        let rest = ["--count", "6", "--idle", "300", "--service-url", &url];
        let consumer = Tool::start(&[&consume[..], &rest].concat());
        for number in 0..3 {
            consumer.expect_output(&number.to_string());
        }
        node.kill();
        consumer.expect_talk("lost persistent://public/default/t: ");

        // What was written is not written again, whatever of its acknowledgements is stored.
        let node = serve_at(dir.path(), port);
        consumer.expect_talk("recovered after");
        let producer = node.client().await;
        let producer = producer.producer("t", ProducerOptions::default()).await.unwrap();
        publish(&producer, 3..6).await;
        for number in 3..6 {
            consumer.expect_output(&number.to_string());
        }
        assert_eq!(consumer.end(), Some(0), "{kind}");
    }
}

#[tokio::test]
async fn a_producer_goes_on_when_its_broker_is_back() {
    let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
    let node = serve_at(dir.path(), port);
    let url = node.pulsar.clone();
    let consumer = node.client().await;
    let mut consumer = consumer
        .subscribe("t", ConsumerOptions::exclusive("watch").from_earliest())
        .await
        .unwrap();
    let mut producer = Tool::start(&["produce", "t", "--service-url", &url]);
    for number in 0..3 {
        producer.say(&number.to_string());
        assert_eq!(receive(&mut consumer).await.text(), number.to_string());
    }
    node.kill();
    // With nothing on its way it does not miss its broker.
    producer.say("3");
    producer.expect_talk("lost persistent://public/default/t: ");
    producer.say("4");

    let node = serve_at(dir.path(), port);
    producer.expect_talk("recovered after");
    producer.say("5");
    drop(producer.input.take());
    // A receipt may have been on its way when the broker was killed; then its message is there twice, and that is said.
    let told = producer.output.recv_timeout(PATIENCE).unwrap();
    assert!(told.starts_with("6 messages published"), "{told}");
    assert_eq!(producer.end(), Some(0));
    let is_once = told == "6 messages published";
    let client = node.client().await;
    let mut all = client
        .subscribe("t", ConsumerOptions::exclusive("all").from_earliest())
        .await
        .unwrap();
    let mut numbers = Vec::new();
    while numbers.last() != Some(&5) {
        let message = receive(&mut all).await;
        assert_eq!(message.text(), message.sequence_id().to_string());
        numbers.push(message.sequence_id());
    }
    assert!(!is_once || numbers.len() == 6, "{told}: {numbers:?}");
    numbers.dedup();
    assert_eq!(numbers, [0, 1, 2, 3, 4, 5], "{told}");
}

#[tokio::test]
async fn of_several_addresses_the_first_that_answers_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &[]);
    let authority = node.pulsar.trim_start_matches("pulsar://");
    let url = format!("pulsar://127.0.0.1:1,{authority}");
    let consume = [
        "consume",
        "t",
        "-s",
        "s",
        "--from",
        "earliest",
        "--count",
        "1",
        "--service-url",
        &url,
    ];
    let producer = Tool::start(&["produce", "t", "hello", "--service-url", &url]);
    producer.expect_output("1 message published");
    assert_eq!(producer.end(), Some(0));
    let consumer = Tool::start(&consume);
    consumer.expect_output("hello");
    assert_eq!(consumer.end(), Some(0));

    let none = Tool::start(&[
        "produce",
        "t",
        "x",
        "--service-url",
        "pulsar://127.0.0.1:1,127.0.0.1:1",
    ]);
    none.expect_talk("cannot reach pulsar://127.0.0.1:1,127.0.0.1:1");
    assert_eq!(none.end(), Some(3));
    let wrong = Tool::start(&["produce", "t", "x", "--service-url", "pulsar://127.0.0.1:1,there"]);
    wrong.expect_talk("pulsar://a:6650,b:6650");
    assert_eq!(wrong.end(), Some(1));
}

/// A broker that the test plays, up to the command that makes something.
async fn greet(listener: &TcpListener) -> (RawConnection, Command) {
    let url = format!("pulsar://{}", listener.local_addr().unwrap());
    let (stream, _) = soon("a connection", listener.accept()).await.unwrap();
    let mut raw = RawConnection::from_stream(stream);
    loop {
        match soon("a command", raw.next_command()).await.unwrap() {
            Command::Connect(_) => {
                let connected = proto::CommandConnected {
                    server_version: "fake".into(),
                    protocol_version: Some(21),
                    ..Default::default()
                };
                raw.send(connected).await.unwrap();
            }
            Command::PartitionedMetadata(asked) => {
                let answer = proto::CommandPartitionedTopicMetadataResponse {
                    partitions: Some(0),
                    request_id: asked.request_id,
                    ..Default::default()
                };
                raw.send(answer).await.unwrap();
            }
            Command::Lookup(asked) => {
                let answer = proto::CommandLookupTopicResponse {
                    broker_service_url: Some(url.clone()),
                    response: Some(LookupType::Connect as i32),
                    request_id: asked.request_id,
                    ..Default::default()
                };
                raw.send(answer).await.unwrap();
            }
            other => return (raw, other),
        }
    }
}

/// Lets a producer in, which nothing is known of, and waits for a message of it.
async fn take_message(listener: &TcpListener) -> (RawConnection, proto::CommandProducer, proto::CommandSend) {
    let (mut raw, command) = greet(listener).await;
    let Command::Producer(asked) = command else {
        panic!("expected PRODUCER, got {command:?}");
    };
    let success = proto::CommandProducerSuccess {
        request_id: asked.request_id,
        producer_name: "chosen".into(),
        last_sequence_id: Some(-1),
        producer_ready: Some(true),
        ..Default::default()
    };
    raw.send(success).await.unwrap();
    match soon("a message", raw.next_command()).await.unwrap() {
        Command::Send(send) => (raw, *asked, send),
        other => panic!("expected SEND, got {other:?}"),
    }
}

#[tokio::test]
async fn what_may_be_there_twice_is_said() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("pulsar://{}", listener.local_addr().unwrap());
    let tool = Tool::start(&["produce", "t", "hello", "--service-url", &url]);
    let (lost, asked, first) = take_message(&listener).await;
    assert_eq!(asked.producer_name, None);
    drop(lost);
    let (mut raw, asked, again) = take_message(&listener).await;
    assert_eq!(asked.producer_name.as_deref(), Some("chosen"));
    assert_eq!(asked.user_provided_producer_name, Some(false));
    assert_eq!((first.sequence_id, again.sequence_id), (0, 0));
    let receipt = proto::CommandSendReceipt {
        producer_id: again.producer_id,
        sequence_id: 0,
        message_id: Some(proto::MessageIdData::default()),
        highest_sequence_id: None,
    };
    raw.send(receipt).await.unwrap();
    // Gone before it is closed; all is stored already.
    drop(raw);
    tool.expect_talk("lost persistent://public/default/t: ");
    tool.expect_talk("recovered after");
    tool.expect_output("1 message published; 1 was sent again after a loss and may be there twice");
    assert_eq!(tool.end(), Some(0));
}

#[tokio::test]
async fn what_another_try_cannot_mend_ends_it() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("pulsar://{}", listener.local_addr().unwrap());
    let tool = Tool::start(&["consume", "t", "-s", "s", "--service-url", &url]);
    let (mut raw, command) = greet(&listener).await;
    let Command::Subscribe(asked) = command else {
        panic!("expected SUBSCRIBE, got {command:?}");
    };
    let success = proto::CommandSuccess {
        request_id: asked.request_id,
        schema: None,
    };
    raw.send(success).await.unwrap();
    // It is subscribed when it lets us send.
    let flow = soon("permits", raw.next_command()).await.unwrap();
    assert!(matches!(flow, Command::Flow(_)), "{flow:?}");
    drop(raw);
    // Not ready at first, which is tried again, and then a refusal.
    for code in [ServerError::ServiceNotReady, ServerError::AuthorizationError] {
        let (mut raw, command) = greet(&listener).await;
        let Command::Subscribe(asked) = command else {
            panic!("expected SUBSCRIBE, got {command:?}");
        };
        let error = proto::CommandError {
            request_id: asked.request_id,
            error: code as i32,
            message: "not you".into(),
        };
        raw.send(error).await.unwrap();
        drop(raw);
    }
    tool.expect_talk("lost persistent://public/default/t: ");
    tool.expect_talk("AuthorizationError: not you");
    assert_eq!(tool.end(), Some(1));
}
