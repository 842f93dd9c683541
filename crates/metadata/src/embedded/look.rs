//! Looking at a store that is not open, without changing it.

use std::path::Path;

use pharos_runtime::fs::Fs;

use super::survey::Flaw;
use super::witness::Beside;
use super::{Embedded, migrate, recover, witness};
use crate::{Item, OpenError};

/// Content of a store, and the defects of its files.
#[derive(Debug)]
pub struct Look {
    /// The id it was made with.
    pub store_id: u64,
    /// All keys with their values, in byte order.
    pub items: Vec<Item>,
    /// Places where one copy is not whole; the other one has what it lacks.
    pub flaws: Vec<Flaw>,
    /// True for a store of format 1, which the next start migrates.
    pub format_1: bool,
}

impl Embedded {
    /// Reads the store in `dir`, or the one of format 1; `None` if there is neither. Takes no lock and changes
    /// nothing: the caller makes sure that it is not open. Blocks for the duration of the read.
    ///
    /// # Errors
    /// Those of [`open`](Self::open) for a store that cannot be used as it is.
    pub fn look(
        fs: &dyn Fs,
        dir: &Path,
        format_1: Option<&Path>,
        beside: Option<&Beside>,
    ) -> Result<Option<Look>, OpenError> {
        let found = recover::read(fs, dir)?;
        let is_new = found.is_none();
        let store = migrate::take_over(fs, format_1, found)?;
        if let Some(beside) = beside {
            witness::judge(fs, beside, store.as_ref(), is_new)?;
        }
        let Some(store) = store else {
            return Ok(None);
        };
        Ok(Some(Look {
            store_id: store.store_id,
            items: store.state.scan(""),
            flaws: store.flaws,
            format_1: is_new,
        }))
    }
}
