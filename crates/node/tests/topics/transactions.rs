//! Transactions over the wire: what is committed is seen, what is aborted or open is not.

use crate::support::transactions::*;
use crate::support::{self, Node, soon};
use pharos_client::{ConsumerOptions, OutgoingMessage, ProducerOptions, earliest};
use pharos_types::TxnId;
use pharos_wire::command::Command;
use pharos_wire::proto::command_ack::AckType;
use pharos_wire::proto::{CommandTcClientConnectRequest, MessageIdData, ServerError, TxnAction};

#[tokio::test(flavor = "multi_thread")]
async fn without_the_setting_every_command_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &[]);
    let client = node.client().await;
    assert_eq!(begin(&client, 0, 1000).await, Err(ServerError::NotAllowedError));
    let producer = client.producer("t", ProducerOptions::default()).await.unwrap();
    let txn = TxnId { most: 0, least: 0 };
    let sent = producer.send(in_txn(txn, "no")).await;
    assert_eq!(sent.unwrap_err().code(), Some(ServerError::NotAllowedError));
    let (status, _) = node.call("GET", "/admin/v3/transactions/coordinators", "");
    assert_eq!(status, 503);
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_find_the_coordinators() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &ON);
    let client = node.client().await;
    let assign = "persistent://pulsar/system/transaction_coordinator_assign";
    assert_eq!(client.partitions(assign).await.unwrap(), 4);
    client.lookup(&format!("{assign}-partition-3")).await.unwrap();
    for (coordinator, expected) in [(3, Ok(())), (4, Err(ServerError::TransactionCoordinatorNotFound))] {
        let asked = client.request("TC_CLIENT_CONNECT", |request_id| {
            Command::TcClientConnectRequest(CommandTcClientConnectRequest {
                request_id,
                tc_id: coordinator,
            })
        });
        match asked.await.unwrap() {
            Command::TcClientConnectResponse(response) => assert_eq!(answer_of(response.error), expected),
            other => panic!("{other:?}"),
        }
    }
    let listed = node.ask("/admin/v3/transactions/coordinators");
    assert_eq!(listed.as_array().unwrap().len(), 4);
}

