//! Every command and every endpoint with every kind of credentials: each answer is as `docs/reference/matrix.md` says.
//!
//! What a cell says follows from the permission table of the code ([`Action::need`]), the decisions about commands
//! ([`pharos_pulsar::decision`]) and [`Who::has`]. The page is made from the same: `PHAROS_TEST_UPDATE=1 cargo test -p pharos --test security matrix`.

use std::path::Path;

use bytes::Bytes;
use pharos_admin_api::routes::{self, Method, Route};
use pharos_auth::Need;
use pharos_client::RawConnection;
use pharos_identity::sign::{self, Algorithm, Claims};
use pharos_identity::test_issuer::TestIssuer;
use pharos_pulsar::{Decision, decision};
use pharos_wire::command::{Command, CommandType};
use pharos_wire::proto::command_get_topics_of_namespace::Mode;
use pharos_wire::proto::command_subscribe::SubType;
use pharos_wire::proto::{self, CommandConnect, ServerError, schema};
use pharos_wire::request;

#[path = "matrix_page.rs"]
mod page;
#[path = "matrix_web_socket.rs"]
mod web_socket;

use crate::support::web_socket::WEB_SOCKETS;
use crate::support::{Node, soon};

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

/// Client with valid credentials.
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

    /// True if the client has the required permission in the tenant.
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

    /// True if the client has the required permission; `is_named`: for a consumer named `car-1`.
    fn has_for(self, need: Need, is_named: bool) -> bool {
        self.has(need) && !(is_named && self == Self::OtherVehicle)
    }
}

/// Signer of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Voucher {
    /// The broker's own: the provider `token`.
    Own,
    /// An external issuer: the provider `openid`.
    OpenId,
}

impl Voucher {
    const ALL: [Self; 2] = [Self::Own, Self::OpenId];

    fn said(self) -> &'static str {
        match self {
            Self::Own => "`token`: signed with the broker's key",
            Self::OpenId => "`openid`: signed with a key that an allowed issuer publishes",
        }
    }
}

/// A broker with a tenant, and those who give tokens for it.
struct House {
    node: Node,
    /// Issuer whose tokens are accepted, followed by one whose tokens are not.
    issuer: TestIssuer,
    other_issuer: TestIssuer,
}

impl House {
    fn new(dir: &Path) -> Self {
        std::fs::write(dir.join("secret"), SECRET).unwrap();
        let (issuer, other_issuer) = (TestIssuer::start(), TestIssuer::start());
        let secret = format!(
            "--authentication-token-secret-key=file://{}/secret",
            dir.display()
        );
        let issuers = format!("--openid-allowed-token-issuers={}", issuer.url());
        let settings = [
            "--authentication-enabled=true",
            "--authentication-providers=token,openid",
            "--authentication-token-audience-claim=aud",
            "--authentication-token-audience=pharos",
            "--openid-allowed-audiences=pharos",
            "--openid-require-issuers-use-https=false",
            "--authorization-enabled=true",
            "--authorization-super-user-roles=root",
            WEB_SOCKETS,
            &secret,
            &issuers,
        ];
        let node = Node::start(&dir.join("data"), &settings);
        let house = Self {
            node,
            issuer,
            other_issuer,
        };
        house.furnish();
        house
    }

