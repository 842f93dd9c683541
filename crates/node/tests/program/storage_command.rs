//! `pharos storage` on the data directory of a broker: refused while it runs, true about what it finds, and careful.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::support::{self, Node, expect_numbers, publish};
use pharos_client::{ConsumerOptions, ProducerOptions};
use serde_json::Value;

const TOPIC: &str = "persistent://public/default/notices of today";

fn storage(data: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pharos"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PHAROS_") {
            command.env_remove(name);
        }
    }
    command.arg("storage").args(arguments).arg("--data-dir").arg(data);
    command.stdin(Stdio::null()).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn json(data: &Path, arguments: &[&str], code: i32) -> Value {
    let output = storage(data, &[arguments, &["--output", "json"]].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(
        output.status.code(),
        Some(code),
        "{arguments:?}: {said}{}",
        text(&output)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Every file below a directory and its bytes.
fn content(data: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(data).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(content(&path));
        } else {
            all.insert(path.clone(), std::fs::read(&path).unwrap());
        }
    }
    all
}

/// A data directory like this one.
fn copied(data: &Path) -> tempfile::TempDir {
    let to = tempfile::tempdir().unwrap();
    for (path, bytes) in content(data) {
        let place = to.path().join(path.strip_prefix(data).unwrap());
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        std::fs::write(place, bytes).unwrap();
    }
    to
}

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 0x10;
    std::fs::write(path, bytes).unwrap();
}

/// A broker that took twenty messages.
async fn filled(data: &Path) -> Node {
    let node = Node::start(data, &[]);
    let client = node.client().await;
    let mut consumer = client
        .subscribe(TOPIC, ConsumerOptions::shared("s"))
        .await
        .unwrap();
    let producer = client.producer(TOPIC, ProducerOptions::default()).await.unwrap();
    publish(&producer, 0..20).await;
    expect_numbers(&mut consumer, 0..20).await;
    node
}

async fn reads_all(data: &Path) {
    let node = Node::start(data, &[]);
    let client = node.client().await;
    let mut consumer = client
        .subscribe(TOPIC, ConsumerOptions::shared("s"))
        .await
        .unwrap();
    expect_numbers(&mut consumer, 0..20).await;
    node.stop();
}

/// The ledger with the topic's messages, as `inspect --topic` shows it.
fn ledger_of(data: &Path) -> Value {
    let shown = json(data, &["inspect", "--topic", TOPIC], 0);
    let ledgers = shown["ledgers"].as_array().unwrap();
    assert!(ledgers.iter().any(|ledger| ledger["cursors"] == true), "{shown}");
    ledgers
        .iter()
        .find(|ledger| ledger["entries"].as_u64() >= Some(1))
        .unwrap()
        .clone()
}

#[tokio::test]
async fn a_stopped_or_killed_broker_left_everything_whole() {
    for kill in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path();
        let node = filled(data).await;
        for arguments in [&["check"][..], &["inspect"], &["repair"], &["repair", "--yes"]] {
            let refused = storage(data, arguments);
            assert_eq!(refused.status.code(), Some(2), "{arguments:?}");
            assert!(refused.stdout.is_empty());
            assert!(String::from_utf8_lossy(&refused.stderr).contains("stop the broker first"));
        }
        if kill {
            node.kill();
        } else {
            assert!(node.stop().success());
        }
        let before = content(data);
        let checked = storage(data, &["check"]);
        assert_eq!(checked.status.code(), Some(0), "{}", text(&checked));
        assert!(
            text(&checked).ends_with("nothing is lost\n"),
            "{}",
            text(&checked)
        );
        let report = json(data, &["check"], 0);
        assert!(report["totals"]["entries"].as_u64() >= Some(1));
        assert_eq!(report["notes"].as_array().unwrap().len(), 0, "{report}");
        let shown = text(&storage(data, &["inspect"]));
        assert!(shown.contains(TOPIC) && shown.contains("checkpoint"), "{shown}");
        let ledger = ledger_of(data)["ledger"].to_string();
        let read = text(&storage(
            data,
            &["inspect", "--ledger", &ledger, "--entries", "..", "--hex"],
        ));
        assert!(
            read.contains("  31 39") || read.contains("31 39"),
            "the text 19: {read}"
        );
        assert_eq!(json(data, &["repair"], 0)["done"], false);
        assert!(content(data) == before, "nothing was changed");
        reads_all(data).await;
    }
}