/// For every kind of subscription: an open transaction holds back what follows it, an abort shows nothing of it.
#[tokio::test(flavor = "multi_thread")]
async fn readers_get_what_is_committed_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &ON);
    let client = node.client().await;
    let mut consumers = Vec::new();
    for options in [
        ConsumerOptions::exclusive("exclusive"),
        ConsumerOptions::shared("shared"),
        support::broadcast("all").name("one"),
    ] {
        consumers.push(client.subscribe("t", options).await.unwrap());
    }
    let producer = client.producer("t", ProducerOptions::default()).await.unwrap();
    let (one, two) = (
        begin(&client, 0, 60_000).await.unwrap(),
        begin(&client, 1, 60_000).await.unwrap(),
    );
    // Not added: refused, and so is a topic that is not there.
    let early = producer.send(in_txn(one, "early")).await;
    assert_eq!(early.unwrap_err().code(), Some(ServerError::NotAllowedError));
    let missing = add_topic(&client, one, "persistent://public/nowhere/x").await;
    assert_eq!(missing, Err(ServerError::TopicNotFound));
    for txn in [one, two] {
        add_topic(&client, txn, "t").await.unwrap();
    }
    producer.send("before".to_owned()).await.unwrap();
    send_in(&producer, one, &["one-1"]).await;
    send_in(&producer, two, &["two-1"]).await;
    producer.send("between".to_owned()).await.unwrap();
    send_in(&producer, one, &["one-2"]).await;
    for consumer in &mut consumers {
        expect(consumer, &["before"]).await;
        expect_nothing(consumer).await;
    }
    let stats = node.ask("/admin/v3/transactions/transactionBufferStats/public/default/t");
    assert_eq!(
        (stats["ongoingTxnSize"].as_u64(), stats["state"].as_str()),
        (Some(2), Some("Ready"))
    );
    end(&client, two, TxnAction::Abort).await.unwrap();
    for consumer in &mut consumers {
        expect_nothing(consumer).await;
    }
    end(&client, one, TxnAction::Commit).await.unwrap();
    for consumer in &mut consumers {
        expect(consumer, &["one-1", "between", "one-2"]).await;
        expect_nothing(consumer).await;
    }
    let ended = end(&client, one, TxnAction::Commit).await;
    assert_eq!(ended, Err(ServerError::TransactionNotFound));
    let late = producer.send(in_txn(one, "late")).await;
    assert_eq!(late.unwrap_err().code(), Some(ServerError::NotAllowedError));
    assert_eq!(
        all_of(&client, "t").await,
        ["before", "one-1", "between", "one-2"]
    );
    producer.send("after".to_owned()).await.unwrap();
    for consumer in &mut consumers {
        expect(consumer, &["after"]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_is_open_too_long_is_aborted() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(
        dir.path(),
        &[&ON[..], &["--transactions-max-timeout", "1m"]].concat(),
    );
    let client = node.client().await;
    assert_eq!(begin(&client, 0, 60_001).await, Err(ServerError::NotAllowedError));
    let producer = client.producer("t", ProducerOptions::default()).await.unwrap();
    let mut consumer = client
        .subscribe("t", ConsumerOptions::exclusive("s").non_durable(earliest()))
        .await
        .unwrap();
    // Long enough to send in it on a busy machine.
    let txn = begin(&client, 2, 3_000).await.unwrap();
    add_topic(&client, txn, "t").await.unwrap();
    send_in(&producer, txn, &["gone"]).await;
    producer.send("stays".to_owned()).await.unwrap();
    expect(&mut consumer, &["stays"]).await;
    // It is aborting until the coordinator has noted that the topic has ended it.
    let committed = async {
        loop {
            match end(&client, txn, TxnAction::Commit).await {
                Err(ServerError::InvalidTxnStatus) => tokio::task::yield_now().await,
                outcome => break outcome,
            }
        }
    };
    assert_eq!(
        soon("the end of the transaction", committed).await,
        Err(ServerError::TransactionNotFound)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledgements_count_with_the_commit_and_come_again_after_an_abort() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &ON);
    let client = node.client().await;
    for (name, options) in [
        ("exclusive", ConsumerOptions::exclusive("exclusive")),
        ("shared", ConsumerOptions::shared("shared")),
    ] {
        let topic = format!("acks-of-{name}");
        let mut consumer = client.subscribe(&topic, options.clone()).await.unwrap();
        let producer = client.producer(&topic, ProducerOptions::default()).await.unwrap();
        for text in ["0", "1", "2"] {
            producer.send(text.to_owned()).await.unwrap();
        }
        let got = expect(&mut consumer, &["0", "1", "2"]).await;
        let ids: Vec<MessageIdData> = got.iter().map(|message| message.id.clone()).collect();
        let (one, two) = (
            begin(&client, 0, 60_000).await.unwrap(),
            begin(&client, 0, 60_000).await.unwrap(),
        );
        let early = ack(&client, &consumer, one, AckType::Individual, ids[..1].to_vec()).await;
        assert_eq!(
            early,
            Err(ServerError::TransactionNotFound),
            "the subscription was not added"
        );
        for txn in [one, two] {
            add_subscription(&client, txn, &topic, name).await.unwrap();
        }
        ack(&client, &consumer, one, AckType::Individual, ids[..2].to_vec())
            .await
            .unwrap();
        let conflict = ack(&client, &consumer, two, AckType::Individual, ids[1..].to_vec()).await;
        assert_eq!(conflict, Err(ServerError::TransactionConflict));
        let stats = node.ask(&format!(
            "/admin/v3/transactions/pendingAckStats/public/default/{topic}/{name}"
        ));
        assert_eq!(stats["pendingAckEntries"], 2);
        ack(&client, &consumer, two, AckType::Individual, ids[2..].to_vec())
            .await
            .unwrap();
        // Nothing of it comes again, also when a consumer asks, while the transactions are open.
        consumer.redeliver_all().await.unwrap();
        expect_nothing(&mut consumer).await;
        consumer.close().await.unwrap();
        let mut consumer = client.subscribe(&topic, options.clone()).await.unwrap();
        expect_nothing(&mut consumer).await;
        end(&client, two, TxnAction::Abort).await.unwrap();
        expect(&mut consumer, &["2"]).await;
        end(&client, one, TxnAction::Commit).await.unwrap();
        let plain = begin(&client, 0, 60_000).await.unwrap();
        add_subscription(&client, plain, &topic, name).await.unwrap();
        let again = ack(&client, &consumer, plain, AckType::Individual, ids[..1].to_vec()).await;
        assert_eq!(again, Err(ServerError::TransactionConflict), "it is acknowledged");
        consumer.close().await.unwrap();
        let mut consumer = client.subscribe(&topic, options).await.unwrap();
        expect(&mut consumer, &["2"]).await;
        expect_nothing(&mut consumer).await;
        consumer.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_up_to_a_message_is_acknowledged_in_a_transaction() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &ON);
    let client = node.client().await;
    let mut consumer = client
        .subscribe("t", ConsumerOptions::exclusive("s"))
        .await
        .unwrap();
    let producer = client.producer("t", ProducerOptions::default()).await.unwrap();
    for text in ["0", "1", "2"] {
        producer.send(text.to_owned()).await.unwrap();
    }
    let got = expect(&mut consumer, &["0", "1", "2"]).await;
    for (outcome, left) in [
        (TxnAction::Abort, &["0", "1", "2"][..]),
        (TxnAction::Commit, &["2"]),
    ] {
        let txn = begin(&client, 0, 60_000).await.unwrap();
        add_subscription(&client, txn, "t", "s").await.unwrap();
        ack(
            &client,
            &consumer,
            txn,
            AckType::Cumulative,
            vec![got[1].id.clone()],
        )
        .await
        .unwrap();
        end(&client, txn, outcome).await.unwrap();
        consumer.close().await.unwrap();
        consumer = client
            .subscribe("t", ConsumerOptions::exclusive("s"))
            .await
            .unwrap();
        expect(&mut consumer, left).await;
    }
}

/// A batch is acknowledged message by message, by two transactions.
#[tokio::test(flavor = "multi_thread")]
async fn parts_of_a_batch_are_in_transactions_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &ON);
    let client = node.client().await;
    let mut consumer = client.subscribe("t", ConsumerOptions::shared("s")).await.unwrap();
    let producer = client.producer("t", ProducerOptions::default()).await.unwrap();
    let batch = ["0", "1", "2"].map(|text| OutgoingMessage::new(text.to_owned()));
    producer.send_batch(batch.to_vec()).await.unwrap();
    let got = expect(&mut consumer, &["0", "1", "2"]).await;
    let part = |set: i64| {
        let mut id = got[0].id.clone();
        (id.batch_index, id.batch_size, id.ack_set) = (None, Some(3), vec![set]);
        vec![id]
    };
    let (one, two) = (
        begin(&client, 0, 60_000).await.unwrap(),
        begin(&client, 1, 60_000).await.unwrap(),
    );
    for txn in [one, two] {
        add_subscription(&client, txn, "t", "s").await.unwrap();
    }
    ack(&client, &consumer, one, AckType::Individual, part(0b110))
        .await
        .unwrap();
    let conflict = ack(&client, &consumer, two, AckType::Individual, part(0b100)).await;
    assert_eq!(conflict, Err(ServerError::TransactionConflict));
    ack(&client, &consumer, two, AckType::Individual, part(0b001))
        .await
        .unwrap();
    end(&client, one, TxnAction::Commit).await.unwrap();
    end(&client, two, TxnAction::Commit).await.unwrap();
    consumer.close().await.unwrap();
    let mut consumer = client.subscribe("t", ConsumerOptions::shared("s")).await.unwrap();
    expect_nothing(&mut consumer).await;
    let stats = node.ask("/admin/v2/persistent/public/default/t/stats");
    assert_eq!(stats["subscriptions"]["s"]["msgBacklog"], 0);
}

