//! `pharos clusters` and `pharos tenants` against a broker that asks who it is.

use pharos_identity::sign::{self, Claims};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::person::{Person, text};
use crate::support::{Node, SECRET, credentials_in};

/// A broker of which root is the super-user.
fn guarded(data: &TempDir, dir: &TempDir) -> Node {
    let mut settings = credentials_in(dir.path());
    settings.push("--authorization-enabled=true".to_owned());
    settings.push("--authorization-super-user-roles=root".to_owned());
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    Node::start(data.path(), &settings)
}

/// A person with the token of a role.
fn person(node: &Node, dir: &TempDir, role: &str) -> Person {
    let (person, token) = (Person::new(), dir.path().join(role));
    std::fs::write(&token, sign::with_secret(&SECRET, &Claims::of(role)).unwrap()).unwrap();
    let url = node.admin_url();
    person.does(&[
        "context",
        "add",
        "here",
        "--url",
        &url,
        "--token-file",
        text(&token),
    ]);
    person
}

fn shown(person: &Person, arguments: &[&str]) -> Value {
    serde_json::from_str(&person.does(arguments)).unwrap()
}

#[test]
fn a_cluster_is_made_known_shown_replaced_and_forgotten() {
    let (data, dir) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let node = guarded(&data, &dir);
    let root = person(&node, &dir, "root");
    let own = root.does(&["clusters", "list"]);
    root.does(&[
        "clusters",
        "create",
        "west",
        "--broker-url",
        "pulsar://west:6650",
        "--broker-url-tls",
        "pulsar+ssl://west:6651",
        "--admin-url",
        "http://west:8080",
        "--trust-certs",
        "/etc/west.pem",
        "--remote-auth-plugin",
        "AuthenticationToken",
        "--remote-auth-params",
        "token:abc",
    ]);
    assert_eq!(root.does(&["clusters", "list"]), format!("{own}west\n"));
    let west = shown(&root, &["clusters", "show", "west"]);
    for (member, value) in [
        ("brokerServiceUrl", json!("pulsar://west:6650")),
        ("brokerServiceUrlTls", json!("pulsar+ssl://west:6651")),
        ("serviceUrl", json!("http://west:8080")),
        ("brokerClientTlsEnabled", json!(true)),
        ("brokerClientTrustCertsFilePath", json!("/etc/west.pem")),
        ("authenticationPlugin", json!("AuthenticationToken")),
        ("authenticationParameters", json!("token:abc")),
    ] {
        assert_eq!(west[member], value, "{member} of {west}");
    }
    // All of it is replaced: what is not said is gone.
    root.does(&["clusters", "update", "west", "--broker-url", "pulsar://west:7650"]);
    let west = shown(&root, &["clusters", "show", "west"]);
    assert_eq!(west["brokerServiceUrl"], "pulsar://west:7650");
    for gone in [
        "brokerServiceUrlTls",
        "serviceUrl",
        "authenticationPlugin",
        "brokerClientTrustCertsFilePath",
    ] {
        assert!(west.get(gone).is_none_or(Value::is_null), "{gone} of {west}");
    }
    root.does(&["clusters", "delete", "west"]);
    assert_eq!(root.does(&["clusters", "list"]), own);
    assert!(
        root.fails(&["clusters", "show", "west"], 1)
            .contains("does not exist")
    );
}

