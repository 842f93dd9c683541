//! A broker as a child process, peers without manners, and a client that must never notice them.
//!
//! Everything waits for a condition and gives up after [`PATIENCE`]; nothing waits for time to pass.

#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
#![allow(
    clippy::disallowed_methods,
    reason = "a test is no part of the broker's runtime"
)]

use std::fs::File;
use std::future::Future;
use std::io::{BufRead as _, BufReader, Lines, Read as _, Seek as _, SeekFrom, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Child, ChildStdout, Command as Process, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use pharos_client::{
    ConnectOptions, Connection, Consumer, ConsumerOptions, Message, OutgoingMessage, Producer,
    ProducerOptions, RawConnection, SendReceipt, earliest,
};
use pharos_wire::command::Command;
use pharos_wire::proto::{MessageMetadata, ServerError};
use pharos_wire::{message, request};
use rustix::process::{Pid, Signal, kill_process};

pub(crate) mod certificates;
pub(crate) mod clusters;
pub(crate) mod transactions;
pub(crate) mod web_socket;

/// Time limit of anything in a test. Long, because the machine may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Settings: short ledgers, so that a crash also meets their changing; everything is kept, so that everything can be counted.
pub(crate) const SHORT_LEDGERS: [&str; 10] = [
    "--ledger-max-entries",
    "200",
    "--ledger-min-rollover-time",
    "0",
    "--cursor-flush-interval",
    "100ms",
    "--ledger-default-retention-time",
    "1h",
    "--ledger-default-retention-size",
    "1GiB",
];

/// Settings under which ledgers are short and looked at often: they go as soon as they are not needed.
pub(crate) const LEDGERS_OF_TEN: [&str; 6] = [
    "--ledger-max-entries",
    "10",
    "--ledger-min-rollover-time",
    "0",
    "--ledger-retention-check-interval",
    "100ms",
];

/// The secret of the tokens of [`credentials_in`].
pub(crate) const SECRET: [u8; 32] = [7; 32];

/// Settings of a broker that asks for tokens and passwords: of ann and bob, both `Hello world!`. Their files are in `dir`.
pub(crate) fn credentials_in(dir: &Path) -> Vec<String> {
    std::fs::write(dir.join("secret"), SECRET).unwrap();
    // openssl passwd -6 -salt saltstring 'Hello world!'
    let hash = "$6$saltstring$svn8UoSVapNtMuq1ukKS4tPQd8iKwSMHWjl/O817G3uBnIFNjnQJuesI68u4OTLiBFdcbYEdFCoEOfaS35inz1";
    std::fs::write(dir.join("people"), format!("ann:{hash}\nbob:{hash}\n")).unwrap();
    let dir = dir.display();
    vec![
        "--authentication-enabled=true".to_owned(),
        "--authentication-providers=token,basic".to_owned(),
        format!("--authentication-token-secret-key=file://{dir}/secret"),
        format!("--authentication-basic-auth-conf={dir}/people"),
    ]
}

/// Everything in the topic `t`.
pub(crate) async fn read_log(node: &Node) -> Vec<Message> {
    let client = node.client().await;
    let mut reader = client.reader("t", earliest()).await.unwrap();
    let mut all = Vec::new();
    while soon("an answer", reader.has_next()).await.unwrap() {
        all.push(soon("a message", reader.next()).await.unwrap());
    }
    all
}

/// Output of the future, which must resolve soon.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(outcome) => outcome,
        Err(_) => panic!("nothing came of: {what}"),
    }
}

