//! `pharos token …`: keys and tokens, interchangeable with those of `pulsar tokens`.

use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, Subcommand};
use pharos_identity::sign::{self, Algorithm, Claims};
use pharos_identity::{TokenOptions, TokenVerifier, line_of_role, line_of_token, read_key};

use crate::error::CliError;

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token for a role
    Create(Create),
    /// Show what a token says; with a key also whether it is good
    Inspect(Inspect),
    /// Add a token, or those of a role until now, to a broker's list of revoked tokens
    Revoke(Revoke),
    /// Make a secret key
    CreateSecretKey {
        /// Where to write it; the file must not exist. Without it the key is printed, in base64
        #[arg(long)]
        output: Option<PathBuf>,
        /// Write it in base64
        #[arg(long)]
        base64: bool,
        /// HS256, HS384 or HS512
        #[arg(long, default_value = "HS256", value_name = "ALGORITHM")]
        algorithm: String,
    },
    /// Make a private key and its public key
    CreateKeyPair {
        /// Where to write the private key; the file must not exist
        #[arg(long)]
        output_private_key: PathBuf,
        /// Where to write the public key; the file must not exist
        #[arg(long)]
        output_public_key: PathBuf,
        /// RS256, RS384, RS512, PS256, PS384, PS512, ES256 or ES384
        #[arg(long, default_value = "RS256", value_name = "ALGORITHM")]
        algorithm: String,
    },
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Create {
    /// The role
    #[arg(long)]
    subject: String,
    /// Until when it is good, counted from now, such as 30m, 8h, 30d or 1y; without it for ever
    #[arg(long, value_name = "TIME")]
    expiry_time: Option<String>,
    /// The audience that it is for
    #[arg(long)]
    audience: Option<String>,
    /// The secret key: file:///PATH, data:;base64,KEY or a path
    #[arg(long, conflicts_with = "private_key", required_unless_present = "private_key")]
    secret_key: Option<String>,
    /// The private key, in the same forms
    #[arg(long)]
    private_key: Option<String>,
    /// What kind of key the private key is
    #[arg(long, default_value = "RS256", value_name = "ALGORITHM")]
    algorithm: String,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Inspect {
    /// File with the token; without it standard input
    #[arg(long)]
    token_file: Option<PathBuf>,
    /// The secret key to check it with: file:///PATH, data:;base64,KEY or a path
    #[arg(long, conflicts_with = "public_key")]
    secret_key: Option<String>,
    /// The public key to check it with, in the same forms
    #[arg(long)]
    public_key: Option<String>,
    /// What kind of key the public key is
    #[arg(long, default_value = "RS256", value_name = "ALGORITHM")]
    algorithm: String,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Revoke {
    /// The list: the file of the broker's setting authentication.revoked_tokens_file. It is made if it is not there
    #[arg(long)]
    list: PathBuf,
    /// File with the token; without it, and without --role, standard input
    #[arg(long, conflicts_with = "role")]
    token_file: Option<PathBuf>,
    /// Instead of one token, all of this role that do not say they were issued (iat) later than now
    #[arg(long)]
    role: Option<String>,
}

pub(crate) fn run(command: TokenCommand) -> Result<String, CliError> {
    match command {
        TokenCommand::Create(wish) => create(&wish),
        TokenCommand::Inspect(wish) => inspect(&wish),
        TokenCommand::Revoke(wish) => revoke(&wish),
        TokenCommand::CreateSecretKey {
            output,
            base64,
            algorithm,
        } => {
            let key = sign::secret_key(algorithm_of(&algorithm)?).map_err(usage)?;
            let text = STANDARD.encode(&key);
            match output {
                None => Ok(format!("{text}\n")),
                Some(path) if base64 => write_new(&path, text.as_bytes()).map(|()| String::new()),
                Some(path) => write_new(&path, &key).map(|()| String::new()),
            }
        }
        TokenCommand::CreateKeyPair {
            output_private_key,
            output_public_key,
            algorithm,
        } => {
            let pair = sign::key_pair(algorithm_of(&algorithm)?).map_err(usage)?;
            write_new(&output_private_key, &pair.private)?;
            write_new(&output_public_key, &pair.public)?;
            Ok(String::new())
        }
    }
}

fn create(wish: &Create) -> Result<String, CliError> {
    let mut claims = Claims::of(&wish.subject).with("iat", now());
    if let Some(time) = &wish.expiry_time {
        let time = seconds_of(time).ok_or_else(|| {
            CliError::Usage(format!(
                "'{time}' is no time: write a number with s, m, h, d, w or y"
            ))
        })?;
        claims = claims.until(now().saturating_add(time));
    }
    if let Some(audience) = &wish.audience {
        claims = claims.with("aud", audience.as_str());
    }
    let token = match (&wish.secret_key, &wish.private_key) {
        (Some(key), _) => sign::with_secret(&read_key(key).map_err(usage)?, &claims),
        (None, Some(key)) => {
            let key = read_key(key).map_err(usage)?;
            sign::with_private_key(&key, algorithm_of(&wish.algorithm)?, &claims)
        }
        (None, None) => return Err(CliError::Usage("name a --secret-key or --private-key".to_owned())),
    };
    Ok(token.map_err(usage)? + "\n")
}

fn inspect(wish: &Inspect) -> Result<String, CliError> {
    let token = token_of(wish.token_file.as_deref())?;
    let (header, claims) = sign::read(&token).ok_or_else(no_token)?;
    let shown = format!("{header}\n{claims}\n");
    let options = TokenOptions {
        secret_key: wish
            .secret_key
            .as_deref()
            .map(read_key)
            .transpose()
            .map_err(usage)?,
        public_key: wish
            .public_key
            .as_deref()
            .map(read_key)
            .transpose()
            .map_err(usage)?,
        public_algorithm: wish.algorithm.clone(),
        ..TokenOptions::default()
    };
    if options.secret_key.is_none() && options.public_key.is_none() {
        return Ok(shown);
    }
    let tokens = TokenVerifier::new(&options).map_err(usage)?;
    match tokens.check(token.as_bytes()) {
        Ok(identity) => Ok(format!("{shown}good: role {}\n", identity.role)),
        Err(reason) => Err(CliError::Local(std::io::Error::other(reason))),
    }
}

fn revoke(wish: &Revoke) -> Result<String, CliError> {
    let line = if let Some(role) = &wish.role {
        let no_role = || CliError::Usage(format!("'{role}' is no role that a line of the list can name"));
        line_of_role(role, now()).ok_or_else(no_role)?
    } else {
        let token = token_of(wish.token_file.as_deref())?;
        sign::read(&token).ok_or_else(no_token)?;
        line_of_token(&token)
    };
    let failed = |error| CliError::Local(std::io::Error::other(format!("{}: {error}", wish.list.display())));
    append(&wish.list, &line).map_err(failed)?;
    Ok(format!("{line}\n"))
}

/// Adds a line that is on the disk when this returns. It goes out in one piece: the broker reads no half of it.
fn append(path: &Path, line: &str) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    let mut file = options
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)?;
    let mut last = [b'\n'];
    if file.metadata()?.len() > 0 {
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
    }
    let end = if last == [b'\n'] { "" } else { "\n" };
    file.write_all(format!("{end}{line}\n").as_bytes())?;
    file.sync_all()
}