#[tokio::test]
async fn a_damaged_entry_is_named_with_its_topic_and_position() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path();
    filled(data).await.stop();
    let ledger = ledger_of(data);
    let id = ledger["ledger"].as_u64().unwrap();
    let run = &ledger["where"][0];
    let file = PathBuf::from(run["file"].as_str().unwrap());
    let at = run["byte_offset"].as_u64().unwrap();
    flip(&file, at as usize + 40);
    let report = json(data, &["check"], 1);
    let lost = &report["lost"][0];
    assert_eq!(
        (lost["topic"].as_str(), lost["ledger"].as_u64()),
        (Some(TOPIC), Some(id))
    );
    assert_eq!(
        (lost["first"].as_u64(), lost["count"].as_u64()),
        (Some(0), Some(1))
    );
    assert_eq!(lost["byte_offset"].as_u64(), Some(at));
    let said = text(&storage(data, &["check"]));
    assert!(
        said.contains(&format!("{TOPIC}: entry {id}:0: damaged in the log")),
        "{said}"
    );
    assert!(said.ends_with("data is damaged or missing\n"), "{said}");
    let decoded = storage(data, &["inspect", file.to_str().unwrap()]);
    assert_eq!(decoded.status.code(), Some(1));
    assert!(text(&decoded).contains("DAMAGED"));
    let left = json(data, &["repair"], 1);
    assert!(left["actions"].as_array().unwrap().is_empty(), "{left}");
    assert!(left["left_alone"].to_string().contains("is lost"), "{left}");

    // The whole log is gone: what topics knew of it is not forgotten.
    std::fs::remove_file(&file).unwrap();
    let report = json(data, &["check"], 1);
    assert_eq!(report["lost"][0]["what"], "in no log; this one is missing");
}

#[tokio::test]
async fn a_ledger_that_a_topic_names_and_no_store_has_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let (data, other) = (dir.path().join("a"), dir.path().join("b"));
    filled(&data).await.stop();
    Node::start(&other, &[]).stop();
    // The metadata of one broker next to the ledgers of another.
    for copy in ["copy-1", "copy-2"] {
        let place = Path::new("metadata").join(copy);
        std::fs::copy(data.join(&place), other.join(&place)).unwrap();
    }
    let report = json(&other, &["check"], 1);
    assert!(
        report["absent"].to_string().contains("is not in the store"),
        "{report}"
    );
    for copy in ["copy-1", "copy-2"] {
        std::fs::remove_file(other.join("metadata").join(copy)).unwrap();
    }
    let checked = storage(&data, &["check"]);
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked));
    for copy in ["copy-1", "copy-2"] {
        std::fs::remove_file(data.join("metadata").join(copy)).unwrap();
    }
    let checked = text(&storage(&data, &["check"]));
    assert!(
        checked.starts_with("does not open") && checked.contains("is missing"),
        "{checked}"
    );
    let report = json(&data, &["check"], 1);
    assert!(report["metadata"]["refusal"].is_string(), "{report}");
    assert!(
        report["notes"][0]
            .as_str()
            .unwrap()
            .contains("topics cannot be told"),
        "{report}"
    );
}

/// The two copies of one data directory in place of those of another.
fn put_metadata(from: &Path, to: &Path) {
    for copy in ["copy-1", "copy-2"] {
        let place = Path::new("metadata").join(copy);
        std::fs::copy(from.join(&place), to.join(&place)).unwrap();
    }
}

