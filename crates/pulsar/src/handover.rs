//! A connection that lives on no shard: one that was just accepted, or one on its way to another shard.
//!
//! A connection lives on one shard from its first producer, consumer or watcher on. Before that it has nothing but what the
//! client said of itself, and may be handed on. Its first producer takes it to the home of that producer's topic, unless
//! more connections live there: a send and its receipt are then spared the way to another thread and back, which costs a
//! single message two tenths of a millisecond (`docs/notes/performance.md`, "What a single message waits for").

use std::rc::Rc;
use std::sync::Arc;

use bytes::BytesMut;

use pharos_auth::Door;
use pharos_broker::ids::ShardId;
use pharos_broker::shard::Shard;
use pharos_runtime::{clock, spawn_local};
use pharos_transport::{Incoming, Place, ReadHalf, Stream};
use pharos_types::TopicName;
use pharos_wire::{Command, Frame};

use crate::connection::{Connection, Unsettled};
use crate::reader::{self, Unhandled};
use crate::shared::Server;

impl Unsettled {
    pub(crate) fn new(server: Arc<Server>, listener: Option<Arc<str>>, stream: &Stream) -> Self {
        Self {
            server,
            address: format!("/{}", stream.peer_address()).into(),
            connected_since_ms: clock::wall_ms(),
            listener,
            door: match stream.is_inside() {
                true => Door::WebSocket,
                false => Door::Pulsar,
            },
            certificate: stream.peer_certificate().cloned(),
            peer: None,
            proved: None,
        }
    }

    /// Makes it a connection of this shard, the one of its place.
    fn settle(
        self,
        shard: &Rc<Shard>,
        stream: Stream,
        place: Place,
        unhandled: Option<Box<Unhandled>>,
    ) -> Option<impl Future<Output = ()> + use<>> {
        let (reading, writing) = stream.split();
        let is_new = self.peer.is_none();
        let mut made = None;
        let make = |id| {
            let connection = Connection::new(id, shard.clone(), self, writing, place);
            made = Some(connection.clone());
            connection as Rc<_>
        };
        match is_new {
            true => _ = shard.connections.register(make),
            false => shard.connections.register_moved(make),
        }
        Some(reader::run(made?, reading, unhandled))
    }
}

/// Serves a connection that was just accepted by a door of `listener`, on the shard of its place.
pub(crate) async fn serve(
    shard: Rc<Shard>,
    server: Arc<Server>,
    listener: Option<Arc<str>>,
    incoming: Incoming,
    place: Place,
) {
    let address = incoming.address();
    let mut token = shard.shutdown_token();
    let established = tokio::select! {
        established = incoming.establish() => established,
        () = token.triggered() => return,
    };
    match established {
        Ok(stream) => {
            let unsettled = Unsettled::new(server, listener, &stream);
            if let Some(serving) = unsettled.settle(&shard, stream, place, None) {
                serving.await;
            }
        }
        // A listener with an entrance tells it as often as is good for the log.
        Err(error) => tracing::debug!(peer = %address, %error, "cannot take a connection in"),
    }
}

/// Serves a connection whose client the entry has let in, on the shard of its place, where its CONNECT is handled as the first.
pub(crate) fn begin(
    shard: &Rc<Shard>,
    unsettled: Unsettled,
    stream: Stream,
    place: Place,
    connect: Box<Unhandled>,
) {
    if let Some(serving) = unsettled.settle(shard, stream, place, Some(connect)) {
        spawn_local(serving);
    }
}

/// Where a connection should live because of this command: a place on the home shard of its first producer's topic.
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
            let unhandled = Box::new(Unhandled { frame, rest });
            if let Some(serving) = unsettled.settle(home, stream, place, Some(unhandled)) {
                spawn_local(serving);
            }
        }
        Err(error) => {
            tracing::warn!(peer = %unsettled.address, %error, "cannot take a connection in");
            home.connections.lose_moved();
        }
    });
}
