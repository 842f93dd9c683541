//! The binary as a process: starting, being administered, stopping, refusing.

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

const BINARY: &str = env!("CARGO_BIN_EXE_pharos");

/// A command without the variables of the shell that runs the tests: the broker refuses those that it does not know.
fn pharos(arguments: &[&str]) -> Command {
    let mut command = clean(BINARY);
    command.args(arguments);
    command
}

fn clean(program: &str) -> Command {
    let mut command = Command::new(program);
    let ours = std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PHAROS_"));
    for (name, _) in ours {
        command.env_remove(name);
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn done(arguments: &[&str]) -> Output {
    pharos(arguments).output().unwrap()
}

struct Node {
    child: Child,
    pulsar: String,
    http: String,
}

impl Node {
    /// Starts a node and waits until both doors are announced.
    fn start(data: &Path) -> Self {
        let data = data.to_str().unwrap();
        let arguments = [
            "serve",
            "--data-dir",
            data,
            "--pulsar-listen",
            "127.0.0.1:0",
            "--http-listen",
            "127.0.0.1:0",
            "--shards",
            "1",
        ];
        // Where these tests run a hang-up may be ignored, which a broker takes over.
        let mut command = clean("env");
        command.args(["--default-signal=HUP", BINARY]).args(arguments);
        Self::announced(command.spawn().unwrap())
    }

    /// Waits until both doors are announced.
    fn announced(mut child: Child) -> Self {
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut url = |scheme: &str| {
            let Some(line) = lines.next() else {
                let mut log = String::new();
                let _ = child.stderr.take().unwrap().read_to_string(&mut log);
                panic!("no line with {scheme}, but {:?}: {log}", child.wait());
            };
            let line = line.unwrap();
            line.split_whitespace()
                .find(|word| word.starts_with(scheme))
                .unwrap()
                .to_owned()
        };
        let pulsar = url("pulsar://");
        let http = url("http://");
        Self { child, pulsar, http }
    }

    fn admin(&self, arguments: &[&str]) -> Output {
        done(&[arguments, &["--url", &self.http]].concat())
    }

    /// Runs a command that must succeed, and returns its output.
    fn ask(&self, arguments: &[&str]) -> String {
        let output = self.admin(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Asks it to stop; its exit code and log.
    fn stop(mut self, signal: Signal) -> (Option<i32>, String) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
        let mut log = String::new();
        self.child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut log)
            .unwrap();
        let status = self.child.wait().unwrap();
        (status.code(), log)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // After a failed test; a child that has ended is not killed again.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn what_was_made_is_there_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    assert!(node.pulsar.starts_with("pulsar://127.0.0.1:"));
    assert_eq!(node.ask(&["health"]), "healthy\n");
    node.ask(&["tenants", "create", "acme"]);
    node.ask(&["namespaces", "create", "acme/cars"]);
    node.ask(&["topics", "create", "acme/cars/notices"]);
    node.ask(&["topics", "create", "acme/cars/many", "--partitions", "2"]);
    node.ask(&[
        "subscriptions",
        "create",
        "acme/cars/notices",
        "all-of-them",
        "--at",
        "earliest",
        "--broadcast",
    ]);
    let (code, log) = node.stop(Signal::TERM);
    assert_eq!(code, Some(0), "{log}");
    // Not a terminal, so one JSON object per line.
    assert!(
        log.lines()
            .all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()),
        "{log}"
    );
    assert!(log.contains("loopback only"), "{log}");

    let node = Node::start(dir.path());
    assert_eq!(node.ask(&["tenants", "list"]), "acme\npublic\npulsar\n");
    let topics = node.ask(&["topics", "list", "acme/cars"]);
    assert_eq!(topics.lines().count(), 3, "{topics}");
    assert_eq!(
        node.ask(&["subscriptions", "list", "acme/cars/notices"]),
        "all-of-them\n"
    );
    let stats = node.ask(&["topics", "stats", "acme/cars/notices"]);
    assert!(
        stats.contains("all-of-them") && stats.contains("Broadcast"),
        "{stats}"
    );
    let consumers = node.ask(&["subscriptions", "consumers", "acme/cars/notices", "all-of-them"]);
    assert!(!consumers.is_empty());
    // Under its name of the first releases too.
    let as_before = node.ask(&["subscriptions", "listeners", "acme/cars/notices", "all-of-them"]);
    assert_eq!(as_before, consumers);
    node.ask(&["topics", "delete", "acme/cars/many"]);
    node.ask(&["topics", "delete", "acme/cars/notices", "--force"]);
    node.ask(&["namespaces", "delete", "acme/cars"]);
    node.ask(&["tenants", "delete", "acme"]);
    let (code, log) = node.stop(Signal::INT);
    assert_eq!(code, Some(0), "{log}");
}

/// A terminal that hangs up takes standard error along, and sends the signal more than once.
#[test]
fn a_hang_up_is_a_clean_stop_also_when_the_log_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::start(dir.path());
    node.ask(&["topics", "create", "t"]);
    drop(node.child.stderr.take());
    let pid = Pid::from_child(&node.child);
    kill_process(pid, Signal::HUP).unwrap();
    // The second finds it stopping, or stopped and not yet waited for.
    kill_process(pid, Signal::HUP).unwrap();
    assert_eq!(node.child.wait().unwrap().code(), Some(0));

    let node = Node::start(dir.path());
    assert_eq!(node.ask(&["health"]), "healthy\n");
    let (code, log) = node.stop(Signal::HUP);
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("SIGHUP") && log.contains("stopped"), "{log}");
}

