//! Person at the command line.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// A person with a home.
pub(crate) struct Person(TempDir);

impl Person {
    pub(crate) fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    /// Directory of the contexts.
    pub(crate) fn home(&self) -> &Path {
        self.0.path()
    }

    /// Runs a command and returns its output.
    pub(crate) fn try_it(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pharos"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PHAROS_") {
                command.env_remove(name);
            }
        }
        command
            .args(arguments)
            .env("XDG_CONFIG_HOME", self.0.path())
            .stdin(Stdio::null());
        command.output().unwrap()
    }

    /// Runs a command that must succeed, and returns its standard output.
    pub(crate) fn does(&self, arguments: &[&str]) -> String {
        let output = self.try_it(arguments);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a command that must exit with this code, and returns its error output.
    pub(crate) fn fails(&self, arguments: &[&str], code: i32) -> String {
        let output = self.try_it(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    }
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
