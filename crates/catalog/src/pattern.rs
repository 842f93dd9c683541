//! Topic patterns of clients: regular expressions whose size is bounded before they cost anything, and the compiled ones.
//!
//! A short pattern can describe a huge automaton (`[\s\S]{1,65535}`), which is slow to compile and slow to match. So a pattern is bounded in
//! length and in compiled size, and what was compiled is kept for those who ask for the same again. Compiling and matching still cost more
//! than a shard may spend: callers do both on threads apart.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pharos_types::TopicName;
use regex::{Regex, RegexBuilder};

/// Compiled patterns that are kept, and refused ones.
const KEPT_MAX: usize = 256;
/// Maximum nesting depth of groups in a pattern.
const NEST_MAX: u32 = 50;

/// Why a pattern cannot be used here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// Patterns are disabled. Clients then filter themselves.
    #[error("topic patterns are not evaluated by this broker (enable_subscription_pattern_evaluation)")]
    Disabled,
    /// Too long to be evaluated for every client.
    #[error(
        "topic pattern has {length} characters; expected at most {length_max} (subscription_pattern_max_length)"
    )]
    TooLong {
        /// Its length in UTF-16 code units.
        length: usize,
        /// `subscription_pattern_max_length`.
        length_max: usize,
    },
    /// It compiles to more than a pattern may.
    #[error(
        "topic pattern compiles to more than {bytes_max} bytes (subscription_pattern_max_compiled_size); use fewer and smaller repetitions"
    )]
    TooLarge {
        /// `subscription_pattern_max_compiled_size`.
        bytes_max: usize,
    },
    /// Not a regular expression, or one with look-around or back references.
    #[error("topic pattern is not a supported regular expression")]
    Invalid,
}

/// A regular expression on whole names of the form `tenant/namespace/topic`: no scheme, no partition suffix. Cheap to clone.
#[derive(Clone, Debug)]
pub struct TopicPattern {
    regex: Regex,
}

impl TopicPattern {
    /// Compiles a pattern as clients send it, to at most `bytes_max` bytes; a scheme in front is dropped.
    ///
    /// # Errors
    /// `TooLarge`, `Invalid`.
    pub fn new(pattern: &str, bytes_max: usize) -> Result<Self, PatternError> {
        let bare = pattern.split_once("://").map_or(pattern, |(_, bare)| bare);
        let regex = RegexBuilder::new(&format!("^(?:{})$", with_ascii_classes(bare)))
            .size_limit(bytes_max)
            // What matching may keep beside the automaton, for each thread that matches.
            .dfa_size_limit(bytes_max.saturating_mul(4))
            .nest_limit(NEST_MAX)
            .build()
            .map_err(|error| match error {
                regex::Error::CompiledTooBig(_) => PatternError::TooLarge { bytes_max },
                _ => PatternError::Invalid,
            })?;
        Ok(Self { regex })
    }

    /// True if a topic, or the partitioned topic it is a partition of, matches.
    #[must_use]
    pub fn matches(&self, topic: &TopicName) -> bool {
        let base = topic.base();
        self.regex
            .is_match(&format!("{}/{}", base.namespace(), base.local()))
    }
}

/// Replaces `\w`, `\d`, `\s` and their opposites by ASCII classes: they mean that to clients, and those of Unicode compile to many times
/// the size.
fn with_ascii_classes(pattern: &str) -> Cow<'_, str> {
    if !pattern.contains('\\') {
        return Cow::Borrowed(pattern);
    }
    let mut replaced = String::with_capacity(pattern.len() + 64);
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            replaced.push(character);
            continue;
        }
        match characters.next() {
            Some('w') => replaced.push_str("[0-9A-Za-z_]"),
            Some('W') => replaced.push_str("[^0-9A-Za-z_]"),
            Some('d') => replaced.push_str("[0-9]"),
            Some('D') => replaced.push_str("[^0-9]"),
            Some('s') => replaced.push_str(r"[\t\n\x0B\x0C\r ]"),
            Some('S') => replaced.push_str(r"[^\t\n\x0B\x0C\r ]"),
            escaped => {
                replaced.push('\\');
                replaced.extend(escaped);
            }
        }
    }
    Cow::Owned(replaced)
}

/// Results of compiling the most recent patterns.
#[derive(Debug, Default)]
pub(super) struct CompiledPatterns {
    table: Mutex<KeptPatterns>,
}

#[derive(Debug, Default)]
struct KeptPatterns {
    /// Rises with each use.
    turn: u64,
    patterns: HashMap<Box<str>, Compiled>,
    /// Patterns that were compiled since the start.
    compiled: u64,
}

