//! Help texts and the reference page are what the code says. `PHAROS_TEST_UPDATE=1 cargo test -p pharos` writes them anew.

use std::path::{Path, PathBuf};

fn check(path: &Path, now: &str) {
    if std::env::var_os("PHAROS_TEST_UPDATE").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, now).unwrap();
        return;
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        kept == now,
        "{} is stale; see the head of this file. It should be:\n{now}",
        path.display()
    );
}

fn here() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn help_of(path: &[&str]) -> String {
    let mut command = pharos::command().term_width(110);
    command.build();
    let mut command = &mut command;
    for name in path {
        command = command.find_subcommand_mut(name).unwrap();
    }
    command.render_long_help().to_string()
}

#[test]
fn help_texts_are_as_kept() {
    let names: Vec<String> = pharos::command()
        .get_subcommands()
        .map(|c| c.get_name().to_owned())
        .collect();
    check(&here().join("tests/help/pharos.txt"), &help_of(&[]));
    for name in &names {
        check(
            &here().join(format!("tests/help/pharos-{name}.txt")),
            &help_of(&[name]),
        );
    }
}

#[test]
fn the_reference_of_settings_is_fresh() {
    check(
        &here().join("../../docs/reference/configuration.md"),
        &pharos::settings::markdown_reference(),
    );
}

#[test]
fn the_reference_of_policies_is_fresh() {
    check(
        &here().join("../../docs/reference/policies.md"),
        &pharos::settings::markdown_policies(),
    );
}

#[test]
fn every_setting_of_a_policy_is_one() {
    for row in pharos_catalog::policy::all() {
        for key in row.settings {
            assert!(
                pharos::settings::table::by_key(key).is_some(),
                "{}: {key}",
                row.name
            );
        }
    }
}

#[test]
fn the_command_line_is_sound() {
    pharos::command().debug_assert();
}
