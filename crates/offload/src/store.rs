//! An object store, or a folder, with the few verbs that are needed, its errors in our words.

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
use crate::folder::{Folder, Staged};

/// Kind of storage behind a target.
#[derive(Clone)]
pub(crate) enum Backing {
    /// An object store beyond the network.
    Objects(Arc<dyn ObjectStore>),
    /// A folder of this machine.
    Folder(Folder),
}

/// Store of one target. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Store {
    at: Backing,
    target: Arc<OffloadTarget>,
}

/// An object that is written in parts.
pub(crate) enum ObjectWriter {
    /// To an object store.
    Upload(Box<dyn MultipartUpload>),
    /// Into a folder.
    Staged(Staged),
}

/// Failure of a write to a store.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteFailure {
    #[error(transparent)]
    Objects(#[from] object_store::Error),
    #[error(transparent)]
    Folder(#[from] std::io::Error),
}

impl WriteFailure {
    fn is_missing(&self) -> bool {
        match self {
            Self::Objects(error) => matches!(error, object_store::Error::NotFound { .. }),
            Self::Folder(error) => error.kind() == std::io::ErrorKind::NotFound,
        }
    }
}

impl ObjectWriter {
    pub(crate) async fn push(&mut self, pieces: Vec<Bytes>) -> Result<(), WriteFailure> {
        match self {
            Self::Upload(parts) => {
                let payload: PutPayload = pieces.into_iter().collect();
                Ok(parts.put_part(payload).await?)
            }
            Self::Staged(staged) => Ok(staged.push(pieces).await?),
        }
    }

    /// The object is there, durably.
    pub(crate) async fn complete(&mut self) -> Result<(), WriteFailure> {
        match self {
            Self::Upload(parts) => {
                parts.complete().await?;
                Ok(())
            }
            Self::Staged(staged) => Ok(staged.complete().await?),
        }
    }

    pub(crate) async fn abort(&mut self) -> Result<(), WriteFailure> {
        match self {
            Self::Upload(parts) => Ok(parts.abort().await?),
            Self::Staged(staged) => Ok(staged.abort().await?),
        }
    }
}

impl Store {
    pub(crate) fn new(at: Backing, target: OffloadTarget) -> Self {
        Self {
            at,
            target: Arc::new(target),
        }
    }

    /// Location of the target, for messages.
    pub(crate) fn place(&self) -> String {
        self.target.to_string()
    }

    pub(crate) async fn put(&self, object: &str, pieces: Vec<Bytes>) -> Result<(), OffloadError> {
        let put = match &self.at {
            Backing::Objects(store) => {
                let options = PutOptions {
                    attributes: attributes(),
                    ..PutOptions::default()
                };
                let payload: PutPayload = pieces.into_iter().collect();
                let put = store.put_opts(&Path::from(object), payload, options).await;
                put.map(drop).map_err(WriteFailure::from)
            }
            Backing::Folder(folder) => folder.put(object, pieces).await.map_err(WriteFailure::from),
        };
        put.map_err(|error| self.failed(object, &error))
    }

    pub(crate) async fn begin(&self, object: &str) -> Result<ObjectWriter, OffloadError> {
        let begun = match &self.at {
            Backing::Objects(store) => {
                let options = PutMultipartOptions {
                    attributes: attributes(),
                    ..PutMultipartOptions::default()
                };
                let begun = store.put_multipart_opts(&Path::from(object), options).await;
                begun.map(ObjectWriter::Upload).map_err(WriteFailure::from)
            }
            Backing::Folder(folder) => {
                let begun = folder.begin(object).await;
                begun.map(ObjectWriter::Staged).map_err(WriteFailure::from)
            }
        };
        begun.map_err(|error| self.failed(object, &error))
    }

    /// Exactly these bytes.
    pub(crate) async fn get_range(&self, object: &str, range: Range<u64>) -> Result<Bytes, OffloadError> {
        let (start, length) = (range.start, range.end - range.start);
        let got = match &self.at {
            Backing::Objects(store) => {
                let got = store.get_range(&Path::from(object), range).await;
                got.map_err(WriteFailure::from)
            }
            Backing::Folder(folder) => folder.read(object, range).await.map_err(WriteFailure::from),
        };
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
        let failed = |error: WriteFailure| self.failed(object, &error);
        match &self.at {
            Backing::Objects(store) => {
                let got = store.get_opts(&Path::from(object), GetOptions::default()).await;
                let got = got.map_err(|error| failed(error.into()))?;
                self.check_length(object, got.meta.size, bytes_max)?;
                got.bytes().await.map_err(|error| failed(error.into()))
            }
            Backing::Folder(folder) => {
                let length = folder
                    .length(object)
                    .await
                    .map_err(|error| failed(error.into()))?;
                self.check_length(object, length, bytes_max)?;
                let got = folder.read(object, 0..length).await;
                got.map_err(|error| failed(error.into()))
            }
        }
    }

    fn check_length(&self, object: &str, length: u64, bytes_max: u64) -> Result<(), OffloadError> {
        if length <= bytes_max {
            return Ok(());
        }
        let cause = format!("it has {length} bytes; {bytes_max} are possible");
        Err(self.damaged(object, bytes_max, cause))
    }

    /// Length of an object.
    pub(crate) async fn length(&self, object: &str) -> Result<u64, OffloadError> {
        let length = match &self.at {
            Backing::Objects(store) => {
                let head = store.head(&Path::from(object)).await;
                head.map(|head| head.size).map_err(WriteFailure::from)
            }
            Backing::Folder(folder) => folder.length(object).await.map_err(WriteFailure::from),
        };
        length.map_err(|error| self.failed(object, &error))
    }

    /// Deletes objects, one after the other, and what a cut-off upload left of them; that none is there is fine.
    pub(crate) async fn delete(&self, objects: &[String; 2]) -> Result<(), OffloadError> {
        match &self.at {
            // Parts of an upload that was never completed cannot be listed here; the bucket's lifecycle rule removes them.
            Backing::Objects(store) => {
                for object in objects {
                    match store.delete(&Path::from(object.as_str())).await {
                        Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
                        Err(error) => return Err(self.failed(object, &error.into())),
                    }
                }
                Ok(())
            }
            Backing::Folder(folder) => {
                let deleted = folder.delete(objects).await;
                deleted.map_err(|error| self.failed(&objects.join(" and "), &error.into()))
            }
        }
    }

    pub(crate) fn failed(&self, object: &str, error: &WriteFailure) -> OffloadError {
        if error.is_missing() {
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
}

/// Attributes of the objects in an object store; files of a folder have none.
fn attributes() -> Attributes {
    let (key, value) = drivers::VERSION_METADATA;
    [(Attribute::Metadata(key.into()), value)].into_iter().collect()
}
