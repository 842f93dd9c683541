//! After a start: everything that is there, seen as clients see it, against the model.

use std::collections::BTreeSet;
use std::rc::Rc;

use pharos_runtime::clock;
use pharos_sim::tell;
use pharos_topic::SubscriptionType;

use crate::process::{Alive, Process};
use crate::work::{SUBSCRIPTIONS, World, topic_name};

pub(crate) async fn look(process: &mut Process, world: &Rc<World>, topics: &[String]) -> Alive<()> {
    crate::work::places::look(process, world).await?;
    for topic in topics {
        let exists = world.admin.catalog.topic_exists(&topic_name(topic));
        let found = if exists {
            let (admin, name) = (world.admin.clone(), topic_name(topic));
            match process
                .drive(async move { admin.subscriptions.subscriptions(name).await })
                .await?
            {
                Ok(found) => found,
                Err(_) if process.is_dead() => return Err(crate::process::Died),
                Err(error) => panic!("{topic} does not open: {error}"),
            }
        } else {
            Vec::new()
        };
        tell(|| format!("look {topic} {exists}: {found:?}"));
        let last = world.model.borrow().message_last();
        world
            .model
            .borrow_mut()
            .topic(topic)
            .seen(topic, exists, &found, last);
        for subscription in found {
            let known = SUBSCRIPTIONS.iter().find(|(name, _)| *name == subscription);
            let (name, kind) = *known.expect("a subscription that was made");
            let cursors = match kind {
                SubscriptionType::Broadcast => {
                    let mut model = world.model.borrow_mut();
                    let known = model.topic(topic).subscriptions.get(name);
                    known
                        .map(|known| known.cursors.keys().cloned().collect())
                        .unwrap_or_default()
                }
                _ => vec![String::new()],
            };
            for cursor in cursors {
                look_at_cursor(process, world, topic, name, cursor).await?;
            }
        }
        world.model.borrow_mut().topic(topic).looked_at();
    }
    Ok(())
}

/// Subscribes, takes all that comes and acknowledges nothing.
async fn look_at_cursor(
    process: &mut Process,
    world: &Rc<World>,
    topic: &str,
    subscription: &'static str,
    cursor: String,
) -> Alive<()> {
    let mut random = process.random.clone();
    let client = world.client(&mut random, topic);
    let subscribed = process
        .drive({
            let (world, client, cursor) = (world.clone(), client.clone(), cursor.clone());
            async move { world.subscribe(client, subscription, cursor).await }
        })
        .await?;
    if process.is_dead() {
        return Err(crate::process::Died);
    }
    assert!(subscribed, "{topic}: no client can subscribe to {subscription}");
    process.settle().await?;
    let musts: Vec<u64> = {
        let mut model = world.model.borrow_mut();
        let known = model.topic(topic);
        known.expire(clock::wall_ms());
        let positions = known.positions.clone();
        let cursor = known
            .subscriptions
            .get_mut(subscription)
            .map(|found| found.cursor(&cursor).musts(&positions));
        cursor
            .unwrap_or_default()
            .into_iter()
            .map(|(_, message)| message)
            .collect()
    };
    for _ in 0..4 {
        let came = client.came();
        if musts.iter().all(|must| came.contains(must)) {
            break;
        }
        process.rest(1000).await?;
    }
    process.rest(400).await?;
    let came = client.came();
    let different: BTreeSet<u64> = came.iter().copied().collect();
    assert_eq!(
        different.len(),
        came.len(),
        "{topic}, {subscription}: twice in {came:?}"
    );
    world.seen(topic, subscription, &cursor, &came);
    client.leave();
    process.settle().await
}
