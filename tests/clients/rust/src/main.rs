//! The Rust client against a broker; see ../../README.md. Takes its settings from the environment.

mod env;
mod messages;
mod placing;
mod redelivery;
mod subscriptions;
mod suite;
mod topics;

use suite::Suite;

fn main() -> std::process::ExitCode {
    let mut suite = Suite::default();
    messages::register(&mut suite);
    placing::register(&mut suite);
    redelivery::register(&mut suite);
    subscriptions::register(&mut suite);
    topics::register(&mut suite);
    suite.run()
}