/// Looks again and again until there is something to see.
pub(crate) async fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(Instant::now() < deadline, "never happened: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A running broker. Killed when dropped; after a failure its log is printed.
pub(crate) struct Node {
    child: Child,
    /// Standard output with its announcements; kept open, or it could announce no more.
    lines: Lines<BufReader<ChildStdout>>,
    log: File,
    /// `pulsar://…`
    pub(crate) pulsar: String,
    /// `127.0.0.1:port` of the admin door.
    http: String,
}

impl Node {
    /// Starts one on free ports and waits until both doors are announced.
    pub(crate) fn start(data: &Path, settings: &[&str]) -> Self {
        Self::start_in(data, settings, &[])
    }

    /// Starts a node with more environment variables.
    pub(crate) fn start_in(data: &Path, settings: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut process = serve(data, settings);
        process.envs(environment.iter().copied());
        Self::start_process(process)
    }

    /// Starts a node with this limit of open files, whatever the system would allow.
    pub(crate) fn start_with_files(data: &Path, settings: &[&str], files: u32) -> Self {
        let limited = format!("ulimit -n {files}; exec \"$0\" \"$@\"");
        let process = serve(data, settings);
        let mut shell = Process::new("sh");
        shell
            .args(["-c", &limited])
            .arg(process.get_program())
            .args(process.get_args());
        for (name, _) in process.get_envs() {
            shell.env_remove(name);
        }
        shell.stdin(Stdio::null()).stdout(Stdio::piped());
        Self::start_process(shell)
    }

    fn start_process(mut process: Process) -> Self {
        let log = tempfile::tempfile().unwrap();
        let mut child = process.stderr(log.try_clone().unwrap()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut node = Self {
            child,
            lines,
            log,
            pulsar: String::new(),
            http: String::new(),
        };
        node.pulsar = node.announced("pulsar://");
        node.http = node.announced("http://").trim_start_matches("http://").to_owned();
        node
    }

    /// The word that begins so, of the next line on its standard output that has one.
    pub(crate) fn announced(&mut self, start: &str) -> String {
        let find = |line: String| {
            let found = line.split_whitespace().find(|word| word.starts_with(start));
            found.map(str::to_owned)
        };
        let found = self.lines.by_ref().find_map(|line| find(line.unwrap()));
        found.unwrap_or_else(|| panic!("no line with {start}"))
    }

    /// A client with manners.
    pub(crate) async fn client(&self) -> Connection {
        let connecting = Connection::connect(&self.pulsar, ConnectOptions::default());
        soon("connecting", connecting).await.unwrap()
    }

    /// A peer that has said nothing yet.
    pub(crate) async fn stranger(&self) -> RawConnection {
        soon("connecting", RawConnection::connect(&self.pulsar))
            .await
            .unwrap()
    }

    /// A peer that has shaken hands and knows no manners beyond that.
    pub(crate) async fn rogue(&self) -> RawConnection {
        let mut raw = self.stranger().await;
        soon("the handshake", raw.handshake(request::connect("rogue")))
            .await
            .unwrap();
        raw
    }

    /// Answer of the admin API to a GET, which must be JSON.
    pub(crate) fn ask(&self, path: &str) -> serde_json::Value {
        let body = self.page(path);
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("{path}: {error}: {body}"))
    }

    /// Answer of the HTTP server to a GET.
    pub(crate) fn page(&self, path: &str) -> String {
        self.http("GET", path, "HTTP/1.1 200")
    }

    /// Deletes something over the admin API.
    pub(crate) fn delete(&self, path: &str) {
        self.http("DELETE", path, "HTTP/1.1 204");
    }

    /// Answer of the HTTP server to a request without a body, if it begins with `status`.
    pub(crate) fn http(&self, method: &str, path: &str, status: &str) -> String {
        let (head, body) = self.exchange(method, path, "");
        assert!(head.starts_with(status), "{method} {path}: {head} {body}");
        body
    }

    /// Status and body of a call to the admin API.
    pub(crate) fn call(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let (head, body) = self.exchange(method, path, body);
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, body)
    }

    /// A call to the admin API that must succeed.
    pub(crate) fn order(&self, method: &str, path: &str, body: &str) {
        let (status, answer) = self.call(method, path, body);
        assert!((200..300).contains(&status), "{method} {path}: {status} {answer}");
    }

    /// Head and body of the answer to a request.
    fn exchange(&self, method: &str, path: &str, body: &str) -> (String, String) {
        self.exchange_with("", method, path, body)
    }

    /// Status and body of the answer to a request with these headers, each ended by a new line.
    pub(crate) fn call_with(&self, headers: &str, method: &str, path: &str, body: &str) -> (u16, String) {
        let (head, body) = self.exchange_with(headers, method, path, body);
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, body)
    }

    fn exchange_with(&self, headers: &str, method: &str, path: &str, body: &str) -> (String, String) {
        let headers = headers.replace('\n', "\r\n");
        let mut stream = TcpStream::connect(&self.http).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}Connection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }

    /// Sends JSON over the admin API, which must answer with `status`; the answer's body.
    pub(crate) fn send(&self, method: &str, path: &str, body: &serde_json::Value, status: u16) -> String {
        let mut stream = TcpStream::connect(&self.http).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let body = body.to_string();
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{method} {path} {body}: {answer}"
        );
        answer.split_once("\r\n\r\n").unwrap().1.to_owned()
    }

    /// The admin door's URL.
    pub(crate) fn admin_url(&self) -> String {
        format!("http://{}", self.http)
    }

    /// `…/stats` of a topic of public/default.
    pub(crate) fn stats(&self, topic: &str) -> serde_json::Value {
        self.ask(&format!("/admin/v2/persistent/public/default/{topic}/stats"))
    }

    /// `…/internalStats` of a topic of public/default.
    pub(crate) fn internal_stats(&self, topic: &str) -> serde_json::Value {
        self.ask(&format!(
            "/admin/v2/persistent/public/default/{topic}/internalStats"
        ))
    }

    /// Ids of a topic's ledgers, oldest first.
    pub(crate) fn ledgers(&self, topic: &str) -> Vec<u64> {
        let stats = self.internal_stats(topic);
        let ledgers = stats["ledgers"].as_array().unwrap();
        ledgers
            .iter()
            .map(|ledger| ledger["ledgerId"].as_u64().unwrap())
            .collect()
    }

    /// Names of the persistent topics of public/default.
    pub(crate) fn topics(&self) -> Vec<String> {
        let topics = self.ask("/admin/v2/persistent/public/default");
        serde_json::from_value(topics).unwrap()
    }

    /// Memory that the process has resident, in bytes.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    }

    /// Files and sockets that the process has open.
    pub(crate) fn open_files(&self) -> usize {
        let files = std::fs::read_dir(format!("/proc/{}/fd", self.child.id()));
        files.unwrap().count()
    }

    /// Log so far. Read without moving the position at which the process writes.
    pub(crate) fn logged(&self) -> String {
        let mut text = vec![0; usize::try_from(self.log.metadata().unwrap().len()).unwrap()];
        self.log.read_exact_at(&mut text, 0).unwrap();
        String::from_utf8_lossy(&text).into_owned()
    }

    /// The process has not ended.
    pub(crate) fn assert_alive(&mut self) {
        assert!(self.child.try_wait().unwrap().is_none(), "the broker has ended");
    }

    /// From now on it does nothing, and what is sent to it waits.
    pub(crate) fn pause(&self) {
        kill_process(Pid::from_child(&self.child), Signal::STOP).unwrap();
    }

    /// As a power cut, for the process.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGTERM; how it ended.
    pub(crate) fn stop(mut self) -> ExitStatus {
        let asked = Instant::now();
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(asked.elapsed() < PATIENCE, "does not stop");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // A child that has ended is not killed again.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let mut text = String::new();
            let _ = self.log.seek(SeekFrom::Start(0));
            let _ = self.log.read_to_string(&mut text);
            eprintln!("the broker's log:\n{text}");
        }
    }
}

