//! Readers beside a writer.

use pharos_types::EntryId;

use super::{PATIENCE, Subject, fill};
use crate::{CreateOptions, ReadError, Readable};

/// A reader beside the writer hears of every durable entry, and that there will be no more; the writer goes on meanwhile.
///
/// # Panics
/// When it does not.
pub async fn followers_hear_of_what_is_durable(subject: &impl Subject) {
    let engine = subject.engine();
    let options = CreateOptions {
        is_followed: true,
        ..CreateOptions::default()
    };
    let writer = engine.create(options).await.expect("create");
    let id = writer.id();
    let look = |beyond| {
        let followed = tokio::time::timeout(PATIENCE, engine.follow(id, beyond));
        async { followed.await.expect("followed in time").expect("follow") }
    };
    let readable = |entries, is_sealed| Readable { entries, is_sealed };
    assert_eq!(look(None).await, readable(0, false));
    fill(&*writer, 0, 3).await;
    assert_eq!(look(Some(2)).await, readable(3, false));
    assert_eq!(look(None).await, readable(3, false));
    let growing = async {
        let mut seen = 3;
        while seen < 8 {
            let now = look(Some(seen)).await;
            assert!(now.entries >= seen && !now.is_sealed, "{now:?} after {seen}");
            let read = engine.read(id, EntryId(seen), 8, usize::MAX).await.expect("read");
            assert!(
                read.len() as u64 >= now.entries - seen,
                "what is readable can be read"
            );
            seen = now.entries;
        }
    };
    tokio::join!(growing, fill(&*writer, 3, 5));
    let sealing = async { while !look(Some(8)).await.is_sealed {} };
    let (closed, ()) = tokio::join!(writer.close(), sealing);
    closed.expect("followers do not fence the writer");
    assert_eq!(look(Some(8)).await, readable(8, true));
    engine.delete(id).await.expect("delete");
    let gone = engine.follow(id, Some(8)).await;
    assert!(matches!(gone, Err(ReadError::NoSuchLedger(_))), "{gone:?}");
}
