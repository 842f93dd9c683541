//! Names and passwords: a file as `htpasswd` writes it.
//!
//! ```text
//! user:$2y$…      bcrypt (htpasswd -B)
//! user:$6$…       SHA-crypt, also $5$ (openssl passwd -6)
//! ```
//! Hashes that are weak by now (apr1, crypt, {SHA}) are refused when the file is read. A password is checked on a thread that
//! may block, few at once: checking is made to be slow.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use sha_crypt::{PasswordVerifier as _, ShaCrypt};
use tokio::sync::Semaphore;

use crate::guesses::Guesses;
use crate::{GuessLimits, Identity};

/// Passwords that are checked at the same time; others wait for their turn.
const CHECKS_MAX: usize = 2;
/// The longest pair of name and password that is looked at, in bytes.
const PAIR_BYTES_MAX: usize = 1024;

/// Reason why a password file cannot be used. Lines are counted from 1; no hash is included.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PasswordsError {
    /// A line without a name and a hash.
    #[error("line {0} is not NAME:HASH")]
    Line(usize),
    /// A name twice.
    #[error("line {0} has a name that an earlier line has")]
    Twice(usize),
    /// A hash that is not taken.
    #[error("line {0} has a hash that is neither bcrypt (htpasswd -B) nor SHA-crypt (openssl passwd -6)")]
    Hash(usize),
    /// No user is in it.
    #[error("there is no line in it")]
    Empty,
}

/// Password hashes of the users.
pub struct Passwords {
    users: HashMap<String, Arc<str>>,
    /// Hash that passwords of unknown names are checked against, so that the check takes as long.
    decoy: Arc<str>,
    checks: Semaphore,
    guesses: Guesses,
}

impl std::fmt::Debug for Passwords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Passwords({} users)", self.users.len())
    }
}

impl Passwords {
    /// From the text of a file. Empty lines and those that begin with `#` are nothing.
    ///
    /// # Errors
    /// [`PasswordsError`].
    pub fn parse(text: &str) -> Result<Self, PasswordsError> {
        let mut users = HashMap::new();
        for (index, line) in text.lines().enumerate() {
            let (line, number) = (line.trim(), index + 1);
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, hash) = line.split_once(':').ok_or(PasswordsError::Line(number))?;
            if name.is_empty() {
                return Err(PasswordsError::Line(number));
            }
            if kind_of(hash).is_none() {
                return Err(PasswordsError::Hash(number));
            }
            if users.insert(name.to_owned(), hash.into()).is_some() {
                return Err(PasswordsError::Twice(number));
            }
        }
        let decoy = users.values().next().cloned().ok_or(PasswordsError::Empty)?;
        Ok(Self {
            users,
            decoy,
            checks: Semaphore::new(CHECKS_MAX),
            guesses: Guesses::default(),
        })
    }

    /// Sets the limits of wrong passwords.
    #[must_use]
    pub fn guarded(self, limits: GuessLimits) -> Self {
        Self {
            guesses: Guesses::new(limits),
            ..self
        }
    }

    /// Verifies a name and password, and returns the identity. `from`: the remote address.
    pub(crate) async fn verify(&self, pair: &[u8], from: Option<IpAddr>) -> Result<Identity, String> {
        if pair.len() > PAIR_BYTES_MAX {
            return Err(format!(
                "name and password are longer than {PAIR_BYTES_MAX} bytes"
            ));
        }
        let text = std::str::from_utf8(pair).map_err(|_| "name and password are no text")?;
        let (name, password) = text.split_once(':').ok_or("there is no NAME:PASSWORD")?;
        // Before it waits for its turn: who guesses does not stand in the way of others.
        let attempt = self.guesses.begin(from, name);
        let attempt = attempt.ok_or("too many wrong passwords came from this address; it has to wait")?;
        let known = self.users.get(name).cloned();
        let hash = known.clone().unwrap_or_else(|| self.decoy.clone());
        let password = password.to_owned();
        let turn = self.checks.acquire().await;
        let is_right = tokio::task::spawn_blocking(move || is_right(&password, &hash)).await;
        drop(turn);
        match (is_right, known) {
            (Ok(true), Some(_)) => {
                self.guesses.was_right(attempt);
                Ok(Identity::lasting(name))
            }
            _ => Err("unknown name or wrong password".to_owned()),
        }
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Bcrypt,
    ShaCrypt,
}

fn kind_of(hash: &str) -> Option<Kind> {
    let begins = |starts: &[&str]| starts.iter().any(|start| hash.starts_with(start));
    if begins(&["$2a$", "$2b$", "$2y$"]) {
        return Some(Kind::Bcrypt);
    }
    begins(&["$5$", "$6$"]).then_some(Kind::ShaCrypt)
}

fn is_right(password: &str, hash: &str) -> bool {
    match kind_of(hash) {
        Some(Kind::Bcrypt) => bcrypt::verify(password, hash).unwrap_or(false),
        Some(Kind::ShaCrypt) => ShaCrypt::default()
            .verify_password(password.as_bytes(), hash)
            .is_ok(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn role(passwords: &Passwords, pair: &str) -> Option<String> {
        let identity = passwords.verify(pair.as_bytes(), None).await.ok()?;
        Some(identity.role.to_string())
    }

    #[tokio::test]
    async fn names_and_passwords_are_those_of_the_file() {
        let bcrypt = bcrypt::hash("pa:ss", 4).unwrap();
        // openssl passwd -6 -salt saltstring 'Hello world!', the vector of the algorithm's specification.
        let sha = "$6$saltstring$svn8UoSVapNtMuq1ukKS4tPQd8iKwSMHWjl/O817G3uBnIFNjnQJuesI68u4OTLiBFdcbYEdFCoEOfaS35inz1";
        let text = format!("# people\nann:{bcrypt}\n\nbob:{sha}\n");
        let passwords = Passwords::parse(&text).unwrap();
        assert_eq!(role(&passwords, "ann:pa:ss").await.as_deref(), Some("ann"));
        assert_eq!(role(&passwords, "bob:Hello world!").await.as_deref(), Some("bob"));
        for wrong in [
            "ann:pa",
            "ann:",
            "ann",
            "bob:pa:ss",
            "eve:pa:ss",
            ":",
            "",
            "ANN:pa:ss",
        ] {
            assert_eq!(role(&passwords, wrong).await, None, "{wrong}");
        }
        assert!(passwords.verify(&[0xff, b':', 1], None).await.is_err());
        assert!(passwords.verify(&[b'x'; 2000], None).await.is_err());
    }

    #[test]
    fn weak_hashes_and_broken_lines_are_refused_without_being_shown() {
        for (text, error) in [
            ("a:$apr1$s3cret$x", PasswordsError::Hash(1)),
            ("a:{SHA}s3cret", PasswordsError::Hash(1)),
            ("a:s3cret", PasswordsError::Hash(1)),
            ("#\ns3cret", PasswordsError::Line(2)),
            (":$2y$", PasswordsError::Line(1)),
            ("a:$6$x$y\na:$6$x$y", PasswordsError::Twice(2)),
            ("\n", PasswordsError::Empty),
        ] {
            let found = Passwords::parse(text).unwrap_err();
            assert_eq!(found, error, "{text}");
            assert!(!found.to_string().contains("s3cret"));
        }
    }
}
