//! A connection moves to the home shard of its first producer's topic; its client notices nothing.

use std::collections::BTreeSet;

use crate::support::{Node, expect_numbers, figure, next, publish, until};
use pharos_client::{ConsumerOptions, ProducerOptions, RawConnection};
use pharos_wire::command::Command;
use pharos_wire::encode::encode_command;
use pharos_wire::request;

/// Number of connections of each shard, once there are `sum` of them.
async fn connections(node: &Node, sum: u64) -> Vec<u64> {
    until("the connections", || {
        let page = node.page("/metrics");
        let counts: Vec<u64> = (0..2)
            .map(|shard| figure(&page, "pharos_shard_connections", Some(shard)))
            .collect();
        (counts.iter().sum::<u64>() == sum).then_some(counts)
    })
    .await
}

/// The request that the next answer is for.
async fn answer(raw: &mut RawConnection) -> u64 {
    match next(raw).await {
        Command::LookupResponse(answer) => answer.request_id,
        Command::PartitionedMetadataResponse(answer) => answer.request_id,
        Command::ProducerSuccess(answer) => answer.request_id,
        other => panic!("unexpected {other:?}"),
    }
}

#[tokio::test]
async fn a_connection_moves_to_where_its_first_producer_publishes() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &[]);
    let mut homes = BTreeSet::new();
    for number in 0..16 {
        let topic = format!("t{number}");
        // The first one is always taken in by shard 0.
        assert_eq!(connections(&node, 0).await, [0, 0]);
        let client = node.client().await;
        let producer = client.producer(&topic, ProducerOptions::default()).await.unwrap();
        let counts = connections(&node, 1).await;
        homes.insert(counts.iter().position(|count| *count == 1).unwrap());
        publish(&producer, 0..10).await;
        // Whatever else it does it does from there.
        let options = ConsumerOptions::shared("s").from_earliest();
        let mut consumer = client.subscribe(&topic, options).await.unwrap();
        expect_numbers(&mut consumer, 0..10).await;
        let other = format!("other{number}");
        let producer = client.producer(&other, ProducerOptions::default()).await.unwrap();
        publish(&producer, 0..10).await;
        assert_eq!(connections(&node, 1).await, counts);
    }
    assert_eq!(homes.len(), 2, "{homes:?}");
    // Those that moved were accepted once, shook hands once and left once.
    connections(&node, 0).await;
    let page = node.page("/metrics");
    for name in ["created_total", "create_success", "closed_total"] {
        let name = format!("pulsar_connection_{name}_count");
        assert_eq!(figure(&page, &name, None), 16, "{name}");
    }
    assert_eq!(figure(&page, "pulsar_active_connections", None), 0);
}

#[tokio::test]
async fn a_topic_does_not_draw_all_connections_to_its_home() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &[]);
    let mut open = Vec::new();
    for number in 1..=30 {
        let client = node.client().await;
        let producer = client.producer("t", ProducerOptions::default()).await.unwrap();
        open.push((client, producer));
        let counts = connections(&node, number).await;
        let (fewest, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        assert!(most - fewest <= 2, "{counts:?}");
    }
    for (_, producer) in &open {
        publish(producer, 0..3).await;
    }
}

#[tokio::test]
async fn what_came_with_the_first_producer_is_answered_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &[]);
    for number in 0..16 {
        let mut raw = node.rogue().await;
        let topic = format!("t{number}");
        let lookup = |id| encode_command(&request::lookup(&topic, id, false).into());
        let mut bytes = encode_command(&request::producer(&topic, 1, 1, None).into()).to_vec();
        bytes.extend_from_slice(&lookup(2));
        // The last one comes in two parts.
        let last = lookup(3);
        let (some, rest) = last.split_at(number * 2 % last.len());
        bytes.extend_from_slice(some);
        raw.write(&bytes).await.unwrap();
        let mut answered = BTreeSet::new();
        for answers in 1..=3 {
            if answers == 3 {
                raw.write(rest).await.unwrap();
            }
            answered.insert(answer(&mut raw).await);
        }
        assert_eq!(answered, BTreeSet::from([1, 2, 3]));
    }
}

#[tokio::test]
async fn a_connection_with_answers_under_way_stays_and_is_served() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &[]);
    for number in 0..16 {
        // Nothing is waited for: CONNECT, lookups that run as tasks, and the producer come at once.
        let mut raw = node.stranger().await;
        let topic = format!("t{number}");
        let mut bytes = encode_command(&request::connect("hasty").into()).to_vec();
        bytes.extend_from_slice(&encode_command(&request::partitioned_metadata(&topic, 1).into()));
        bytes.extend_from_slice(&encode_command(&request::producer(&topic, 1, 2, None).into()));
        raw.write(&bytes).await.unwrap();
        assert!(matches!(next(&mut raw).await, Command::Connected(_)));
        let answered = BTreeSet::from([answer(&mut raw).await, answer(&mut raw).await]);
        assert_eq!(answered, BTreeSet::from([1, 2]));
    }
}
