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
use pharos_client::plugin::{AuthPlugin, PluginCredentials, PluginFault, members, simple_name};
use pharos_identity::read_key;
use serde_json::Value;

use crate::error::CliError;
use crate::oauth2::OAuth2;

/// Credentials presented to a broker.
pub(crate) enum ShownCredentials {
    /// Credentials that are available locally.
    AtHand(PluginCredentials),
    /// A token that an issuer gives for a client's name and secret.
    OAuth2(Box<OAuth2>),
}

/// Result of `--auth-plugin` and `--auth-params`.
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

impl ShownCredentials {
    /// Returns the `Authorization` header; `None` if the connection authenticates.
    ///
    /// # Errors
    /// No credentials are available now.
    pub(crate) fn header(&self) -> Result<Option<String>, CliError> {
        let shown = self.shown().map_err(CliError::Credentials)?;
        Ok(match self {
            Self::AtHand(PluginCredentials::Token(_)) | Self::OAuth2(_) => Some(format!("Bearer {shown}")),
            Self::AtHand(PluginCredentials::Basic { .. }) => {
                Some(format!("Basic {}", STANDARD.encode(shown)))
            }
            Self::AtHand(PluginCredentials::Tls) => None,
        })
    }

    fn shown(&self) -> Result<String, String> {
        match self {
            Self::AtHand(credentials) => credentials.shown(),
            Self::OAuth2(issuer) => issuer.token(),
        }
    }
}

impl CredentialSource for ShownCredentials {
    fn method(&self) -> &str {
        match self {
            Self::AtHand(credentials) => credentials.method(),
            Self::OAuth2(_) => "token",
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
        if matches!(simple_name(name), "oauth2" | "AuthenticationOAuth2") {
            let members = members(params).ok_or_else(|| {
                usage(r#"oauth2 wants {"issuerUrl":"…","privateKey":"file:///…","audience":"…"}"#)
            })?;
            return Ok(Self {
                credentials: ShownCredentials::OAuth2(Box::new(OAuth2::parse(&members)?)),
                certificate: None,
            });
        }
        let plugin = AuthPlugin::parse(name, params).map_err(|fault| match fault {
            PluginFault::Unknown => {
                let known = "token, basic, tls, oauth2 and Pulsar's classes for them";
                CliError::Usage(format!("--auth-plugin: '{name}' is none of {known}"))
            }
            PluginFault::Params(wanted) => usage(wanted),
        })?;
        Ok(Self {
            credentials: ShownCredentials::AtHand(plugin.credentials),
            certificate: plugin.certificate,
        })
    }
}

fn usage(wanted: &str) -> CliError {
    CliError::Usage(format!("--auth-params: {wanted}"))
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
    fn tokens_and_passwords_go_into_the_header() {
        let class = "org.apache.pulsar.client.impl.auth.AuthenticationToken";
        assert_eq!(header(class, "token:abc"), "Bearer abc");
        assert_eq!(
            header("basic", r#"{"userId":"ann","password":"a:b"}"#),
            "Basic YW5uOmE6Yg=="
        );
        let tls = Plugin::parse("tls", "").unwrap();
        assert_eq!(tls.credentials.header().unwrap(), None);
    }

    #[test]
    fn a_fault_names_the_flag_and_nothing_secret() {
        for (plugin, params, flag) in [
            ("basic", "ann:secret", "--auth-params"),
            ("oauth2", "secret", "--auth-params"),
            (
                "oauth2",
                r#"{"issuerUrl":"http://example.com","privateKey":"secret"}"#,
                "",
            ),
            ("oauth2", r#"{"issuerUrl":"https://example.com"}"#, ""),
            ("org.example.Own", "secret", "--auth-plugin"),
        ] {
            let Err(CliError::Usage(said)) = Plugin::parse(plugin, params).map(|_| ()) else {
                panic!("{plugin} {params}");
            };
            assert!(said.contains(flag) && !said.contains("secret"), "{said}");
        }
    }
}
