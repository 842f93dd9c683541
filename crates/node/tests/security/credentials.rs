//! Credentials of the command line: in the forms of Pulsar's tools, and sent again when the broker asks.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command as Process, Stdio};
use std::sync::Arc;

use pharos_client::{ConnectOptions, Connection, Consumer, ConsumerOptions, CredentialSource};
use pharos_identity::sign::{self, Claims};
use pharos_identity::test_issuer::TestIssuer;
use tempfile::TempDir;

use crate::support::{Node, soon};

const SECRET: [u8; 32] = [7; 32];

/// Time to answer a request for new credentials, in seconds: enough on a machine that stalls.
const REFRESH_CHECK_S: u64 = 11;
/// Interval for tests in which no answer is expected.
const HASTY: &str = "200ms";

fn node(dir: &Path, issuer: &TestIssuer, refresh_check: &str) -> Node {
    std::fs::write(dir.join("secret"), SECRET).unwrap();
    // openssl passwd -6 -salt saltstring 'Hello world!'
    let hash = "$6$saltstring$svn8UoSVapNtMuq1ukKS4tPQd8iKwSMHWjl/O817G3uBnIFNjnQJuesI68u4OTLiBFdcbYEdFCoEOfaS35inz1";
    std::fs::write(dir.join("people"), format!("ann:{hash}\n")).unwrap();
    let settings = [
        "--authentication-enabled=true".to_owned(),
        "--authentication-providers=token,openid,basic".to_owned(),
        format!("--authentication-refresh-check-interval={refresh_check}"),
        format!("--authentication-token-secret-key={}/secret", dir.display()),
        format!("--authentication-basic-auth-conf={}/people", dir.display()),
        format!("--openid-allowed-token-issuers={}", issuer.url()),
        "--openid-allowed-audiences=pharos".to_owned(),
        "--openid-require-issuers-use-https=false".to_owned(),
    ];
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    Node::start(&dir.join("data"), &settings)
}

fn now() -> u64 {
    pharos_runtime::clock::wall_ms() / 1000
}

fn token(role: &str, seconds: u64) -> String {
    sign::with_secret(&SECRET, &Claims::of(role).until(now() + seconds)).unwrap()
}

/// `pharos` as a person without contexts calls it.
fn pharos(home: &TempDir, node: &Node, arguments: &[&str]) -> Process {
    let mut process = Process::new(env!("CARGO_BIN_EXE_pharos"));
    process.args(arguments).env("XDG_CONFIG_HOME", home.path());
    process.env("PHAROS_ADMIN_URL", node.admin_url());
    process
        .env("PHAROS_SERVICE_URL", &node.pulsar)
        .stdin(Stdio::null());
    process
}