#[test]
fn what_is_wrong_with_a_cluster_is_said_and_nothing_is_changed() {
    let (data, dir) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let node = guarded(&data, &dir);
    let (root, ann) = (person(&node, &dir, "root"), person(&node, &dir, "ann"));
    let west = ["west", "--broker-url", "pulsar://west:6650"];
    root.does(&[&["clusters", "create"][..], &west].concat());
    let before = (
        root.does(&["clusters", "list"]),
        root.does(&["clusters", "show", "west"]),
    );

    let url = ["--broker-url", "pulsar://other:6650"];
    for (arguments, reason) in [
        (&["clusters", "create", "west"][..], "already exists"),
        (&["clusters", "create", "we/st"], "not valid"),
        (&["clusters", "create", "we st"], "not valid"),
        (&["clusters", "update", "east"], "does not exist"),
        (&["clusters", "delete", "east"], "does not exist"),
        (&["clusters", "show", "east"], "does not exist"),
    ] {
        let asks = matches!(arguments.get(1), Some(&"create" | &"update"));
        let arguments = [arguments, if asks { &url[..] } else { &[] }].concat();
        let said = root.fails(&arguments, 1);
        assert!(said.contains(reason), "{arguments:?}: {said}");
    }
    // Of another kind than the broker can use.
    let said = root.fails(
        &["clusters", "update", "west", "--broker-url", "http://west:8080"],
        1,
    );
    assert!(said.contains("pulsar://"), "{said}");
    let plugin = [
        "--remote-auth-plugin",
        "AuthenticationSomething",
        "--remote-auth-params",
        "x",
    ];
    let said = root.fails(&[&["clusters", "update"][..], &west, &plugin].concat(), 1);
    assert!(said.contains("AuthenticationSomething"), "{said}");
    // And what the command line alone knows to be incomplete.
    root.fails(
        &["clusters", "update", "west", "--trust-certs", "/etc/west.pem"],
        2,
    );
    root.fails(&["clusters", "create"], 2);

    // Who may not do it.
    let anyone = Person::new();
    let there = ["--url", &node.admin_url()];
    for arguments in [
        &["clusters", "create", "east", "--broker-url", "pulsar://east:6650"][..],
        &["clusters", "update", "west", "--broker-url", "pulsar://east:6650"],
        &["clusters", "delete", "west"],
    ] {
        ann.fails(arguments, 1);
        anyone.fails(&[arguments, &there].concat(), 1);
    }
    let after = (
        root.does(&["clusters", "list"]),
        root.does(&["clusters", "show", "west"]),
    );
    assert_eq!(after, before);
}

#[test]
fn a_tenant_is_updated_by_who_may() {
    let (data, dir) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let node = guarded(&data, &dir);
    let (root, ann) = (person(&node, &dir, "root"), person(&node, &dir, "ann"));
    let own = root.does(&["clusters", "list"]);
    let own = own.trim();
    root.does(&["clusters", "create", "west", "--broker-url", "pulsar://west:6650"]);
    root.does(&[
        "tenants",
        "create",
        "city",
        "--cluster",
        own,
        "--admin-role",
        "ann",
    ]);
    let get = ["tenants", "get", "city", "--output", "json"];
    let update = ["tenants", "update", "city", "--cluster", own];
    root.does(
        &[
            &update[..],
            &["--cluster", "west", "--admin-role", "bob", "--admin-role", "eve"],
        ]
        .concat(),
    );
    let city = shown(&root, &get);
    assert_eq!(city["allowedClusters"], json!([own, "west"]));
    assert_eq!(city["adminRoles"], json!(["bob", "eve"]));
    // Replaced, not added to.
    root.does(&update);
    assert_eq!(
        shown(&root, &get),
        json!({"allowedClusters": [own], "adminRoles": []})
    );

    for (arguments, reason) in [
        (
            &["tenants", "update", "town", "--cluster", own][..],
            "does not exist",
        ),
        (
            &["tenants", "update", "city", "--cluster", "east"],
            "do not exist",
        ),
        (&["tenants", "update", "city", "--cluster", " "], "empty"),
    ] {
        let said = root.fails(arguments, 1);
        assert!(said.contains(reason), "{arguments:?}: {said}");
    }
    root.fails(&["tenants", "update", "city"], 2);
    ann.fails(&[&update[..], &["--admin-role", "ann"]].concat(), 1);
    assert_eq!(
        shown(&root, &get),
        json!({"allowedClusters": [own], "adminRoles": []})
    );
}
