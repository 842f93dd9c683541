//! Transactions when the broker dies: what was answered holds, and each is whole or not there.

use std::time::Duration;

use crate::support::transactions::*;
use crate::support::{Node, soon, until};
use pharos_client::{Connection, ConsumerOptions, Producer, ProducerOptions, earliest};
use pharos_types::TxnId;
use pharos_wire::command::Command;
use pharos_wire::proto::command_ack::AckType;
use pharos_wire::proto::{CommandAddPartitionToTxn, CommandEndTxn, CommandNewTxn, ServerError, TxnAction};

/// The broker dies with one transaction committed, one aborted, one open: what was answered is as it was answered.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_answered_holds_when_the_broker_dies() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &ON);
    let client = node.client().await;
    let mut consumer = client
        .subscribe("in", ConsumerOptions::shared("s"))
        .await
        .unwrap();
    let input = client.producer("in", ProducerOptions::default()).await.unwrap();
    let output = client.producer("out", ProducerOptions::default()).await.unwrap();
    for text in ["0", "1", "2", "3"] {
        input.send(text.to_owned()).await.unwrap();
    }
    let got = expect(&mut consumer, &["0", "1", "2", "3"]).await;
    let mut txns = Vec::new();
    for (at, timeout_ms) in [60_000, 60_000, 60_000].into_iter().enumerate() {
        let txn = begin(&client, 0, timeout_ms).await.unwrap();
        add_topic(&client, txn, "out").await.unwrap();
        add_subscription(&client, txn, "in", "s").await.unwrap();
        send_in(&output, txn, &[["committed", "aborted", "open"][at]]).await;
        ack(
            &client,
            &consumer,
            txn,
            AckType::Individual,
            vec![got[at].id.clone()],
        )
        .await
        .unwrap();
        txns.push(txn);
    }
    output.send("plain".to_owned()).await.unwrap();
    end(&client, txns[0], TxnAction::Commit).await.unwrap();
    end(&client, txns[1], TxnAction::Abort).await.unwrap();
    node.kill();

    let node = Node::start(dir.path(), &ON);
    let client = node.client().await;
    assert_eq!(
        all_of(&client, "out").await,
        ["committed"],
        "the open one holds back the rest"
    );
    let mut consumer = client
        .subscribe("in", ConsumerOptions::shared("s"))
        .await
        .unwrap();
    expect(&mut consumer, &["1", "3"]).await;
    expect_nothing(&mut consumer).await;
    for txn in &txns[..2] {
        let again = end(&client, *txn, TxnAction::Commit).await;
        assert_eq!(again, Err(ServerError::TransactionNotFound));
    }
    // The open one goes on where it was, and its number is not given out again.
    let output = client.producer("out", ProducerOptions::default()).await.unwrap();
    send_in(&output, txns[2], &["open too"]).await;
    let next = begin(&client, 0, 60_000).await.unwrap();
    assert!(next.least > txns[2].least);
    end(&client, txns[2], TxnAction::Commit).await.unwrap();
    assert_eq!(
        all_of(&client, "out").await,
        ["committed", "open", "plain", "open too"]
    );
    node.kill();

    let node = Node::start(dir.path(), &ON);
    let client = node.client().await;
    assert_eq!(
        all_of(&client, "out").await,
        ["committed", "open", "plain", "open too"]
    );
    let mut consumer = client
        .subscribe("in", ConsumerOptions::shared("s"))
        .await
        .unwrap();
    expect(&mut consumer, &["1", "3"]).await;
    expect_nothing(&mut consumer).await;
}

