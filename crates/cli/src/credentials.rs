//! Credentials in the forms that users of Pulsar's tools know.
//!
//! ```text
//!   --token            token:TEXT · file:///PATH · env:NAME · TEXT
//!   --auth-plugin      token · basic · tls · oauth2, or Pulsar's classes for them
//!   --auth-params      token:…, file:…, env:… · {"userId":"…","password":"…"} · tlsCertFile:…,tlsKeyFile:… · {"issuerUrl":"…",…}
//! ```
//! They are found anew for each connection and whenever the broker asks: a file is read again, an issuer is asked again. Their
//! debug form has no secrets.

use std::fmt;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pharos_client::CredentialSource;
use pharos_identity::read_key;
use serde_json::Value;

use crate::error::CliError;
use crate::oauth2::OAuth2;

/// The longest file of a token that is read.
const TOKEN_BYTES_MAX: u64 = 64 << 10;

/// What is shown to a broker.
pub(crate) enum ShownCredentials {
    /// A token.
    Token(TokenFrom),
    /// A name and a password.
    Basic {
        user: String,
        /// A secret.
        password: String,
    },
    /// The certificate of the connection.
    Tls,
    /// A token that an issuer gives for a client's name and secret.
    OAuth2(Box<OAuth2>),
}

/// Where a token is.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum TokenFrom {
    /// Here: a secret.
    Text(String),
    File(PathBuf),
    Environment(String),
}

/// What `--auth-plugin` and `--auth-params` come to.
pub(crate) struct Plugin {
    pub(crate) credentials: ShownCredentials,
    /// The certificate and the key that the parameters name.
    pub(crate) certificate: Option<(PathBuf, PathBuf)>,
}

impl fmt::Debug for ShownCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ShownCredentials({})", self.method())
    }
}

impl TokenFrom {
    /// From `token:…`, `file:…`, `env:…`, or the token itself.
    pub(crate) fn parse(text: &str) -> Self {
        match text.split_once(':') {
            Some(("token", token)) => Self::Text(token.to_owned()),
            Some(("file", path)) => Self::File(path.strip_prefix("//").unwrap_or(path).into()),
            Some(("env", name)) => Self::Environment(name.to_owned()),
            _ => Self::Text(text.to_owned()),
        }
    }

    /// The token as it is now.
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

impl ShownCredentials {
    /// What the header `Authorization` says; `None` where the connection says it.
    ///
    /// # Errors
    /// There are none to be had now.
    pub(crate) fn header(&self) -> Result<Option<String>, CliError> {
        let shown = self.shown().map_err(CliError::Credentials)?;
        Ok(match self {
            Self::Token(_) | Self::OAuth2(_) => Some(format!("Bearer {shown}")),
            Self::Basic { .. } => Some(format!("Basic {}", STANDARD.encode(shown))),
            Self::Tls => None,
        })
    }

    fn shown(&self) -> Result<String, String> {
        match self {
            Self::Token(token) => token.read(),
            Self::Basic { user, password } => Ok(format!("{user}:{password}")),
            Self::Tls => Ok(String::new()),
            Self::OAuth2(issuer) => issuer.token(),
        }
    }
}

impl CredentialSource for ShownCredentials {
    fn method(&self) -> &str {
        match self {
            Self::Token(_) | Self::OAuth2(_) => "token",
            Self::Basic { .. } => "basic",
            Self::Tls => "tls",
        }
    }

