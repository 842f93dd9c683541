//! Sources of setting values, and refused values.

use std::path::PathBuf;
use std::time::Duration;

use pharos::settings::table::SETTINGS;
use pharos::settings::{
    ByteSize, Effective, Limit, LoadError, Origin, Settings, Sources, json_listing, text_listing,
};

fn file(text: &str) -> Option<(PathBuf, String)> {
    Some((PathBuf::from("pharos.toml"), text.into()))
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(a, b)| ((*a).into(), (*b).into())).collect()
}

fn load(text: &str, environment: &[(&str, &str)], flags: &[(&str, &str)]) -> Result<Effective, LoadError> {
    Effective::load(&Sources {
        file: file(text),
        environment: pairs(environment),
        flags: pairs(flags),
    })
}

fn complaint(text: &str, environment: &[(&str, &str)]) -> String {
    load(text, environment, &[]).unwrap_err().to_string()
}

fn origin(effective: &Effective, key: &str) -> Origin {
    let row = SETTINGS.iter().position(|setting| setting.key == key).unwrap();
    effective.origins[row].clone()
}

#[test]
fn without_anything_the_defaults_hold() {
    let effective = Effective::load(&Sources::default()).unwrap();
    assert_eq!(effective.settings, Settings::default());
    assert!(effective.origins.iter().all(|origin| *origin == Origin::Default));
    assert!(effective.settings.pulsar_listen.ip().is_loopback());
    assert!(effective.settings.http_listen.ip().is_loopback());
}

#[test]
fn a_flag_beats_the_environment_beats_the_file_beats_the_default() {
    let text = "shards = 1\ncluster_name = 'file'\nadvertised_address = 'file'";
    let environment = [("PHAROS_SHARDS", "2"), ("PHAROS_CLUSTER_NAME", "env")];
    let effective = load(text, &environment, &[("shards", "3")]).unwrap();
    assert_eq!(effective.settings.shards, 3);
    assert_eq!(effective.settings.cluster_name, "env");
    assert_eq!(effective.settings.advertised_address, "file");
    assert_eq!(origin(&effective, "shards"), Origin::Flag("shards".into()));
    assert_eq!(
        origin(&effective, "cluster_name"),
        Origin::Environment("PHAROS_CLUSTER_NAME".into())
    );
    assert_eq!(
        origin(&effective, "advertised_address"),
        Origin::File("pharos.toml".into())
    );
    assert_eq!(origin(&effective, "http_listen"), Origin::Default);
}

#[test]
fn sections_of_the_file_are_dotted_keys() {
    let text =
        "[ledger]\nmax_size = '1MiB'\nmin_rollover_time = '0s'\n[broadcast]\nabsent_retention = 'unlimited'";
    let settings = load(text, &[("PHAROS_LEDGER_MAX_ENTRIES", "10")], &[])
        .unwrap()
        .settings;
    assert_eq!(settings.ledger.max_size, ByteSize::mib(1));
    assert_eq!(settings.ledger.min_rollover_time, Duration::ZERO);
    assert_eq!(settings.ledger.max_entries, 10);
    assert_eq!(settings.broadcast.absent_retention, Limit::Unlimited);
}

#[test]
fn an_unknown_key_of_the_file_is_an_error_that_helps() {
    for (text, hint) in [
        ("pulsar_lsten = '127.0.0.1:1'", "did you mean pulsar_listen?"),
        ("[ledger]\nmax_entrys = 3", "did you mean ledger.max_entries?"),
        ("max_entries = 3", "did you mean ledger.max_entries?"),
        (
            "[ledger]\nmanagedLedgerMaxEntriesPerLedger = 3",
            "did you mean ledger.max_entries?",
        ),
        ("[broker]\nmaxMessageSize = 3", "did you mean max_message_size?"),
        ("colour = 'red'", "'pharos config' lists them all"),
    ] {
        let complaint = complaint(text, &[]);
        assert!(
            complaint.starts_with("pharos.toml: unknown setting '"),
            "{complaint}"
        );
        assert!(complaint.ends_with(hint), "{complaint}");
    }
}