#[tokio::test]
async fn metadata_that_is_missing_foreign_or_older_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let [data, other, old] = ["data", "other", "old"].map(|name| dir.path().join(name));
    filled(&data).await.stop();
    Node::start(&other, &[]).stop();
    std::fs::create_dir_all(old.join("metadata")).unwrap();
    put_metadata(&data, &old);
    reads_all(&data).await;
    let is_refused = |why: &str| {
        let broker = support::refused(&data);
        let said = String::from_utf8_lossy(&broker.stderr).into_owned();
        assert_eq!(broker.status.code(), Some(1), "{said}");
        assert!(
            said.contains(why) && said.contains("storage.accept_metadata"),
            "{said}"
        );
        let report = json(&data, &["check"], 1);
        assert!(
            report["metadata"]["refusal"].as_str().unwrap().contains(why),
            "{report}"
        );
    };
    let kept = dir.path().join("kept");
    std::fs::create_dir_all(kept.join("metadata")).unwrap();
    put_metadata(&data, &kept);
    put_metadata(&old, &data);
    is_refused("older than the ledgers");
    put_metadata(&other, &data);
    is_refused("belongs to other ledgers");
    for copy in ["copy-1", "copy-2"] {
        std::fs::remove_file(data.join("metadata").join(copy)).unwrap();
    }
    is_refused("is missing");
    put_metadata(&kept, &data);
    reads_all(&data).await;
    // Accepted all the same: what it names is there, and goes on.
    put_metadata(&old, &data);
    Node::start(&data, &["--storage-accept-metadata", "true"]).stop();
    reads_all(&data).await;
}

#[tokio::test]
async fn the_files_of_the_metadata_are_shown_part_by_part() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path();
    let node = filled(data).await;
    let copy = data.join("metadata").join("copy-2");
    let shown = |file: &Path, more: &[&str]| {
        let file = file.to_str().unwrap();
        storage(data, &[&["inspect", file], more].concat())
    };
    assert_eq!(shown(&copy, &[]).status.code(), Some(2), "a broker has it open");
    node.kill();
    let before = content(data);
    let found = shown(&copy, &["--records"]);
    assert!(found.status.success(), "{found:?}");
    let found = text(&found);
    for wanted in [
        "header  copy 2",
        "snapshot part",
        "group  number",
        "put  key managed-ledgers/public/default/",
    ] {
        assert!(found.contains(wanted), "{wanted}: {found}");
    }
    let witness = shown(&data.join("ledgers").join("METADATA"), &["--output", "json"]);
    assert!(witness.status.success(), "{witness:?}");
    let line: Value = serde_json::from_str(text(&witness).lines().next().unwrap()).unwrap();
    assert_eq!(line["kind"], "witness");
    assert_eq!(content(data), before, "nothing is changed");
    let at = text(&shown(&copy, &[])).lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let at: usize = words.next()?.parse().ok()?;
        line.contains("snapshot part").then_some(at)
    });
    flip(&copy, at.unwrap() + 20);
    let found = shown(&copy, &[]);
    assert_eq!(found.status.code(), Some(1));
    assert!(text(&found).contains("DAMAGED"), "{}", text(&found));
}

/// A note of a deletion that a kill interrupted in another broker: its ledgers have the numbers of those that are alive here.
async fn note_of_deleted_ledgers(metadata: &Path) {
    use pharos_metadata::MetadataStore as _;
    let ids: Vec<u8> = (0..40).collect();
    let name = b"public/default/persistent/gone";
    let mut note = vec![0x0a, name.len() as u8];
    note.extend_from_slice(name);
    note.extend([0x12, ids.len() as u8]);
    note.extend(&ids);
    assert_eq!(pharos_managed_ledger::noted_ledgers(&note).len(), 40);
    let store = pharos_metadata::Embedded::open(metadata, &pharos_metadata::Options::default()).unwrap();
    let put = store.put("ledger-garbage/0", note.into(), pharos_metadata::Expect::Any);
    put.await.unwrap();
    store.shutdown().await;
}

