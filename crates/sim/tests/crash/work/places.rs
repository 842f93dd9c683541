//! Metadata that administrators write: a tenant with a namespace, policies, and a partitioned topic with its schemas.
//!
//! Each is a fact of the model, as the text of the last answer. A request that was not answered leaves several texts
//! that may be true until the next look; no request is made about such a fact before.

use std::collections::BTreeMap;
use std::rc::Rc;

use pharos_admin_api::TenantInfo;
use pharos_broker_admin::{AdminError, Place};
use pharos_catalog::Policies;
use pharos_catalog::schema::{SchemaInfo, SchemaType};
use pharos_runtime::random::Random;
use pharos_sim::tell;
use pharos_types::{NamespaceName, TopicName};
use serde_json::json;

use super::{Request, World, subscription_name, topic_name};
use crate::process::{Alive, Died, Process};

const PARTS: &str = "persistent://t/sync/parts";
const PARTS_MAX: u32 = 5;
const SUBSCRIPTION: &str = "s";
const TENANT: &str = "u";
const POLICY: &str = "max_topics_per_namespace";
const TOPIC_POLICY: &str = "maxProducers";
const SCHEMAS_MAX: usize = 6;
/// Half seconds that a deletion which was begun may take to be finished.
const FINISHING_MAX: usize = 120;

/// Share of the items that have a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Share {
    None,
    Some,
    All,
}

/// Known state of the partitioned topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Parts {
    partitions: u32,
    /// Every partition exists.
    made: bool,
    policy: usize,
    schemas: usize,
    /// Partitions that have the subscription.
    subscribed: Share,
}

impl Parts {
    fn text(self) -> String {
        let Self {
            partitions,
            made,
            policy,
            schemas,
            subscribed,
        } = self;
        format!("{partitions} {made} {policy} {schemas} {subscribed:?}")
    }

    fn parse(text: &str) -> Self {
        let words: Vec<_> = text.split(' ').collect();
        Self {
            partitions: words[0].parse().unwrap(),
            made: words[1].parse().unwrap(),
            policy: words[2].parse().unwrap(),
            schemas: words[3].parse().unwrap(),
            subscribed: match words[4] {
                "None" => Share::None,
                "All" => Share::All,
                _ => Share::Some,
            },
        }
    }
}

fn namespace(text: &str) -> NamespaceName {
    let (tenant, local) = text.split_once('/').unwrap();
    NamespaceName::new(tenant, local).unwrap()
}

fn tenant(role: usize) -> TenantInfo {
    TenantInfo {
        admin_roles: vec![role.to_string()],
        allowed_clusters: vec!["standalone".to_owned()],
    }
}

/// A record with so many optional fields: each may follow the one with a field less, and the other way round.
fn schema(fields: usize) -> SchemaInfo {
    let field = |n| json!({ "name": format!("f{n}"), "type": ["null", "string"], "default": null });
    let fields: Vec<_> = (0..fields).map(field).collect();
    let record = json!({ "type": "record", "name": "r", "fields": fields });
    SchemaInfo::new(SchemaType::Avro, record.to_string())
}

type Outcome = Result<(), String>;

fn said<E: std::fmt::Debug>(outcome: Result<(), E>) -> Outcome {
    outcome.map_err(|error| format!("{error:?}"))
}

impl World {
    /// The one text of a fact; `None` while several may be true.
    fn certain(&self, key: &str) -> Option<Option<String>> {
        let model = self.model.borrow();
        match model.facts.get(key).map(Vec::as_slice) {
            None => Some(None),
            Some([only]) => Some(only.clone()),
            Some(_) => None,
        }
    }

    /// Asks for a change of a fact. `on_the_way`: what a crash may leave besides what was there and what is wanted.
    async fn change(
        self: Rc<Self>,
        what: &'static str,
        lock: &'static str,
        key: &'static str,
        on_the_way: Vec<String>,
        wanted: Option<String>,
        request: impl Future<Output = Outcome>,
    ) {
        let under_way = self.request(what);
        {
            let mut model = self.model.borrow_mut();
            for text in &on_the_way {
                model.fact_begins(key, Some(text));
            }
            model.fact_begins(key, wanted.as_deref());
        }
        tell(|| format!("{what}: {key} to {wanted:?}"));
        let outcome = request.await;
        tell(|| format!("{what}: {key} to {wanted:?}: {outcome:?}"));
        if outcome.is_ok() {
            self.reach(what);
            self.model.borrow_mut().fact_holds(key, wanted.as_deref());
        }
        drop(under_way);
        self.changed(lock);
    }

    /// Something that an administrator writes down next.
    pub(super) fn write_down(self: &Rc<Self>, random: &mut Random) -> Option<Request> {
        let number = random.below(1000);
        match random.below(8) {
            0 if self.may_change("policy") => Some(self.set_policy("t/sync", "policy", "policy", number)),
            1..3 => self.change_home(random, number),
            3.. => self.change_parts(random, number),
            _ => None,
        }
    }