#[test]
fn the_reference_s_names_are_taken_with_their_units() {
    let text = "managedLedgerMaxLedgerRolloverTimeMinutes = 30\ndefaultRetentionSizeInMB = -1";
    let environment = [
        ("PULSAR_PREFIX_ttlDurationDefaultInSeconds", "90"),
        ("PULSAR_PREFIX_backlogQuotaCheckIntervalInSeconds", "5"),
        ("PHAROS_POLICIES_BACKLOG_QUOTA_CHECK_INTERVAL", "7s"),
    ];
    let effective = load(text, &environment, &[]).unwrap();
    let settings = &effective.settings;
    assert_eq!(settings.ledger.max_rollover_time, Duration::from_secs(1800));
    assert_eq!(settings.policies.broker.retention.bytes, None);
    assert_eq!(settings.policies.broker.message_ttl.0, Duration::from_secs(90));
    let ours = settings.policies.backlog_quota_check_interval;
    assert_eq!(ours, Duration::from_secs(7), "our own name goes first");
    assert_eq!(
        origin(&effective, "policies.message_ttl"),
        Origin::Environment("PULSAR_PREFIX_ttlDurationDefaultInSeconds".into())
    );
    let complaint = complaint("", &[("PULSAR_PREFIX_functionsWorkerEnabled", "true")]);
    assert!(
        complaint.starts_with("unknown environment variable"),
        "{complaint}"
    );
}

#[test]
fn an_unknown_variable_is_an_error_that_helps() {
    let complaint = complaint("", &[("PHAROS_PULSAR_LISTENER", "x")]);
    assert_eq!(
        complaint,
        "unknown environment variable PHAROS_PULSAR_LISTENER; did you mean PHAROS_PULSAR_LISTEN?"
    );
}

#[test]
fn variables_of_others_do_not_matter() {
    let environment = [
        ("PATH", "/bin"),
        ("PHAROS_CONFIG", "x"),
        ("PHAROS_SERVICE_HOST", "10.0.0.1"),
    ];
    assert!(load("", &environment, &[]).is_ok());
}

#[test]
fn a_value_that_cannot_be_read_names_its_place() {
    for (text, environment, start) in [
        (
            "shards = 'many'",
            None,
            "pharos.toml: shards: 'many' is no whole number",
        ),
        (
            "shards = [1]",
            None,
            "pharos.toml: shards: expected number, found array",
        ),
        (
            "keep_alive_interval = 30",
            None,
            "pharos.toml: keep_alive_interval: '30' is no duration",
        ),
        ("shards = ", None, "pharos.toml: TOML parse error"),
        (
            "",
            Some(("PHAROS_MAX_MESSAGE_SIZE", "big")),
            "PHAROS_MAX_MESSAGE_SIZE: 'big' is no size",
        ),
    ] {
        let environment: Vec<_> = environment.into_iter().collect();
        let complaint = complaint(text, &environment);
        assert!(complaint.starts_with(start), "{complaint}");
    }
}

#[test]
fn values_that_do_not_go_together_are_refused_at_once() {
    let complaint = complaint(
        "http_listen = '127.0.0.1:6650'\n[ledger]\nmin_rollover_time = '9h'\nmax_entries = 0",
        &[],
    );
    assert!(
        complaint.contains("pulsar_listen and http_listen are the same address"),
        "{complaint}"
    );
    assert!(
        complaint.contains("ledger.min_rollover_time is longer"),
        "{complaint}"
    );
    assert!(
        complaint.contains("ledger.max_entries must not be 0"),
        "{complaint}"
    );
}

#[test]
fn the_listing_shows_values_and_origins() {
    let effective = load("shards = 1", &[], &[]).unwrap();
    let text = text_listing(&effective);
    assert_eq!(text.lines().count(), SETTINGS.len());
    let line = text.lines().find(|line| line.starts_with("shards ")).unwrap();
    assert_eq!(
        line.split_whitespace().collect::<Vec<_>>(),
        ["shards", "1", "file", "pharos.toml"]
    );
    let json: serde_json::Value = serde_json::from_str(&json_listing(&effective)).unwrap();
    let row = json
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["key"] == "shards")
        .unwrap();
    let expected =
        serde_json::json!({"key": "shards", "value": "1", "origin": "file", "source": "pharos.toml"});
    assert_eq!(*row, expected);
}

