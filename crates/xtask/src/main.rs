//! Chores of the repository that need no outside tool: `cargo run -p pharos-xtask -- <task>`.
//!
//! Nothing that ships depends on this crate.

mod codegen;
mod methods;
mod modules;
mod sbom;
mod sizes;
mod source;
mod tidy;

use std::process::ExitCode;

const USAGE: &str = "usage: pharos-xtask codegen [--check] | sbom [PLATFORM] | sizes | tidy
  codegen          write the protocol sources of crates/wire from crates/wire/proto/fields.tsv, and openapi/admin.json and
                   docs/reference/admin-routes.md from crates/admin-api/src/routes
  codegen --check  fail when what is written differs from what the tables give
  sbom             print the bill of materials of the binary for a platform, such as x86_64-unknown-linux-musl, or for this one:
                   CycloneDX in JSON
  sizes            print lines of product code, circles of imports and the types with the most methods by crate
  tidy             check facts about the repository that no compiler checks";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["codegen"] => codegen::run(codegen::Mode::Write),
        ["codegen", "--check"] => codegen::run(codegen::Mode::Check),
        ["sbom"] => sbom::run(None),
        ["sbom", platform] => sbom::run(Some(platform)),
        ["sizes"] => sizes::run(),
        ["tidy"] => tidy::run(),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pharos-xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