/// A topic that is deleted in the middle of a transaction does not keep it from ending, and one that was terminated ends it too.
#[tokio::test(flavor = "multi_thread")]
async fn topics_that_are_gone_or_terminated_end_their_transactions() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &ON);
    let client = node.client().await;
    let txn = begin(&client, 0, 60_000).await.unwrap();
    for topic in ["gone", "closed"] {
        let producer = client.producer(topic, ProducerOptions::default()).await.unwrap();
        add_topic(&client, txn, topic).await.unwrap();
        send_in(&producer, txn, &["text"]).await;
    }
    node.order(
        "DELETE",
        "/admin/v2/persistent/public/default/gone?force=true",
        "",
    );
    node.order("POST", "/admin/v2/persistent/public/default/closed/terminate", "");
    end(&client, txn, TxnAction::Commit).await.unwrap();
    assert_eq!(all_of(&client, "closed").await, ["text"]);
    node.kill();
    let node = Node::start(dir.path(), &ON);
    assert_eq!(all_of(&node.client().await, "closed").await, ["text"]);
}

/// A shadow reads the source's entries and knows nothing of its transactions.
#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_had_transactions_is_given_no_shadow() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &ON);
    let client = node.client().await;
    let producer = client.producer("had", ProducerOptions::default()).await.unwrap();
    let txn = begin(&client, 0, 60_000).await.unwrap();
    add_topic(&client, txn, "had").await.unwrap();
    send_in(&producer, txn, &["aborted"]).await;
    end(&client, txn, TxnAction::Abort).await.unwrap();
    client.producer("none", ProducerOptions::default()).await.unwrap();
    for (source, status) in [("had", 412), ("none", 204)] {
        let topic = "/admin/v2/persistent/public/default";
        let shadow_of =
            serde_json::json!({ "PULSAR.SHADOW_SOURCE": format!("persistent://public/default/{source}") });
        node.send("PUT", &format!("{topic}/far-{source}"), &shadow_of, 204);
        let named = serde_json::json!([format!("persistent://public/default/far-{source}")]);
        let said = node.send("PUT", &format!("{topic}/{source}/shadowTopics"), &named, status);
        assert_eq!(said.contains("transactions"), status == 412, "{said}");
    }
}
