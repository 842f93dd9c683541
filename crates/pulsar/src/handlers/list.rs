//! GET_TOPICS_OF_NAMESPACE and the watch that follows it: what pattern consumers live on.

use std::rc::Rc;

use pharos_catalog::{ListMode, TopicListWatcher};
use pharos_runtime::spawn_local;
use pharos_types::NamespaceName;
use pharos_wire::answer::{self, Refusal};
use pharos_wire::proto::command_get_topics_of_namespace::Mode;
use pharos_wire::proto::{
    CommandGetTopicsOfNamespace, CommandWatchTopicList, CommandWatchTopicListClose, ServerError,
};
use tokio::sync::Notify;

use super::deny;
use crate::connection::Connection;
use crate::{refusal, requests};

/// GET_TOPICS_OF_NAMESPACE.
pub(super) fn handle_get_topics(connection: &Connection, request: &CommandGetTopicsOfNamespace) {
    let id = request.request_id;
    let namespace: NamespaceName = match request.namespace.parse() {
        Ok(namespace) => namespace,
        Err(error) => {
            return deny(
                connection,
                id,
                Refusal::new(ServerError::InvalidTopicName, format!("{error}")),
            );
        }
    };
    let mode = match request.mode() {
        Mode::Persistent => ListMode::Persistent,
        Mode::NonPersistent => ListMode::NonPersistent,
        Mode::All => ListMode::All,
    };
    let who = connection.principal();
    let (pattern, hash) = (request.topics_pattern.as_deref(), request.topics_hash.as_deref());
    let caller = connection.shard.caller(&who);
    let list = caller.list_topics(&namespace, mode, pattern, hash);
    let list = match requests::counted(connection, namespace.tenant(), list) {
        Ok(list) => list,
        Err(denied) => return deny(connection, id, refusal::of_denied(&denied)),
    };
    connection.send(&answer::topics_of_namespace(
        id,
        list.topics,
        list.hash,
        list.filtered,
        list.changed,
    ));
}

/// WATCH_TOPIC_LIST. The same watcher id again lists anew.
pub(super) fn handle_watch(connection: &Rc<Connection>, request: &CommandWatchTopicList) {
    let (id, watcher_id) = (request.request_id, request.watcher_id);
    let namespace: NamespaceName = match request.namespace.parse() {
        Ok(namespace) => namespace,
        Err(error) => {
            return deny(
                connection,
                id,
                Refusal::new(ServerError::InvalidTopicName, format!("{error}")),
            );
        }
    };
    let present = connection.watchers.borrow().len();
    if let Err(refusal) = connection.server.limiter.watcher(present) {
        return deny(connection, id, refusal);
    }
    let who = connection.principal();
    let caller = connection.shard.caller(&who);
    let watcher = caller.watch_topics(&namespace, &request.topics_pattern);
    let watcher = match requests::counted(connection, namespace.tenant(), watcher) {
        Ok(watcher) => watcher,
        Err(refused) => return deny(connection, id, refusal::of(&refused, refusal::of_pattern)),
    };
    let stop = Rc::new(Notify::new());
    let earlier = connection.watchers.borrow_mut().insert(watcher_id, stop.clone());
    if let Some(earlier) = earlier {
        earlier.notify_one();
    }
    let hash = watcher.hash();
    let topics = if request.topics_hash.as_deref() == Some(hash.as_str()) {
        Vec::new()
    } else {
        watcher.topics()
    };
    connection.send(&answer::watch_topic_list_success(id, watcher_id, topics, hash));
    spawn_local(follow(connection.clone(), watcher_id, watcher, stop));
}

/// Tells the client of each change until it closes the watch.
async fn follow(
    connection: Rc<Connection>,
    watcher_id: u64,
    mut watcher: TopicListWatcher,
    stop: Rc<Notify>,
) {
    loop {
        let update = tokio::select! {
            () = stop.notified() => return,
            update = watcher.next() => update,
        };
        if connection.is_closed() {
            return;
        }
        connection.send(&answer::watch_topic_update(
            watcher_id,
            update.new,
            update.deleted,
            update.hash,
        ));
    }
}

/// WATCH_TOPIC_LIST_CLOSE.
pub(super) fn handle_watch_close(connection: &Connection, request: &CommandWatchTopicListClose) {
    let watcher = connection.watchers.borrow_mut().remove(&request.watcher_id);
    if let Some(watcher) = watcher {
        watcher.notify_one();
    }
    connection.send(&answer::success(request.request_id));
}
