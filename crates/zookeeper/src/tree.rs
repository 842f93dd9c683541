//! Keys as nodes: what one client does with the tree.

use std::sync::Arc;

use futures_util::future::join_all;
use pharos_metadata::{Expect, Fault, Item, Version, WriteError};
use zookeeper_client::{Client, CreateMode, Error, Stat};

use crate::options::Acl;

/// Nodes asked about at a time.
const AT_ONCE: usize = 64;
/// ZooKeeper's own.
const RESERVED: &str = "zookeeper";

pub(crate) fn path_of(key: &str) -> String {
    format!("/{key}")
}

pub(crate) fn version_of(stat: &Stat) -> Version {
    Version(u64::try_from(stat.mzxid).unwrap_or(0))
}

/// See the crate: a parent is not a key by itself.
pub(crate) fn is_key(stat: &Stat) -> bool {
    stat.data_length > 0 || stat.num_children == 0
}

pub(crate) fn fault(what: &'static str, error: &Error) -> Arc<Fault> {
    Fault::new(what, error)
}

pub(crate) fn write_fault(error: Error) -> WriteError {
    WriteError::Fault(fault("write to ZooKeeper", &error))
}

pub(crate) fn conflict(key: &str, stat: Option<&Stat>) -> WriteError {
    WriteError::Conflict {
        key: key.to_owned(),
        current: stat.map(version_of),
    }
}

/// Makes a node, and the parents that are missing.
pub(crate) async fn create(
    client: &Client,
    acl: Acl,
    path: &str,
    value: &[u8],
    mode: CreateMode,
) -> Result<Stat, Error> {
    let options = mode.with_acls(acl.list());
    loop {
        match client.create(path, value, &options).await {
            Ok((stat, _)) => return Ok(stat),
            Err(Error::NoNode) => make_parents(client, acl, path).await?,
            Err(error) => return Err(error),
        }
    }
}

pub(crate) async fn make_parents(client: &Client, acl: Acl, path: &str) -> Result<(), Error> {
    let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
    let options = CreateMode::Persistent.with_acls(acl.list());
    client.mkdir(parent, &options).await
}

/// The node of a key, if the key is there.
pub(crate) async fn stat(client: &Client, path: &str) -> Result<Option<Stat>, Error> {
    Ok(client.check_stat(path).await?.filter(is_key))
}

pub(crate) async fn put(
    client: &Client,
    acl: Acl,
    key: &str,
    value: &[u8],
    expect: Expect,
) -> Result<Version, WriteError> {
    let path = path_of(key);
    loop {
        let found = client.check_stat(&path).await.map_err(write_fault)?;
        let current = found.as_ref().filter(|stat| is_key(stat));
        if !expect.holds(current.map(version_of)) {
            return Err(conflict(key, current));
        }
        let written = match (&found, expect) {
            (None, _) => create(client, acl, &path, value, CreateMode::Persistent).await,
            (Some(_), Expect::Any) => client.set_data(&path, value, None).await,
            (Some(stat), _) => client.set_data(&path, value, Some(stat.version)).await,
        };
        match written {
            Ok(stat) => return Ok(version_of(&stat)),
            // It is not as it was found.
            Err(Error::NodeExists | Error::NoNode | Error::BadVersion) => {}
            Err(error) => return Err(write_fault(error)),
        }
    }
}

/// Deletes a node. Returns true if it existed.
pub(crate) async fn delete(client: &Client, key: &str, expect: Expect) -> Result<bool, WriteError> {
    let path = path_of(key);
    loop {
        let found = stat(client, &path).await.map_err(write_fault)?;
        if !expect.holds(found.as_ref().map(version_of)) {
            return Err(conflict(key, found.as_ref()));
        }
        let Some(found) = found else {
            return Ok(false);
        };
        let deleted = match client.delete(&path, Some(found.version)).await {
            // A parent stays, without a value.
            Err(Error::NotEmpty) => client.set_data(&path, &[], Some(found.version)).await.map(drop),
            other => other,
        };
        match deleted {
            Ok(()) => return Ok(true),
            Err(Error::NoNode | Error::BadVersion) => {}
            Err(error) => return Err(write_fault(error)),
        }
    }
}

/// A number that no sequential node of this name ever had.
pub(crate) async fn sequence(client: &Client, acl: Acl, key: &str) -> Result<u64, WriteError> {
    let path = path_of(key);
    let options = CreateMode::EphemeralSequential.with_acls(acl.list());
    loop {
        match client.create(&path, &[], &options).await {
            Ok((_, number)) => {
                // It goes with the session otherwise.
                let _ = client.delete(&format!("{path}{number}"), None).await;
                return u64::try_from(number.into_i64()).map_err(|_| {
                    WriteError::Fault(Fault::new("count a sequence", "its numbers are used up"))
                });
            }
            Err(Error::NoNode) => make_parents(client, acl, &path).await.map_err(write_fault)?,
            Err(error) => return Err(write_fault(error)),
        }
    }
}

/// The keys that begin with `prefix`, in byte order.
pub(crate) async fn list(client: &Client, prefix: &str) -> Result<Vec<String>, Error> {
    let root = prefix.rsplit_once('/').map_or("", |(root, _)| root).to_owned();
    let mut keys = Vec::new();
    // Nodes whose children are not known yet; the root is no candidate itself.
    let mut ahead = vec![root.clone()];
    while !ahead.is_empty() {
        let now = ahead.split_off(ahead.len().saturating_sub(AT_ONCE));
        let asked = now.iter().map(|key| {
            let path = path_of(key);
            async move { client.get_children(&path).await }
        });
        for (key, answer) in now.iter().zip(join_all(asked).await) {
            let (children, stat) = match answer {
                Ok(answer) => answer,
                // It went meanwhile, or was never there.
                Err(Error::NoNode) => continue,
                Err(error) => return Err(error),
            };
            if *key != root && is_key(&stat) {
                keys.push(key.clone());
            }
            let below = children.into_iter().map(|child| match key.as_str() {
                "" => child,
                key => format!("{key}/{child}"),
            });
            ahead.extend(below.filter(|key| key.starts_with(prefix) && key != RESERVED));
        }
    }
    keys.sort_unstable();
    Ok(keys)
}

/// As [`list`], with the values.
pub(crate) async fn scan(client: &Client, prefix: &str) -> Result<Vec<Item>, Error> {
    let keys = list(client, prefix).await?;
    let mut items = Vec::with_capacity(keys.len());
    for keys in keys.chunks(AT_ONCE) {
        let asked = keys.iter().map(|key| {
            let path = path_of(key);
            async move { client.get_data(&path).await }
        });
        for (key, answer) in keys.iter().zip(join_all(asked).await) {
            match answer {
                Ok((value, stat)) if is_key(&stat) => items.push(Item {
                    key: key.clone(),
                    value: value.into(),
                    version: version_of(&stat),
                }),
                Ok(_) | Err(Error::NoNode) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(items)
}