/// Killed while transactions end, again and again: each is wholly there or not at all, on both topics alike, and one whose commit was
/// answered is there.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_is_whole_whenever_the_broker_dies() {
    let dir = tempfile::tempdir().unwrap();
    let mut committed: Vec<String> = Vec::new();
    let mut aborted: Vec<String> = Vec::new();
    for round in 0..4 {
        let node = Node::start(dir.path(), &ON);
        let client = node.client().await;
        let one = client.producer("one", ProducerOptions::default()).await.unwrap();
        let two = client.producer("two", ProducerOptions::default()).await.unwrap();
        let (answers, mut answered) = tokio::sync::mpsc::channel(64);
        let working = tokio::spawn(async move {
            for number in 0.. {
                let text = format!("{round}-{number}");
                let Ok(Ok(txn)) =
                    tokio::time::timeout(Duration::from_secs(5), try_begin(&client, number % 4)).await
                else {
                    return;
                };
                let is_commit = number % 3 != 2;
                let action = if is_commit {
                    TxnAction::Commit
                } else {
                    TxnAction::Abort
                };
                match try_all(&client, txn, [("one", &one), ("two", &two)], &text, action).await {
                    Some(()) => drop(answers.send((text, is_commit)).await),
                    None => return,
                }
            }
        });
        let mut count = 0;
        while count < 12 + round * 5 {
            let (text, is_commit) = soon("an end", answered.recv()).await.unwrap();
            match is_commit {
                true => committed.push(text),
                false => aborted.push(text),
            }
            count += 1;
        }
        node.kill();
        while let Ok(Some((text, is_commit))) =
            tokio::time::timeout(Duration::from_secs(5), answered.recv()).await
        {
            match is_commit {
                true => committed.push(text),
                false => aborted.push(text),
            }
        }
        soon("the end of the work", working).await.unwrap();

        let node = Node::start(dir.path(), &ON);
        let client = node.client().await;
        // What was open when it died is ended by people; what was about to end ends by itself.
        until("the end of what was about to end", || {
            let slow = node.ask("/admin/v3/transactions/slowTransactions/0");
            let all = slow.as_object().unwrap();
            all.values().all(|txn| txn["status"] == "OPEN").then_some(())
        })
        .await;
        for txn in node
            .ask("/admin/v3/transactions/slowTransactions/0")
            .as_object()
            .unwrap()
            .keys()
        {
            let numbers = txn.trim_matches(['(', ')']).replace(',', "/");
            node.order(
                "POST",
                &format!("/admin/v3/transactions/abortTransaction/{numbers}"),
                "",
            );
        }
        let (one, two) = (all_of(&client, "one").await, all_of(&client, "two").await);
        assert_eq!(one, two, "a transaction is in one topic and not in the other");
        for text in &committed {
            assert_eq!(
                one.iter().filter(|found| *found == text).count(),
                1,
                "{text} was committed"
            );
        }
        for text in &aborted {
            assert!(!one.contains(text), "{text} was aborted");
        }
        assert!(node.stop().success());
    }
}

async fn try_begin(client: &Connection, coordinator: u64) -> Result<TxnId, ()> {
    let asked = client.request("NEW_TXN", |request_id| {
        Command::NewTxn(CommandNewTxn {
            request_id,
            txn_ttl_seconds: Some(600_000),
            tc_id: Some(coordinator),
        })
    });
    match asked.await {
        Ok(Command::NewTxnResponse(response)) if response.error.is_none() => Ok(TxnId {
            most: response.txnid_most_bits(),
            least: response.txnid_least_bits(),
        }),
        _ => Err(()),
    }
}

/// Runs one transaction over both topics; `None`: the broker is gone.
async fn try_all(
    client: &Connection,
    txn: TxnId,
    producers: [(&str, &Producer); 2],
    text: &str,
    action: TxnAction,
) -> Option<()> {
    for (topic, producer) in producers {
        let added = client.request("ADD_PARTITION_TO_TXN", |request_id| {
            Command::AddPartitionToTxn(CommandAddPartitionToTxn {
                request_id,
                txnid_least_bits: Some(txn.least),
                txnid_most_bits: Some(txn.most),
                partitions: vec![topic.to_owned()],
            })
        });
        added.await.ok()?;
        producer.send(in_txn(txn, text)).await.ok()?;
    }
    let ended = client.request("END_TXN", |request_id| {
        Command::EndTxn(CommandEndTxn {
            request_id,
            txnid_least_bits: Some(txn.least),
            txnid_most_bits: Some(txn.most),
            txn_action: Some(action as i32),
        })
    });
    match ended.await {
        Ok(Command::EndTxnResponse(response)) if response.error.is_none() => Some(()),
        _ => None,
    }
}

/// Transactions begun by an earlier run also end if transactions are off now.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_begun_ends_without_the_setting() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &ON);
    let client = node.client().await;
    let txn = begin(&client, 1, 500).await.unwrap();
    let producer = client.producer("t", ProducerOptions::default()).await.unwrap();
    add_topic(&client, txn, "t").await.unwrap();
    send_in(&producer, txn, &["never"]).await;
    producer.send("plain".to_owned()).await.unwrap();
    node.kill();
    let node = Node::start(dir.path(), &[]);
    let client = node.client().await;
    assert_eq!(begin(&client, 0, 1000).await, Err(ServerError::NotAllowedError));
    let options = ConsumerOptions::exclusive("looks").non_durable(earliest());
    let mut reader = client.subscribe("t", options).await.unwrap();
    expect(&mut reader, &["plain"]).await;
}
