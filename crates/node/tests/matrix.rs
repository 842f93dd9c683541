//! Every command and every endpoint with every kind of credentials: each answer is as `docs/reference/matrix.md` says.
//!
//! What a cell says follows from the permission table of the code ([`Action::need`]), the decisions about commands
//! ([`pharos_pulsar::decision`]) and [`Who::has`]. The page is made from the same: `PHAROS_TEST_UPDATE=1 cargo test -p pharos --test matrix`.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::fmt::Write as _;
use std::path::Path;

use bytes::Bytes;
use pharos_admin_api::routes::{self, Method, Route};
use pharos_auth::{Action, Need};
use pharos_client::RawConnection;
use pharos_identity::sign::{self, Algorithm, Claims};
use pharos_pulsar::{Decision, decision};
use pharos_wire::command::{Command, CommandType};
use pharos_wire::proto::command_get_topics_of_namespace::Mode;
use pharos_wire::proto::command_subscribe::SubType;
use pharos_wire::proto::{self, CommandConnect, ServerError, schema};
use pharos_wire::request;

mod support;

use support::{Node, soon};

const SECRET: [u8; 32] = [7; 32];
const TOPIC: &str = "persistent://t/n/x";

/// Credentials that let no client in.
const BAD: [&str; 6] = [
    "no credentials",
    "expired",
    "forged",
    "alg none",
    "wrong audience",
    "wrong issuer",
];

/// Who has good credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    /// Administrator of another tenant.
    OtherTenant,
    /// A vehicle that asks in the name of another one.
    OtherVehicle,
    /// A vehicle that was granted `produce` and `consume`, where consumers' names are bound to roles.
    Vehicle,
    /// Administrator of the tenant.
    TenantAdmin,
    SuperUser,
}

impl Who {
    const ALL: [Self; 5] = [
        Self::OtherTenant,
        Self::OtherVehicle,
        Self::Vehicle,
        Self::TenantAdmin,
        Self::SuperUser,
    ];

    fn role(self) -> &'static str {
        match self {
            Self::OtherTenant => "stranger",
            Self::OtherVehicle => "car-2",
            Self::Vehicle => "car-1",
            Self::TenantAdmin => "boss",
            Self::SuperUser => "root",
        }
    }

    /// Whether it has what is needed for something in the tenant.
    fn has(self, need: Need) -> bool {
        let is_vehicle = matches!(self, Self::Vehicle | Self::OtherVehicle);
        match need {
            Need::Nothing | Need::Metrics | Need::AnyRole => true,
            Need::SuperUser => self == Self::SuperUser,
            Need::Produce | Need::Consume | Need::ProduceOrConsume | Need::ProduceAndConsume
                if is_vehicle =>
            {
                true
            }
            _ => matches!(self, Self::TenantAdmin | Self::SuperUser),
        }
    }

    /// The same where it is about a consumer under the name `car-1`.
    fn has_for(self, need: Need, is_named: bool) -> bool {
        self.has(need) && !(is_named && self == Self::OtherVehicle)
    }
}

