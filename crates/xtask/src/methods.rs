//! Number of methods of each type of a crate, read from the text.
//!
//! A method is an `fn` directly inside an `impl` block without indentation, of the type itself or of a trait for it.
//! Blocks of one type in several files count together. If a crate has several types of one name, a block belongs to
//! the one whose file is nearest: the same file, else the one that shares most directories. Tests are left out.

use std::collections::BTreeMap;

use crate::modules::product_part;

/// Methods by type: the file that defines it, and its name.
pub(crate) type Methods<'a> = BTreeMap<(&'a str, &'a str), usize>;

/// Counts the methods of every type that the files of one crate define: path inside `src`, and text.
pub(crate) fn methods<'a>(files: &[(&'a str, &'a str)]) -> Methods<'a> {
    let files: Vec<(&str, &str)> = files
        .iter()
        .map(|(path, text)| (*path, product_part(path, text)))
        .collect();
    let mut homes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (path, text) in &files {
        for name in text.lines().filter_map(defined) {
            homes.entry(name).or_default().push(path);
        }
    }
    let mut counts = Methods::new();
    for (path, text) in &files {
        let mut of = None;
        for line in text.lines() {
            if let Some(name) = implemented(line) {
                let nearest = homes.get(name).and_then(|homes| nearest(homes, path));
                of = nearest.map(|home| (home, name));
            } else if line.starts_with('}') {
                of = None;
            } else if let Some(of) = of.filter(|_| is_method(line)) {
                *counts.entry(of).or_default() += 1;
            }
        }
    }
    counts
}

/// The type that a line at the left edge defines.
fn defined(line: &str) -> Option<&str> {
    let item = without_visibility(line);
    let named = ["struct ", "enum ", "union "]
        .iter()
        .find_map(|word| item.strip_prefix(word))?;
    Some(leading_name(named))
}

/// The type whose `impl` block a line at the left edge opens.
fn implemented(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("impl")?;
    let rest = match rest.strip_prefix('<') {
        Some(generics) => after_generics(generics),
        None => rest.strip_prefix(' ')?,
    };
    let of = rest.split_once(" for ").map_or(rest, |(_, of)| of);
    let path = of.trim_start().split(['<', ' ', '{']).next()?;
    let name = path.rsplit("::").next()?;
    (!name.is_empty()).then_some(name)
}

/// Text after the generics whose opening bracket was passed.
fn after_generics(text: &str) -> &str {
    let mut depth = 1_u32;
    for (at, c) in text.char_indices() {
        match c {
            '<' => depth += 1,
            // The arrow of a closure's type closes nothing.
            '>' if !text[..at].ends_with('-') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &text[at + 1..];
        }
    }
    ""
}

/// True if a line begins a function indented by one level.
fn is_method(line: &str) -> bool {
    let Some(item) = line.strip_prefix("    ").filter(|item| !item.starts_with(' ')) else {
        return false;
    };
    let mut item = without_visibility(item);
    for word in ["const ", "async ", "unsafe "] {
        item = item.strip_prefix(word).unwrap_or(item);
    }
    item.starts_with("fn ")
}

fn without_visibility(item: &str) -> &str {
    match item.strip_prefix("pub(") {
        Some(rest) => rest.split_once(") ").map_or(rest, |(_, rest)| rest),
        None => item.strip_prefix("pub ").unwrap_or(item),
    }
}

fn leading_name(text: &str) -> &str {
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_'));
    &text[..end.unwrap_or(text.len())]
}

/// File nearest to `path`, of the files that define a name.
fn nearest<'a>(homes: &[&'a str], path: &str) -> Option<&'a str> {
    let shared = |home: &str| {
        let pairs = home.split('/').zip(path.split('/'));
        pairs.take_while(|(a, b)| a == b).count()
    };
    homes.iter().copied().max_by_key(|home| shared(home))
}

#[cfg(test)]
mod tests {
    use super::methods;

    #[test]
    fn blocks_of_one_type_count_together_over_files() {
        let files = [
            (
                "a/mod.rs",
                "pub(crate) struct One<'a> {}\nimpl<'a, F: Fn() -> u8> One<'a> {\n    pub(crate) async fn f() {\n        fn inner() {}\n    }\n}\n",
            ),
            (
                "a/two.rs",
                "impl super::One<'_> {\n    fn g() {}\n    const fn h() {}\n}\nfn free() {}\nimpl Drop for One<'_> {\n    fn drop() {}\n}\n",
            ),
            ("a/tests.rs", "impl One<'_> {\n    fn in_tests() {}\n}\n"),
        ];
        let counts = methods(&files);
        assert_eq!(counts.into_iter().collect::<Vec<_>>(), [(("a/mod.rs", "One"), 4)]);
    }

    #[test]
    fn types_of_one_name_are_told_apart_by_their_place() {
        let files = [
            ("a/mod.rs", "struct State;\nimpl State {\n    fn f() {}\n}\n"),
            ("a/b.rs", "impl State {\n    fn g() {}\n}\n"),
            (
                "c.rs",
                "enum State {}\nimpl State {\n    fn h() {}\n}\n#[cfg(test)]\nmod tests {\n    impl State {\n    fn i() {}\n}\n}\n",
            ),
        ];
        let counts: Vec<_> = methods(&files).into_iter().collect();
        assert_eq!(counts, [(("a/mod.rs", "State"), 2), (("c.rs", "State"), 1)]);
    }
}
