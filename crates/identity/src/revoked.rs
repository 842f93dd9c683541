//! Tokens that are good by their signature and are refused all the same: a file that is read again when it changes.
//!
//! ```text
//! # a line each                    refused is
//! sha256 <64 hex digits>           one token: the hash of all that is signed in it, header and claims
//! id <text>                        tokens with this claim jti
//! role <name>                      all tokens of the role
//! role <name> until <seconds>      those that do not say they were issued (iat) after that second since 1970
//! ```

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use aws_lc_rs::digest::{SHA256, digest};
use serde_json::{Map, Value};

use crate::{Identity, sign};

/// The longest file that is read, in bytes: some hundred thousand lines.
const FILE_BYTES_MAX: u64 = 64 << 20;
const HASH_BYTES: usize = 32;

/// Mark by which a list of revoked tokens identifies a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenMark {
    hash: [u8; HASH_BYTES],
    /// Claim `jti`.
    id: Option<Box<str>>,
    /// Claim `iat`, in seconds since 1970.
    issued_at: Option<u64>,
}

/// Reason why a list cannot be used. Lines are counted from 1.
#[derive(Debug, thiserror::Error)]
pub enum RevokedError {
    /// The file cannot be read.
    #[error("{}: {error}", file.display())]
    File {
        /// Path of the file.
        file: PathBuf,
        /// Error of the operating system.
        error: std::io::Error,
    },
    /// A line that says nothing that is known here.
    #[error("{}: line {line} is none of sha256 HASH, id TEXT, role NAME and role NAME until SECONDS", file.display())]
    Line {
        /// Path of the file.
        file: PathBuf,
        /// Its number.
        line: usize,
    },
}

/// The list in force. Shared by all threads.
#[derive(Debug)]
pub struct RevokedTokens {
    file: PathBuf,
    list: RwLock<Arc<List>>,
    /// Revision of the list; increases with each list that differs from the one before.
    revision: AtomicU64,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct List {
    hashes: HashSet<[u8; HASH_BYTES]>,
    ids: HashSet<Box<str>>,
    /// Issue time up to which tokens of each role are refused.
    roles: HashMap<Box<str>, u64>,
}

impl TokenMark {
    /// Returns the mark of a token whose signature is right.
    pub(crate) fn of(token: &[u8], claims: &Map<String, Value>) -> Self {
        let signed = token.rsplitn(2, |byte| *byte == b'.').last().unwrap_or(token);
        Self {
            hash: hash_of(signed),
            id: claims.get("jti").and_then(Value::as_str).map(Into::into),
            issued_at: claims.get("iat").and_then(sign::seconds),
        }
    }
}

fn hash_of(signed: &[u8]) -> [u8; HASH_BYTES] {
    let mut hash = [0; HASH_BYTES];
    hash.copy_from_slice(digest(&SHA256, signed).as_ref());
    hash
}

/// The line that revokes one token: by what is signed in it, so that another signature of the same does not help.
#[must_use]
pub fn line_of_token(token: &str) -> String {
    let signed = token.rsplit_once('.').map_or(token, |(signed, _)| signed);
    let hash = hash_of(signed.as_bytes());
    let digits: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256 {digits}")
}

/// The line that revokes the tokens of a role that were issued until then, in seconds since 1970. `None`: a name that no line can hold.
#[must_use]
pub fn line_of_role(role: &str, until: u64) -> Option<String> {
    let is_plain = !role.is_empty() && role.trim() == role && !role.contains(['\n', '\r']);
    is_plain.then(|| format!("role {role} until {until}"))
}

impl RevokedTokens {
    /// Reads the list.
    ///
    /// # Errors
    /// [`RevokedError`].
    pub fn load(file: &Path) -> Result<Arc<Self>, RevokedError> {
        let list = List::read(file)?;
        Ok(Arc::new(Self {
            file: file.to_owned(),
            list: RwLock::new(Arc::new(list)),
            revision: AtomicU64::new(0),
        }))
    }

    /// Reads the list again. Returns how many lines it has, if they differ from those in force.
    ///
    /// # Errors
    /// [`RevokedError`]: the former list stays in force.
    pub fn reload(&self) -> Result<Option<usize>, RevokedError> {
        let list = List::read(&self.file)?;
        let mut current = self.list.write().unwrap_or_else(PoisonError::into_inner);
        if **current == list {
            return Ok(None);
        }
        let lines = list.hashes.len() + list.ids.len() + list.roles.len();
        *current = Arc::new(list);
        self.revision.fetch_add(1, Ordering::Release);
        Ok(Some(lines))
    }

    pub(crate) fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    /// True if the credentials that proved this identity are on the list.
    pub(crate) fn has(&self, identity: &Identity) -> bool {
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner).clone();
        identity
            .token
            .as_ref()
            .is_some_and(|mark| list.has(&identity.role, mark))
    }
}

impl List {
    fn read(file: &Path) -> Result<Self, RevokedError> {
        let failed = |error| RevokedError::File {
            file: file.to_owned(),
            error,
        };
        if std::fs::metadata(file).map_err(failed)?.len() > FILE_BYTES_MAX {
            return Err(failed(std::io::ErrorKind::FileTooLarge.into()));
        }
        let text = std::fs::read_to_string(file).map_err(failed)?;
        Self::parse(&text).map_err(|line| RevokedError::Line {
            file: file.to_owned(),
            line,
        })
    }

