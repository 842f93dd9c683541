//! The matrix of WebSockets: each kind with every kind of credentials, in the header and in the query.

use pharos_auth::Action;

use super::{BAD, House, Voucher, Who, bearer};
use crate::support::web_socket::{UPGRADE, WebSocket};

/// Each kind, what it asks for, and whether that is about a consumer by its name.
pub(super) const KINDS: [(&str, Action, bool); 3] = [
    ("producer", Action::Produce, false),
    ("consumer", Action::Consume, true),
    ("reader", Action::Consume, true),
];

/// A WebSocket of a kind, about the topic; a consumer is called `car-1`.
fn path_of(kind: &str, role: &str) -> String {
    match kind {
        "producer" => "producer/persistent/t/n/x?".to_owned(),
        "consumer" => {
            format!("consumer/persistent/t/n/x/of-{role}?subscriptionType=Broadcast&consumerName=car-1")
        }
        _ => "reader/persistent/t/n/x?readerName=car-1".to_owned(),
    }
}

/// Statuses of the upgrade, with the token in the header and with the same in the query.
async fn statuses(house: &House, path: &str, token: Option<&str>) -> [u16; 2] {
    let ways = match token {
        None => [
            (path.to_owned(), UPGRADE.to_owned()),
            (format!("{path}&token="), UPGRADE.to_owned()),
        ],
        Some(token) => [
            (path.to_owned(), format!("{UPGRADE}{}", bearer(token))),
            (format!("{path}&token={token}"), UPGRADE.to_owned()),
        ],
    };
    let mut statuses = [0; 2];
    for (status, (path, headers)) in statuses.iter_mut().zip(ways) {
        *status = match WebSocket::try_open(&house.node, &path, &headers).await {
            Ok(opened) => {
                opened.close().await;
                101
            }
            Err((refused, _)) => refused,
        };
    }
    statuses
}

#[tokio::test]
async fn every_websocket_answers_each_kind_of_credentials_as_its_need_says() {
    let dir = tempfile::tempdir().unwrap();
    let house = House::new(dir.path());
    for (kind, action, is_named) in KINDS {
        for (voucher, what) in Voucher::ALL
            .into_iter()
            .flat_map(|voucher| BAD.map(|what| (voucher, what)))
        {
            let bad = house.bad(voucher, what);
            let answered = statuses(&house, &path_of(kind, "root"), bad.as_deref()).await;
            assert_eq!(answered, [401; 2], "{kind} with {what} by {voucher:?}");
        }
        for (voucher, who) in Voucher::ALL
            .into_iter()
            .flat_map(|voucher| Who::ALL.map(|who| (voucher, who)))
        {
            let wanted = match who.has_for(action.need(), is_named) {
                true => 101,
                false => 403,
            };
            let token = house.good(voucher, who.role());
            let answered = statuses(&house, &path_of(kind, who.role()), Some(&token)).await;
            assert_eq!(answered, [wanted; 2], "{kind} by {who:?} of {voucher:?}");
        }
    }
    house.node.stop();
}
