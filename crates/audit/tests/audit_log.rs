//! Content of the audit file: whole lines, up to the size limit, and the number of missing records.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::path::{Path, PathBuf};

use pharos_auth::{Action, AuditEvent, AuditLevel, AuditLog as _, Door, Principal, Resource};
use pharos_runtime::fs::{Fault, FaultFs, FaultOp, Plan};
use pharos_types::{SubscriptionName, TopicName};
use serde_json::Value;

use pharos_audit::{Audit, AuditOptions};

const FILE: &str = "/audit/audit.log";

fn options() -> AuditOptions {
    AuditOptions {
        file: PathBuf::from(FILE),
        level: AuditLevel::Changes,
        bytes_max: 1 << 20,
        files_max: 3,
        queue_max: 1000,
    }
}

fn lines(fs: &FaultFs, path: &str) -> Vec<Value> {
    let bytes = fs.bytes_of(Path::new(path)).unwrap_or_default();
    let text = String::from_utf8(bytes).unwrap();
    assert!(
        text.is_empty() || text.ends_with('\n'),
        "a line without its end: {text}"
    );
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn ann() -> Principal {
    Principal::anonymous("/10.0.0.1:5")
        .by(Door::Pulsar)
        .with_role("ann".into())
}

fn consume(audit: &Audit, who: &Principal, name: &str) {
    let topic: TopicName = "tenant/space/notices".parse().unwrap();
    let subscription = SubscriptionName::new("cars").unwrap();
    let event = AuditEvent::Do(Action::Consume, Resource::Consumer(&topic, &subscription, name));
    audit.note(who, event, None);
}

#[test]
fn a_line_says_who_did_what_to_which_by_which_door() {
    let fs = FaultFs::gentle(1);
    let audit = Audit::start(fs.mount(), &options()).unwrap();
    consume(&audit, &ann().on_behalf_of(Some("car-7".into())), "car-7");
    audit.note(
        &ann(),
        AuditEvent::Do(Action::ListTenants, Resource::Cluster),
        None,
    );
    audit.note(
        &ann(),
        AuditEvent::Do(Action::ListTenants, Resource::Cluster),
        Some("no"),
    );
    let stranger = Principal::anonymous("/10.0.0.2:6").by(Door::Http);
    audit.note(
        &stranger,
        AuditEvent::Authenticate,
        Some("token: the token has expired"),
    );
    let long = "x".repeat(100_000);
    audit.note(&stranger, AuditEvent::Authenticate, Some(&long));
    audit.stop();
    let mut seen = lines(&fs, FILE);
    for line in &mut seen {
        let time = line.as_object_mut().unwrap().remove("time").unwrap();
        assert!(time.as_str().unwrap().ends_with('Z'), "{time}");
    }
    let cut = seen.pop().unwrap();
    assert_eq!(cut["reason"].as_str().unwrap().len(), 512);
    assert_eq!(
        seen,
        [
            serde_json::json!({
                "role": "ann", "original_principal": "car-7", "address": "/10.0.0.1:5", "door": "pulsar", "action": "consume",
                "tenant": "tenant", "namespace": "tenant/space", "topic": "persistent://tenant/space/notices",
                "subscription": "cars", "consumer": "car-7", "allowed": true, "reason": null,
            }),
            serde_json::json!({
                "role": "ann", "original_principal": null, "address": "/10.0.0.1:5", "door": "pulsar",
                "action": "list-tenants", "allowed": false, "reason": "no",
            }),
            serde_json::json!({
                "role": null, "original_principal": null, "address": "/10.0.0.2:6", "door": "http",
                "action": "authenticate", "allowed": false, "reason": "token: the token has expired",
            }),
        ]
    );
    assert_eq!(audit.stats().written, 4);
}

#[test]
fn full_files_make_room_and_the_oldest_goes() {
    let fs = FaultFs::gentle(2);
    let small = AuditOptions {
        bytes_max: 1000,
        ..options()
    };
    for round in 0..40 {
        // Each opens what is there.
        let audit = Audit::start(fs.mount(), &small).unwrap();
        consume(&audit, &ann(), &format!("car-{round}"));
        audit.stop();
    }
    let names: Vec<String> = ["", ".1", ".2", ".3", ".4"]
        .iter()
        .map(|end| format!("{FILE}{end}"))
        .collect();
    assert_eq!(fs.bytes_of(Path::new(&names[4])), None);
    let mut cars = Vec::new();
    for name in names[..4].iter().rev() {
        let whole = fs.bytes_of(Path::new(name)).unwrap();
        assert!(whole.len() <= 1000, "{name}: {}", whole.len());
        cars.extend(
            lines(&fs, name)
                .into_iter()
                .map(|line| line["consumer"].as_str().unwrap().to_owned()),
        );
    }
    let first = 40 - cars.len();
    let expected: Vec<_> = (first..40).map(|round| format!("car-{round}")).collect();
    assert_eq!(cars, expected);
    assert!(cars.len() > 8, "{cars:?}");
}

#[test]
fn a_full_disk_loses_records_says_so_and_holds_up_no_request() {
    let fs = FaultFs::gentle(3);
    let audit = Audit::start(fs.mount(), &options()).unwrap();
    consume(&audit, &ann(), "before");
    while audit.stats().written < 1 {
        std::thread::yield_now();
    }
    fs.set_bytes_max(Some(fs.bytes()));
    for _ in 0..5 {
        consume(&audit, &ann(), "lost");
    }
    while audit.stats().lost_write_failed < 5 {
        std::thread::yield_now();
    }
    fs.set_bytes_max(None);
    consume(&audit, &ann(), "after");
    audit.stop();
    let seen = lines(&fs, FILE);
    assert_eq!(seen.len(), 3, "{seen:?}");
    assert_eq!(seen[0]["consumer"], "before");
    assert_eq!(
        (&seen[1]["action"], &seen[1]["count"]),
        (&"records-lost".into(), &5.into())
    );
    assert_eq!(seen[2]["consumer"], "after");
}

#[test]
fn a_writer_that_does_not_keep_up_loses_records_and_counts_them() {
    let fs = FaultFs::gentle(4);
    let few = AuditOptions {
        queue_max: 1,
        ..options()
    };
    let audit = Audit::start(fs.mount(), &few).unwrap();
    // More than a queue of one and a writer can take between two looks.
    let mut told = 0;
    while audit.stats().lost_queue_full == 0 {
        consume(&audit, &ann(), "car");
        told += 1;
    }
    let lost = audit.stats().lost_queue_full;
    while audit.stats().written + lost < told {
        std::thread::yield_now();
    }
    consume(&audit, &ann(), "last");
    audit.stop();
    let seen = lines(&fs, FILE);
    let gap = seen.iter().find(|line| line["action"] == "records-lost").unwrap();
    assert_eq!(gap["count"], lost);
    assert_eq!(seen.last().unwrap()["consumer"], "last");
    audit.note(&ann(), AuditEvent::Authenticate, Some("too late"));
    assert_eq!(audit.stats().lost_queue_full, lost + 1);
}

#[test]
fn what_a_crash_left_of_a_line_stays_apart() {
    let fs = FaultFs::gentle(5);
    let mounted = fs.mount();
    mounted.create_dir_all(Path::new("/audit")).unwrap();
    let file = mounted
        .open(Path::new(FILE), pharos_runtime::fs::OpenHow::CREATE)
        .unwrap();
    file.write_all_at(b"{\"half", 0).unwrap();
    let audit = Audit::start(fs.mount(), &options()).unwrap();
    consume(&audit, &ann(), "car");
    audit.stop();
    let text = String::from_utf8(fs.bytes_of(Path::new(FILE)).unwrap()).unwrap();
    let mut seen = text.lines();
    assert_eq!(seen.next(), Some("{\"half"));
    assert!(serde_json::from_str::<Value>(seen.next().unwrap()).is_ok());
}

#[test]
fn a_file_that_cannot_be_moved_is_written_on_later() {
    let fs = FaultFs::gentle(6);
    let small = AuditOptions {
        bytes_max: 300,
        ..options()
    };
    let audit = Audit::start(fs.mount(), &small).unwrap();
    consume(&audit, &ann(), "one");
    while audit.stats().written < 1 {
        std::thread::yield_now();
    }
    fs.plan(Plan::next(FaultOp::Rename, Fault::Io, 0));
    consume(&audit, &ann(), "two");
    while audit.stats().lost_write_failed < 1 {
        std::thread::yield_now();
    }
    fs.forget_plans();
    consume(&audit, &ann(), "three");
    audit.stop();
    assert_eq!(lines(&fs, &format!("{FILE}.1")).len(), 1);
    assert_eq!(lines(&fs, FILE).last().unwrap()["consumer"], "three");
}
