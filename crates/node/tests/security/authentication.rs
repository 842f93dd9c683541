//! Authentication over the Pulsar protocol and HTTP: only peers with valid credentials are admitted, and only while
//! those are valid.

use std::path::Path;
use std::process::Command as Process;

use bytes::Bytes;
use pharos_client::RawConnection;
use pharos_identity::sign::{self, Algorithm, Claims};
use pharos_wire::command::Command;
use pharos_wire::proto::{CommandConnect, FeatureFlags, ServerError};
use pharos_wire::request;

use crate::support::{Node, SECRET, credentials_in, soon};

/// Interval between credential checks; a client that was asked for new credentials has as long to answer.
const CHECK_INTERVAL: &str = "--authentication-refresh-check-interval";

/// A broker that asks for tokens and passwords, or what `more` says instead.
fn node(dir: &Path, more: &[&str]) -> Node {
    let asking = credentials_in(dir);
    let mut settings: Vec<&str> = asking.iter().map(String::as_str).collect();
    settings.extend(more);
    if !more.iter().any(|setting| setting.starts_with(CHECK_INTERVAL)) {
        settings.push("--authentication-refresh-check-interval=200ms");
    }
    Node::start(&dir.join("data"), &settings)
}

fn now() -> u64 {
    pharos_runtime::clock::wall_ms() / 1000
}

fn token(claims: &Claims) -> String {
    sign::with_secret(&SECRET, claims).unwrap()
}

fn connect(method: &str, data: &str) -> CommandConnect {
    CommandConnect {
        auth_method_name: Some(method.to_owned()),
        auth_data: Some(Bytes::copy_from_slice(data.as_bytes())),
        ..request::connect("test")
    }
}

/// Answer to CONNECT, and the connection.
async fn try_connect(node: &Node, connect: CommandConnect) -> (Command, RawConnection) {
    let mut raw = node.stranger().await;
    raw.send(Command::Connect(Box::new(connect))).await.unwrap();
    let answer = soon("an answer to CONNECT", raw.next_command()).await.unwrap();
    (answer, raw)
}

async fn is_let_in(node: &Node, connect: CommandConnect) -> bool {
    let (answer, mut raw) = try_connect(node, connect).await;
    match answer {
        Command::Connected(_) => true,
        Command::Error(error) => {
            assert_eq!(error.request_id, pharos_wire::NO_REQUEST_ID);
            assert_eq!(error.error, ServerError::AuthenticationError as i32);
            assert_eq!(error.message, "Failed to authenticate");
            is_closed(&mut raw).await;
            false
        }
        other => panic!("{other:?}"),
    }
}

async fn is_closed(raw: &mut RawConnection) {
    let end = soon("the end of the connection", raw.next_command()).await;
    assert!(end.is_err(), "{end:?}");
}

fn header(credentials: &str) -> String {
    format!("Authorization: {credentials}\n")
}

/// The status that a request with this header gets.
fn status(node: &Node, headers: &str, path: &str) -> u16 {
    node.call_with(headers, "GET", path, "").0
}

const TENANTS: &str = "/admin/v2/tenants";

fn bad_tokens() -> Vec<(&'static str, String)> {
    let none = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJjYXIifQ.";
    let stranger = sign::with_secret(&[8; 32], &Claims::of("car")).unwrap();
    let pair = sign::key_pair(Algorithm::ES256).unwrap();
    let other_kind = sign::with_private_key(&pair.private, Algorithm::ES256, &Claims::of("car")).unwrap();
    vec![
        ("no token", String::new()),
        ("no signature", none.to_owned()),
        ("expired", token(&Claims::of("car").until(now() - 60))),
        ("of another key", stranger),
        ("of another kind", other_kind),
        ("without a role", token(&Claims::default())),
        ("cut short", token(&Claims::of("car"))[..40].to_owned()),
    ]
}

