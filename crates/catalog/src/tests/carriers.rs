//! Carriers: what is on record of them, and which bundles are to be at different brokers.

use pharos_types::SubscriptionName;

use super::*;

#[tokio::test]
async fn slots_of_a_topic_are_apart_while_it_has_them_and_on_record_until_it_is_gone() {
    let catalog = Bench::new().open().await;
    let (carriers, news) = (Carriers::of(&catalog), topic("news"));
    catalog.ensure_topic(&news, true).await.unwrap();
    let whole = format!("public/default/{}", catalog.bundle_of(&news).unwrap());
    let bundle_of = |number| {
        let carrier = carrier_name(&news, number).unwrap();
        format!("public/default/{}", catalog.bundle_of(&carrier).unwrap())
    };
    let (first, second) = (bundle_of(1), bundle_of(2));
    assert!(carriers.apart_from(&whole).is_empty() && !carriers.were_there(&news));

    let everyone = SubscriptionName::new("everyone").unwrap();
    let slots = CarrierSlots { slots: 3, id: 1 };
    carriers.note(&news, &everyone, Some(slots)).await.unwrap();
    let mut of_first = carriers.apart_from(&first);
    of_first.sort_unstable();
    let mut expected = [whole.clone(), second.clone()];
    expected.sort_unstable();
    assert_eq!(of_first, expected);
    assert_eq!(carriers.apart_from(&whole), [first.clone(), second]);
    assert!(carriers.apart_from("acme/cars/0x00000000_0xffffffff").is_empty());
    assert!(
        carriers
            .apart_from("public/default/0xffffffff_0xffffffff")
            .is_empty()
    );

    carriers.note(&news, &everyone, None).await.unwrap();
    assert!(carriers.apart_from(&first).is_empty() && carriers.topics().is_empty());
    assert!(carriers.were_there(&news), "their logs may be there");
    carriers.forget(&news).await.unwrap();
    assert!(!carriers.were_there(&news));
}
