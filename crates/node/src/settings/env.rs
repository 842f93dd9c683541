//! Which environment variables are ours.

use super::table::{SETTINGS, Setting};

/// What an environment variable is to us.
pub(super) enum Variable {
    /// Not ours, or ours and no setting.
    Ignored,
    /// A setting.
    Setting(&'static Setting),
    /// Begins like ours and is not known.
    Unknown,
}

/// Variables that begin with `PHAROS_` and are no settings of the server: the configuration file itself, and where the
/// command line finds a server.
pub(super) const OTHERS: [(&str, &str); 4] = [
    ("PHAROS_CONFIG", "The configuration file, as --config."),
    (
        "PHAROS_ADMIN_URL",
        "Where the command line finds the admin API, as --url.",
    ),
    (
        "PHAROS_CONTEXT",
        "The context in which the command line looks for addresses and credentials, as --context.",
    ),
    (
        "PHAROS_SERVICE_URL",
        "Where produce and consume find the broker, or several of a cluster, as --service-url.",
    ),
];

pub(super) fn classify(name: &str) -> Variable {
    if !name.starts_with("PHAROS_") || OTHERS.iter().any(|(other, _)| *other == name) || is_service_link(name)
    {
        return Variable::Ignored;
    }
    match SETTINGS.iter().find(|setting| setting.env() == name) {
        Some(setting) => Variable::Setting(setting),
        None => Variable::Unknown,
    }
}

/// Whether an orchestrator made it. Kubernetes gives every container variables for each service of the namespace, and
/// a service called `pharos` or `pharos-…` is the obvious name: `PHAROS_SERVICE_HOST`, `PHAROS_PORT_6650_TCP_ADDR`, ….
/// They must not keep the server from starting.
fn is_service_link(name: &str) -> bool {
    let mut words = name.split('_').skip(1).peekable();
    while let Some(word) = words.next() {
        match (word, words.peek().copied()) {
            ("SERVICE", Some("HOST" | "PORT")) => return true,
            ("PORT", None) => return true,
            ("PORT", Some(port)) if port.bytes().all(|b| b.is_ascii_digit()) => return true,
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_links_are_not_settings() {
        for name in [
            "PHAROS_SERVICE_HOST",
            "PHAROS_SERVICE_PORT",
            "PHAROS_SERVICE_PORT_HTTP",
            "PHAROS_PORT",
            "PHAROS_PORT_6650_TCP",
            "PHAROS_PORT_6650_TCP_ADDR",
            "PHAROS_BROKER_SERVICE_HOST",
            "PHAROS_BROKER_PORT_8080_TCP_PROTO",
        ] {
            assert!(matches!(classify(name), Variable::Ignored), "{name}");
        }
        assert!(matches!(classify("PHAROS_SHARD"), Variable::Unknown));
        assert!(matches!(classify("PHAROS_SHARDS"), Variable::Setting(_)));
        assert!(matches!(classify("PATH"), Variable::Ignored));
    }

    #[test]
    fn no_setting_looks_like_a_service_link() {
        for setting in SETTINGS {
            assert!(!is_service_link(&setting.env()), "{}", setting.key);
        }
    }
}