#[tokio::test]
async fn no_client_gets_in_without_good_credentials() {
    let dir = tempfile::tempdir().unwrap();
    let node = node(dir.path(), &[]);
    assert!(!is_let_in(&node, request::connect("test")).await);
    assert!(!is_let_in(&node, connect("tls", "")).await);
    assert!(!is_let_in(&node, connect("basic", "ann:wrong")).await);
    for (what, bad) in bad_tokens() {
        assert!(!is_let_in(&node, connect("token", &bad)).await, "{what}");
        assert_eq!(
            status(&node, &header(&format!("Bearer {bad}")), TENANTS),
            401,
            "{what}"
        );
    }
    let good = token(&Claims::of("car").until(now() + 3600));
    assert!(is_let_in(&node, connect("token", &good)).await);
    assert!(is_let_in(&node, connect("basic", "ann:Hello world!")).await);
    assert!(!is_let_in(&node, connect("basic", &good)).await, "another method");

    assert_eq!(status(&node, "", TENANTS), 401);
    assert_eq!(status(&node, &header(&format!("Bearer {good}")), TENANTS), 200);
    // ann:Hello world!
    assert_eq!(
        status(&node, &header("Basic YW5uOkhlbGxvIHdvcmxkIQ=="), TENANTS),
        200
    );
    for odd in ["Basic YW5uOng=", "Basic !", "Bearer", "Digest x", ""] {
        assert_eq!(status(&node, &header(odd), TENANTS), 401, "{odd}");
    }
    // What is there is not told either, nor what is not.
    for path in [
        "/admin/v2/nothing",
        "/nothing",
        "/admin/v3/functions/public/default/f",
        "/admin/v2/brokers/health",
    ] {
        assert_eq!(status(&node, "", path), 401, "{path}");
    }
    for open in ["/status.html", "/metrics"] {
        assert_eq!(status(&node, "", open), 200, "{open}");
        assert_eq!(status(&node, &header("Bearer x"), open), 200, "{open}");
    }
    let log = node.logged();
    assert!(
        !log.contains(&good) && !log.contains("Hello world"),
        "secrets in the log: {log}"
    );
    node.stop();
}

#[tokio::test]
async fn commands_before_the_answer_to_connect_close_the_connection() {
    let dir = tempfile::tempdir().unwrap();
    let node = node(dir.path(), &[]);
    // A password takes long enough to check that the next command comes before it is.
    let mut raw = node.stranger().await;
    raw.send(Command::Connect(Box::new(connect("basic", "ann:wrong"))))
        .await
        .unwrap();
    raw.send(request::partitioned_metadata("t", 1)).await.unwrap();
    loop {
        match soon("an end", raw.next_command()).await {
            Ok(Command::Error(error)) => assert_eq!(error.error, ServerError::AuthenticationError as i32),
            Ok(other) => panic!("{other:?}"),
            Err(_) => break,
        }
    }
    node.stop();
}

#[tokio::test]
async fn expired_credentials_are_asked_for_again() {
    let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
    // Those that answer have time to, on a machine that stalls too.
    let patient = node(dirs[0].path(), &["--authentication-refresh-check-interval=12s"]);
    let hasty = node(dirs[1].path(), &[]);
    let short = |seconds| token(&Claims::of("car").until(now() + seconds));
    let short_lived = async |node: &Node, feature_flags: Option<FeatureFlags>| {
        // One may have expired before it is shown.
        for seconds in [2, 4, 8] {
            let shown = CommandConnect {
                feature_flags: feature_flags.clone(),
                ..connect("token", &short(seconds))
            };
            if let (Command::Connected(_), raw) = try_connect(node, shown).await {
                return raw;
            }
        }
        panic!("no token was taken");
    };
    let challenged = async |node: &Node| {
        let mut raw = short_lived(node, request::connect("test").feature_flags).await;
        match soon("a challenge", raw.next_command()).await.unwrap() {
            Command::AuthChallenge(asked) => {
                let asked = asked.challenge.unwrap();
                assert_eq!(asked.auth_method_name.as_deref(), Some("token"));
                assert_eq!(asked.auth_data.as_deref(), Some(&b"PulsarAuthRefresh"[..]));
            }
            other => panic!("{other:?}"),
        }
        raw
    };
    let shows = async |raw: &mut RawConnection, token: String| {
        raw.send(request::auth_response("token", Bytes::from(token)))
            .await
            .unwrap();
    };

    let (mut goes_on, other_role, forged, empty) = tokio::join!(
        challenged(&patient),
        challenged(&patient),
        challenged(&patient),
        challenged(&patient)
    );
    shows(&mut goes_on, token(&Claims::of("car").until(now() + 3600))).await;
    goes_on.send(request::partitioned_metadata("t", 1)).await.unwrap();
    let answer = soon("an answer", goes_on.next_command()).await.unwrap();
    assert!(
        matches!(answer, Command::PartitionedMetadataResponse(_)),
        "{answer:?}"
    );

    for (mut raw, bad) in [
        (other_role, token(&Claims::of("truck").until(now() + 3600))),
        (forged, short(60) + "x"),
        (empty, String::new()),
    ] {
        shows(&mut raw, bad).await;
        let answer = soon("a refusal", raw.next_command()).await;
        assert!(matches!(answer, Ok(Command::Error(_))), "{answer:?}");
        is_closed(&mut raw).await;
    }
    let mut silent = challenged(&hasty).await;
    is_closed(&mut silent).await;

    let mut old = short_lived(&hasty, None).await;
    is_closed(&mut old).await;
    patient.stop();
    hasty.stop();
}