#[tokio::test]
async fn metadata_of_another_broker_condemns_nothing_that_is_here() {
    let dir = tempfile::tempdir().unwrap();
    let [data, other] = ["data", "other"].map(|name| dir.path().join(name));
    filled(&data).await.stop();
    Node::start(&other, &[]).stop();
    note_of_deleted_ledgers(&other.join("metadata")).await;
    let ledgers = || {
        let report = json(&data, &["check"], 0);
        let unnamed = report["unnamed"].as_array().unwrap();
        let holds = |ledger: &&Value| ledger["entries"].as_u64() > Some(0);
        unnamed.iter().filter(holds).count()
    };
    assert_eq!(ledgers(), 0, "the topic names its ledgers");
    put_metadata(&other, &data);
    let node = Node::start(&data, &["--storage-accept-metadata", "true"]);
    support::until("the note is worked off", || {
        let left = support::figure(&node.page("/metrics"), "pharos_storage_unnamed_ledgers", None);
        (left > 0).then_some(())
    })
    .await;
    node.stop();
    // The topic's and its cursors'.
    assert!(ledgers() >= 2, "what the note condemned is there");
}

/// End of the used bytes of a metadata copy.
fn used_bytes(copy: &Path) -> usize {
    let bytes = std::fs::read(copy).unwrap();
    bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1
}

/// Damage in one copy is told and harmless; damage in both is told by place, and no broker starts on it.
#[tokio::test]
async fn flipped_bytes_of_the_metadata_are_harmless_or_refused_and_nothing_panics() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path();
    filled(data).await.kill();
    let copies = ["copy-1", "copy-2"].map(|copy| data.join("metadata").join(copy));
    let whole = copies.each_ref().map(|copy| std::fs::read(copy).unwrap());
    let used = used_bytes(&copies[0]).min(used_bytes(&copies[1]));
    let mut refused = 0;
    for (turn, at) in (0..used).step_by(used / 40).enumerate() {
        let hurt: &[usize] = [&[0][..], &[1], &[0, 1]][turn % 3];
        for number in hurt {
            flip(&copies[*number], at);
        }
        let what = format!("byte {at} of {hurt:?}");
        let checked = storage(data, &["check"]);
        let said = text(&checked);
        assert!(
            checked.stderr.is_empty(),
            "{what}: {}",
            String::from_utf8_lossy(&checked.stderr)
        );
        match checked.status.code() {
            Some(0) => {
                assert!(said.ends_with("nothing is lost\n"), "{what}: {said}");
                if turn % 4 == 0 {
                    // What a start changes it changes elsewhere, or the next turn would put back an older store.
                    let started = copied(data);
                    reads_all(started.path()).await;
                }
            }
            Some(1) => {
                refused += 1;
                assert_eq!(hurt.len(), 2, "{what}: {said}");
                assert!(
                    said.starts_with("does not open") && said.contains("/metadata/copy-"),
                    "{what}: {said}"
                );
                assert!(said.ends_with("data is damaged or missing\n"), "{what}: {said}");
                let broker = support::refused(data);
                assert_eq!(broker.status.code(), Some(1), "{what}");
                let log = String::from_utf8_lossy(&broker.stderr).into_owned();
                assert!(
                    log.contains("metadata store is damaged") && !log.contains("panicked"),
                    "{what}: {log}"
                );
                let left = json(data, &["repair"], 1);
                assert!(left["left_alone"].to_string().contains("metadata"), "{left}");
            }
            code => panic!("{what}: {code:?} {said}"),
        }
        for (copy, bytes) in copies.iter().zip(&whole) {
            std::fs::write(copy, bytes).unwrap();
        }
    }
    assert!(refused > 2, "{refused}");
}

#[tokio::test]
async fn a_repair_is_confirmed_first_and_makes_the_store_open_again() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path();
    filled(data).await.kill();
    let version = data.join("journal/VERSION");
    flip(&version, 5);
    flip(&version, 517);
    let hurt = std::fs::read(&version).unwrap();
    let report = json(data, &["check"], 1);
    assert!(
        report["findings"].to_string().contains("does not open"),
        "{report}"
    );
    let before = content(data);
    let planned = storage(data, &["repair"]);
    assert_eq!(planned.status.code(), Some(1));
    assert!(
        text(&planned).contains("would repair") && text(&planned).contains("--yes"),
        "{}",
        text(&planned)
    );
    assert!(content(data) == before, "nothing was changed");
    let refused = support::refused(data);
    assert_eq!(refused.status.code(), Some(1));
    let done = storage(data, &["repair", "--yes"]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done));
    assert_eq!(
        std::fs::read(data.join("journal/VERSION.before-repair")).unwrap(),
        hurt
    );
    json(data, &["check"], 0);
    reads_all(data).await;
}