#[derive(Debug)]
struct Compiled {
    used: u64,
    outcome: Result<TopicPattern, PatternError>,
}

impl CompiledPatterns {
    /// The compiled form of `pattern`; compiles it unless it is one of the last that were used.
    pub(super) fn get(&self, pattern: &str, bytes_max: usize) -> Result<TopicPattern, PatternError> {
        if let Some(outcome) = self.lock().known(pattern) {
            return outcome;
        }
        // Not under the lock: it takes long.
        let outcome = TopicPattern::new(pattern, bytes_max);
        self.lock().keep(pattern, outcome.clone());
        outcome
    }

    /// Patterns that were compiled since the start.
    pub(super) fn compiled_count(&self) -> u64 {
        self.lock().compiled
    }

    fn lock(&self) -> MutexGuard<'_, KeptPatterns> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeptPatterns {
    fn known(&mut self, pattern: &str) -> Option<Result<TopicPattern, PatternError>> {
        self.turn += 1;
        let found = self.patterns.get_mut(pattern)?;
        found.used = self.turn;
        Some(found.outcome.clone())
    }

    fn keep(&mut self, pattern: &str, outcome: Result<TopicPattern, PatternError>) {
        self.compiled += 1;
        if self.patterns.len() >= KEPT_MAX {
            let unused = self.patterns.iter().min_by_key(|(_, compiled)| compiled.used);
            if let Some(pattern) = unused.map(|(pattern, _)| pattern.clone()) {
                self.patterns.remove(&pattern);
            }
        }
        let used = self.turn;
        self.patterns.insert(pattern.into(), Compiled { used, outcome });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES_MAX: usize = 64 << 10;

    fn matches(pattern: &str, name: &str) -> bool {
        let pattern = TopicPattern::new(pattern, BYTES_MAX).unwrap();
        pattern.matches(&name.parse().unwrap())
    }

    #[test]
    fn a_short_pattern_with_a_huge_automaton_is_refused_by_the_name_of_the_setting() {
        for pattern in [
            r"[\s\S]{1,65535}",
            "(.{99}){99}",
            "((a{0,99}){0,99}){0,99}",
            r"\pL{999}",
        ] {
            let error = TopicPattern::new(pattern, BYTES_MAX).unwrap_err();
            assert_eq!(
                error,
                PatternError::TooLarge { bytes_max: BYTES_MAX },
                "{pattern}"
            );
            assert!(
                error
                    .to_string()
                    .contains("subscription_pattern_max_compiled_size")
            );
        }
    }

    #[test]
    fn patterns_as_people_write_them_fit() {
        for pattern in [
            "persistent://public/default/.*",
            r"public/default/\w+-\d{1,8}",
            r"public/default/[\w.-]+",
            "public/default/(car|bus|tram)-[a-z0-9]{8}",
            "(?i)public/default/sensor.*",
            "public/default/vehicle-(?:north|south)-.{1,20}",
        ] {
            assert!(TopicPattern::new(pattern, BYTES_MAX).is_ok(), "{pattern}");
        }
    }

    #[test]
    fn classes_are_those_of_ascii() {
        assert!(matches(r"public/default/\w+", "car_7"));
        assert!(!matches(r"public/default/\w+", "café"));
        assert!(matches(r"public/default/caf\W", "café"));
        assert!(matches(r"public/default/[\w-]+", "car-7"));
        assert!(matches(r"public/default/car\D\d", "car-7"));
        assert!(matches(r"public/default/car\S+", "car-7"));
        assert!(!matches(r"public/default/car\s7", "car-7"));
        assert!(matches(r"public/default/a\\w", r"a\w"));
        assert!(matches(r"public/default/caf.", "café"));
        assert_eq!(
            TopicPattern::new(r"a\", BYTES_MAX).unwrap_err(),
            PatternError::Invalid
        );
    }

    #[test]
    fn a_pattern_is_compiled_once_and_few_are_kept() {
        let patterns = CompiledPatterns::default();
        let huge = r"[\s\S]{1,65535}";
        for _ in 0..10 {
            assert!(patterns.get("a.*", BYTES_MAX).is_ok());
            assert!(patterns.get(huge, BYTES_MAX).is_err());
        }
        assert_eq!(patterns.compiled_count(), 2);
        for number in 0..2 * KEPT_MAX {
            assert!(patterns.get(&format!("b{number}"), BYTES_MAX).is_ok());
            assert!(patterns.get("a.*", BYTES_MAX).is_ok());
        }
        assert_eq!(
            patterns.compiled_count(),
            2 + 2 * KEPT_MAX as u64,
            "one in use is kept"
        );
        assert_eq!(patterns.lock().patterns.len(), KEPT_MAX);
    }
}
