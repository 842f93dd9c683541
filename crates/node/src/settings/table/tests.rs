//! What is true of every row.

use std::collections::HashSet;

use super::super::Settings;
use super::*;

#[test]
fn keys_flags_and_variables_are_unique() {
    let keys: HashSet<_> = SETTINGS.iter().map(|s| s.key).collect();
    let flags: HashSet<_> = SETTINGS.iter().map(Setting::flag).collect();
    let variables: HashSet<_> = SETTINGS.iter().map(Setting::env).collect();
    assert_eq!(
        (keys.len(), flags.len(), variables.len()),
        (SETTINGS.len(), SETTINGS.len(), SETTINGS.len())
    );
}

#[test]
fn every_default_is_read_back_to_itself() {
    for setting in SETTINGS {
        let mut settings = Settings::default();
        (setting.set)(&mut settings, &setting.default()).unwrap();
        assert_eq!(settings, Settings::default(), "{}", setting.key);
    }
}

#[test]
fn the_defaults_have_no_faults() {
    assert_eq!(Settings::default().faults(), Vec::<String>::new());
}
