//! No secret gets out: a broker that was told some, at its most talkative, asked right and wrong by both doors; then all that it
//! has said is searched.

use std::collections::BTreeMap;

use bytes::Bytes;
use pharos_admin_api::routes::{self, Method};
use pharos_identity::sign::{self, Claims};
use pharos_wire::command::Command;
use pharos_wire::proto::CommandConnect;
use pharos_wire::request;

use crate::support::certificates::Authority;
use crate::support::{Node, soon};

/// The key of tokens, as settings have it: no file, but the key itself.
const KEY: &str = "c2VjcmV0LWtleS1vZi10b2tlbnMtMzItYnl0ZXMtbG9uZyE=";
const KEY_BYTES: &[u8] = b"secret-key-of-tokens-32-bytes-long!";
const PASSWORD: &str = "Hello world!";
const HASH: &str =
    "$6$saltstring$svn8UoSVapNtMuq1ukKS4tPQd8iKwSMHWjl/O817G3uBnIFNjnQJuesI68u4OTLiBFdcbYEdFCoEOfaS35inz1";
const S3_SECRET: &str = "wJalrXUtnFEMI-K7MDENG-bPxRfiCYEXAMPLEKEY";

/// Answer to CONNECT with these credentials, if any.
async fn show(node: &Node, method: &str, data: &[u8], original: Option<&str>) -> String {
    let mut raw = node.stranger().await;
    let connect = CommandConnect {
        auth_method_name: Some(method.to_owned()),
        auth_data: Some(Bytes::copy_from_slice(data)),
        original_auth_data: original.map(str::to_owned),
        original_auth_method: original.map(|_| "basic".to_owned()),
        ..request::connect("test")
    };
    raw.send(Command::Connect(Box::new(connect))).await.unwrap();
    let answer = soon("an answer to CONNECT", raw.next_command()).await;
    let mut said = format!("{answer:?}");
    if matches!(answer, Ok(Command::Connected(_))) {
        // A failure later on, and credentials that were not asked for.
        raw.send(request::auth_response(method, Bytes::copy_from_slice(data)))
            .await
            .unwrap();
        raw.send(request::partitioned_metadata("not://a/topic", 1))
            .await
            .unwrap();
        said += &format!("{:?}", soon("an answer", raw.next_command()).await);
    }
    said
}

#[tokio::test]
async fn no_secret_is_in_anything_that_the_broker_says() {
    let (dir, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let signed = Authority::new(dir.path(), "authority").broker("broker");
    let private_key = std::fs::read_to_string(&signed.key_file).unwrap();
    let private_key = private_key.lines().nth(1).unwrap().to_owned();
    let mut settings = signed.settings();
    settings.extend([
        "--authentication-enabled=true".to_owned(),
        "--authentication-providers=token,basic".to_owned(),
        format!("--authentication-token-secret-key=data:;base64,{KEY}"),
        format!("--authentication-basic-auth-conf=data:,ann:{HASH}"),
        "--authorization-enabled=true".to_owned(),
        "--authorization-super-user-roles=ann,root".to_owned(),
        "--authentication-authenticate-original-auth-data=true".to_owned(),
        "--log-level=trace".to_owned(),
        // No server listens there: writing to it fails, and is told in the log.
        "--offload-driver=S3".to_owned(),
        "--offload-s3-bucket=b".to_owned(),
        "--offload-s3-endpoint=http://127.0.0.1:9".to_owned(),
    ]);
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let environment = [
        ("AWS_ACCESS_KEY_ID", "AKIDPHAROS"),
        ("AWS_SECRET_ACCESS_KEY", S3_SECRET),
    ];
    let node = Node::start_in(data.path(), &settings, &environment);

    let root = sign::with_secret(KEY_BYTES, &Claims::of("root")).unwrap();
    let expired = sign::with_secret(KEY_BYTES, &Claims::of("root").until(1)).unwrap();
    let forged = sign::with_secret(&[8; 32], &Claims::of("root")).unwrap();
    let mut said = BTreeMap::new();
    for (what, method, shown) in [
        ("a token", "token", root.as_bytes()),
        ("an expired one", "token", expired.as_bytes()),
        ("a forged one", "token", forged.as_bytes()),
        ("half of one", "token", &root.as_bytes()[..60]),
        ("a password", "basic", b"ann:Hello world!"),
        ("a wrong one", "basic", b"ann:Hello world!-and-more"),
        ("a password as a token", "token", b"ann:Hello world!"),
        ("of an unknown kind", "athenz", root.as_bytes()),
    ] {
        said.insert(
            format!("the answer to {what}"),
            show(&node, method, shown, None).await,
        );
    }
    let original = Some("car:Hello world!");
    said.insert(
        "a proxy".to_owned(),
        show(&node, "token", root.as_bytes(), original).await,
    );
    let headers = |value: &str| format!("Authorization: {value}\n");
    // ann:Hello world!
    let basic = headers("Basic YW5uOkhlbGxvIHdvcmxkIQ==");
    for route in routes::all().filter(|route| route.method == Method::Get) {
        let parts = route.path.split('/').map(|part| match part {
            "{domain}" => "persistent",
            "{tenant}" => "public",
            "{namespace}" => "default",
            name if name.starts_with('{') => "1",
            literal => literal,
        });
        let path = parts.collect::<Vec<_>>().join("/");
        for credentials in [
            &headers(&format!("Bearer {root}")),
            &headers(&format!("Bearer {forged}")),
        ] {
            let answer = node.call_with(credentials, "GET", &path, "");
            said.entry(route.id()).or_default().push_str(&answer.1);
        }
    }
    for odd in [
        basic,
        headers("Basic Hello world!"),
        headers(&format!("Digest {expired}")),
    ] {
        let answer = node.call_with(&odd, "PUT", "/admin/v2/tenants/x", r#"{"secret": Hello}"#);
        said.insert(format!("the answer to {odd}"), answer.1);
    }
    let shown = std::process::Command::new(env!("CARGO_BIN_EXE_pharos"))
        .arg("config")
        .args([
            "--authentication-token-secret-key",
            &format!("data:;base64,{KEY}"),
        ])
        .args(["--authentication-basic-auth-conf", &format!("data:,ann:{HASH}")])
        .output()
        .unwrap();
    said.insert("pharos config".to_owned(), format!("{shown:?}"));
    said.insert("the log".to_owned(), node.logged());

    assert!(
        node.logged().contains("a client was not let in"),
        "the log was looked at"
    );
    for (what, secret) in [
        ("the key of tokens", KEY),
        ("its bytes", "secret-key-of-tokens"),
        ("a password", PASSWORD),
        ("a password in base64", "YW5uOkhlbGxvIHdvcmxkIQ"),
        ("its hash", "svn8UoSVapNtMuq1ukKS4tPQd8iKwSMHWjl"),
        ("the secret of S3", S3_SECRET),
        ("the private key of TLS", &private_key),
        ("a token", &root),
        ("a signature", root.rsplit('.').next().unwrap()),
        ("an expired token", &expired),
        ("a forged token", &forged),
    ] {
        for (place, text) in &said {
            assert!(!text.contains(secret), "{what} is in {place}");
        }
    }
    node.stop();
}