/// `pharos serve` on free ports unless the settings name one, without the settings of the shell that runs the tests.
pub(crate) fn serve(data: &Path, settings: &[&str]) -> Process {
    let mut process = Process::new(env!("CARGO_BIN_EXE_pharos"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PHAROS_") {
            process.env_remove(name);
        }
    }
    process
        .args(["serve", "--shards", "2", "--data-dir"])
        .arg(data)
        .args(["--http-listen", "127.0.0.1:0"])
        .args(settings)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    if !settings.contains(&"--pulsar-listen") {
        process.args(["--pulsar-listen", "127.0.0.1:0"]);
    }
    process
}

/// Starts a broker that must not come up; what it said.
pub(crate) fn refused(data: &Path) -> Output {
    serve(data, &[]).stderr(Stdio::piped()).output().unwrap()
}

/// The figure of a metric on the metrics page, of one shard if that is asked.
pub(crate) fn figure(page: &str, name: &str, shard: Option<usize>) -> u64 {
    let shard = shard.map(|shard| format!("shard=\"{shard}\""));
    let is_it = |line: &&str| {
        line.starts_with(name) && shard.as_ref().is_none_or(|shard| line.contains(shard.as_str()))
    };
    let line = page.lines().find(is_it).unwrap();
    line.rsplit(' ').next().unwrap().parse::<f64>().unwrap() as u64
}