#[test]
fn a_hang_up_that_was_ignored_before_it_began_stays_ignored() {
    let dir = tempfile::tempdir().unwrap();
    let listen = "--pulsar-listen 127.0.0.1:0 --http-listen 127.0.0.1:0 --shards 1";
    let script = format!(
        "trap '' HUP; exec {BINARY} serve --data-dir {} {listen}",
        dir.path().display()
    );
    let mut shell = clean("sh");
    shell.args(["-c", &script]);
    let node = Node::announced(shell.spawn().unwrap());
    kill_process(Pid::from_child(&node.child), Signal::HUP).unwrap();
    assert_eq!(node.ask(&["health"]), "healthy\n");
    let (code, log) = node.stop(Signal::TERM);
    assert_eq!(code, Some(0), "{log}");
    assert!(!log.contains("SIGHUP"), "{log}");
}

/// Everything below a directory, itself included, with its mode.
fn modes(path: &Path) -> Vec<(PathBuf, u32)> {
    let mode = path.symlink_metadata().unwrap().permissions().mode() & 0o777;
    let mut found = vec![(path.to_owned(), mode)];
    if path.is_dir() {
        for entry in std::fs::read_dir(path).unwrap() {
            found.extend(modes(&entry.unwrap().path()));
        }
    }
    found
}

#[test]
fn what_a_broker_keeps_is_readable_by_its_owner_alone() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let node = Node::start(&data);
    node.ask(&["topics", "create", "persistent://public/default/news"]);
    node.stop(Signal::TERM);
    let found = modes(&data);
    assert!(found.len() > 5, "{found:?}");
    for (path, mode) in found {
        let wanted = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode, wanted, "{}: {mode:o}", path.display());
    }
}

