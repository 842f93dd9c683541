//! `pharos context …`.

use clap::Subcommand;
use serde_json::json;

use crate::context::{Context, Contexts, TlsArgs};
use crate::error::CliError;
use crate::{Output, output};

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ContextCommand {
    /// Add a broker, or change what is kept of it; the first one is in use at once
    Add {
        /// What to call it
        name: String,
        /// Where its admin API is, such as `https://pharos.example.com:8443`
        #[arg(long)]
        url: Option<String>,
        /// Where it takes Pulsar clients, such as pulsar+ssl://pharos.example.com:6651, or several: pulsar://a:6650,b:6650
        #[arg(long)]
        service_url: Option<String>,
        #[command(flatten)]
        tls: Box<TlsArgs>,
    },
    /// Use a broker from now on
    Use {
        /// Its name
        name: String,
    },
    /// List all brokers; the one in use has a star
    List {
        /// Form of the result
        #[arg(long, value_enum, default_value = "text", value_name = "FORMAT")]
        output: Output,
    },
    /// Forget a broker and its credentials
    Remove {
        /// Its name
        name: String,
    },
    /// Show what is kept of a broker, secrets apart
    Show {
        /// Its name; without it the one in use
        name: Option<String>,
        /// Form of the result
        #[arg(long, value_enum, default_value = "text", value_name = "FORMAT")]
        output: Output,
    },
}

pub(crate) fn run(command: ContextCommand) -> Result<String, CliError> {
    let mut contexts = Contexts::read()?;
    match command {
        ContextCommand::Add {
            name,
            url,
            service_url,
            tls,
        } => {
            let context = contexts.contexts.entry(name.clone()).or_default();
            context.admin_url = url.or(context.admin_url.take());
            context.service_url = service_url.or(context.service_url.take());
            tls.lay_over(context)?;
            contexts.current.get_or_insert(name);
            contexts.write()?;
            Ok(String::new())
        }
        ContextCommand::Use { name } => {
            contexts.get(&name)?;
            contexts.current = Some(name);
            contexts.write()?;
            Ok(String::new())
        }
        ContextCommand::Remove { name } => {
            contexts.get(&name)?;
            contexts.contexts.remove(&name);
            contexts.current = contexts.current.filter(|current| *current != name);
            contexts.write()?;
            Ok(String::new())
        }
        ContextCommand::List { output: form } => list(&contexts, form),
        ContextCommand::Show { name, output: form } => {
            let nothing =
                || CliError::Usage("no context is in use; 'pharos context add' makes one".to_owned());
            let name = name.or_else(|| contexts.current.clone()).ok_or_else(nothing)?;
            show(&name, contexts.get(&name)?, form)
        }
    }
}

fn list(contexts: &Contexts, form: Output) -> Result<String, CliError> {
    let is_current = |name: &String| contexts.current.as_ref() == Some(name);
    if form == Output::Json {
        let members = contexts.contexts.iter().map(|(name, context)| {
            json!({ "name": name, "current": is_current(name), "adminUrl": context.admin_url, "serviceUrl": context.service_url })
        });
        return output::json(&members.collect::<Vec<_>>());
    }
    let rows = contexts.contexts.iter().map(|(name, context)| {
        let star = if is_current(name) { "*" } else { "" };
        let text = |url: &Option<String>| url.clone().unwrap_or_default();
        [
            star.to_owned(),
            name.clone(),
            text(&context.admin_url),
            text(&context.service_url),
        ]
    });
    let rows: Vec<_> = rows.collect();
    Ok(output::table(["", "name", "admin", "clients"], &rows))
}

fn show(name: &str, context: &Context, form: Output) -> Result<String, CliError> {
    // That there is a secret is told, the secret is not; where it is may be.
    let kept = |secret: &Option<String>| {
        secret.as_ref().map(|text| match text.split_once(':') {
            Some(("file" | "env", _)) => text.clone(),
            _ => "(kept)".to_owned(),
        })
    };
    let (token, auth_params) = (kept(&context.token), kept(&context.auth_params));
    if form == Output::Json {
        let shown = Context {
            token,
            auth_params,
            ..context.clone()
        };
        return output::json(&shown);
    }
    let path = |path: &Option<std::path::PathBuf>| path.as_ref().map(|path| path.display().to_string());
    let flag = |flag: bool| flag.then(|| "yes".to_owned());
    let rows = [
        ("name", Some(name.to_owned())),
        ("admin", context.admin_url.clone()),
        ("clients", context.service_url.clone()),
        ("trusted authorities", path(&context.tls_trust_certs)),
        ("certificate", path(&context.tls_cert)),
        ("key", path(&context.tls_key)),
        ("any host name", flag(context.tls_skip_hostname_verification)),
        ("any certificate", flag(context.tls_allow_insecure_connection)),
        ("token", token),
        ("auth plugin", context.auth_plugin.clone()),
        ("its parameters", auth_params),
    ];
    let rows: Vec<_> = rows
        .into_iter()
        .filter_map(|(label, value)| Some((label, value?)))
        .collect();
    Ok(output::pairs(&rows))
}