#[tokio::test]
async fn the_anonymous_role_is_a_role() {
    let dir = tempfile::tempdir().unwrap();
    let more = [
        "--authentication-anonymous-user-role=guest",
        "--authorization-enabled=true",
        "--authorization-super-user-roles=admin",
    ];
    let node = node(dir.path(), &more);
    let (answer, mut raw) = try_connect(&node, request::connect("test")).await;
    assert!(matches!(answer, Command::Connected(_)), "{answer:?}");
    raw.send(request::lookup("t", 1, false)).await.unwrap();
    match soon("an answer", raw.next_command()).await.unwrap() {
        Command::LookupResponse(answer) => {
            assert_eq!(answer.error, Some(ServerError::AuthorizationError as i32));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(status(&node, "", TENANTS), 403);
    let admin = header(&format!("Bearer {}", token(&Claims::of("admin"))));
    assert_eq!(status(&node, &admin, TENANTS), 200);
    node.stop();
}

#[test]
fn settings_that_would_let_every_client_in_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("weak"), "weak").unwrap();
    let weak = format!("--authentication-token-secret-key={}/weak", dir.path().display());
    let on = [
        "--authentication-enabled=true",
        "--authentication-providers=token",
    ];
    for (flags, reason) in [
        (vec!["--pulsar-listen=0.0.0.0:0"], "allow_unauthenticated_listen"),
        (vec!["--http-listen=0.0.0.0:0"], "allow_unauthenticated_listen"),
        (
            vec!["--authentication-enabled=true"],
            "needs authentication.providers",
        ),
        (vec!["--authentication-providers=token"], "does nothing without"),
        (
            vec!["--authorization-enabled=true"],
            "needs authentication.enabled",
        ),
        (on.to_vec(), "needs authentication.token_secret_key"),
        (
            vec![on[0], "--authentication-providers=athenz"],
            "'athenz' is none of",
        ),
        (vec![on[0], on[1], &weak], "it needs 32 or more"),
        (
            vec![on[0], on[1], "--authentication-token-secret-key=s3cret!"],
            "a key is file:///PATH",
        ),
    ] {
        let mut serve = Process::new(env!("CARGO_BIN_EXE_pharos"));
        serve.args([
            "serve",
            "--pulsar-listen=127.0.0.1:0",
            "--http-listen=127.0.0.1:0",
            "--data-dir",
        ]);
        let at = dir.path().join("data");
        // A later flag of the same name would be an error of its own.
        let mut serve = match flags[0].contains("listen") {
            true => {
                let mut other = Process::new(env!("CARGO_BIN_EXE_pharos"));
                other.args(["serve", "--data-dir"]);
                other
            }
            false => serve,
        };
        let output = serve.arg(at).args(&flags).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && said.contains(reason),
            "{flags:?}: {said}"
        );
        assert!(!said.contains("s3cret"), "{said}");
    }
}

#[tokio::test]
async fn a_revoked_token_ends_its_open_connections_and_opens_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let list = dir.path().join("revoked");
    std::fs::write(&list, "# none yet\n").unwrap();
    let setting = format!("--authentication-revoked-tokens-file={}", list.display());
    let node = node(dir.path(), &[&setting]);
    let (stolen, kept) = (
        token(&Claims::of("car").with("iat", now() - 10)),
        token(&Claims::of("van").with("iat", now() - 10)),
    );
    let (answer, mut open) = try_connect(&node, connect("token", &stolen)).await;
    assert!(matches!(answer, Command::Connected(_)), "{answer:?}");
    let (answer, mut other) = try_connect(&node, connect("token", &kept)).await;
    assert!(matches!(answer, Command::Connected(_)), "{answer:?}");

    let revoke = |arguments: &[&str]| {
        let revoking = Process::new(env!("CARGO_BIN_EXE_pharos"))
            .args(["token", "revoke", "--list"])
            .arg(&list)
            .args(arguments)
            .output()
            .unwrap();
        assert!(revoking.status.success(), "{revoking:?}");
    };
    let file = dir.path().join("stolen");
    std::fs::write(&file, &stolen).unwrap();
    revoke(&["--token-file", file.to_str().unwrap()]);
    is_closed(&mut open).await;
    assert!(!is_let_in(&node, connect("token", &stolen)).await);
    assert_eq!(status(&node, &header(&format!("Bearer {stolen}")), TENANTS), 401);
    let newer = token(&Claims::of("car").with("iat", now() - 5));
    assert!(
        is_let_in(&node, connect("token", &newer)).await,
        "another token of the role"
    );

    revoke(&["--role", "van"]);
    is_closed(&mut other).await;
    assert!(!is_let_in(&node, connect("token", &kept)).await);
    let later = token(&Claims::of("van").with("iat", now() + 5));
    assert!(is_let_in(&node, connect("token", &later)).await);
    node.stop();
}