    fn current(&self) -> Result<bytes::Bytes, String> {
        self.shown().map(bytes::Bytes::from)
    }
}

impl Plugin {
    /// From the name of a plugin, ours or Pulsar's class with or without its package, and its parameters.
    ///
    /// # Errors
    /// There is no such plugin, or its parameters are of another form. Nothing of them is in the message.
    pub(crate) fn parse(name: &str, params: &str) -> Result<Self, CliError> {
        let params = params.trim();
        let simple = name.rsplit_once('.').map_or(name, |(_, last)| last);
        let (credentials, certificate) = match simple {
            "token" | "AuthenticationToken" => (token(params)?, None),
            "basic" | "AuthenticationBasic" => (basic(params)?, None),
            "tls" | "AuthenticationTls" => (ShownCredentials::Tls, certificate(params)?),
            "oauth2" | "AuthenticationOAuth2" => {
                let members = members(params).ok_or_else(|| {
                    usage(r#"oauth2 wants {"issuerUrl":"…","privateKey":"file:///…","audience":"…"}"#)
                })?;
                (ShownCredentials::OAuth2(Box::new(OAuth2::parse(&members)?)), None)
            }
            _ => {
                let known = "token, basic, tls, oauth2 and Pulsar's classes for them";
                return Err(CliError::Usage(format!(
                    "--auth-plugin: '{name}' is none of {known}"
                )));
            }
        };
        Ok(Self {
            credentials,
            certificate,
        })
    }
}

fn usage(wanted: &str) -> CliError {
    CliError::Usage(format!("--auth-params: {wanted}"))
}

/// The texts of a JSON object.
fn members(params: &str) -> Option<serde_json::Map<String, Value>> {
    match serde_json::from_str(params) {
        Ok(Value::Object(members)) => Some(members),
        _ => None,
    }
}

fn token(params: &str) -> Result<ShownCredentials, CliError> {
    let from = match members(params) {
        Some(members) => match members.get("token").and_then(Value::as_str) {
            Some(token) => TokenFrom::Text(token.to_owned()),
            None => return Err(usage(r#"token wants token:…, file:…, env:… or {"token":"…"}"#)),
        },
        None => TokenFrom::parse(params),
    };
    Ok(ShownCredentials::Token(from))
}

fn basic(params: &str) -> Result<ShownCredentials, CliError> {
    let wanted = || usage(r#"basic wants {"userId":"…","password":"…"}"#);
    let members = members(params).ok_or_else(wanted)?;
    let text = |name: &str| members.get(name).and_then(Value::as_str).map(str::to_owned);
    let (user, password) = text("userId").zip(text("password")).ok_or_else(wanted)?;
    if user.is_empty() || user.contains(':') {
        return Err(wanted());
    }
    Ok(ShownCredentials::Basic { user, password })
}

/// `tlsCertFile:PATH,tlsKeyFile:PATH`, or the same as JSON; nothing: the flags name them.
fn certificate(params: &str) -> Result<Option<(PathBuf, PathBuf)>, CliError> {
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
        let path = members
            .get(name)
            .and_then(Value::as_str)
            .filter(|path| !path.is_empty());
        path.map(|path| PathBuf::from(path.strip_prefix("file://").unwrap_or(path)))
    };
    let pair = path("tlsCertFile").zip(path("tlsKeyFile"));
    pair.map(Some)
        .ok_or_else(|| usage("tls wants tlsCertFile:PATH,tlsKeyFile:PATH"))
}

/// A file of a client's name and secret, in one of the forms in which keys are named.
pub(crate) fn key_file(text: &str) -> Result<serde_json::Map<String, Value>, String> {
    let bytes = read_key(text).map_err(|error| error.to_string())?;
    match serde_json::from_slice(&bytes) {
        Ok(Value::Object(members)) => Ok(members),
        _ => Err("the file of the client's secret is no JSON object".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(plugin: &str, params: &str) -> String {
        Plugin::parse(plugin, params)
            .unwrap()
            .credentials
            .header()
            .unwrap()
            .unwrap()
    }

    #[test]
    fn tokens_are_named_as_pulsars_tools_name_them() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        std::fs::write(&path, "first\n").unwrap();
        let class = "org.apache.pulsar.client.impl.auth.AuthenticationToken";
        assert_eq!(header(class, "token:abc"), "Bearer abc");
        assert_eq!(header("token", r#"{"token":"abc"}"#), "Bearer abc");
        assert_eq!(header("token", "eyJ.a.b"), "Bearer eyJ.a.b");
        for form in ["file://", "file:"] {
            assert_eq!(
                header(class, &format!("{form}{}", path.display())),
                "Bearer first"
            );
        }
        let kept = Plugin::parse("token", &format!("file://{}", path.display())).unwrap();
        std::fs::write(&path, "second").unwrap();
        assert_eq!(kept.credentials.current().unwrap(), "second");
        assert!(
            Plugin::parse("token", "env:NO_SUCH_VARIABLE")
                .unwrap()
                .credentials
                .current()
                .is_err()
        );
        assert!(
            Plugin::parse("token", "token:")
                .unwrap()
                .credentials
                .current()
                .is_err()
        );
    }

    #[test]
    fn other_plugins_take_pulsars_parameters() {
        assert_eq!(
            header("basic", r#"{"userId":"ann","password":"a:b"}"#),
            "Basic YW5uOmE6Yg=="
        );
        let pair = Some(("/c.pem".into(), "/k.pem".into()));
        for params in [
            "tlsCertFile:/c.pem,tlsKeyFile:/k.pem",
            r#"{"tlsCertFile":"/c.pem","tlsKeyFile":"/k.pem"}"#,
        ] {
            assert_eq!(
                Plugin::parse("AuthenticationTls", params).unwrap().certificate,
                pair
            );
        }
        for (plugin, params) in [
            ("basic", "ann:secret"),
            ("basic", r#"{"userId":"ann"}"#),
            ("basic", r#"{"userId":"a:b","password":"secret"}"#),
            ("tls", "tlsCertFile:/secret"),
            ("oauth2", "secret"),
            (
                "oauth2",
                r#"{"issuerUrl":"http://example.com","privateKey":"secret"}"#,
            ),
            ("oauth2", r#"{"issuerUrl":"https://example.com"}"#),
            ("org.example.Own", "secret"),
        ] {
            let Err(CliError::Usage(said)) = Plugin::parse(plugin, params).map(|_| ()) else {
                panic!("{plugin} {params}");
            };
            assert!(!said.contains("secret"), "{said}");
        }
    }
}