/// Another client: connected all the time, and served all the time.
pub(crate) struct Bystander {
    producer: Producer,
    consumer: Consumer,
    sent: u64,
}

impl Bystander {
    /// Creates a client with a topic of its own.
    pub(crate) async fn new(node: &Node) -> Self {
        let client = node.client().await;
        let consumer = client
            .subscribe("bystander", ConsumerOptions::exclusive("own"))
            .await
            .unwrap();
        let producer = client
            .producer("bystander", ProducerOptions::default())
            .await
            .unwrap();
        Self {
            producer,
            consumer,
            sent: 0,
        }
    }

    /// Checks that it still publishes and receives, and receives only its own messages.
    pub(crate) async fn is_served(&mut self) {
        self.sent += 1;
        let text = format!("bystander {}", self.sent);
        soon("a bystander's receipt", self.producer.send(text.clone()))
            .await
            .unwrap();
        let message = soon("a bystander's message", self.consumer.receive())
            .await
            .unwrap();
        assert_eq!(message.text(), text);
        self.consumer.ack(&message.id).await.unwrap();
    }
}

/// The peer is closed; whatever it is told before that is thrown away.
pub(crate) async fn assert_closed(raw: &mut RawConnection, why: &str) {
    let reading = async { while let Ok(Some(_)) = raw.read().await {} };
    soon(why, reading).await;
}

/// The next command, PINGs aside.
pub(crate) async fn next(raw: &mut RawConnection) -> Command {
    soon("an answer", raw.next_command()).await.unwrap()
}

/// The next command is an ERROR about this request; its text.
pub(crate) async fn expect_error(raw: &mut RawConnection, request_id: u64, code: ServerError) -> String {
    match next(raw).await {
        Command::Error(error) => {
            assert_eq!((error.request_id, error.error()), (request_id, code), "{error:?}");
            error.message
        }
        other => panic!("expected {code:?}, got {other:?}"),
    }
}

/// The next command is SUCCESS of this request.
pub(crate) async fn expect_success(raw: &mut RawConnection, request_id: u64) {
    match next(raw).await {
        Command::Success(success) => assert_eq!(success.request_id, request_id),
        other => panic!("expected SUCCESS, got {other:?}"),
    }
}

/// Makes a producer under this id.
pub(crate) async fn produce_on(raw: &mut RawConnection, topic: &str, producer_id: u64) {
    raw.send(request::producer(topic, producer_id, 9000 + producer_id, None))
        .await
        .unwrap();
    match next(raw).await {
        Command::ProducerSuccess(success) => assert_eq!(success.request_id, 9000 + producer_id),
        other => panic!("expected PRODUCER_SUCCESS, got {other:?}"),
    }
}

/// A message's bytes as they follow SEND.
pub(crate) fn entry(text: &str) -> bytes::Bytes {
    let metadata = MessageMetadata {
        producer_name: "rogue".to_owned(),
        publish_time: 1,
        ..Default::default()
    };
    message::encode_entry(&metadata, text.as_bytes())
}

/// Publishes `0..count` as texts, in order.
pub(crate) async fn publish(producer: &Producer, numbers: std::ops::Range<u32>) -> Vec<SendReceipt> {
    let mut sends = Vec::new();
    for number in numbers {
        sends.push(
            producer
                .begin_send(OutgoingMessage::new(number.to_string()))
                .await
                .unwrap(),
        );
    }
    let mut receipts = Vec::new();
    for send in sends {
        receipts.push(soon("a receipt", send.receipt()).await.unwrap());
    }
    receipts
}

/// The next message, soon.
pub(crate) async fn receive(consumer: &mut Consumer) -> Message {
    soon("a message", consumer.receive()).await.unwrap()
}

/// Receives exactly these numbers, in this order.
pub(crate) async fn expect_numbers(consumer: &mut Consumer, numbers: std::ops::Range<u32>) -> Vec<Message> {
    let mut messages = Vec::new();
    for number in numbers {
        let message = receive(consumer).await;
        assert_eq!(message.text(), number.to_string());
        messages.push(message);
    }
    messages
}

/// Asks for broadcast, as any client can: by a property of the consumer.
pub(crate) fn broadcast(subscription: &str) -> ConsumerOptions {
    ConsumerOptions::exclusive(subscription).property("pharos.subscription", "broadcast")
}
