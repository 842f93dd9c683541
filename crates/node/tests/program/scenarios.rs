//! Every workload file runs, small and short, and what it reports is complete: correctness, not speed.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn workloads() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../workloads")
}

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pharos"))
        .arg("bench")
        .args(arguments)
        .output()
        .unwrap()
}

/// Runs a file with these changes on top of those that make it short.
fn scenario(name: &str, changes: &[&str], more: &[&str]) -> (Option<i32>, Value, String) {
    let path = workloads().join(name);
    let mut arguments = vec!["scenario", path.to_str().unwrap(), "--output", "json"];
    let short = [
        "warmup=200ms",
        "duration=2s",
        "probe=20ms",
        "probe_size=2MB",
        "backlog=2MB",
    ];
    for change in short.iter().chain(changes) {
        arguments.extend(["--set", change]);
    }
    arguments.extend(more);
    let output = bench(&arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let result = serde_json::from_slice(&output.stdout).unwrap_or_default();
    (output.status.code(), result, said)
}

/// Runs a file and looks at what every case must show.
fn runs(name: &str, changes: &[&str], cases: usize) -> Vec<Value> {
    let (code, result, said) = scenario(name, changes, &[]);
    assert_eq!(code, Some(0), "{said}\n{result:#}");
    let found = result["cases"].as_array().unwrap().clone();
    assert_eq!(found.len(), cases, "{said}");
    for case in &found {
        let label = case["case"].as_str().unwrap();
        let figures = &case["figures"];
        for check in ["lost", "duplicates", "out_of_order", "damaged"] {
            assert_eq!(figures[check], 0.0, "{label}: {case:#}");
        }
        for figure in ["device_sync_mb_s", "device_read_mb_s", "broker_rss_mb", "seconds"] {
            assert!(figures[figure].as_f64() > Some(0.0), "{label}: no {figure}");
        }
        assert!(case["openMessaging"]["aggregatedPublishLatency99pct"].is_number());
    }
    for judged in result["expectations"].as_array().unwrap() {
        let verdict = judged["verdict"].as_str().unwrap();
        assert!(["met", "not_met", "not_measured"].contains(&verdict), "{judged}");
    }
    found
}

fn figure(case: &Value, name: &str) -> f64 {
    case["figures"][name]
        .as_f64()
        .unwrap_or_else(|| panic!("no {name} in {case:#}"))
}

#[test]
fn journal() {
    for case in runs("journal.toml", &["rate=[2000]"], 4) {
        assert!(figure(&case, "publish_msg_s") > 0.0 && figure(&case, "e2e_p99_ms") > 0.0);
    }
}

/// Only root may ask for the other case.
#[test]
fn idle() {
    runs("idle.toml", &["broker.keep_cpus_awake=[false]"], 1);
}

#[test]
fn journals() {
    runs("journals.toml", &["topics=2"], 4);
}

#[test]
fn topics() {
    for case in runs("topics.toml", &["topics=[2,50]", "rate=500"], 2) {
        assert!(figure(&case, "publish_msg_s") > 0.0, "{case:#}");
    }
}

#[test]
fn memory() {
    for case in runs("memory.toml", &["topics=[2,20]", "rate=500"], 2) {
        assert!(figure(&case, "publish_msg_s") > 0.0);
    }
}

#[test]
fn steady() {
    let changes = ["topics=3", "rate=2000", "duration=3500ms", "slice=1s"];
    for case in runs("steady.toml", &changes, 2) {
        assert!(figure(&case, "slice_publish_p99_ms") > 0.0, "{case:#}");
        assert!(figure(&case, "disk_mb") > 0.0 && figure(&case, "memory_growth") > 0.0);
        assert!(case["slices"].as_array().unwrap().len() >= 3, "{case:#}");
    }
}

#[test]
fn backlog() {
    let cases = runs("backlog.toml", &["duration=20s"], 5);
    for case in &cases[..2] {
        assert_eq!(figure(case, "cold_share"), 1.0, "{case:#}");
        assert!(figure(case, "cold_of_device") > 0.0);
        let notes = case["notes"].to_string();
        assert!(notes.contains("page cache of"), "{notes}");
    }
}

#[test]
fn recovery() {
    let cases = runs("recovery.toml", &["duration=20s"], 4);
    for case in &cases {
        assert_eq!(figure(case, "cold_share"), 1.0, "{case:#}");
        assert!(figure(case, "start_s") > 0.0, "{case:#}");
    }
    for case in &cases[..3] {
        assert!(figure(case, "replayed_mb") > 1.9, "{case:#}");
    }
}

#[test]
fn tenants() {
    let changes = ["topics=6", "hot_readers=4", "cold_readers=[0,2]", "byte_rate=2MB"];
    for case in runs("tenants.toml", &changes, 4) {
        if case["params"]["cold_readers"] == 2 {
            assert!(figure(&case, "cold_mb_s") > 0.0);
        }
    }
}

#[test]
fn modes() {
    runs("modes.toml", &["topics=2", "rate=[500]"], 6);
}

#[test]
fn every_workload_file_has_a_test() {
    let mut names: Vec<String> = std::fs::read_dir(workloads())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".toml"))
        .collect();
    names.sort();
    let tested = [
        "backlog", "idle", "journal", "journals", "memory", "modes", "recovery", "steady", "tenants",
        "topics",
    ];
    assert_eq!(names, tested.map(|name| format!("{name}.toml")));
}

