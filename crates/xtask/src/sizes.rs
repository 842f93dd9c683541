//! Sizes of the crates and of their largest types: `cargo run -p pharos-xtask -- sizes`.

use std::collections::BTreeMap;

use anyhow::Result;

use crate::methods::methods;
use crate::modules::{circles, imports, is_across, product_lines};
use crate::source::{SourceFile, repository_root, source_files};

/// Rust files below `src` of each crate, by the crate's directory: path inside `src`, and text.
pub(crate) fn by_crate(files: &[SourceFile]) -> BTreeMap<&str, Vec<(&str, &str)>> {
    let mut crates: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
    for file in files.iter().filter(|file| file.path.ends_with(".rs")) {
        let inside = file
            .path
            .strip_prefix("crates/")
            .and_then(|path| path.split_once("/src/"));
        if let Some((name, path)) = inside.filter(|(name, _)| !name.contains('/')) {
            crates.entry(name).or_default().push((path, &file.text));
        }
    }
    crates
}

/// Types of a crate that are named with their number of methods.
const TYPES_SHOWN: usize = 3;

/// Prints a table: lines of product code (comments and blank lines count, tests do not), files with such lines, circles, and the
/// type with the most methods.
///
/// # Errors
/// `git` could not be asked.
pub(crate) fn run() -> Result<()> {
    let files = source_files(&repository_root()?)?;
    let mut table = String::from(
        "| crate | lines | files | circles | across directories | most methods |\n| --- | --: | --: | --: | --: | --- |\n",
    );
    let mut sum = [0; 4];
    for (name, files) in &by_crate(&files) {
        let sizes: Vec<usize> = files
            .iter()
            .map(|(path, text)| product_lines(path, text))
            .collect();
        let circles = circles(&imports(files));
        let across = circles.iter().filter(|circle| is_across(circle)).count();
        let row = [
            sizes.iter().sum(),
            sizes.iter().filter(|size| **size > 0).count(),
            circles.len(),
            across,
        ];
        table.push_str(&format!(
            "| `{name}` | {} | {} | {} | {} | {} |\n",
            row[0],
            row[1],
            row[2],
            row[3],
            largest(files)
        ));
        sum.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
    }
    table.push_str(&format!(
        "| all | {} | {} | {} | {} | |\n",
        sum[0], sum[1], sum[2], sum[3]
    ));
    eprint!("{table}");
    Ok(())
}

/// The types with the most methods.
fn largest(files: &[(&str, &str)]) -> String {
    let mut types: Vec<_> = methods(files).into_iter().collect();
    types.sort_by_key(|((_, name), count)| (std::cmp::Reverse(*count), *name));
    let shown = types
        .iter()
        .take(TYPES_SHOWN)
        .map(|((_, name), count)| format!("`{name}` {count}"));
    shown.collect::<Vec<_>>().join(", ")
}
