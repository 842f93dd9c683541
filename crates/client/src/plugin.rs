//! Credentials by the names that users of Pulsar know: plugins and their parameters.
//!
//! ```text
//!   AuthenticationToken    token:TEXT · file:///PATH · env:NAME · TEXT · {"token":"…"}
//!   AuthenticationBasic    {"userId":"…","password":"…"}
//!   AuthenticationTls      tlsCertFile:PATH,tlsKeyFile:PATH · the same as JSON · nothing
//! ```
//! Debug forms have no secrets, and no fault repeats what was given.

use std::fmt;
use std::path::PathBuf;

use bytes::Bytes;
use serde_json::{Map, Value};

use crate::CredentialSource;

/// The largest file that is taken for a token, in bytes.
const TOKEN_BYTES_MAX: u64 = 64 << 10;

/// Source of a token. It is read anew whenever it is needed.
#[derive(Clone, PartialEq, Eq)]
pub enum TokenSource {
    /// Here: a secret.
    Text(String),
    /// In a file of at most 64 KiB.
    File(PathBuf),
    /// In a variable of the environment.
    Environment(String),
}

/// Credentials of a plugin.
#[derive(Clone, PartialEq, Eq)]
pub enum PluginCredentials {
    /// A token.
    Token(TokenSource),
    /// A name and a password.
    Basic {
        /// The name.
        user: String,
        /// A secret.
        password: String,
    },
    /// The certificate of the connection, and nothing besides.
    Tls,
}

/// Result of a plugin and its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthPlugin {
    /// Credentials to present.
    pub credentials: PluginCredentials,
    /// The certificate and the key that the parameters name.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

/// Reason why a plugin cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PluginFault {
    /// The plugin is not one of the supported ones.
    #[error("there is no such plugin")]
    Unknown,
    /// Its parameters have another form; this is what it wants.
    #[error("{0}")]
    Params(&'static str),
}

impl TokenSource {
    /// From `token:…`, `file:…`, `env:…`, or the token itself.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        match text.split_once(':') {
            Some(("token", token)) => Self::Text(token.to_owned()),
            Some(("file", path)) => Self::File(path.strip_prefix("//").unwrap_or(path).into()),
            Some(("env", name)) => Self::Environment(name.to_owned()),
            _ => Self::Text(text.to_owned()),
        }
    }

    /// The token as it is now. Reads files.
    ///
    /// # Errors
    /// Why there is none.
    pub fn read(&self) -> Result<String, String> {
        let token = match self {
            Self::Text(token) => token.clone(),
            Self::File(path) => {
                let failed = |error: std::io::Error| format!("{}: {error}", path.display());
                if std::fs::metadata(path).map_err(failed)?.len() > TOKEN_BYTES_MAX {
                    return Err(format!("{} is too large for a token", path.display()));
                }
                std::fs::read_to_string(path).map_err(failed)?
            }
            Self::Environment(name) => {
                std::env::var(name).map_err(|_| format!("the variable {name} is not set"))?
            }
        };
        match token.trim() {
            "" => Err("the token is empty".to_owned()),
            token => Ok(token.to_owned()),
        }
    }
}

impl PluginCredentials {
    /// Returns the credentials as text; empty for a certificate.
    ///
    /// # Errors
    /// No credentials are available now.
    pub fn shown(&self) -> Result<String, String> {
        match self {
            Self::Token(token) => token.read(),
            Self::Basic { user, password } => Ok(format!("{user}:{password}")),
            Self::Tls => Ok(String::new()),
        }
    }
}

impl fmt::Debug for PluginCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PluginCredentials({})", self.method())
    }
}

impl CredentialSource for PluginCredentials {
    fn method(&self) -> &str {
        match self {
            Self::Token(_) => "token",
            Self::Basic { .. } => "basic",
            Self::Tls => "tls",
        }
    }

    fn current(&self) -> Result<Bytes, String> {
        self.shown().map(Bytes::from)
    }
}

impl AuthPlugin {
    /// From the name of a plugin, ours or Pulsar's class with or without its package, and its parameters.
    ///
    /// # Errors
    /// [`PluginFault`].
    pub fn parse(name: &str, params: &str) -> Result<Self, PluginFault> {
        let params = params.trim();
        let (credentials, certificate) = match simple_name(name) {
            "token" | "AuthenticationToken" => (token(params)?, None),
            "basic" | "AuthenticationBasic" => (basic(params)?, None),
            "tls" | "AuthenticationTls" => (PluginCredentials::Tls, certificate(params)?),
            _ => return Err(PluginFault::Unknown),
        };
        Ok(Self {
            credentials,
            certificate,
        })
    }
}

/// The name of a plugin without the package of its class.
#[must_use]
pub fn simple_name(plugin: &str) -> &str {
    let plugin = plugin.trim();
    plugin.rsplit_once('.').map_or(plugin, |(_, last)| last)
}

/// The members of parameters that are a JSON object.
#[must_use]
pub fn members(params: &str) -> Option<Map<String, Value>> {
    match serde_json::from_str(params) {
        Ok(Value::Object(members)) => Some(members),
        _ => None,
    }
}

