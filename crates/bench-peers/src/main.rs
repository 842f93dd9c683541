//! `pharos bench peers`: workload files against Pharos and the brokers it is compared with, in turn, on one machine, with one
//! load program.
//!
//! Reading order: [`args`]; [`case`] is what a workload file says; [`run`] starts, loads and stops each contestant ([`peer`]);
//! [`load`] is one load, in a process of its own, over a protocol ([`door`]) with the threads of `pharos-bench`; [`outcome`] is what it
//! found ([`tool`]: what a peer's own tool did), [`figure`] what of it is compared, [`page`] what is written.
//!
//! Always true: peers end with this program, and by their process id; their data is in fresh directories that are removed; what
//! fails is a line of the page and does not stop the rest.

#![forbid(unsafe_code)]

mod args;
mod case;
mod door;
mod figure;
mod load;
mod outcome;
mod page;
mod peer;
mod run;
mod share;
mod spec;
mod tool;

use std::process::ExitCode;

use clap::Parser as _;

use args::Args;

fn main() -> anyhow::Result<ExitCode> {
    let mut words = std::env::args().skip(1);
    match words.next().as_deref() {
        Some(load::LOAD) => load::run(),
        Some(peer::GUARDED) => Err(peer::run_guarded(&words.collect::<Vec<_>>())),
        _ => run::run(&Args::parse()),
    }
}