fn node(dir: &Path) -> Node {
    std::fs::write(dir.join("secret"), SECRET).unwrap();
    let secret = format!(
        "--authentication-token-secret-key=file://{}/secret",
        dir.display()
    );
    let settings = [
        "--authentication-enabled=true",
        "--authentication-providers=token",
        "--authentication-token-audience-claim=aud",
        "--authentication-token-audience=pharos",
        "--authorization-enabled=true",
        "--authorization-super-user-roles=root",
        &secret,
    ];
    let node = Node::start(&dir.join("data"), &settings);
    let tenant = |role: &str| format!(r#"{{"adminRoles":["{role}"],"allowedClusters":["standalone"]}}"#);
    for (method, path, body) in [
        ("PUT", "tenants/t", tenant("boss").as_str()),
        ("PUT", "tenants/other", &tenant("stranger")),
        ("PUT", "namespaces/t/n", ""),
        (
            "POST",
            "namespaces/t/n/permissions/car-1",
            r#"["produce","consume"]"#,
        ),
        (
            "POST",
            "namespaces/t/n/permissions/car-2",
            r#"["produce","consume"]"#,
        ),
        ("PUT", "namespaces/t/n/property/pharos.consumerNames/role", ""),
        ("PUT", "persistent/t/n/x", ""),
    ] {
        let (status, answer) =
            node.call_with(&bearer(&good("root")), method, &format!("/admin/v2/{path}"), body);
        assert!((200..300).contains(&status), "{method} {path}: {status} {answer}");
    }
    node
}

fn good(role: &str) -> String {
    sign::with_secret(&SECRET, &Claims::of(role).with("aud", "pharos")).unwrap()
}

/// A token of a superuser that is wrong in this way; `None`: none at all.
fn bad(kind: &str) -> Option<String> {
    let root = || Claims::of("root").with("aud", "pharos");
    let now = pharos_runtime::clock::wall_ms() / 1000;
    let signed = |secret: &[u8], claims: &Claims| sign::with_secret(secret, claims).unwrap();
    Some(match kind {
        "expired" => signed(&SECRET, &root().until(now - 60)),
        "forged" => signed(&[8; 32], &root()),
        // {"alg":"none"} and what a superuser's says, without a signature.
        "alg none" => "eyJhbGciOiJub25lIn0.eyJzdWIiOiJyb290IiwiYXVkIjoicGhhcm9zIn0.".to_owned(),
        "wrong audience" => signed(&SECRET, &Claims::of("root").with("aud", "other")),
        "wrong issuer" => {
            let pair = sign::key_pair(Algorithm::ES256).unwrap();
            let claims = root().with("iss", "https://elsewhere.example");
            sign::with_private_key(&pair.private, Algorithm::ES256, &claims).unwrap()
        }
        _ => return None,
    })
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\n")
}

fn connect(token: Option<String>) -> CommandConnect {
    CommandConnect {
        auth_method_name: token.as_ref().map(|_| "token".to_owned()),
        auth_data: token.map(Bytes::from),
        ..request::connect("test")
    }
}

/// Every type of command there is.
fn types() -> impl Iterator<Item = CommandType> {
    (0..1000).filter_map(|number| CommandType::try_from(number).ok())
}

/// A command of a type, about the topic; `None`: only brokers send it, or it is of a feature that is not served, and a client that
/// lets us make one is not at hand.
fn command_of(kind: CommandType, who: Who) -> Option<Command> {
    use CommandType as C;
    let schema = || proto::Schema {
        name: "s".to_owned(),
        r#type: schema::Type::String as i32,
        ..Default::default()
    };
    let latest = proto::MessageIdData {
        ledger_id: i64::MAX as u64,
        entry_id: i64::MAX as u64,
        ..Default::default()
    };
    Some(match kind {
        C::PartitionedMetadata => request::partitioned_metadata(TOPIC, 7).into(),
        C::Lookup => request::lookup(TOPIC, 7, true).into(),
        C::Producer => request::producer(TOPIC, 9, 7, None).into(),
        C::Subscribe => consumer("car-1", 9, who).into(),
        C::GetTopicsOfNamespace => request::topics_of_namespace(7, "t/n", Mode::All).into(),
        C::WatchTopicList => request::watch_topic_list(7, 9, "t/n", ".*").into(),
        C::GetSchema => request::schema(7, TOPIC, None),
        C::GetOrCreateSchema => request::get_or_create_schema(7, TOPIC, schema()),
        C::Unsubscribe => request::unsubscribe(1, 7, true),
        C::Seek => request::seek(1, 7, latest),
        C::GetLastMessageId => request::last_message_id(1, 7),
        C::ConsumerStats => request::consumer_stats(1, 7),
        _ => return None,
    })
}

/// A consumer of a subscription that all share; each of its consumers has a place by its name.
fn consumer(name: &str, id: u64, who: Who) -> proto::CommandSubscribe {
    // One subscription each, so that no test takes what another one needs.
    let subscription = format!("of-{}", who.role());
    let mut consumer = request::subscribe(TOPIC, &subscription, SubType::Exclusive, id, 7);
    consumer.consumer_name = Some(name.to_owned());
    consumer.metadata.push(proto::KeyValue {
        key: "pharos.subscription".to_owned(),
        value: "broadcast".to_owned(),
    });
    consumer
}

async fn next(raw: &mut RawConnection) -> Result<Command, pharos_client::ClientError> {
    soon("an answer, or the end", raw.next_command()).await
}

/// The error of the answer to a command; `None`: it was done.
async fn error_of(raw: &mut RawConnection, command: Command) -> Option<i32> {
    raw.send(command).await.unwrap();
    loop {
        return match next(raw).await.unwrap() {
            Command::ActiveConsumerChange(_) | Command::CloseConsumer(_) | Command::WatchTopicUpdate(_) => {
                continue;
            }
            Command::Error(answer) => Some(answer.error),
            Command::PartitionedMetadataResponse(answer) => answer.error,
            Command::LookupResponse(answer) => answer.error,
            Command::GetSchemaResponse(answer) => answer.error_code,
            Command::GetOrCreateSchemaResponse(answer) => answer.error_code,
            Command::ConsumerStatsResponse(answer) => answer.error_code,
            _ => None,
        };
    }
}

async fn connected(node: &Node, who: Who) -> RawConnection {
    let mut raw = node.stranger().await;
    raw.send(Command::Connect(Box::new(connect(Some(good(who.role()))))))
        .await
        .unwrap();
    let answer = next(&mut raw).await.unwrap();
    assert!(matches!(answer, Command::Connected(_)), "{who:?}: {answer:?}");
    raw
}

/// Whatever comes first, and whatever comes after bad credentials, is not answered.
#[tokio::test]
async fn no_command_is_answered_with_bad_credentials() {
    let dir = tempfile::tempdir().unwrap();
    let node = node(dir.path());
    for kind in types() {
        let Some(command) = command_of(kind, Who::SuperUser) else {
            continue;
        };
        let mut raw = node.stranger().await;
        raw.send(command.clone()).await.unwrap();
        assert!(next(&mut raw).await.is_err(), "{kind:?} before CONNECT");
        for what in BAD {
            let mut raw = node.stranger().await;
            let connect = Command::Connect(Box::new(connect(bad(what))));
            raw.send(connect).await.unwrap();
            // The connection may be closed by now.
            let _ = raw.send(command.clone()).await;
            let mut answers = Vec::new();
            while let Ok(answer) = next(&mut raw).await {
                answers.push(answer);
            }
            let is_refusal = |answer: &Command| {
                matches!(answer, Command::Error(error) if error.error == ServerError::AuthenticationError as i32
                    && error.request_id == pharos_wire::NO_REQUEST_ID)
            };
            assert!(
                answers.len() <= 1 && answers.iter().all(is_refusal),
                "{kind:?} with {what}: {answers:?}"
            );
        }
    }
    let topics = node.call_with(&bearer(&good("root")), "GET", "/admin/v2/persistent/t/n", "");
    assert_eq!(topics.1, format!("[\"{TOPIC}\"]"), "nothing was made");
    node.stop();
}

#[tokio::test]
async fn every_command_answers_each_role_as_its_need_says() {
    let dir = tempfile::tempdir().unwrap();
    let node = node(dir.path());
    let denied = Some(ServerError::AuthorizationError as i32);
    for kind in types() {
        let decided = decision(kind);
        for who in Who::ALL {
            let is_about_consumer = matches!(decided, Decision::AsksOfConsumer(_));
            let (Decision::Asks(actions) | Decision::AsksOfConsumer(actions)) = decided else {
                continue;
            };
            let command = command_of(kind, who).unwrap_or_else(|| panic!("no {kind:?} is tried"));
            let mut raw = connected(&node, who).await;
            if is_about_consumer {
                // Its own, under its own name.
                let own = error_of(&mut raw, consumer(who.role(), 1, who).into()).await;
                if !who.has(Need::Consume) {
                    assert_eq!(
                        own, denied,
                        "{who:?} has no consumer that {kind:?} could be about"
                    );
                    continue;
                }
                assert_eq!(own, None, "{who:?}");
            }
            let need = actions[0].need();
            let may = who.has_for(need, kind == CommandType::Subscribe);
            let error = error_of(&mut raw, command).await;
            assert_eq!(error == denied, !may, "{kind:?} by {who:?}: {error:?}");
        }
    }
    node.stop();
}

/// A request for a row, about things of this namespace.
fn path_of(route: &Route, tenant: &str, namespace: &str) -> String {
    let parts = route.path.split('/').map(|part| match part {
        "{domain}" => "persistent",
        "{tenant}" => tenant,
        "{namespace}" => namespace,
        "{cluster}" => "none",
        "{bundle}" => "0x00000000_0xffffffff",
        name if name.starts_with('{') => "1",
        literal => literal,
    });
    parts.collect::<Vec<_>>().join("/")
}

fn status(node: &Node, headers: &str, route: &Route, path: &str) -> u16 {
    node.call_with(headers, route.method.as_str(), path, "").0
}

#[tokio::test]
async fn every_endpoint_answers_each_kind_of_credentials_as_its_need_says() {
    let dir = tempfile::tempdir().unwrap();
    let node = node(dir.path());
    for route in routes::all() {
        let (need, path) = (route.action.need(), path_of(route, "t", "n"));
        let is_open = matches!(need, Need::Nothing | Need::Metrics);
        for what in BAD {
            let headers = bad(what).map(|token| bearer(&token)).unwrap_or_default();
            let status = status(&node, &headers, route, &path);
            assert_eq!(status == 401, !is_open, "{} with {what}: {status}", route.id());
        }
        // What is about no tenant belongs to the whole cluster: there only superusers have more than a role.
        let is_of_tenant = route.path_parameters().any(|name| name == "tenant");
        for who in Who::ALL {
            let any = is_open || need == Need::AnyRole;
            let may = any || who == Who::SuperUser || (is_of_tenant && who.has(need));
            if may && route.method != Method::Get {
                // Asking would do it: below.
                continue;
            }
            let status = status(&node, &bearer(&good(who.role())), route, &path);
            let is_denied = status == 401 || status == 403;
            assert_eq!(is_denied, !may, "{} by {who:?}: {status}", route.id());
        }
    }
    node.stop();
}

/// Those that change something, by who may: on things that are not there, or that nothing needs.
#[tokio::test]
async fn every_endpoint_that_changes_something_is_open_to_who_may() {
    let dir = tempfile::tempdir().unwrap();
    let node = node(dir.path());
    for route in routes::all().filter(|route| route.method != Method::Get) {
        let need = route.action.need();
        let is_of_tenant = route.path_parameters().any(|name| name == "tenant");
        let of_root = path_of(route, "absent", "none");
        let mut asked = vec![("root", of_root)];
        if is_of_tenant && need != Need::SuperUser {
            asked.push(("boss", path_of(route, "t", "none")));
        }
        for (role, path) in asked {
            let status = status(&node, &bearer(&good(role)), route, &path);
            assert!(
                status != 401 && status != 403,
                "{} by {role}: {status}",
                route.id()
            );
        }
    }
    node.stop();
}

const HEADER: &str = "<!-- Generated by `PHAROS_TEST_UPDATE=1 cargo test -p pharos --test matrix` from the permission table. Do not edit. -->

# Who may do what: the matrix

What each command and each endpoint answers to each kind of credentials, with authentication and authorization on. Tested cell by cell in
`crates/node/tests/matrix.rs`. What the needs mean: [permissions.md](permissions.md), which names the endpoints of each action.

Bad credentials (none, expired, forged, without a signature, for another audience, of another issuer) are answered alike: HTTP with 401,
but for what needs nothing; the Pulsar protocol with `AuthenticationError` to CONNECT, and the end of the connection. No command is
looked at before CONNECT has been answered.

The roles: an administrator of *another tenant*; a vehicle that asks under the name of *another vehicle*; the *vehicle* itself, which was granted
`produce` and `consume` in a namespace that binds consumers' names to roles; an administrator of the *tenant*; a *superuser*. `no` is 403, and
`AuthorizationError`.
";

/// As Pulsar's protocol writes it: `GetLastMessageId` is GET_LAST_MESSAGE_ID.
fn name_of(kind: CommandType) -> String {
    let mut name = String::new();
    for letter in format!("{kind:?}").chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.extend(letter.to_uppercase());
    }
    name
}

