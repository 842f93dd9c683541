//! Tests of how the client finds the brokers of a cluster: every answer is chosen by the test.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::time::Duration;

use pharos_client::{Brokers, ClientError, ConnectOptions, Connection, RawConnection};
use pharos_wire::command::Command;
use pharos_wire::proto::{self, command_lookup_topic_response::LookupType};

mod fake;
use fake::{accept, listen};

/// Answers the next command, a lookup: `how` and the broker named.
async fn point_to(broker: &mut RawConnection, how: LookupType, url: &str, through_proxy: bool) -> bool {
    let Command::Lookup(asked) = broker.read().await.unwrap().unwrap().command else {
        panic!("expected LOOKUP");
    };
    broker
        .send(proto::CommandLookupTopicResponse {
            broker_service_url: Some(url.to_owned()),
            response: Some(how as i32),
            request_id: asked.request_id,
            authoritative: Some(true),
            proxy_through_service_url: Some(through_proxy),
            ..Default::default()
        })
        .await
        .unwrap();
    asked.authoritative.unwrap_or_default()
}

#[tokio::test]
async fn lookups_lead_to_the_broker_that_serves() {
    let ((one, one_url), (two, two_url)) = (listen().await, listen().await);
    let play = async {
        let (mut first, _) = accept(&one).await;
        assert!(!point_to(&mut first, LookupType::Redirect, &two_url, false).await);
        let (mut second, _) = accept(&two).await;
        let authoritative = point_to(&mut second, LookupType::Connect, &two_url, false).await;
        assert!(authoritative, "what the first one said is passed on");
        // The second topic: no connection is made twice.
        assert!(!point_to(&mut first, LookupType::Connect, &two_url, false).await);
        // The third: brokers that point to one another.
        loop {
            tokio::select! {
                _ = point_to(&mut first, LookupType::Redirect, &two_url, false) => {}
                _ = point_to(&mut second, LookupType::Redirect, &one_url, false) => {}
            }
        }
    };
    let ask = async {
        let mut brokers = Brokers::connect(&one_url, ConnectOptions::default())
            .await
            .unwrap();
        brokers.serving("a").await.unwrap();
        brokers.serving("b").await.unwrap();
        brokers.serving("c").await.unwrap_err()
    };
    let error = tokio::select! { error = ask => error, () = play => unreachable!() };
    assert!(matches!(error, ClientError::Redirected { .. }), "{error}");
}

#[tokio::test]
async fn a_proxy_is_told_which_broker_it_stands_for() {
    let (proxy, url) = listen().await;
    let play = async {
        let (mut first, connect) = accept(&proxy).await;
        assert_eq!(connect.proxy_to_broker_url, None);
        point_to(&mut first, LookupType::Connect, "pulsar://broker-7:6650", true).await;
        let (second, connect) = accept(&proxy).await;
        assert_eq!(connect.proxy_to_broker_url.as_deref(), Some("broker-7:6650"));
        (first, second)
    };
    let ask = async {
        let mut brokers = Brokers::connect(&url, ConnectOptions::default()).await.unwrap();
        brokers.serving("a").await.map(drop)
    };
    let (_open, outcome) = tokio::join!(play, ask);
    outcome.unwrap();
}

#[tokio::test]
async fn the_next_address_is_tried_when_one_does_not_let_us_in() {
    let (dead, dead_url) = listen().await;
    drop(dead);
    let (one, one_url) = listen().await;
    let (two, two_url) = listen().await;
    let authority = |url: &str| url.trim_start_matches("pulsar://").to_owned();
    let url = format!("{dead_url},{},{}", authority(&one_url), authority(&two_url));
    let play = async {
        let (first, _) = accept(&one).await;
        drop((first, one));
        // The one that let us in has gone; the list goes on behind it.
        accept(&two).await
    };
    let ask = async {
        let mut brokers = Brokers::connect(&url, ConnectOptions::default()).await.unwrap();
        let first = brokers.first().await;
        // The end may not have been noticed yet: then it is the connection that ends.
        while first.as_ref().is_ok_and(|first| first.end_reason().is_none()) {
            tokio::task::yield_now().await;
        }
        brokers.first().await.map(drop)
    };
    let (_open, outcome) = tokio::join!(play, ask);
    outcome.unwrap();
}

#[tokio::test]
async fn a_broker_that_has_gone_without_a_word_is_missed() {
    let (broker, url) = listen().await;
    let options = ConnectOptions::default().keep_alive(Duration::from_millis(20));
    let (accepted, connected) = tokio::join!(accept(&broker), Connection::connect(&url, options));
    let (mut raw, connection) = (accepted.0, connected.unwrap());
    let Command::Ping(_) = raw.read().await.unwrap().unwrap().command else {
        panic!("expected PING");
    };
    // Its connection stays open, and nothing comes.
    let ended = loop {
        match connection.end_reason() {
            Some(ended) => break ended.to_string(),
            None => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    };
    assert!(ended.contains("no sign of life"), "{ended}");
}
