//! Who this cluster is to another one, by Pulsar's names of the ways to say it.

use std::fmt;
use std::path::PathBuf;

use bytes::Bytes;
use pharos_client::CredentialSource;
use serde_json::{Map, Value};

/// The largest file that is taken for a token, in bytes.
const TOKEN_BYTES_MAX: u64 = 64 << 10;

/// What is shown to the brokers of another cluster.
#[derive(Clone, PartialEq, Eq)]
pub enum RemoteCredentials {
    /// A token.
    Token(TokenSource),
    /// A user and a password.
    Basic {
        /// The user.
        user: String,
        /// The password.
        password: String,
    },
    /// The certificate of the connection, and nothing besides.
    Certificate(Option<(PathBuf, PathBuf)>),
}

/// Where a token is.
#[derive(Clone, PartialEq, Eq)]
pub enum TokenSource {
    /// Here.
    Text(String),
    /// In a file, which is read for each connection.
    File(PathBuf),
}

impl fmt::Debug for RemoteCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Nothing secret.
        write!(f, "RemoteCredentials({})", self.method())
    }
}

impl RemoteCredentials {
    /// From the name of a plugin, Pulsar's class with or without its package, and its parameters. `None`: it shows nothing.
    ///
    /// # Errors
    /// There is no such plugin, or its parameters are of another form. Nothing of them is in the message.
    pub fn parse(plugin: &str, params: &str) -> Result<Option<Self>, String> {
        let params = params.trim();
        let simple = plugin.rsplit_once('.').map_or(plugin, |(_, last)| last);
        match simple.trim() {
            "" | "AuthenticationDisabled" => Ok(None),
            "token" | "AuthenticationToken" => token(params).map(Some),
            "basic" | "AuthenticationBasic" => basic(params).map(Some),
            "tls" | "AuthenticationTls" => certificate(params).map(Some),
            _ => {
                let known = "AuthenticationToken, AuthenticationBasic and AuthenticationTls";
                Err(format!(
                    "authentication plugin '{plugin}' is not there; there are {known}"
                ))
            }
        }
    }

    /// The certificate and the key that they name.
    #[must_use]
    pub fn certificate(&self) -> Option<(PathBuf, PathBuf)> {
        match self {
            Self::Certificate(pair) => pair.clone(),
            Self::Token(_) | Self::Basic { .. } => None,
        }
    }
}

impl CredentialSource for RemoteCredentials {
    fn method(&self) -> &str {
        match self {
            Self::Token(_) => "token",
            Self::Basic { .. } => "basic",
            Self::Certificate(_) => "tls",
        }
    }

    fn current(&self) -> Result<Bytes, String> {
        let shown = match self {
            Self::Token(source) => source.read()?,
            Self::Basic { user, password } => format!("{user}:{password}"),
            Self::Certificate(_) => String::new(),
        };
        Ok(shown.into())
    }
}

impl TokenSource {
    fn read(&self) -> Result<String, String> {
        let token = match self {
            Self::Text(token) => token.clone(),
            Self::File(path) => {
                let failed = |error: std::io::Error| format!("{}: {error}", path.display());
                if std::fs::metadata(path).map_err(failed)?.len() > TOKEN_BYTES_MAX {
                    return Err(format!("{} is too large for a token", path.display()));
                }
                std::fs::read_to_string(path).map_err(failed)?
            }
        };
        match token.trim() {
            "" => Err("the token is empty".to_owned()),
            token => Ok(token.to_owned()),
        }
    }
}

/// The members of a JSON object.
fn members(params: &str) -> Option<Map<String, Value>> {
    match serde_json::from_str(params) {
        Ok(Value::Object(members)) => Some(members),
        _ => None,
    }
}