#[test]
fn pages_are_written_and_targets_judged() {
    let dir = tempfile::tempdir().unwrap();
    let (markdown, html) = (dir.path().join("r.md"), dir.path().join("r.html"));
    let more = [
        "--unclean",
        "--markdown",
        markdown.to_str().unwrap(),
        "--html",
        html.to_str().unwrap(),
        "--data-dir",
        dir.path().to_str().unwrap(),
        "--strict",
    ];
    // No machine publishes a thousand times the rate asked for, so under --strict this fails, though nothing was lost.
    let file = dir.path().join("strict.toml");
    let text = "title = 'T'\nabout = 'A'\n[load]\nrate = 500\n[[vary]]\nkey = 'topics'\nvalues = [1, 2]\n\
                [[expect]]\nwhat = 'w'\nmetric = 'publish_msg_s'\nmin = 500000\ncase = {topics = 2}\n\
                [[expect]]\nwhat = 'v'\nmetric = 'publish_msg_s'\nmin = 0.001\ncase = {topics = 2}\nof = {topics = 1}\n";
    std::fs::write(&file, text).unwrap();
    let (code, result, said) = scenario(file.to_str().unwrap(), &[], &more);
    assert_eq!(code, Some(1), "{said}");
    assert_eq!(result["faulty"], false, "{result:#}");
    assert_eq!(result["expectations"][0]["verdict"], "not_met");
    assert_eq!(result["expectations"][1]["verdict"], "met");
    let page = std::fs::read_to_string(&markdown).unwrap();
    assert!(page.starts_with("# T\n\nA\n"), "{page}");
    assert!(
        page.contains("| topics=1 |") && page.contains("**not met**"),
        "{page}"
    );
    let plots = std::fs::read_to_string(&html).unwrap();
    assert!(plots.contains("<svg") && !plots.contains("NaN"), "{plots}");
    drop(std::fs::remove_file(&file));
    let left: Vec<_> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(left.len(), 2, "only the pages are left: {left:?}");
}

#[test]
fn a_refused_case_says_why_and_the_others_run() {
    let changes = ["broker.storage.sync=['sync','sometimes']", "topics=1"];
    let (code, result, said) = scenario("journals.toml", &changes, &["--set", "journals=1"]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(result["cases"][0]["refused"], false, "{result:#}");
    assert_eq!(result["cases"][1]["refused"], true, "{result:#}");
    let reason = result["cases"][1]["failure"].as_str().unwrap();
    assert!(
        reason.contains("sometimes") && !reason.contains("/tmp"),
        "{reason}"
    );
    // The same with only the case that runs.
    let (code, result, said) = scenario(
        "journals.toml",
        &changes,
        &["--set", "journals=1", "--only", "closed loop sync=sync"],
    );
    assert_eq!(
        (code, result["cases"].as_array().unwrap().len()),
        (Some(0), 1),
        "{said}"
    );
}

#[test]
fn mistakes_are_refused_before_anything_runs() {
    for change in ["durations=1s", "size=huge", "size=3", "duration"] {
        let (code, _, said) = scenario("topics.toml", &[change], &[]);
        assert!(code != Some(0), "{change} was taken");
        assert!(!said.contains("case 1"), "{said}");
    }
}

#[test]
fn kills_lose_nothing_that_was_acknowledged() {
    for durability in ["sync", "async"] {
        let output = bench(&[
            "crash",
            "--kills",
            "2",
            "--interval",
            "1500ms",
            "--topics",
            "2",
            "--durability",
            durability,
            "--output",
            "json",
        ]);
        let said = String::from_utf8_lossy(&output.stderr);
        let result: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        assert_eq!(output.status.code(), Some(0), "{said}\n{result:#}");
        let rounds = result["rounds"].as_array().unwrap();
        assert_eq!(rounds.len(), 3);
        assert!(rounds[0]["acknowledged"].as_u64() > Some(0), "{result:#}");
        assert!(rounds[2]["read"].as_u64() >= rounds[0]["acknowledged"].as_u64());
    }
}
