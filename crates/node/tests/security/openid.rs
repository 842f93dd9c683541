//! Access tokens of an issuer outside the broker, by both doors, beside tokens of its own.

use std::path::Path;

use bytes::Bytes;
use pharos_client::{ConnectOptions, Connection, RawConnection};
use pharos_identity::sign::{self, Algorithm, Claims};
use pharos_identity::test_issuer::TestIssuer;
use pharos_wire::command::Command;
use pharos_wire::request;

use crate::support::certificates::{Authority, Signed};
use crate::support::{Node, soon};

const SECRET: [u8; 32] = [7; 32];
const AUDIENCE: &str = "pharos";

/// A broker that takes tokens of its own, and those of the issuer.
fn node(dir: &Path, issuer: &str) -> Node {
    std::fs::write(dir.join("secret"), SECRET).unwrap();
    let secret = format!("--authentication-token-secret-key={}/secret", dir.display());
    let issuers = format!("--openid-allowed-token-issuers={issuer}");
    let settings = [
        "--authentication-enabled=true",
        "--authentication-providers=token,org.apache.pulsar.broker.authentication.oidc.AuthenticationProviderOpenID",
        // A client that is asked has time to answer, on a machine that stalls too.
        "--authentication-refresh-check-interval=12s",
        "--openid-allowed-audiences=pharos",
        "--openid-require-issuers-use-https=false",
        "--openid-key-id-cache-miss-refresh=50ms",
        &secret,
        &issuers,
    ];
    Node::start(&dir.join("data"), &settings)
}

async fn is_let_in(node: &Node, token: &str) -> bool {
    let options = ConnectOptions::default().token(token);
    let connecting = Connection::connect(&node.pulsar, options);
    soon("an answer to CONNECT", connecting).await.is_ok()
}

fn status(node: &Node, token: &str) -> u16 {
    let header = format!("Authorization: Bearer {token}\n");
    node.call_with(&header, "GET", "/admin/v2/tenants", "").0
}

fn now() -> u64 {
    pharos_runtime::clock::wall_ms() / 1000
}

#[tokio::test]
async fn both_doors_ask_the_issuer() {
    let (dir, issuer) = (tempfile::tempdir().unwrap(), TestIssuer::start());
    let node = node(dir.path(), &issuer.url());
    let claims = issuer.claims("car", AUDIENCE);
    let own = sign::with_secret(&SECRET, &Claims::of("ann")).unwrap();
    for good in [issuer.token(&claims), own] {
        assert!(is_let_in(&node, &good).await);
        assert_eq!(status(&node, &good), 200);
    }
    let thief = TestIssuer::start();
    for (what, bad) in [
        ("expired", issuer.token(&claims.clone().until(now() - 60))),
        ("of another key", thief.token(&claims)),
        ("of another issuer", thief.token(&thief.claims("car", AUDIENCE))),
        (
            "for another audience",
            issuer.token(&issuer.claims("car", "other")),
        ),
    ] {
        assert!(!is_let_in(&node, &bad).await, "{what}");
        assert_eq!(status(&node, &bad), 401, "{what}");
    }
    issuer.add_key("second", Algorithm::ES256);
    issuer.retire_keys();
    tokio::time::sleep(std::time::Duration::from_millis(60)).await;
    assert!(is_let_in(&node, &issuer.token(&claims)).await, "after a rotation");
    let log = node.logged();
    assert!(!log.contains("eyJ"), "a token in the log: {log}");
    node.stop();
}

#[tokio::test]
async fn a_broker_whose_issuer_is_down_starts_and_lets_others_in() {
    let (dir, issuer) = (tempfile::tempdir().unwrap(), TestIssuer::start());
    issuer.set_down(true);
    let node = node(dir.path(), &issuer.url());
    let token = issuer.token(&issuer.claims("car", AUDIENCE));
    assert!(!is_let_in(&node, &token).await);
    let own = sign::with_secret(&SECRET, &Claims::of("ann")).unwrap();
    assert!(is_let_in(&node, &own).await);
    issuer.set_down(false);
    tokio::time::sleep(std::time::Duration::from_millis(60)).await;
    assert!(is_let_in(&node, &token).await);
    node.stop();
}

