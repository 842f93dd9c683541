//! Credentials of this cluster at another one, by Pulsar's names of authentication plugins.

use pharos_client::plugin::{AuthPlugin, PluginFault, simple_name};

/// Returns the credentials for the brokers of another cluster, from the name of a plugin, Pulsar's class with or
/// without its package, and its parameters. `None`: none.
///
/// # Errors
/// There is no such plugin, or its parameters are of another form. The message contains none of them.
pub fn remote_credentials(plugin: &str, params: &str) -> Result<Option<AuthPlugin>, String> {
    if matches!(simple_name(plugin), "" | "AuthenticationDisabled") {
        return Ok(None);
    }
    AuthPlugin::parse(plugin, params).map(Some).map_err(|fault| match fault {
        PluginFault::Unknown => format!(
            "authentication plugin '{plugin}' is not there; there are AuthenticationToken, AuthenticationBasic and AuthenticationTls"
        ),
        PluginFault::Params(_) => fault.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_may_be_shown_and_what_is_not_there_is_named() {
        for none in ["", "org.apache.pulsar.client.impl.auth.AuthenticationDisabled"] {
            assert_eq!(remote_credentials(none, ""), Ok(None));
        }
        assert!(
            remote_credentials("AuthenticationToken", "abc")
                .unwrap()
                .is_some()
        );
        let fault = remote_credentials("AuthenticationSasl", "secret").unwrap_err();
        assert!(
            fault.contains("AuthenticationSasl") && !fault.contains("secret"),
            "{fault}"
        );
    }
}
