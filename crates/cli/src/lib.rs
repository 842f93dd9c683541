//! The `pharos` subcommands for people.