fn page() -> String {
    let mut out = HEADER.to_owned();
    let word = |may: bool| if may { "yes" } else { "no" };
    out.push_str("\n## By need\n\n| needs | bad credentials | another tenant | vehicle | tenant | superuser |\n|---|---|---|---|---|---|\n");
    for need in Need::ALL {
        let is_open = matches!(need, Need::Nothing | Need::Metrics);
        let cells = [Who::OtherTenant, Who::Vehicle, Who::TenantAdmin, Who::SuperUser]
            .map(|who| word(who.has(*need)));
        writeln!(out, "| {need} | {} | {} |", word(is_open), cells.join(" | ")).unwrap();
    }
    out.push_str("\n## By command of the Pulsar protocol\n\n| command | asks for | bad credentials | another tenant | another vehicle | vehicle | tenant | superuser |\n|---|---|---|---|---|---|---|---|\n");
    for kind in types() {
        let asks = |actions: &[Action]| {
            let each = actions
                .iter()
                .map(|action| format!("{action} ({})", action.need()));
            each.collect::<Vec<_>>().join(", or ")
        };
        let name = name_of(kind);
        let (what, cells) = match decision(kind) {
            Decision::Asks(actions) => {
                let of = |who: Who| word(who.has_for(actions[0].need(), kind == CommandType::Subscribe));
                (asks(actions), Who::ALL.map(of))
            }
            Decision::AsksOfConsumer(actions) => {
                let of = |who: Who| match who.has(Need::Consume) {
                    true => word(who.has(actions[0].need())),
                    false => "has no consumer",
                };
                (
                    format!("{}, of its own consumer", asks(actions)),
                    Who::ALL.map(of),
                )
            }
            Decision::Proves => ("who it is".to_owned(), ["yes"; 5]),
            Decision::Attached => (
                "nothing: it belongs to a producer, consumer or watch that was let in".to_owned(),
                ["yes"; 5],
            ),
            Decision::Connection => ("nothing: it concerns the connection alone".to_owned(), ["yes"; 5]),
            Decision::NotServed => (
                "nothing: the feature is not served".to_owned(),
                ["`NotAllowedError`"; 5],
            ),
            // Named together below.
            Decision::OfBrokers => continue,
        };
        writeln!(out, "| `{name}` | {what} | closed | {} |", cells.join(" | ")).unwrap();
    }
    let brokers = types().filter(|kind| decision(*kind) == Decision::OfBrokers);
    let names: Vec<String> = brokers.map(|kind| format!("`{}`", name_of(kind))).collect();
    writeln!(
        out,
        "\nOnly a broker sends these; a client that does is closed: {}.",
        names.join(", ")
    )
    .unwrap();
    out
}

#[test]
fn the_page_is_fresh() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/matrix.md");
    let now = page();
    if std::env::var_os("PHAROS_TEST_UPDATE").is_some() {
        return std::fs::write(path, now).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        kept == now,
        "docs/reference/matrix.md is stale; see the head of this file"
    );
}
