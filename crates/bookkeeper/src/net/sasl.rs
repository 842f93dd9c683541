//! The login of a connection to a bookie, in the steps of Apache's plugin `sasl`.
//!
//! ```text
//!  we      AUTH sasl, nothing             bookie   a challenge
//!  we      AUTH sasl, the response        bookie   its own proof, and the connection is let in
//! ```

use std::io;

use bytes::Bytes;
use pharos_types::Login;
use ring::rand::{SecureRandom, SystemRandom};
use tokio::io::{AsyncRead, AsyncWrite};

use super::connection::{ask, refused};
use super::digest_md5::respond;
use crate::wire::{Request, Response, Status};

const PLUGIN: &str = "sasl";
/// The answer of a bookie that asks no client for a login.
const NOT_ASKED: &str = "AuthDisabledPlugin";
/// The service that a response is for: Java's bookies are called the same everywhere.
const SERVICE: &str = "bookkeeper/bookkeeper";

/// Shows a bookie who we are. One that does not ask is fine with it.
///
/// # Errors
/// It refuses, it does not know the password itself, or what it says makes no sense.
pub(super) async fn log_in(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    login: &Login,
) -> io::Result<()> {
    let Some(challenge) = say(stream, Bytes::new()).await? else {
        return Ok(());
    };
    let response = respond(&challenge, login, SERVICE, &nonce()?).map_err(refused)?;
    let last = say(stream, response.text.clone().into()).await?;
    response.check(&last.unwrap_or_default()).map_err(refused)
}

/// Sends a token and returns the bookie's answer; `None` if the bookie requires no login.
async fn say(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    payload: Bytes,
) -> io::Result<Option<Bytes>> {
    let plugin = PLUGIN.to_owned();
    let answer = ask(stream, &Request::Auth { plugin, payload }).await?;
    match (answer.status, answer.response) {
        (Status::Ok, Response::Auth { plugin, payload }) if plugin == PLUGIN => Ok(Some(payload)),
        (Status::Ok, Response::Auth { plugin, .. }) if plugin == NOT_ASKED => Ok(None),
        (Status::Ok, _) => Err(refused("the bookie asks for another authentication than sasl")),
        (status, _) => Err(refused(format_args!("no login by sasl: {status}"))),
    }
}

fn nonce() -> io::Result<String> {
    let mut bytes = [0_u8; 16];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| refused("no random numbers"))?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}
