//! Cost of attaching, leaving and a change of the active consumer among many: steps are counted, not time.

use std::ops::Range;

use pharos_dispatch::{HashRange, KeySharedMode};
use pharos_topic::SubscribeRequest;
use pharos_types::{Domain, steps};

use super::*;

const FEW: usize = 64;
const MANY: usize = 1_024;
/// Of each kind so many attach, and leave, while steps are counted.
const MEASURED: usize = 9;

/// Steps of one attach, one leave and, of Failover, one change of the active consumer.
#[derive(Debug, Default)]
struct Cost {
    attach: u64,
    leave: u64,
    change: u64,
}

/// Kind of consumers that attach.
#[derive(Clone, Copy)]
struct Kind {
    what: &'static str,
    topic: &'static str,
    kind: SubscriptionType,
    change: fn(&mut SubscribeRequest, u32),
    consistent_hashing: bool,
}

impl Kind {
    fn new(what: &'static str, kind: SubscriptionType, change: fn(&mut SubscribeRequest, u32)) -> Self {
        Self {
            what,
            topic: "persistent://public/default/t",
            kind,
            change,
            consistent_hashing: true,
        }
    }

    fn on(self, topic: &'static str) -> Self {
        Self { topic, ..self }
    }
}

fn named(request: &mut SubscribeRequest, number: u32) {
    request.consumer_name = Some(format!("c{number}"));
}

fn apart(request: &mut SubscribeRequest, number: u32) {
    request.subscription = harness::subscription(&format!("s{number}"));
}

fn sticky(request: &mut SubscribeRequest, number: u32) {
    let mode = KeySharedMode::Sticky(vec![HashRange {
        start: number * 8,
        end: number * 8 + 7,
    }]);
    request.key_shared = Some(KeySharedSpec {
        mode,
        allow_out_of_order: false,
    });
}

/// The middle of several measurements: what maintenance does meanwhile does not count.
fn median(mut costs: Vec<u64>) -> u64 {
    costs.sort_unstable();
    costs[costs.len() / 2]
}

/// Resolves when the shard has handled what it was sent until now.
async fn settled(shard: &Rc<Shard>) {
    for _ in 0..3 {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        shard.run_on(shard.id, move |_| {
            let _ = sender.send(());
        });
        receiver.await.unwrap();
        tokio::task::yield_now().await;
    }
}

async fn steps_of(shard: &Rc<Shard>, work: impl Future<Output = ()>) -> u64 {
    let before = steps::taken();
    work.await;
    settled(shard).await;
    steps::taken() - before
}

/// Lets consumers of a kind attach, and tells what the last few of them cost.
async fn cost_among(kind: Kind, count: usize) -> Cost {
    let bench = Bench::with(MemoryEngine::new(), |options| {
        options.key_shared_consistent_hashing = kind.consistent_hashing;
    })
    .await;
    let name = topic(kind.topic);
    bench.create_topic(&name).await;
    let wanted = name.clone();
    let costs = bench.on(bench.home(&name), move |shard| async move {
        let mut clients: Vec<Rc<Client>> = Vec::new();
        let attach = |numbers: Range<usize>| {
            let (shard, wanted) = (shard.clone(), wanted.clone());
            async move {
                let mut came = Vec::new();
                for number in numbers {
                    let client = Client::new(&shard);
                    let wish = Wish {
                        subscription: "s",
                        name: "c",
                        kind: kind.kind,
                    };
                    let mut request = client.request(&wanted, wish, None);
                    (kind.change)(&mut request, u32::try_from(number).unwrap());
                    client.attach(request).await.unwrap();
                    came.push(client);
                }
                came
            }
        };
        clients.extend(attach(0..count).await);
        let mut attached = Vec::new();
        for number in count..count + MEASURED {
            let mut came = Vec::new();
            attached.push(steps_of(&shard, async { came = attach(number..number + 1).await }).await);
            clients.extend(came);
        }
        let is_active = |client: &Rc<Client>| {
            let consumer = client.consumer.borrow();
            consumer
                .as_ref()
                .is_some_and(|consumer| consumer.handle.is_some())
        };
        let mut left = Vec::new();
        let mut changed = Vec::new();
        for _ in 0..MEASURED {
            let leaves = clients
                .iter()
                .position(|client| !is_active(client))
                .unwrap_or(clients.len() / 2);
            let client = clients.remove(leaves);
            left.push(steps_of(&shard, async { client.leave() }).await);
            // A topic without storage hands no cursor over.
            if kind.kind == SubscriptionType::Failover && wanted.domain() == Domain::Persistent {
                until(|| clients.iter().any(is_active)).await;
                let active = clients.iter().position(is_active).unwrap();
                let client = clients.remove(active);
                let change = async {
                    client.leave();
                    until(|| clients.iter().any(is_active)).await;
                };
                changed.push(steps_of(&shard, change).await);
            }
        }
        Cost {
            attach: median(attached),
            leave: median(left),
            change: changed.into_iter().min().unwrap_or(0),
        }
    });
    costs.await
}