/// A connection by a token that is about to expire. On a machine that is slow a token that lives a second may have expired before it is
/// shown; then one that lives longer is.
async fn short_lived(node: &Node, issuer: &TestIssuer) -> RawConnection {
    for seconds in [1, 2, 4, 8] {
        let short = issuer.token(&issuer.claims("car", AUDIENCE).until(now() + seconds));
        let mut raw: RawConnection = node.stranger().await;
        let mut hello = request::connect("test");
        hello.auth_method_name = Some("token".to_owned());
        hello.auth_data = Some(Bytes::from(short));
        if soon("the handshake", raw.handshake(hello)).await.is_ok() {
            return raw;
        }
    }
    panic!("no token was taken");
}

#[tokio::test]
async fn an_access_token_that_expires_is_asked_for_again() {
    let (dir, issuer) = (tempfile::tempdir().unwrap(), TestIssuer::start());
    let node = node(dir.path(), &issuer.url());
    let mut raw = short_lived(&node, &issuer).await;
    let asked = soon("a challenge", raw.next_command()).await.unwrap();
    assert!(matches!(asked, Command::AuthChallenge(_)), "{asked:?}");
    let long = Bytes::from(issuer.token(&issuer.claims("car", AUDIENCE)));
    raw.send(request::auth_response("token", long)).await.unwrap();
    raw.send(request::partitioned_metadata("t", 1)).await.unwrap();
    let answer = soon("an answer", raw.next_command()).await.unwrap();
    assert!(
        matches!(answer, Command::PartitionedMetadataResponse(_)),
        "{answer:?}"
    );
    node.stop();
}

/// A broker that takes tokens of an issuer over TLS alone, which this authority vouches for.
fn strict_node(dir: &Path, issuer: &TestIssuer, authority: &Authority) -> Node {
    let settings = [
        "--authentication-enabled=true".to_owned(),
        "--authentication-providers=openid".to_owned(),
        format!("--openid-allowed-token-issuers={}", issuer.url()),
        format!("--openid-allowed-audiences={AUDIENCE}"),
        format!(
            "--openid-token-issuer-trust-certs-file={}",
            authority.certificate_file.display()
        ),
    ];
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    Node::start(dir, &settings)
}

fn issuer_with(signed: &Signed) -> TestIssuer {
    TestIssuer::start_tls(&signed.certificate_file, &signed.key_file)
}

#[tokio::test]
async fn an_issuer_over_tls_is_believed_when_a_trusted_authority_vouches_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let (ours, theirs) = (
        Authority::new(dir.path(), "ours"),
        Authority::new(dir.path(), "theirs"),
    );
    for (what, signed, is_believed) in [
        ("trusted", ours.broker("trusted"), true),
        ("of another authority", theirs.broker("untrusted"), false),
        ("for another machine", ours.stranger("stranger"), false),
        ("expired", ours.expired_broker("expired"), false),
    ] {
        let issuer = issuer_with(&signed);
        assert!(issuer.url().starts_with("https://"));
        let node = strict_node(&dir.path().join(what), &issuer, &ours);
        let token = issuer.token(&issuer.claims("car", AUDIENCE));
        assert_eq!(is_let_in(&node, &token).await, is_believed, "{what}");
        let expected = if is_believed { 200 } else { 401 };
        assert_eq!(status(&node, &token), expected, "{what}");
        assert_eq!(issuer.keys_asked() > 0, is_believed, "{what}");
        let told = node
            .logged()
            .contains("an issuer could not be asked for its keys");
        assert_eq!(told, !is_believed, "{what}");
        node.stop();
    }
}

#[tokio::test]
async fn keys_that_an_issuer_says_are_elsewhere_without_tls_are_not_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new(dir.path(), "authority");
    let issuer = issuer_with(&authority.broker("issuer"));
    let plain = TestIssuer::start();
    issuer.say_keys_are_at(&format!("{}/keys", plain.url()));
    let node = strict_node(&dir.path().join("data"), &issuer, &authority);
    // As good as one of the issuer, by the keys that are there.
    let token = plain.token(&issuer.claims("car", AUDIENCE));
    assert!(!is_let_in(&node, &token).await);
    assert_eq!((plain.keys_asked(), issuer.keys_asked()), (0, 0));
    node.stop();
}