    fn set_policy(
        self: &Rc<Self>,
        of: &'static str,
        lock: &'static str,
        key: &'static str,
        number: usize,
    ) -> Request {
        let catalog = self.admin.catalog.clone();
        let wanted = Some(number.to_string());
        let request = async move {
            said(
                catalog
                    .namespaces()
                    .set_policy(&namespace(of), POLICY, json!(number))
                    .await,
            )
        };
        let me = self.clone();
        Box::pin(me.change("namespace policies", lock, key, Vec::new(), wanted, request))
    }

    /// A tenant and its namespace come, change and go.
    fn change_home(self: &Rc<Self>, random: &mut Random, number: usize) -> Option<Request> {
        let (has_tenant, has_namespace) = (self.certain("tenant")?, self.certain("namespace")?);
        if !self.may_change("home") {
            return None;
        }
        let catalog = self.admin.catalog.clone();
        let me = self.clone();
        let text = Some(number.to_string());
        Some(match (has_tenant, has_namespace, random.below(4)) {
            (None, ..) => {
                let request = async move { said(catalog.tenants().create(TENANT, tenant(number)).await) };
                Box::pin(me.change("tenants made", "home", "tenant", Vec::new(), text, request))
            }
            (Some(_), None, 0) => {
                let request = async move { said(catalog.tenants().delete(TENANT).await) };
                Box::pin(me.change("tenants deleted", "home", "tenant", Vec::new(), None, request))
            }
            (Some(_), None, 1) => {
                let request = async move { said(catalog.tenants().update(TENANT, tenant(number)).await) };
                Box::pin(me.change("tenants changed", "home", "tenant", Vec::new(), text, request))
            }
            (Some(_), None, _) => {
                let mut policies = Policies::first(&["standalone"], 4);
                policies.set(POLICY, json!(number));
                let request =
                    async move { said(catalog.namespaces().create(&namespace("u/n"), policies).await) };
                Box::pin(me.change("namespaces made", "home", "namespace", Vec::new(), text, request))
            }
            (Some(_), Some(_), 0 | 1) => {
                let request = async move { said(catalog.namespaces().delete(&namespace("u/n")).await) };
                Box::pin(me.change(
                    "namespaces deleted",
                    "home",
                    "namespace",
                    Vec::new(),
                    None,
                    request,
                ))
            }
            (Some(_), Some(_), _) => self.set_policy("u/n", "home", "namespace", number),
        })
    }

    /// The partitioned topic comes, grows, changes and goes.
    fn change_parts(self: &Rc<Self>, random: &mut Random, number: usize) -> Option<Request> {
        let known = self.certain("parts")?;
        if !self.may_change("parts") {
            return None;
        }
        let name = topic_name(PARTS);
        let Some(known) = known.as_deref().map(Parts::parse) else {
            return Some(self.make_parts(name, 2 + (number % 2) as u32));
        };
        let (me, admin) = (self.clone(), self.admin.clone());
        let change =
            |what, on_the_way: Vec<Parts>, wanted: Option<Parts>, request: super::Pinned<Outcome>| {
                let on_the_way = on_the_way.into_iter().map(Parts::text).collect();
                Box::pin(me.change(
                    what,
                    "parts",
                    "parts",
                    on_the_way,
                    wanted.map(Parts::text),
                    request,
                ))
            };
        Some(match random.below(8) {
            0 => {
                let request = async move { said(admin.topics.delete_partitioned(name, true).await) };
                change("partitioned topics deleted", Vec::new(), None, Box::pin(request))
            }
            1 if known.partitions < PARTS_MAX => {
                let partitions = known.partitions + 1;
                let made = Parts {
                    partitions,
                    made: true,
                    ..known
                };
                let half = |made| Parts {
                    partitions,
                    made,
                    subscribed: match known.subscribed {
                        Share::None => Share::None,
                        _ => Share::Some,
                    },
                    ..known
                };
                let request = async move { said(admin.topics.grow_partitioned(name, partitions).await) };
                change(
                    "partitioned topics grown",
                    vec![half(false), half(true)],
                    Some(made),
                    Box::pin(request),
                )
            }
            2 | 3 => {
                let wanted = Parts {
                    policy: number,
                    ..known
                };
                let request = async move {
                    let catalog = admin.catalog.clone();
                    said(catalog.set_topic_policy(&name, TOPIC_POLICY, json!(number)).await)
                };
                change("topic policies", Vec::new(), Some(wanted), Box::pin(request))
            }
            4 | 5 if known.schemas < SCHEMAS_MAX => {
                let schemas = known.schemas + 1;
                let request = async move {
                    let catalog = admin.catalog.clone();
                    said(catalog.schemas().add(&name, schema(schemas), "").await.map(drop))
                };
                change(
                    "schemas",
                    Vec::new(),
                    Some(Parts { schemas, ..known }),
                    Box::pin(request),
                )
            }
            _ if !known.made => {
                let request = async move { said(admin.topics.create_missed_partitions(name).await) };
                change(
                    "partitions made later",
                    Vec::new(),
                    Some(Parts { made: true, ..known }),
                    Box::pin(request),
                )
            }
            _ => {
                let of = |subscribed| Parts { subscribed, ..known };
                let request = async move {
                    for partition in (0..known.partitions).map(|index| name.with_partition(index)) {
                        let subscription = subscription_name(SUBSCRIPTION);
                        let (place, none) = (Place::Earliest, BTreeMap::new());
                        let made = admin.subscriptions.create_subscription(
                            partition,
                            subscription,
                            place,
                            none,
                            false,
                        );
                        match made.await {
                            Ok(()) | Err(AdminError::Conflict(_)) => {}
                            Err(error) => return said(Err(error)),
                        }
                    }
                    Ok(())
                };
                change(
                    "subscriptions of all partitions",
                    vec![of(Share::Some)],
                    Some(of(Share::All)),
                    Box::pin(request),
                )
            }
        })
    }