/// Sixteen times as many may cost four more steps for each search, never sixteen times as many.
fn check(what: &str, few: &Cost, many: &Cost) {
    for (of, few, many) in [
        ("attaching", few.attach, many.attach),
        ("leaving", few.leave, many.leave),
        ("a change of the active consumer", few.change, many.change),
    ] {
        assert!(
            many <= few + few / 2 + 100,
            "{what}: {of} among {FEW} takes {few} steps, among {MANY} {many}"
        );
    }
}

async fn check_kind(kind: Kind) {
    let few = cost_among(kind, FEW).await;
    let many = cost_among(kind, MANY).await;
    assert!(few.attach > 0, "{}: nothing is counted", kind.what);
    check(kind.what, &few, &many);
}

#[tokio::test]
async fn a_failover_consumer_costs_the_same_among_many() {
    let kind = Kind::new("Failover", SubscriptionType::Failover, named);
    check_kind(kind).await;
    check_kind(kind.on("non-persistent://public/default/t")).await;
}

#[tokio::test]
async fn a_shared_consumer_costs_the_same_among_many() {
    let kind = Kind::new("Shared", SubscriptionType::Shared, |_, _| ());
    check_kind(kind).await;
    check_kind(kind.on("non-persistent://public/default/t")).await;
}

#[tokio::test]
async fn a_key_shared_consumer_costs_the_same_among_many() {
    let kind = |what, change| Kind::new(what, SubscriptionType::KeyShared, change);
    check_kind(kind("Key_Shared on a ring", named)).await;
    check_kind(kind("Key_Shared of one name", |_, _| ())).await;
    check_kind(kind("Key_Shared sticky", sticky)).await;
    check_kind(Kind {
        consistent_hashing: false,
        ..kind("Key_Shared by ranges", named)
    })
    .await;
}

#[tokio::test]
async fn a_subscription_of_its_own_costs_the_same_among_many() {
    check_kind(Kind::new("subscription", SubscriptionType::Exclusive, apart)).await;
    check_kind(Kind::new("Shared subscription", SubscriptionType::Shared, apart)).await;
    check_kind(Kind::new(
        "reader",
        SubscriptionType::Exclusive,
        |request, number| {
            apart(request, number);
            request.durable = false;
        },
    ))
    .await;
    check_kind(Kind::new("broadcast", SubscriptionType::Broadcast, named)).await;
}

/// Lets producers attach, and tells what the last few of them cost.
async fn cost_of_producer_among(count: usize, access_mode: AccessMode, is_named: bool) -> Cost {
    let (bench, name) = Bench::with_topic("persistent://public/default/t").await;
    let wanted = name.clone();
    let costs = bench.on(bench.home(&name), move |shard| async move {
        let client = Client::new(&shard);
        let attach = |number: usize| {
            let mut request = client.wish_to_produce();
            request.access_mode = access_mode;
            request.producer_id = number as u64;
            request.name = is_named.then(|| format!("p{number}"));
            let (shard, wanted) = (shard.clone(), wanted.clone());
            async move { shard.add_producer(&wanted, request).await.unwrap() }
        };
        // One that waits for its turn hears of it for as long as its grant is kept.
        let mut grants = Vec::new();
        for number in 0..count {
            grants.push(attach(number).await);
        }
        let mut attached = Vec::new();
        for number in count..count + MEASURED {
            let before = steps::taken();
            grants.push(attach(number).await);
            attached.push(steps::taken() - before);
        }
        let mut left = Vec::new();
        for _ in 0..MEASURED {
            let (topic, grant) = grants.remove(grants.len() / 2);
            left.push(steps_of(&shard, async { shard.close_producer(topic, grant.key) }).await);
        }
        Cost {
            attach: median(attached),
            leave: median(left),
            change: 0,
        }
    });
    costs.await
}

#[tokio::test]
async fn a_producer_costs_the_same_among_many() {
    for (what, access_mode, is_named) in [
        ("producer", AccessMode::Shared, false),
        ("named producer", AccessMode::Shared, true),
        ("producer that waits", AccessMode::WaitForExclusive, false),
    ] {
        let few = cost_of_producer_among(FEW, access_mode, is_named).await;
        let many = cost_of_producer_among(MANY, access_mode, is_named).await;
        check(what, &few, &many);
    }
}