#[test]
fn what_is_produced_is_consumed_also_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    node.ask(&["topics", "create", "t"]);
    node.ask(&["topics", "create", "many", "--partitions", "3"]);
    for (topic, kind) in [("t", "broadcast"), ("many", "shared")] {
        let at = ["--service-url", &node.pulsar];
        // A subscription that is there before the messages; nothing to read yet.
        let subscribe = [
            "consume", topic, "-s", "s", "--type", kind, "--name", "car-7", "-n", "0",
        ];
        assert!(done(&[&subscribe[..], &at].concat()).status.success());
        let publish = [
            "produce",
            topic,
            "one",
            "two",
            "three",
            "--property",
            "colour=red",
        ];
        let published = done(&[&publish[..], &at].concat());
        let talk = String::from_utf8_lossy(&published.stderr).into_owned();
        assert!(published.status.success(), "{topic}: {talk}");
        let consume = [
            "consume", topic, "-s", "s", "--type", kind, "--name", "car-7", "-n", "2",
        ];
        let first = done(&[&consume[..], &at].concat());
        assert!(
            first.status.success(),
            "{topic}: {}",
            String::from_utf8_lossy(&first.stderr)
        );
        assert_eq!(first.stdout.iter().filter(|byte| **byte == b'\n').count(), 2);
    }
    let (code, log) = node.stop(Signal::TERM);
    assert_eq!(code, Some(0), "{log}");

    let node = Node::start(dir.path());
    for (topic, kind) in [("t", "broadcast"), ("many", "shared")] {
        let consume = [
            "consume",
            topic,
            "-s",
            "s",
            "--type",
            kind,
            "--name",
            "car-7",
            "-n",
            "1",
            "--output",
            "json",
            "--service-url",
            &node.pulsar,
        ];
        let rest = done(&consume);
        assert!(
            rest.status.success(),
            "{topic}: {}",
            String::from_utf8_lossy(&rest.stderr)
        );
        let message: serde_json::Value = serde_json::from_slice(&rest.stdout).unwrap();
        assert_eq!(message["properties"]["colour"], "red", "{topic}: {message}");
        if topic == "t" {
            assert_eq!(message["payload"], "three");
        }
    }
    let (code, log) = node.stop(Signal::TERM);
    assert_eq!(code, Some(0), "{log}");
}

#[test]
fn a_client_that_finds_no_broker_says_so() {
    let absent = done(&["produce", "t", "x", "--service-url", "pulsar://127.0.0.1:1"]);
    assert_eq!(absent.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&absent.stderr).contains("--service-url"));
}

#[test]
fn exit_codes_tell_refusal_from_absence_from_misuse() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let refused = node.admin(&["topics", "stats", "nothing"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(refused.stdout.is_empty());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("HTTP 404"));
    assert_eq!(node.admin(&["topics", "stats", "a/b"]).status.code(), Some(2));
    assert_eq!(node.admin(&["topics", "fly"]).status.code(), Some(2));

    // A second node cannot have the same data; it says so and does not harm the first.
    let data = dir.path().to_str().unwrap();
    let second = done(&[
        "serve",
        "--data-dir",
        data,
        "--pulsar-listen",
        "127.0.0.1:0",
        "--http-listen",
        "127.0.0.1:0",
    ]);
    assert_eq!(second.status.code(), Some(1));
    assert!(second.stdout.is_empty());
    assert_eq!(node.ask(&["health"]), "healthy\n");

    let http = node.http.clone();
    node.stop(Signal::TERM);
    let absent = done(&["health", "--url", &http]);
    assert_eq!(absent.status.code(), Some(3));
}

#[test]
fn wrong_settings_stop_it_before_it_starts() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pharos.toml");
    std::fs::write(&file, "shard = 2").unwrap();
    let refused = done(&["serve", "--config", file.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("did you mean shards?"));
    let refused = done(&[
        "serve",
        "--log-level",
        "inof",
        "--data-dir",
        dir.path().to_str().unwrap(),
    ]);
    assert_eq!(refused.status.code(), Some(2));
    let talk = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        talk.contains("'inof' is no log filter") && talk.contains("off, error, warn, info, debug or trace"),
        "{talk}"
    );
    let refused = pharos(&["serve"]).env("PHAROS_SHARD", "2").output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert_eq!(
        done(&["config", "--config", "/nonexistent"]).status.code(),
        Some(2)
    );
    assert_eq!(done(&[]).status.code(), Some(2));
    let help = done(&["--help"]);
    assert!(help.status.success() && !help.stdout.is_empty());
}

#[test]
fn config_shows_what_would_be_in_force() {
    let shown = pharos(&["config", "--shards", "3", "--output", "json"])
        .env("PHAROS_CLUSTER_NAME", "east")
        .output()
        .unwrap();
    let rows: Vec<serde_json::Value> = serde_json::from_slice(&shown.stdout).unwrap();
    let row = |key: &str| rows.iter().find(|row| row["key"] == key).unwrap().clone();
    assert_eq!(row("shards")["origin"], "flag");
    assert_eq!(row("cluster_name")["source"], "PHAROS_CLUSTER_NAME");
}
