//! An issuer of access tokens on loopback, for tests of clients: `issuer ID SECRET SECONDS`. Prints its URL, and gives tokens that
//! are good for so long to the client of that name and secret, until it is killed.

use std::io::Write as _;

use pharos_identity::test_issuer::TestIssuer;

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [id, secret, seconds] = arguments.as_slice() else {
        return Err(std::io::Error::other("usage: issuer ID SECRET SECONDS"));
    };
    let issuer = TestIssuer::start();
    issuer.add_client(id, secret);
    issuer.set_lifetime(seconds.parse().map_err(std::io::Error::other)?);
    writeln!(std::io::stdout(), "{}", issuer.url())?;
    loop {
        std::thread::park();
    }
}