/// The token of a file, or of standard input.
fn token_of(file: Option<&Path>) -> Result<String, CliError> {
    let mut token = String::new();
    match file {
        Some(path) => token = std::fs::read_to_string(path)?,
        None => _ = std::io::stdin().read_to_string(&mut token)?,
    }
    Ok(token.trim().to_owned())
}

fn no_token() -> CliError {
    CliError::Usage("this is no token".to_owned())
}

fn usage(error: impl std::fmt::Display) -> CliError {
    CliError::Usage(error.to_string())
}

fn algorithm_of(name: &str) -> Result<Algorithm, CliError> {
    name.parse()
        .map_err(|_| CliError::Usage(format!("'{name}' is no algorithm that is known")))
}

/// Writes a file that only its owner may read. One that exists stays: it may be a key that is in use.
fn write_new(path: &Path, bytes: &[u8]) -> Result<(), CliError> {
    let mut options = std::fs::OpenOptions::new();
    let made = options.write(true).create_new(true).mode(0o600).open(path);
    let written = made.and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written.map_err(|error| CliError::Local(std::io::Error::other(format!("{}: {error}", path.display()))))
}

/// Seconds of `30d`; years have 365 days.
fn seconds_of(text: &str) -> Option<u64> {
    let unit = text.chars().next_back()?;
    let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
    let scale = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        'w' => 7 * 86_400,
        'y' => 365 * 86_400,
        _ => return None,
    };
    number.checked_mul(scale)
}

#[expect(
    clippy::disallowed_methods,
    reason = "a command of its own, which no simulation runs"
)]
fn now() -> u64 {
    let elapsed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    elapsed.unwrap_or(Duration::ZERO).as_secs()
}
