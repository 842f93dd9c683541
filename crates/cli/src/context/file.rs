//! The file of contexts.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::error::CliError;

/// Permission bits of group and others.
const MODE_OF_OTHERS: u32 = 0o077;

/// A broker: addresses and credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Context {
    pub(crate) admin_url: Option<String>,
    pub(crate) service_url: Option<String>,
    pub(crate) tls_trust_certs: Option<PathBuf>,
    pub(crate) tls_cert: Option<PathBuf>,
    pub(crate) tls_key: Option<PathBuf>,
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) tls_skip_hostname_verification: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) tls_allow_insecure_connection: bool,
    /// A secret, or where it is: `file:…`, `env:…`.
    pub(crate) token: Option<String>,
    /// Plugin that provides the credentials, if they are not a token.
    pub(crate) auth_plugin: Option<String>,
    /// Its parameters: a secret.
    pub(crate) auth_params: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_false(flag: &bool) -> bool {
    !flag
}

/// All contexts, as the file has them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Contexts {
    /// The one in use.
    pub(crate) current: Option<String>,
    /// By name.
    pub(crate) contexts: BTreeMap<String, Context>,
}

impl Contexts {
    /// Reads the file; returns nothing if there is none.
    ///
    /// # Errors
    /// It cannot be read, is no such file, or others may read it.
    pub(crate) fn read() -> Result<Self, CliError> {
        let Some(path) = path() else {
            return Ok(Self::default());
        };
        let fault = |reason: String| CliError::Usage(format!("{}: {reason}", path.display()));
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(fault(error.to_string())),
        };
        let mode = fs::metadata(&path)?.permissions().mode();
        if mode & MODE_OF_OTHERS != 0 {
            let reason = "it may hold credentials, and others may read it; chmod 600 it";
            return Err(fault(reason.to_owned()));
        }
        toml::from_str(&text).map_err(|error| fault(error.message().to_owned()))
    }

    /// Puts it in the place of the file, as a whole.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn write(&self) -> Result<(), CliError> {
        let nowhere = || CliError::Usage("set HOME or XDG_CONFIG_HOME to keep contexts".to_owned());
        let path = path().ok_or_else(nowhere)?;
        let text = toml::to_string(self).map_err(|error| CliError::Usage(error.to_string()))?;
        let dir = path.parent().ok_or_else(nowhere)?;
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let fresh = path.with_extension(format!("{}.new", std::process::id()));
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&fresh)?;
        let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
        let written = written.and_then(|()| fs::rename(&fresh, &path));
        if written.is_err() {
            // What is half written is of no use.
            let _ = fs::remove_file(&fresh);
        }
        Ok(written?)
    }

    /// The one of this name, else the one in use, else an empty one.
    ///
    /// # Errors
    /// There is none of that name.
    pub(crate) fn chosen(&self, name: Option<&str>) -> Result<Context, CliError> {
        match name.or(self.current.as_deref()) {
            Some(name) => self.get(name).cloned(),
            None => Ok(Context::default()),
        }
    }

    /// The one of this name.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn get(&self, name: &str) -> Result<&Context, CliError> {
        let found = self.contexts.get(name);
        found.ok_or_else(|| {
            CliError::Usage(format!(
                "there is no context {name}; 'pharos context list' shows them"
            ))
        })
    }
}

/// Path of the file; `None` without a home directory.
fn path() -> Option<PathBuf> {
    let variable = |name| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let config = variable("XDG_CONFIG_HOME").or_else(|| Some(variable("HOME")?.join(".config")))?;
    Some(config.join("pharos").join("contexts.toml"))
}
