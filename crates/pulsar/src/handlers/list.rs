//! GET_TOPICS_OF_NAMESPACE and the watch that follows it: what pattern consumers live on.

use std::rc::Rc;

use pharos_broker::shard::WatchedTopics;
use pharos_catalog::{ListMode, TopicListWatcher};
use pharos_runtime::spawn_local;
use pharos_types::{NameError, NamespaceName};
use pharos_wire::answer::{self, Refusal};
use pharos_wire::proto::command_get_topics_of_namespace::Mode;
use pharos_wire::proto::{
    CommandGetTopicsOfNamespace, CommandWatchTopicList, CommandWatchTopicListClose, ServerError,
};
use tokio::sync::Notify;

use super::deny;
use crate::connection::Connection;
use crate::requests::{self, answer_later};
use crate::{list_turns, refusal};

/// GET_TOPICS_OF_NAMESPACE.
pub(super) fn handle_get_topics(connection: &Rc<Connection>, request: CommandGetTopicsOfNamespace) {
    let id = request.request_id;
    let namespace: NamespaceName = match request.namespace.parse() {
        Ok(namespace) => namespace,
        Err(error) => return deny(connection, id, invalid_namespace(&error)),
    };
    let mode = match request.mode() {
        Mode::Persistent => ListMode::Persistent,
        Mode::NonPersistent => ListMode::NonPersistent,
        Mode::All => ListMode::All,
    };
    answer_later(connection, |connection| async move {
        let Some(_turn) = list_turns::turn(&connection).await else {
            return;
        };
        let who = connection.principal();
        let caller = connection.shard.caller(&who);
        let (pattern, hash) = (request.topics_pattern, request.topics_hash);
        let list = caller.list_topics(&namespace, mode, pattern, hash).await;
        let list = match requests::counted(&connection, namespace.tenant(), list) {
            Ok(list) => list,
            Err(refused) => return deny(&connection, id, refusal::of(&refused, refusal::of_list)),
        };
        connection.send(&answer::topics_of_namespace(
            id,
            list.topics,
            list.hash,
            list.filtered,
            list.changed,
        ));
    });
}

/// WATCH_TOPIC_LIST. The same watcher id again lists anew.
pub(super) fn handle_watch(connection: &Rc<Connection>, request: CommandWatchTopicList) {
    let (id, watcher_id) = (request.request_id, request.watcher_id);
    let namespace: NamespaceName = match request.namespace.parse() {
        Ok(namespace) => namespace,
        Err(error) => return deny(connection, id, invalid_namespace(&error)),
    };
    let present = connection.watchers.borrow().len();
    if let Err(refusal) = connection.server.limiter.watcher(present) {
        return deny(connection, id, refusal);
    }
    // It counts from now on, and may be closed before it is answered.
    let stop = Rc::new(Notify::new());
    let earlier = connection.watchers.borrow_mut().insert(watcher_id, stop.clone());
    if let Some(earlier) = earlier {
        earlier.notify_one();
    }
    answer_later(connection, |connection| async move {
        let watch = Watch {
            connection: connection.clone(),
            watcher_id,
            stop,
        };
        match begin(&watch, &namespace, request).await {
            Some(Ok(watcher)) => spawn_local(follow(watch, watcher)),
            Some(Err(refusal)) => {
                watch.forget();
                deny(&connection, id, refusal);
            }
            None => {}
        }
    });
}

fn invalid_namespace(error: &NameError) -> Refusal {
    Refusal::new(ServerError::InvalidTopicName, error.to_string())
}

/// One watch of a connection.
struct Watch {
    connection: Rc<Connection>,
    watcher_id: u64,
    /// Rings when the client closes it, or begins another one of the same id.
    stop: Rc<Notify>,
}

impl Watch {
    /// True if the client still has it.
    fn is_kept(&self) -> bool {
        let watchers = self.connection.watchers.borrow();
        let current = watchers.get(&self.watcher_id);
        current.is_some_and(|stop| Rc::ptr_eq(stop, &self.stop)) && !self.connection.is_closed()
    }

    fn forget(&self) {
        if self.is_kept() {
            self.connection.watchers.borrow_mut().remove(&self.watcher_id);
        }
    }
}

/// Makes the first list and answers with it. `None`: the connection closed meanwhile.
async fn begin(
    watch: &Watch,
    namespace: &NamespaceName,
    request: CommandWatchTopicList,
) -> Option<Result<TopicListWatcher, Refusal>> {
    let connection = &watch.connection;
    let _turn = list_turns::turn(connection).await?;
    let who = connection.principal();
    let caller = connection.shard.caller(&who);
    let watched = caller.watch_topics(namespace, request.topics_pattern).await;
    let watched = match requests::counted(connection, namespace.tenant(), watched) {
        Ok(watched) => watched,
        Err(refused) => return Some(Err(refusal::of(&refused, refusal::of_list))),
    };
    let WatchedTopics {
        watcher,
        mut topics,
        hash,
    } = watched;
    if request.topics_hash.as_deref() == Some(hash.as_str()) {
        topics.clear();
    }
    let (id, watcher_id) = (request.request_id, watch.watcher_id);
    connection.send(&answer::watch_topic_list_success(id, watcher_id, topics, hash));
    Some(Ok(watcher))
}

/// Tells the client of each change until it closes the watch.
async fn follow(watch: Watch, mut watcher: TopicListWatcher) {
    let connection = &watch.connection;
    while watch.is_kept() {
        tokio::select! {
            () = watch.stop.notified() => return,
            () = watcher.changed() => {}
        }
        let Some(_turn) = list_turns::turn(connection).await else {
            return;
        };
        let Some((watched, update)) = connection.shard.topics_changed(watcher).await else {
            return;
        };
        watcher = watched;
        let update = update.filter(|_| watch.is_kept());
        if let Some(update) = update {
            connection.send(&answer::watch_topic_update(
                watch.watcher_id,
                update.new,
                update.deleted,
                update.hash,
            ));
        }
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
