//! An object store with the few verbs that are needed, its errors in our words.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, GetOptions, MultipartUpload, ObjectStore, ObjectStoreExt as _,
    PutMultipartOptions, PutOptions, PutPayload,
};
use pharos_ledger::offload::{OffloadError, OffloadTarget};

use crate::drivers;

/// One target's store. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Store {
    store: Arc<dyn ObjectStore>,
    target: Arc<OffloadTarget>,
}

impl Store {
    pub(crate) fn new(store: Arc<dyn ObjectStore>, target: OffloadTarget) -> Self {
        Self {
            store,
            target: Arc::new(target),
        }
    }

    /// Where it is, for messages.
    pub(crate) fn place(&self) -> String {
        self.target.to_string()
    }

    pub(crate) async fn put(&self, object: &str, pieces: Vec<Bytes>) -> Result<(), OffloadError> {
        let options = PutOptions {
            attributes: self.attributes(),
            ..PutOptions::default()
        };
        let payload: PutPayload = pieces.into_iter().collect();
        let put = self.store.put_opts(&Path::from(object), payload, options).await;
        put.map(drop).map_err(|error| self.failed(object, &error))
    }

    pub(crate) async fn begin(&self, object: &str) -> Result<Box<dyn MultipartUpload>, OffloadError> {
        let options = PutMultipartOptions {
            attributes: self.attributes(),
            ..PutMultipartOptions::default()
        };
        let begun = self.store.put_multipart_opts(&Path::from(object), options).await;
        begun.map_err(|error| self.failed(object, &error))
    }

    /// Exactly these bytes.
    pub(crate) async fn get_range(&self, object: &str, range: Range<u64>) -> Result<Bytes, OffloadError> {
        let length = range.end - range.start;
        let (start, got) = (
            range.start,
            self.store.get_range(&Path::from(object), range).await,
        );
        let bytes = got.map_err(|error| self.failed(object, &error))?;
        if bytes.len() as u64 == length {
            return Ok(bytes);
        }
        let cause = format!(
            "the store gave {} bytes where {length} were asked for",
            bytes.len()
        );
        Err(self.damaged(object, start + bytes.len() as u64, cause))
    }

    /// The whole object, when it is no longer than `bytes_max`.
    pub(crate) async fn get(&self, object: &str, bytes_max: u64) -> Result<Bytes, OffloadError> {
        let got = self
            .store
            .get_opts(&Path::from(object), GetOptions::default())
            .await;
        let got = got.map_err(|error| self.failed(object, &error))?;
        if got.meta.size > bytes_max {
            let cause = format!("it has {} bytes; {bytes_max} are possible", got.meta.size);
            return Err(self.damaged(object, bytes_max, cause));
        }
        got.bytes().await.map_err(|error| self.failed(object, &error))
    }

    /// Length of an object.
    pub(crate) async fn length(&self, object: &str) -> Result<u64, OffloadError> {
        let head = self.store.head(&Path::from(object)).await;
        Ok(head.map_err(|error| self.failed(object, &error))?.size)
    }

    /// Deletes an object; one that is not there is fine.
    pub(crate) async fn delete(&self, object: &str) -> Result<(), OffloadError> {
        match self.store.delete(&Path::from(object)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.failed(object, &error)),
        }
    }

    /// Removes what a cut-off upload left beside its object.
    pub(crate) fn remove_staged(&self, object: &str) -> Result<(), OffloadError> {
        match drivers::is_folder(&self.target) {
            true => drivers::remove_staged(&self.target, object),
            // Parts of an upload that was never completed cannot be listed here; the bucket's lifecycle rule removes them.
            false => Ok(()),
        }
    }

    pub(crate) fn failed(&self, object: &str, error: &object_store::Error) -> OffloadError {
        if matches!(error, object_store::Error::NotFound { .. }) {
            return OffloadError::Missing {
                object: object.to_owned(),
                place: self.place(),
            };
        }
        OffloadError::Store {
            object: object.to_owned(),
            place: self.place(),
            cause: error.to_string(),
        }
    }

    pub(crate) fn damaged(&self, object: &str, byte_offset: u64, cause: impl ToString) -> OffloadError {
        OffloadError::Damaged {
            object: object.to_owned(),
            place: self.place(),
            byte_offset,
            cause: cause.to_string(),
        }
    }

    fn attributes(&self) -> Attributes {
        let (key, value) = drivers::VERSION_METADATA;
        match drivers::is_folder(&self.target) {
            true => Attributes::new(),
            false => [(Attribute::Metadata(key.into()), value)].into_iter().collect(),
        }
    }
}