    fn furnish(&self) {
        let tenant = |role: &str| format!(r#"{{"adminRoles":["{role}"],"allowedClusters":["standalone"]}}"#);
        let grant = r#"["produce","consume"]"#;
        for (method, path, body) in [
            ("PUT", "tenants/t", tenant("boss").as_str()),
            ("PUT", "tenants/other", &tenant("stranger")),
            ("PUT", "namespaces/t/n", ""),
            ("POST", "namespaces/t/n/permissions/car-1", grant),
            ("POST", "namespaces/t/n/permissions/car-2", grant),
            ("PUT", "namespaces/t/n/property/pharos.consumerNames/role", ""),
            ("PUT", "persistent/t/n/x", ""),
        ] {
            let (status, answer) = self.as_role("root", method, &format!("/admin/v2/{path}"), body);
            assert!((200..300).contains(&status), "{method} {path}: {status} {answer}");
        }
    }

    /// A token that gives this role.
    fn good(&self, voucher: Voucher, role: &str) -> String {
        match voucher {
            Voucher::Own => sign::with_secret(&SECRET, &Claims::of(role).with("aud", "pharos")).unwrap(),
            Voucher::OpenId => self.issuer.token(&self.issuer.claims(role, "pharos")),
        }
    }

    /// A token of a superuser that is wrong in this way; `None`: none at all.
    fn bad(&self, voucher: Voucher, what: &str) -> Option<String> {
        match voucher {
            Voucher::Own => own_bad(what),
            Voucher::OpenId => self.issued_bad(what),
        }
    }

    /// Such a token, as of an issuer.
    fn issued_bad(&self, what: &str) -> Option<String> {
        let root = || self.issuer.claims("root", "pharos");
        Some(match what {
            "expired" => self.issuer.token(&root().until(now() - 60)),
            // Another key under the name of the right one.
            "forged" => self.other_issuer.token(&root()),
            "alg none" => self.issuer.unsigned(&root()),
            "wrong audience" => self.issuer.token(&self.issuer.claims("root", "other")),
            "wrong issuer" => self
                .other_issuer
                .token(&self.other_issuer.claims("root", "pharos")),
            "no credentials" => return None,
            other => panic!("{other} is not tried"),
        })
    }

    /// Status and body of a call by who has this role.
    fn as_role(&self, role: &str, method: &str, path: &str, body: &str) -> (u16, String) {
        let token = self.good(Voucher::Own, role);
        self.node.call_with(&bearer(&token), method, path, body)
    }

    async fn connected(&self, voucher: Voucher, who: Who) -> RawConnection {
        let mut raw = self.node.stranger().await;
        let connect = connect(Some(self.good(voucher, who.role())));
        raw.send(Command::Connect(Box::new(connect))).await.unwrap();
        let answer = next(&mut raw).await.unwrap();
        assert!(
            matches!(answer, Command::Connected(_)),
            "{who:?} by {voucher:?}: {answer:?}"
        );
        raw
    }
}

fn now() -> u64 {
    pharos_runtime::clock::wall_ms() / 1000
}

/// A token of a superuser that is wrong in this way, as of the broker's own key.
fn own_bad(what: &str) -> Option<String> {
    let root = || Claims::of("root").with("aud", "pharos");
    let signed = |secret: &[u8], claims: &Claims| sign::with_secret(secret, claims).unwrap();
    Some(match what {
        "expired" => signed(&SECRET, &root().until(now() - 60)),
        "forged" => signed(&[8; 32], &root()),
        // {"alg":"none"} and what a superuser's says, without a signature.
        "alg none" => "eyJhbGciOiJub25lIn0.eyJzdWIiOiJyb290IiwiYXVkIjoicGhhcm9zIn0.".to_owned(),
        "wrong audience" => signed(&SECRET, &Claims::of("root").with("aud", "other")),
        "wrong issuer" => {
            let pair = sign::key_pair(Algorithm::ES256).unwrap();
            let claims = root().with("iss", "https://elsewhere.example");
            sign::with_private_key(&pair.private, Algorithm::ES256, &claims).unwrap()
        }
        "no credentials" => return None,
        other => panic!("{other} is not tried"),
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

/// No command is answered before CONNECT, or after invalid credentials.
#[tokio::test]
async fn no_command_is_answered_with_bad_credentials() {
    let dir = tempfile::tempdir().unwrap();
    let house = House::new(dir.path());
    let shown = || {
        Voucher::ALL
            .into_iter()
            .flat_map(|voucher| BAD.map(|what| (voucher, what)))
    };
    for kind in types() {
        let Some(command) = command_of(kind, Who::SuperUser) else {
            continue;
        };
        let mut raw = house.node.stranger().await;
        raw.send(command.clone()).await.unwrap();
        assert!(next(&mut raw).await.is_err(), "{kind:?} before CONNECT");
        for (voucher, what) in shown() {
            let mut raw = house.node.stranger().await;
            let connect = Command::Connect(Box::new(connect(house.bad(voucher, what))));
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
                "{kind:?} with {what} by {voucher:?}: {answers:?}"
            );
        }
    }
    let topics = house.as_role("root", "GET", "/admin/v2/persistent/t/n", "");
    assert_eq!(topics.1, format!("[\"{TOPIC}\"]"), "nothing was made");
    house.node.stop();
}

#[tokio::test]
async fn every_command_answers_each_role_as_its_need_says() {
    let dir = tempfile::tempdir().unwrap();
    let house = House::new(dir.path());
    let denied = Some(ServerError::AuthorizationError as i32);
    for kind in types() {
        let decided = decision(kind);
        let all = || {
            Voucher::ALL
                .into_iter()
                .flat_map(|voucher| Who::ALL.map(|who| (voucher, who)))
        };
        for (voucher, who) in all() {
            let is_about_consumer = matches!(decided, Decision::AsksOfConsumer(_));
            let (Decision::Asks(actions) | Decision::AsksOfConsumer(actions)) = decided else {
                continue;
            };
            let command = command_of(kind, who).unwrap_or_else(|| panic!("no {kind:?} is tried"));
            let mut raw = house.connected(voucher, who).await;
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
            assert_eq!(
                error == denied,
                !may,
                "{kind:?} by {who:?} of {voucher:?}: {error:?}"
            );
        }
    }
    house.node.stop();
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

fn status(house: &House, headers: &str, route: &Route, path: &str) -> u16 {
    house.node.call_with(headers, route.method.as_str(), path, "").0
}

#[tokio::test]
async fn every_endpoint_answers_each_kind_of_credentials_as_its_need_says() {
    let dir = tempfile::tempdir().unwrap();
    let house = House::new(dir.path());
    for route in routes::all() {
        let (need, path) = (route.action.need(), path_of(route, "t", "n"));
        let is_open = matches!(need, Need::Nothing | Need::Metrics);
        for (voucher, what) in Voucher::ALL
            .into_iter()
            .flat_map(|voucher| BAD.map(|what| (voucher, what)))
        {
            let headers = house.bad(voucher, what).map(|token| bearer(&token));
            let status = status(&house, &headers.unwrap_or_default(), route, &path);
            assert_eq!(
                status == 401,
                !is_open,
                "{} with {what} by {voucher:?}: {status}",
                route.id()
            );
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
            for voucher in Voucher::ALL {
                let token = house.good(voucher, who.role());
                let status = status(&house, &bearer(&token), route, &path);
                let is_denied = status == 401 || status == 403;
                assert_eq!(
                    is_denied,
                    !may,
                    "{} by {who:?} of {voucher:?}: {status}",
                    route.id()
                );
            }
        }
    }
    house.node.stop();
}

/// Endpoints that change something are open to permitted roles: tried on things that do not exist, or that nothing
/// needs.
#[tokio::test]
async fn every_endpoint_that_changes_something_is_open_to_who_may() {
    let dir = tempfile::tempdir().unwrap();
    let house = House::new(dir.path());
    for route in routes::all().filter(|route| route.method != Method::Get) {
        let need = route.action.need();
        let is_of_tenant = route.path_parameters().any(|name| name == "tenant");
        let of_root = path_of(route, "absent", "none");
        let mut asked = vec![("root", of_root)];
        if is_of_tenant && need != Need::SuperUser {
            asked.push(("boss", path_of(route, "t", "none")));
        }
        for (role, path) in asked {
            for voucher in Voucher::ALL {
                let token = house.good(voucher, role);
                let status = status(&house, &bearer(&token), route, &path);
                assert!(
                    status != 401 && status != 403,
                    "{} by {role} of {voucher:?}: {status}",
                    route.id()
                );
            }
        }
    }
    house.node.stop();
}
