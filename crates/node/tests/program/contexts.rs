//! `pharos` over TLS: flags, contexts, and a broker with a certificate of its own making.

use std::os::unix::fs::PermissionsExt as _;

use pharos_identity::sign::{self, Claims};
use tempfile::TempDir;

use crate::person::{Person, text};
use crate::support::Node;
use crate::support::certificates::Authority;

#[test]
fn a_context_keeps_the_way_to_a_broker_and_only_its_owner_reads_it() {
    let (dir, data, person) = (TempDir::new().unwrap(), TempDir::new().unwrap(), Person::new());
    let authority = Authority::new(dir.path(), "authority");
    let client = authority.client("operator");
    let mut settings = authority.broker("broker").settings();
    let trust = text(&authority.certificate_file).to_owned();
    settings.extend(["--tls-trust-certs-file".to_owned(), trust.clone()]);
    settings.push("--tls-require-trusted-client-cert-on-connect".to_owned());
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let mut node = Node::start(data.path(), &settings);
    let (pulsar, https) = (node.announced("pulsar+ssl://"), node.announced("https://"));

    let certificate = [
        "--tls-cert",
        text(&client.certificate_file),
        "--tls-key",
        text(&client.key_file),
    ];
    let flags = [&["--url", &https, "--tls-trust-certs", &trust][..], &certificate].concat();
    assert_eq!(person.does(&[&["health"][..], &flags].concat()), "healthy\n");
    person.fails(&["health", "--url", &https], 3);
    person.fails(&["health", "--url", &https, "--tls-trust-certs", &trust], 3);
    person.fails(&["health", "--url", &https, "--tls-cert", "nowhere.pem"], 2);

    let add = [
        "context",
        "add",
        "city",
        "--url",
        &https,
        "--service-url",
        &pulsar,
        "--tls-trust-certs",
        &trust,
    ];
    person.does(&[&add[..], &certificate, &["--token", "token:very-secret"]].concat());
    person.does(&["context", "add", "other", "--url", "http://127.0.0.1:1"]);
    let kept = person.home().join("pharos/contexts.toml");
    let mode = std::fs::metadata(&kept).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(std::fs::read_to_string(&kept).unwrap().contains("very-secret"));
    for form in ["text", "json"] {
        let shown = person.does(&["context", "show", "--output", form])
            + &person.does(&["context", "list", "--output", form]);
        assert!(
            shown.contains(&https) && shown.contains("other") && !shown.contains("very-secret"),
            "{shown}"
        );
    }

    // The first one is in use; without a word about addresses and certificates everything goes over TLS.
    assert_eq!(person.does(&["health"]), "healthy\n");
    person.does(&["topics", "create", "news"]);
    person.does(&["produce", "news", "road closed"]);
    let consume = [
        "consume",
        "news",
        "--subscription",
        "s",
        "--from",
        "earliest",
        "--count",
        "1",
    ];
    assert_eq!(person.does(&consume), "road closed\n");
    person.fails(&["health", "--context", "other"], 3);
    person.does(&["context", "use", "other"]);
    person.fails(&["health"], 3);
    assert_eq!(person.does(&["health", "--context", "city"]), "healthy\n");
    assert_eq!(
        person.does(&["health", "--url", &node.admin_url()]),
        "healthy\n",
        "a flag is stronger"
    );
    person.does(&["context", "remove", "other"]);
    person.fails(&["context", "use", "other"], 2);
    person.fails(&["health", "--context", "other"], 2);

    std::fs::set_permissions(&kept, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(
        person
            .fails(&["health", "--context", "city"], 2)
            .contains("others may read it")
    );
}

/// Its credentials and its TLS are those of a context, over both doors, as of every command.
#[test]
fn load_takes_its_credentials_from_a_context() {
    let (dir, data, person) = (TempDir::new().unwrap(), TempDir::new().unwrap(), Person::new());
    let authority = Authority::new(dir.path(), "authority");
    let trust = text(&authority.certificate_file).to_owned();
    let (secret, token) = (dir.path().join("secret"), dir.path().join("token"));
    std::fs::write(&secret, [7; 32]).unwrap();
    std::fs::write(&token, sign::with_secret(&[7; 32], &Claims::of("load")).unwrap()).unwrap();
    let mut settings = authority.broker("broker").settings();
    settings.extend([
        "--authentication-enabled=true".to_owned(),
        "--authentication-providers=token".to_owned(),
        format!("--authentication-token-secret-key={}", secret.display()),
    ]);
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let mut node = Node::start(data.path(), &settings);
    let (pulsar, https) = (node.announced("pulsar+ssl://"), node.announced("https://"));
    let add = [
        "context",
        "add",
        "city",
        "--url",
        &https,
        "--service-url",
        &pulsar,
    ];
    let known = ["--tls-trust-certs", &trust, "--token-file", text(&token)];
    person.does(&[&add[..], &known].concat());
    // Partitions are made over HTTP.
    let load = [
        "bench",
        "e2e",
        "--warmup",
        "100ms",
        "--duration",
        "500ms",
        "--rate",
        "200",
    ];
    let named = ["--context", "city", "--partitions", "2"];
    person.does(&[&load[..], &named].concat());
    let topics = person.does(&["topics", "list"]);
    assert_eq!(
        topics
            .lines()
            .filter(|topic| topic.contains("-partition-"))
            .count(),
        2,
        "{topics}"
    );
    // Its consumers are processes of their own.
    let broadcast = [
        "bench",
        "broadcast",
        "--consumers",
        "4",
        "--connections",
        "2",
        "--messages",
        "5",
        "--rate",
        "50",
    ];
    let known_to = ["--settle", "100ms", "--url", &pulsar];
    person.does(&[&broadcast[..], &known_to].concat());
    let stranger = Person::new();
    let refused = [&broadcast[..], &known_to, &["--tls-trust-certs", &trust]].concat();
    let said = stranger.fails(&refused, 1);
    assert!(said.contains("refused the connection"), "{said}");
    stranger.fails(&["bench", "e2e", "--context", "city"], 1);
}

#[test]
fn a_self_signed_certificate_is_made_and_told_how_to_trust() {
    let (data, person) = (TempDir::new().unwrap(), Person::new());
    let any = [
        "--tls-self-signed",
        "--pulsar-listen-tls",
        "127.0.0.1:0",
        "--http-listen-tls",
        "127.0.0.1:0",
    ];
    let mut node = Node::start(data.path(), &any);
    let (pulsar, https) = (node.announced("pulsar+ssl://"), node.announced("https://"));
    let certificate = node.announced("/");
    assert_eq!(certificate, text(&data.path().join("tls/certificate.pem")));
    let health = ["health", "--url", &https, "--tls-trust-certs", &certificate];
    assert_eq!(person.does(&health), "healthy\n");
    person.does(&[
        "produce",
        "t",
        "m",
        "--service-url",
        &pulsar,
        "--tls-trust-certs",
        &certificate,
    ]);
    let anyone = ["health", "--url", &https, "--tls-allow-insecure-connection"];
    assert_eq!(person.does(&anyone), "healthy\n");
    node.kill();
    // Made once: who trusts it trusts it after a restart.
    let mut node = Node::start(data.path(), &any);
    let https = node.announced("https://");
    let health = ["health", "--url", &https, "--tls-trust-certs", &certificate];
    assert_eq!(person.does(&health), "healthy\n");
}

#[test]
fn load_is_measured_over_tls() {
    let (dir, data, person) = (TempDir::new().unwrap(), TempDir::new().unwrap(), Person::new());
    let authority = Authority::new(dir.path(), "authority");
    let client = authority.client("load");
    let mut settings = authority.broker("broker").settings();
    let trust = text(&authority.certificate_file).to_owned();
    settings.extend(["--tls-trust-certs-file".to_owned(), trust.clone()]);
    settings.push("--tls-require-trusted-client-cert-on-connect".to_owned());
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let mut node = Node::start(data.path(), &settings);
    let url = node.announced("pulsar+ssl://");
    let there = [
        "--url",
        &url,
        "--tls-trust-certs",
        &trust,
        "--tls-cert",
        text(&client.certificate_file),
        "--tls-key",
        text(&client.key_file),
    ];
    // Every consumer must have got every message, whole and in order, or it fails.
    let broadcast = [
        "bench",
        "broadcast",
        "--consumers",
        "60",
        "--connections",
        "6",
        "--messages",
        "20",
        "--rate",
        "50",
    ];
    let sizes = ["--size", "100KB", "--settle", "100ms"];
    person.does(&[&broadcast[..], &sizes, &there].concat());
    let both = [
        "bench",
        "e2e",
        "--warmup",
        "100ms",
        "--duration",
        "1s",
        "--size",
        "10KB",
        "--rate",
        "300",
    ];
    person.does(&[&both[..], &there].concat());
    person.fails(
        &[
            "bench",
            "broadcast",
            "--url",
            &url,
            "--consumers",
            "1",
            "--connections",
            "1",
        ],
        1,
    );
}