#[test]
fn what_is_no_store_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for arguments in [&["check"][..], &["inspect"], &["repair", "--yes"]] {
        let refused = storage(dir.path(), arguments);
        assert_eq!(refused.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&refused.stderr).contains("there is no store"));
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_topic_whose_cursors_are_given_up_keeps_its_messages() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path()).await.kill();
    let before = content(dir.path());
    let order = ["repair", "--forget-cursors", TOPIC];
    let asked = storage(dir.path(), &order);
    assert_eq!(asked.status.code(), Some(1), "{}", text(&asked));
    assert!(text(&asked).contains("would forget"), "{}", text(&asked));
    assert!(content(dir.path()) == before, "it only says what it would do");
    let missing = storage(dir.path(), &["repair", "--forget-cursors", "missing"]);
    assert_eq!(missing.status.code(), Some(2));

    let done = storage(dir.path(), &[&order[..], &["--yes"]].concat());
    assert_eq!(done.status.code(), Some(0), "{}", text(&done));
    let node = Node::start(dir.path(), &[]);
    let client = node.client().await;
    let options = ConsumerOptions::exclusive("new").from_earliest();
    let mut consumer = client.subscribe(TOPIC, options).await.unwrap();
    expect_numbers(&mut consumer, 0..20).await;
    let path = "/admin/v2/persistent/public/default/notices%20of%20today/subscriptions";
    assert_eq!(node.ask(path), serde_json::json!(["new"]));
}

#[tokio::test]
async fn a_deletion_that_is_killed_leaves_no_ledger() {
    let dir = tempfile::tempdir().unwrap();
    let settings = ["--ledger-max-entries", "2", "--ledger-min-rollover-time", "0"];
    for round in 0..6 {
        let node = Node::start(dir.path(), &settings);
        let client = node.client().await;
        let consumer = client.subscribe("t", ConsumerOptions::shared("s")).await.unwrap();
        let producer = client.producer("t", ProducerOptions::default()).await.unwrap();
        let mut number = 0;
        while number < 200 || node.ledgers("t").len() <= 20 {
            publish(&producer, number..number + 1).await;
            number += 1;
            assert!(number < 10_000, "ledgers do not roll");
        }
        drop((consumer, producer, client));
        let admin = node.admin_url();
        let mut stream = std::net::TcpStream::connect(admin.trim_start_matches("http://")).unwrap();
        let path = "/admin/v2/persistent/public/default/t?force=true";
        let request = format!("DELETE {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(10 * round));
        node.kill();
        drop(stream);

        let node = Node::start(dir.path(), &settings);
        let page = || node.page("/metrics");
        // What was not begun before the kill is done now, so that nothing of the topic may be left.
        support::until("the topic is gone", || {
            node.call("DELETE", "/admin/v2/persistent/public/default/t?force=true", "");
            (!node.topics().iter().any(|topic| topic.ends_with("/t"))).then_some(())
        })
        .await;
        support::until("the space comes back", || {
            let figure = |name| support::figure(&page(), name, None);
            // The cursors', the broker's own, and what was made and not named in time.
            let others = 4 + figure("pharos_storage_unnamed_ledgers");
            (figure("pharos_storage_ledgers") <= others).then_some(())
        })
        .await;
        node.kill();
        let report = json(dir.path(), &["check"], 0);
        let unnamed = report["unnamed"].as_array().unwrap();
        let (given_up, unknown): (Vec<_>, Vec<_>) =
            unnamed.iter().partition(|ledger| ledger["given_up"] == true);
        // The others allowed for above may have been the last to be deleted.
        assert!(given_up.len() <= 4, "round {round}: {unnamed:?}");
        let empty = unknown.iter().all(|ledger| ledger["entries"] == 0);
        assert!(empty, "round {round}: {unnamed:?}");
    }
}