fn token(params: &str) -> Result<PluginCredentials, PluginFault> {
    let wanted = PluginFault::Params(r#"token wants token:…, file:…, env:… or {"token":"…"}"#);
    let source = match members(params) {
        Some(members) => {
            let token = members.get("token").and_then(Value::as_str);
            TokenSource::Text(token.ok_or(wanted)?.to_owned())
        }
        None if params.is_empty() => return Err(wanted),
        None => TokenSource::parse(params),
    };
    Ok(PluginCredentials::Token(source))
}

fn basic(params: &str) -> Result<PluginCredentials, PluginFault> {
    let wanted = PluginFault::Params(r#"basic wants {"userId":"…","password":"…"}"#);
    let members = members(params).ok_or(wanted)?;
    let text = |name: &str| members.get(name).and_then(Value::as_str).map(str::to_owned);
    let (user, password) = text("userId").zip(text("password")).ok_or(wanted)?;
    if user.is_empty() || user.contains(':') {
        return Err(wanted);
    }
    Ok(PluginCredentials::Basic { user, password })
}

fn certificate(params: &str) -> Result<Option<(PathBuf, PathBuf)>, PluginFault> {
    if params.is_empty() {
        return Ok(None);
    }
    let listed = || {
        let pairs = params.split(',').filter_map(|pair| pair.split_once(':'));
        pairs
            .map(|(name, value)| (name.trim().to_owned(), Value::from(value.trim())))
            .collect()
    };
    let members = members(params).unwrap_or_else(listed);
    let path = |name: &str| {
        let path = members.get(name).and_then(Value::as_str);
        let path = path.filter(|path| !path.is_empty())?;
        Some(PathBuf::from(path.strip_prefix("file://").unwrap_or(path)))
    };
    let pair = path("tlsCertFile").zip(path("tlsKeyFile"));
    pair.map(Some)
        .ok_or(PluginFault::Params("tls wants tlsCertFile:PATH,tlsKeyFile:PATH"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(plugin: &str, params: &str) -> (String, String) {
        let found = AuthPlugin::parse(plugin, params).unwrap().credentials;
        (found.method().to_owned(), found.shown().unwrap())
    }

    #[test]
    fn pulsars_plugins_take_pulsars_parameters() {
        let class = "org.apache.pulsar.client.impl.auth.AuthenticationToken";
        let token = ("token".to_owned(), "abc".to_owned());
        for (plugin, params) in [
            (class, "token:abc"),
            (class, "abc"),
            ("token", r#"{"token":"abc"}"#),
        ] {
            assert_eq!(shown(plugin, params), token);
        }
        let basic = shown("AuthenticationBasic", r#"{"userId":"u","password":"p:q"}"#);
        assert_eq!(basic, ("basic".to_owned(), "u:p:q".to_owned()));
        let pair = Some(("/c.pem".into(), "/k.pem".into()));
        for params in [
            "tlsCertFile:/c.pem,tlsKeyFile:/k.pem",
            r#"{"tlsCertFile":"/c.pem","tlsKeyFile":"file:///k.pem"}"#,
        ] {
            let tls = AuthPlugin::parse("AuthenticationTls", params).unwrap();
            assert_eq!(
                (tls.credentials, tls.certificate),
                (PluginCredentials::Tls, pair.clone())
            );
        }
        assert_eq!(AuthPlugin::parse("tls", "").unwrap().certificate, None);
    }

    #[test]
    fn a_fault_says_nothing_secret() {
        for (plugin, params) in [
            ("basic", "ann:secret"),
            ("basic", r#"{"userId":"ann"}"#),
            ("basic", r#"{"userId":"a:b","password":"secret"}"#),
            ("tls", "tlsCertFile:/secret"),
            ("token", ""),
            ("token", r#"{"secret":"secret"}"#),
            ("org.example.Own", "secret"),
        ] {
            let fault = AuthPlugin::parse(plugin, params).unwrap_err().to_string();
            assert!(!fault.contains("secret"), "{fault}");
        }
        let token = AuthPlugin::parse("token", "secret").unwrap();
        assert!(!format!("{token:?}").contains("secret"));
    }

    #[test]
    fn a_token_is_found_anew_each_time() {
        let file = std::env::temp_dir().join(format!("pharos-token-{}", std::process::id()));
        std::fs::write(&file, "one\n").unwrap();
        for form in ["file://", "file:"] {
            let token = TokenSource::parse(&format!("{form}{}", file.display()));
            std::fs::write(&file, "one\n").unwrap();
            assert_eq!(token.read().unwrap(), "one");
            std::fs::write(&file, "two").unwrap();
            assert_eq!(token.read().unwrap(), "two");
        }
        std::fs::remove_file(&file).unwrap();
        for none in [
            format!("file:{}", file.display()),
            "env:NO_SUCH_VARIABLE".to_owned(),
            "token:".to_owned(),
        ] {
            assert!(TokenSource::parse(&none).read().is_err());
        }
    }
}