#[test]
fn every_form_of_credentials_gets_in_by_both_doors() {
    let (dir, home, issuer) = (
        TempDir::new().unwrap(),
        TempDir::new().unwrap(),
        TestIssuer::start(),
    );
    let node = node(dir.path(), &issuer, HASTY);
    issuer.add_client("tool", "top secret&+");
    let (token_file, key_file) = (dir.path().join("token"), dir.path().join("client.json"));
    std::fs::write(&token_file, token("car", 600)).unwrap();
    std::fs::write(
        &key_file,
        r#"{"type":"client_credentials","client_id":"tool","client_secret":"top secret&+"}"#,
    )
    .unwrap();
    let file = format!("file://{}", token_file.display());
    let good = format!("token:{}", token("car", 600));
    let oauth2 = format!(
        r#"{{"type":"client_credentials","privateKey":"file://{}","issuerUrl":"{}","audience":"pharos"}}"#,
        key_file.display(),
        issuer.url()
    );
    let basic = r#"{"userId":"ann","password":"Hello world!"}"#;
    let class = "org.apache.pulsar.client.impl.auth.";
    let (token_class, basic_class) = (
        format!("{class}AuthenticationToken"),
        format!("{class}AuthenticationBasic"),
    );
    let oauth2_class = format!("{class}oauth2.AuthenticationOAuth2");
    let all: [&[&str]; 8] = [
        &["--token", &good],
        &["--token", &file],
        &["--token", "env:CAR_TOKEN"],
        &["--token-file", token_file.to_str().unwrap()],
        &["--auth-plugin", &token_class, "--auth-params", &file],
        &["--auth-plugin", &basic_class, "--auth-params", basic],
        &["--auth-plugin", &oauth2_class, "--auth-params", &oauth2],
        &["--auth-plugin", "oauth2", "--auth-params", &oauth2],
    ];
    for credentials in all {
        for command in [&["health"][..], &["produce", "t", "m"]] {
            let mut process = pharos(&home, &node, &[command, credentials].concat());
            let output = process.env("CAR_TOKEN", token("car", 600)).output().unwrap();
            assert!(output.status.success(), "{command:?} {credentials:?}: {output:?}");
        }
    }
    assert_eq!(issuer.tokens_given(), 4);
    for bad in [
        &[][..],
        &["--token", "x"],
        &[
            "--auth-plugin",
            "basic",
            "--auth-params",
            r#"{"userId":"ann","password":"x"}"#,
        ],
    ] {
        let output = pharos(&home, &node, &[&["health"], bad].concat())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1), "{bad:?}: {output:?}");
    }
    let output = pharos(&home, &node, &["health", "--auth-plugin", "saslx"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    // Kept by a context: where the token is, and the plugin.
    for (name, credentials) in [("a", all[1]), ("b", all[6]), ("c", all[5])] {
        let added = pharos(&home, &node, &[&["context", "add", name], credentials].concat())
            .output()
            .unwrap();
        assert!(added.status.success(), "{added:?}");
        let used = pharos(&home, &node, &["health", "--context", name])
            .output()
            .unwrap();
        assert!(used.status.success(), "{name}: {used:?}");
        let shown = pharos(&home, &node, &["context", "show", name]).output().unwrap();
        let shown = String::from_utf8(shown.stdout).unwrap();
        assert!(
            !shown.contains("Hello") && !shown.contains("client.json"),
            "{shown}"
        );
    }
    node.stop();
}

#[test]
fn a_long_consume_reads_its_token_again_when_it_expires() {
    let (dir, home, issuer) = (
        TempDir::new().unwrap(),
        TempDir::new().unwrap(),
        TestIssuer::start(),
    );
    let node = node(dir.path(), &issuer, &format!("{REFRESH_CHECK_S}s"));
    let token_file = dir.path().join("token");
    let file = format!("file://{}", token_file.display());
    let consume = [
        "consume",
        "t",
        "--subscription",
        "s",
        "--count",
        "2",
        "--token",
        &file,
    ];
    let long = token("car", 600);
    let path = "/admin/v2/persistent/public/default/t/subscriptions";
    let header = format!("Authorization: Bearer {long}\n");
    let is_there = || node.call_with(&header, "GET", path, "").1.contains("\"s\"");
    let start = |seconds| {
        std::fs::write(&token_file, token("car", seconds)).unwrap();
        let mut process = pharos(&home, &node, &consume);
        let mut consumer = process.stdout(Stdio::piped()).spawn().unwrap();
        while !is_there() {
            if consumer.try_wait().unwrap().is_some() {
                return None;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        Some((consumer, seconds))
    };
    // On a machine that is slow a short one has expired before it is shown.
    let (mut consumer, lifetime_s) = [2, 4, 8, 16].into_iter().find_map(start).unwrap();
    let mut lines = BufReader::new(consumer.stdout.take().unwrap()).lines();
    let produce = |text: &str| {
        let token = format!("token:{long}");
        let sent = pharos(&home, &node, &["produce", "t", text, "--token", &token])
            .output()
            .unwrap();
        assert!(sent.status.success(), "{sent:?}");
    };
    produce("before");
    assert_eq!(lines.next().unwrap().unwrap(), "before");
    std::fs::write(&token_file, &long).unwrap();
    // Long enough for the token to expire and for two looks of the broker.
    std::thread::sleep(std::time::Duration::from_secs(
        lifetime_s + 2 * REFRESH_CHECK_S + 1,
    ));
    produce("after");
    assert_eq!(lines.next().unwrap().unwrap(), "after");
    assert!(consumer.wait().unwrap().success());
    node.stop();
}

#[derive(Debug)]
struct Nothing;

impl CredentialSource for Nothing {
    fn method(&self) -> &str {
        "token"
    }

    fn current(&self) -> Result<bytes::Bytes, String> {
        Err("the vault is closed".to_owned())
    }
}

/// Its token expires soon. On a machine that is slow a short one has expired before it is of use.
async fn short_lived_consumer(node: &Node) -> Consumer {
    for seconds in [1, 2, 4, 8] {
        let options = ConnectOptions::default().token(&token("car", seconds));
        let Ok(connection) = soon("connecting", Connection::connect(&node.pulsar, options)).await else {
            continue;
        };
        let subscribing = connection.subscribe("t", ConsumerOptions::shared("s"));
        if let Ok(consumer) = soon("subscribing", subscribing).await {
            return consumer;
        }
    }
    panic!("no token was taken");
}

#[tokio::test]
async fn a_client_without_fresh_credentials_says_why() {
    let (dir, issuer) = (TempDir::new().unwrap(), TestIssuer::start());
    let node = node(dir.path(), &issuer, HASTY);
    let options = ConnectOptions::default().credentials(Arc::new(Nothing));
    let error = Connection::connect(&node.pulsar, options).await.unwrap_err();
    assert_eq!(error.to_string(), "no credentials: the vault is closed");
    // The same token again, which has expired: the connection ends.
    let mut consumer = short_lived_consumer(&node).await;
    assert!(soon("the end", consumer.receive()).await.is_err());
    node.stop();
}
