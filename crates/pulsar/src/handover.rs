//! A connection that lives on no shard: one whose client was just let in, or one on its way to another shard.
//!
//! A connection lives on one shard from its first producer, consumer or watcher on. Before that it has nothing but what the
//! client said of itself, and may be handed on. Its first producer takes it to the home of that producer's topic, unless
//! more connections live there: a send and its receipt are then spared the way to another thread and back, which costs a
//! single message two tenths of a millisecond (`docs/notes/performance.md`, "What a single message waits for").

use std::rc::Rc;

use bytes::BytesMut;

use pharos_broker::ids::ShardId;
use pharos_broker::shard::Shard;
use pharos_runtime::spawn_local;
use pharos_transport::{Place, ReadHalf, Stream};
use pharos_types::TopicName;
use pharos_wire::proto::FeatureFlags;
use pharos_wire::{Command, Frame, answer};

use crate::connection::{Connection, Unsettled};
use crate::reader::{self, Unhandled};

/// Origin of a connection on a shard.
enum Arrival {
    New,
    FromOtherShard,
}

impl Unsettled {
    /// Makes it a connection of this shard, the one of its place. What it reads from is to be given to its reader.
    fn settle(
        self,
        shard: &Rc<Shard>,
        stream: Stream,
        place: Place,
        arrival: &Arrival,
    ) -> Option<(Rc<Connection>, ReadHalf)> {
        let (reading, writing) = stream.split();
        let mut made = None;
        let make = |id| {
            let connection = Connection::new(id, shard.clone(), self, writing, place);
            made = Some(connection.clone());
            connection as Rc<_>
        };
        match arrival {
            Arrival::New => _ = shard.connections.register(make),
            Arrival::FromOtherShard => shard.connections.register_moved(make),
        }
        Some((made?, reading))
    }
}

/// Serves a connection whose client was let in, on the shard of its place. `rest`: what the client said after CONNECT.
pub(crate) fn begin(shard: &Rc<Shard>, unsettled: Unsettled, stream: Stream, place: Place, rest: &[u8]) {
    let Some((connection, reading)) = unsettled.settle(shard, stream, place, &Arrival::New) else {
        return;
    };
    welcome(&connection);
    let unhandled = (!rest.is_empty()).then(|| {
        Box::new(Unhandled {
            frame: None,
            rest: BytesMut::from(rest),
        })
    });
    spawn_local(reader::run(connection, reading, unhandled));
}

fn welcome(connection: &Connection) {
    connection.shard.tally().handshake();
    let flags = FeatureFlags {
        supports_auth_refresh: Some(connection.server.authentication.is_on()),
        supports_broker_entry_metadata: Some(false),
        supports_partial_producer: Some(false),
        supports_topic_watchers: Some(true),
        supports_get_partitioned_metadata_without_auto_creation: Some(true),
        supports_repl_dedup_by_lid_and_eid: Some(false),
        supports_topic_watcher_reconcile: Some(true),
    };
    let bytes_max = i32::try_from(connection.shard.shared.options.max_message_size).unwrap_or(i32::MAX);
    connection.send(&answer::connected(
        &connection.server.server_version,
        connection.protocol_version(),
        bytes_max,
        flags,
    ));
}

/// Returns a better position for the connection because of this command: one on the home shard of its first
/// producer's topic.
pub(crate) fn better_place(connection: &Rc<Connection>, command: &Command) -> Option<Place> {
    let Command::Producer(request) = command else {
        return None;
    };
    if !connection.may_move() {
        return None;
    }
    // A name that is none is answered here.
    let topic: TopicName = request.topic.parse().ok()?;
    let home = connection.shard.shared.placement.home(&topic).ok()?;
    connection.place.elsewhere(usize::from(home.0))
}

/// Hands a connection on to the shard of `place`, where `frame` is handled as the first, and then `rest`.
///
/// Only one that [`Connection::may_move`]; any other one is closed.
pub(crate) fn hand_on(
    connection: Rc<Connection>,
    reading: ReadHalf,
    place: Place,
    frame: Frame,
    rest: BytesMut,
) {
    let shard = connection.shard.clone();
    shard.connections.unregister_moved(connection.id);
    let (unsettled, writing) = match Rc::try_unwrap(connection) {
        Ok(connection) => connection.into_unsettled(),
        Err(connection) => {
            tracing::error!(peer = %connection.address, "closing a connection that cannot move");
            shard.connections.lose_moved();
            return connection.clean_up();
        }
    };
    let stream = match reading.reunite(writing).and_then(Stream::detach) {
        Ok(stream) => stream,
        Err(error) => {
            tracing::warn!(peer = %unsettled.address, %error, "cannot hand a connection on");
            return shard.connections.lose_moved();
        }
    };
    let home = ShardId(u16::try_from(place.shard()).unwrap_or(0));
    shard.run_on(home, move |home| match stream.attach() {
        Ok(stream) => {
            let frame = Some(frame);
            let unhandled = Box::new(Unhandled { frame, rest });
            let settled = unsettled.settle(home, stream, place, &Arrival::FromOtherShard);
            if let Some((connection, reading)) = settled {
                spawn_local(reader::run(connection, reading, Some(unhandled)));
            }
        }
        Err(error) => {
            tracing::warn!(peer = %unsettled.address, %error, "cannot take a connection in");
            home.connections.lose_moved();
        }
    });
}
