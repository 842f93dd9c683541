//! The whole tool against its stand-in broker: own broker, own processes, and faults that must not go unnoticed.

use std::path::PathBuf;
use std::process::{Command, Output};

fn tool() -> PathBuf {
    let mut path = std::env::current_exe().expect("own path");
    path.pop();
    path.pop();
    path.join("examples").join("pharos-bench")
}

fn run(fault: Option<&str>, arguments: &[&str]) -> (Option<i32>, serde_json::Value, String) {
    let mut command = Command::new(tool());
    command
        .arg("bench")
        .args(arguments)
        .args(["--output", "json"])
        .env_remove("STAND_IN_FAULT");
    if let Some(fault) = fault {
        command.env("STAND_IN_FAULT", fault);
    }
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("the tool runs");
    let said = String::from_utf8_lossy(&stderr).into_owned();
    (
        status.code(),
        serde_json::from_slice(&stdout).unwrap_or_default(),
        said,
    )
}

fn broadcast(fault: Option<&str>, more: &[&str]) -> (Option<i32>, serde_json::Value, String) {
    let mut arguments = vec![
        "broadcast",
        "--consumers",
        "40",
        "--connections",
        "4",
        "--size",
        "2KB",
    ];
    arguments.extend([
        "--rate",
        "50",
        "--messages",
        "10",
        "--settle",
        "100ms",
        "--drain",
        "8s",
    ]);
    arguments.extend(more);
    run(fault, &arguments)
}

#[test]
fn a_clean_run_passes_and_counts_everything() {
    let (code, result, said) = broadcast(None, &["--processes", "3"]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(result["delivered"], 40 * 13);
    assert_eq!(result["processes"], 3);
    assert_eq!(result["lost"], 0);
    assert_eq!(result["stages"][0]["quantiles_ms"]["0.99"], 250.0);
    assert!(result["p99_ms"].as_f64().expect("a number") > 0.0);
    assert!(result["broker_rss_bytes"].as_u64().expect("a number") > 0);
}

#[test]
fn one_lost_message_of_one_consumer_fails_the_run() {
    let (code, result, said) = broadcast(Some("drop:5"), &[]);
    assert_eq!((code, &result["lost"]), (Some(1), &1.into()), "{said}");
}

#[test]
fn one_doubled_message_fails_the_run() {
    let (code, result, said) = broadcast(Some("double:5"), &[]);
    assert_eq!((code, &result["duplicates"]), (Some(1), &1.into()), "{said}");
}

#[test]
fn two_swapped_messages_fail_the_run() {
    let (code, result, said) = broadcast(Some("swap:5"), &[]);
    assert_eq!(
        (code, &result["out_of_order"], &result["lost"]),
        (Some(1), &1.into(), &0.into()),
        "{said}"
    );
}

#[test]
fn a_lost_connection_fails_the_run_unless_it_may_come_back() {
    let (code, result, said) = broadcast(Some("hangup:6"), &[]);
    assert_eq!((code, &result), (Some(1), &serde_json::Value::Null), "{said}");

    let (code, result, said) = broadcast(Some("hangup:6"), &["--reconnect"]);
    assert_eq!(
        (code, &result["lost"], &result["receipts"]),
        (Some(0), &0.into(), &13.into()),
        "{said}"
    );
    assert!(result["reconnects"].as_u64() >= Some(4), "{result}");
    assert!(result["duplicates"].as_u64() >= Some(80), "{result}");
}

#[test]
fn slow_consumers_are_kept_apart() {
    let (code, result, said) = broadcast(None, &["--slow-consumers", "10"]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(
        (&result["consumers"], &result["delivered"]),
        (&30.into(), &(30 * 13).into())
    );
}

#[test]
fn throughput_runs_see_both_ends_of_every_message() {
    let arguments = [
        "e2e",
        "--size",
        "300",
        "--rate",
        "20000",
        "--warmup",
        "200ms",
        "--duration",
        "1s",
    ];
    let (code, result, said) = run(None, &arguments);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(result["lost"], 0);
    let rate = result["averagePublishRate"].as_f64().expect("a number");
    assert!((1_000.0..=30_000.0).contains(&rate), "{rate}");
    assert!(
        result["aggregatedEndToEndLatency99pct"]
            .as_f64()
            .expect("a number")
            > 0.0
    );
}