fn token(params: &str) -> Result<RemoteCredentials, String> {
    let wanted = || "AuthenticationToken wants token:TOKEN or file:///PATH".to_owned();
    let source = match members(params) {
        Some(members) => {
            let token = members.get("token").and_then(Value::as_str);
            TokenSource::Text(token.ok_or_else(wanted)?.to_owned())
        }
        None => match params.split_once(':') {
            Some(("token", token)) => TokenSource::Text(token.to_owned()),
            Some(("file", path)) => TokenSource::File(path.strip_prefix("//").unwrap_or(path).into()),
            _ if params.is_empty() => return Err(wanted()),
            _ => TokenSource::Text(params.to_owned()),
        },
    };
    Ok(RemoteCredentials::Token(source))
}

fn basic(params: &str) -> Result<RemoteCredentials, String> {
    let wanted = || r#"AuthenticationBasic wants {"userId":"…","password":"…"}"#.to_owned();
    let members = members(params).ok_or_else(wanted)?;
    let text = |name: &str| members.get(name).and_then(Value::as_str).map(str::to_owned);
    let (user, password) = text("userId").zip(text("password")).ok_or_else(wanted)?;
    if user.is_empty() || user.contains(':') {
        return Err(wanted());
    }
    Ok(RemoteCredentials::Basic { user, password })
}

/// `tlsCertFile:PATH,tlsKeyFile:PATH`, or the same as JSON; nothing: the cluster's data name them.
fn certificate(params: &str) -> Result<RemoteCredentials, String> {
    if params.is_empty() {
        return Ok(RemoteCredentials::Certificate(None));
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
    match path("tlsCertFile").zip(path("tlsKeyFile")) {
        Some(pair) => Ok(RemoteCredentials::Certificate(Some(pair))),
        None => Err("AuthenticationTls wants tlsCertFile:PATH,tlsKeyFile:PATH".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(plugin: &str, params: &str) -> Option<(String, Bytes)> {
        let found = RemoteCredentials::parse(plugin, params).unwrap()?;
        Some((found.method().to_owned(), found.current().unwrap()))
    }

    #[test]
    fn pulsar_s_plugins_are_read() {
        let class = "org.apache.pulsar.client.impl.auth.AuthenticationToken";
        let token = Some(("token".to_owned(), Bytes::from("abc")));
        assert_eq!(shown(class, "token:abc"), token);
        assert_eq!(shown(class, "abc"), token);
        assert_eq!(shown("token", r#"{"token":"abc"}"#), token);
        let basic = shown("AuthenticationBasic", r#"{"userId":"u","password":"p"}"#);
        assert_eq!(basic, Some(("basic".to_owned(), Bytes::from("u:p"))));
        assert_eq!(shown("", ""), None);
        assert_eq!(
            shown("org.apache.pulsar.client.impl.auth.AuthenticationDisabled", ""),
            None
        );
        let tls = RemoteCredentials::parse("AuthenticationTls", "tlsCertFile:/c,tlsKeyFile:/k");
        assert_eq!(
            tls.unwrap().unwrap().certificate(),
            Some(("/c".into(), "/k".into()))
        );
    }

    #[test]
    fn a_fault_says_nothing_secret() {
        for (plugin, params) in [
            ("AuthenticationBasic", "secret"),
            ("AuthenticationTls", "secret"),
            ("AuthenticationSasl", "secret"),
            ("AuthenticationToken", ""),
        ] {
            let fault = RemoteCredentials::parse(plugin, params).unwrap_err();
            assert!(!fault.contains("secret"), "{fault}");
        }
        let token = RemoteCredentials::parse("token", "secret").unwrap().unwrap();
        assert!(!format!("{token:?}").contains("secret"));
    }

    #[test]
    fn a_token_file_is_read_each_time() {
        let file = std::env::temp_dir().join(format!("pharos-token-{}", std::process::id()));
        std::fs::write(&file, "one\n").unwrap();
        let params = format!("file://{}", file.display());
        let token = RemoteCredentials::parse("token", &params).unwrap().unwrap();
        assert_eq!(token.current().unwrap(), "one");
        std::fs::write(&file, "two").unwrap();
        assert_eq!(token.current().unwrap(), "two");
        std::fs::remove_file(&file).unwrap();
        assert!(token.current().is_err());
    }
}