#[test]
fn an_encrypted_listener_is_open_to_others_when_it_asks_for_a_certificate() {
    let tls = [
        ("tls.certificate_file", "/absent.pem"),
        ("tls.key_file", "/absent.key"),
        ("tls.trust_certs_file", "/absent-authority.pem"),
    ];
    let asks = ("tls.require_trusted_client_cert_on_connect", "true");
    for door in ["pulsar_listen_tls", "http_listen_tls"] {
        let open = (door, "0.0.0.0:0");
        let with = |more: &[(&str, &str)]| load("", &[], &[&tls[..], &[open], more].concat());
        let said = with(&[]).unwrap_err().to_string();
        assert!(said.contains(&format!("{door} can be reached")), "{said}");
        let said = with(&[asks, ("tls.allow_insecure_connection", "true")])
            .unwrap_err()
            .to_string();
        assert!(said.contains(&format!("{door} can be reached")), "{said}");
        with(&[asks]).unwrap();
        with(&[("allow_unauthenticated_listen", "true")]).unwrap();
    }
}

#[test]
fn where_messages_and_metadata_are_goes_together() {
    let of_a_cluster = [
        ("engine", "bookkeeper"),
        ("metadata", "zk:a:2181,b:2181/pharos"),
        ("bookkeeper.max_frame_size", "5130KiB"),
    ];
    let settings = load("", &[], &of_a_cluster).unwrap().settings;
    assert_eq!(settings.cluster.metadata.to_string(), "zk:a:2181,b:2181/pharos");
    let refused = |flags: &[(&str, &str)]| load("", &[], flags).unwrap_err().to_string();
    let more = |flag| [&of_a_cluster[..], &[flag]].concat();
    assert!(refused(&of_a_cluster[..1]).contains("needs metadata = zk:"));
    assert!(refused(&of_a_cluster[1..2]).contains("set engine = bookkeeper"));
    // A bookie ends the connection on a larger frame.
    let wrong = refused(&of_a_cluster[..2]);
    assert!(
        wrong.contains("max_message_size (5MiB) and 10KiB beside a message are more than bookies take"),
        "{wrong}"
    );
    // What only one of the engines has is refused with the other, and not ignored.
    let wrong = refused(&more(("storage.segment_size", "64MiB")));
    assert!(
        wrong.contains("storage.segment_size has no effect with engine = bookkeeper"),
        "{wrong}"
    );
    let wrong = refused(&[("bookkeeper.ack_quorum", "1")]);
    assert!(
        wrong.contains("bookkeeper.ack_quorum has no effect with engine = embedded"),
        "{wrong}"
    );
    load("", &[], &more(("replication.start_at", "earliest"))).unwrap();
    let settings = load("", &[], &more(("storage.sync", "bypass"))).unwrap().settings;
    assert_eq!(
        settings.policies.broker.durability,
        pharos_ledger::Durability::Bypass
    );
    for (key, text, words) in [
        (
            "bookkeeper.min_racks_per_write_quorum",
            "2",
            "needs bookkeeper.placement",
        ),
        (
            "bookkeeper.tls_trust_certs_file",
            "a.pem",
            "unless bookkeeper.tls is true",
        ),
        ("bookkeeper.tls_key_file", "a.key", "belong together"),
        ("zookeeper.tls_key_file", "a.key", "unless zookeeper.tls is true"),
        ("zookeeper.tls", "true", "needs zookeeper.tls_trust_certs_file"),
        ("bookkeeper.deferred_sync_interval", "0s", "must not be 0"),
    ] {
        let wrong = refused(&more((key, text)));
        assert!(wrong.contains(words), "{wrong}");
    }
    // No rate at all would be a broker that never reads or flushes.
    for key in ["storage.read_rate", "storage.flush_rate"] {
        let wrong = refused(&[(key, "0")]);
        assert!(
            wrong.contains("must not be 0; 'unlimited' is without limit"),
            "{wrong}"
        );
    }
    assert!(refused(&more(("bookkeeper.ack_quorum", "3"))).contains("bookkeeper.ensemble_size"));
}
