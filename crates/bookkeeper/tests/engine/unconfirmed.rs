//! Entries that no bookie knows to be confirmed, read as a recovery would find them.

use super::*;

#[test]
fn another_engine_reads_unconfirmed_entries_and_fences_no_writer() {
    run(async {
        let cluster = Cluster::start(3).await;
        let (one, two) = (cluster.engine(options()).await, cluster.engine(options()).await);
        let writer = one.create(CreateOptions::default()).await.unwrap();
        let count = async |first: u64| {
            let found = two
                .read_unconfirmed(writer.id(), EntryId(first), 99, 1 << 20)
                .await;
            found.map(|found| found.iter().map(|entry| entry.id.0).collect::<Vec<_>>())
        };
        assert!(count(0).await.unwrap().is_empty());
        append(&*writer, 0..1);
        durable(&*writer, 1).await;
        // No bookie has heard that it is confirmed.
        holds(&two, writer.id(), 0).await;
        assert_eq!(count(0).await.unwrap(), [0]);
        append(&*writer, 1..6);
        durable(&*writer, 6).await;
        assert_eq!(count(5).await.unwrap(), [5]);
        assert!(count(6).await.unwrap().is_empty());
        // One bookie that is gone hides nothing that was confirmed. With two it cannot be told.
        cluster.bookies[0].set(Mood::Down);
        assert_eq!(count(5).await.unwrap(), [5]);
        assert!(count(6).await.unwrap().is_empty());
        cluster.bookies[1].set(Mood::Down);
        assert!(matches!(count(6).await, Err(ReadError::Fault(_))));
        for bookie in &cluster.bookies[..2] {
            bookie.set(Mood::Well);
        }
        append(&*writer, 6..8);
        durable(&*writer, 8).await;
        writer.close().await.unwrap();
        assert_eq!(count(7).await.unwrap(), [7]);
        assert!(count(8).await.unwrap().is_empty());
    });
}