    /// # Errors
    /// The number of the first line that says nothing.
    fn parse(text: &str) -> Result<Self, usize> {
        let mut list = Self::default();
        for (number, line) in (1usize..).zip(text.lines()) {
            let line = line.trim();
            if !line.is_empty() && !line.starts_with('#') {
                list.add(line).ok_or(number)?;
            }
        }
        Ok(list)
    }

    fn add(&mut self, line: &str) -> Option<()> {
        let (kind, what) = line.split_once(' ')?;
        let what = what.trim_start();
        match kind {
            "sha256" => _ = self.hashes.insert(hash_from(what)?),
            "id" => _ = self.ids.insert(what.into()),
            "role" => {
                let (role, until) = match what.rsplit_once(" until ") {
                    Some((role, until)) => (role.trim_end(), until.trim().parse().ok()?),
                    None => (what, u64::MAX),
                };
                let last = self.roles.entry(role.into()).or_default();
                *last = until.max(*last);
            }
            _ => return None,
        }
        Some(())
    }

    fn has(&self, role: &str, mark: &TokenMark) -> bool {
        let until = self.roles.get(role);
        let is_old = until.is_some_and(|until| mark.issued_at.is_none_or(|issued| issued <= *until));
        let is_named = mark.id.as_ref().is_some_and(|id| self.ids.contains(id));
        is_old || is_named || self.hashes.contains(&mark.hash)
    }
}

fn hash_from(digits: &str) -> Option<[u8; HASH_BYTES]> {
    let digits = digits.as_bytes();
    let mut hash = [0; HASH_BYTES];
    if digits.len() != 2 * HASH_BYTES {
        return None;
    }
    for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |at: usize| pair.get(at).and_then(|digit| char::from(*digit).to_digit(16));
        *byte = u8::try_from(16 * digit(0)? + digit(1)?).ok()?;
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sign::Claims;

    const SECRET: [u8; 32] = [7; 32];

    fn mark(claims: &Claims) -> TokenMark {
        let token = sign::with_secret(&SECRET, claims).unwrap();
        TokenMark::of(token.as_bytes(), claims.members())
    }

    #[test]
    fn each_kind_of_line_refuses_its_tokens_and_no_others() {
        let car = Claims::of("car").with("iat", 100);
        let token = sign::with_secret(&SECRET, &car).unwrap();
        let of = |line: &str| List::parse(&format!("# stolen\n\n {line} \n")).unwrap();
        let list = of(&line_of_token(&token));
        assert!(list.has("car", &mark(&car)));
        assert!(!list.has("car", &mark(&Claims::of("car").with("iat", 101))));
        let list = of("id 7");
        assert!(list.has("car", &mark(&Claims::of("car").with("jti", "7"))));
        assert!(!list.has("car", &mark(&car)));
        let list = of("role car");
        assert!(list.has("car", &mark(&car)) && !list.has("van", &mark(&car)));
        let list = of(&line_of_role("car of ann", 100).unwrap());
        assert!(list.has("car of ann", &mark(&car)));
        assert!(
            list.has("car of ann", &mark(&Claims::of("car of ann"))),
            "it does not say when"
        );
        assert!(!list.has("car of ann", &mark(&Claims::of("car").with("iat", 101))));
        assert!(!list.has("car", &mark(&car)));
    }

    #[test]
    fn of_two_lines_of_a_role_the_stricter_counts() {
        let list = List::parse("role car until 200\nrole car until 100").unwrap();
        assert!(list.has("car", &mark(&Claims::of("car").with("iat", 150))));
    }

    #[test]
    fn another_signature_of_the_same_token_does_not_help() {
        let claims = Claims::of("car");
        let token = sign::with_secret(&SECRET, &claims).unwrap();
        let (signed, _) = token.rsplit_once('.').unwrap();
        let other = TokenMark::of(format!("{signed}.AAAA").as_bytes(), claims.members());
        assert!(List::parse(&line_of_token(&token)).unwrap().has("car", &other));
    }

    #[test]
    fn a_line_that_says_nothing_is_named_and_the_former_list_stays() {
        for line in [
            "car",
            "sha256 12",
            "role car until noon",
            "user car",
            &format!("sha256 {}", "x".repeat(64)),
        ] {
            assert_eq!(List::parse(&format!("# one\n{line}")), Err(2), "{line}");
        }
        assert!(line_of_role("a\nrole b", 1).is_none());
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "role car").unwrap();
        let revoked = RevokedTokens::load(file.path()).unwrap();
        let car = Identity {
            role: "car".into(),
            expires_at_ms: None,
            token: Some(Arc::new(mark(&Claims::of("car")))),
        };
        std::fs::write(file.path(), "role van\nnonsense").unwrap();
        let error = revoked.reload().unwrap_err().to_string();
        assert!(error.contains("line 2"), "{error}");
        assert!(revoked.has(&car) && revoked.revision() == 0);
        std::fs::write(file.path(), "role van").unwrap();
        assert_eq!(revoked.reload().unwrap(), Some(1));
        assert!(!revoked.has(&car) && revoked.revision() == 1);
        assert_eq!(revoked.reload().unwrap(), None);
    }
}