    fn make_parts(self: &Rc<Self>, name: TopicName, partitions: u32) -> Request {
        let wanted = Parts {
            partitions,
            made: true,
            policy: 0,
            schemas: 0,
            subscribed: Share::None,
        };
        let half = Parts {
            made: false,
            ..wanted
        };
        let (me, admin) = (self.clone(), self.admin.clone());
        let request = async move {
            said(
                admin
                    .topics
                    .create_partitioned(name, partitions, BTreeMap::new(), false)
                    .await,
            )
        };
        let wanted = Some(wanted.text());
        Box::pin(me.change(
            "partitioned topics made",
            "parts",
            "parts",
            vec![half.text()],
            wanted,
            request,
        ))
    }
}

/// After a start: what is written down, against what was answered.
pub(crate) async fn look(process: &mut Process, world: &Rc<World>) -> Alive<()> {
    let name = topic_name(PARTS);
    let catalog = world.admin.catalog.clone();
    for tries in 0.. {
        if !catalog.deletions().has(&name) {
            break;
        }
        assert!(
            tries < FINISHING_MAX,
            "a deletion that was begun is never finished"
        );
        process.rest(500).await?;
    }
    let policy_of = |of: &str| {
        let policies = catalog.policies(&namespace(of))?;
        Some(policies.get(POLICY).map_or_else(String::new, ToString::to_string))
    };
    let policy = policy_of("t/sync").filter(|policy| !policy.is_empty());
    let roles = catalog
        .tenants()
        .get(TENANT)
        .map(|info| info.admin_roles.concat());
    let parts = parts_seen(process, world, &name).await?;
    let mut model = world.model.borrow_mut();
    model.fact_seen("policy", policy.as_deref());
    model.fact_seen("tenant", roles.as_deref());
    model.fact_seen("namespace", policy_of("u/n").as_deref());
    model.fact_seen("parts", parts.map(Parts::text).as_deref());
    Ok(())
}

async fn parts_seen(process: &mut Process, world: &Rc<World>, name: &TopicName) -> Alive<Option<Parts>> {
    let catalog = world.admin.catalog.clone();
    let policy = catalog.topic_policies(name).get(TOPIC_POLICY).cloned();
    let schemas = catalog.schemas().history(name);
    let Some(whole) = catalog.partitioned().get(name) else {
        let left: Vec<_> = (0..PARTS_MAX)
            .filter(|index| catalog.topic_exists(&name.with_partition(*index)))
            .collect();
        assert!(
            left.is_empty(),
            "{name} is gone and its partitions {left:?} are not"
        );
        assert!(policy.is_none(), "{name} is gone and its policies are not");
        assert!(
            schemas.live().is_empty(),
            "{name} is gone and its schemas are not"
        );
        return Ok(None);
    };
    if let Some(latest) = schemas.latest() {
        let expected = schema(schemas.live().len());
        assert_eq!(latest.schema, expected, "the last schema of {name}");
    }
    let (mut made, mut subscribed) = (0, 0);
    for partition in (0..whole.partitions).map(|index| name.with_partition(index)) {
        if !catalog.topic_exists(&partition) {
            continue;
        }
        made += 1;
        let (admin, of) = (world.admin.clone(), partition.clone());
        let found = process
            .drive(async move { admin.subscriptions.subscriptions(of).await })
            .await?;
        match found {
            Ok(found) => subscribed += u32::from(found.iter().any(|name| name == SUBSCRIPTION)),
            Err(_) if process.is_dead() => return Err(Died),
            Err(error) => panic!("{partition} does not open: {error}"),
        }
    }
    Ok(Some(Parts {
        partitions: whole.partitions,
        made: made == whole.partitions,
        policy: policy.and_then(|policy| policy.as_u64()).unwrap_or_default() as usize,
        schemas: schemas.live().len(),
        subscribed: match subscribed {
            0 => Share::None,
            all if all == whole.partitions => Share::All,
            _ => Share::Some,
        },
    }))
}
