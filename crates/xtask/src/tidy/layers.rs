//! The drawing in `ARCHITECTURE.md` against the manifests.
//!
//! A line of the drawing that begins with a number is a layer; the crates named in it stand on that layer. A crate may use
//! crates of lower layers only; on the top layer, where programs are put together, also its neighbours. Dependencies of
//! tests do not count. `xtask` stands outside: no crate may use it.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::Findings;

const OUTSIDE: &str = "xtask";

/// Crate of the protocol, and the crates below the protocol handlers, which must not depend on it.
const PROTOCOL: &str = "wire";
const KNOW_NO_PROTOCOL: [&str; 17] = [
    "broker",
    "broker-admin",
    "catalog",
    "compaction",
    "dedup",
    "coordinators",
    "dispatch",
    "ledger",
    "managed-ledger",
    "mesh",
    "metadata",
    "offload",
    "requests",
    "storage",
    "storage-format",
    "topic",
    "transactions",
];

/// Name of a crate (its directory) and the crates of this workspace it uses outside of tests.
type Graph = BTreeMap<String, Vec<String>>;

/// Dependencies that do not point down.
pub(super) fn arrows(root: &Path) -> Result<Findings> {
    let graph = graph(root)?;
    let layers = drawing(root, &graph)?;
    Ok(wrong_arrows(&graph, &layers))
}

/// Crates that are missing in the drawing or in the table.
pub(super) fn map(root: &Path) -> Result<Findings> {
    let graph = graph(root)?;
    let layers = drawing(root, &graph)?;
    let text = architecture(root)?;
    let mut findings = Findings::new();
    for name in graph.keys() {
        if name != OUTSIDE && !layers.contains_key(name) {
            findings.push(format!("ARCHITECTURE.md: `{name}` is on no layer of the drawing"));
        }
        if !text.contains(&format!("\n| `{name}` |")) {
            findings.push(format!("ARCHITECTURE.md: `{name}` is not in the table of crates"));
        }
    }
    Ok(findings)
}

fn wrong_arrows(graph: &Graph, layers: &BTreeMap<String, u32>) -> Findings {
    let top = layers.values().max();
    let mut findings = Findings::new();
    for (user, used) in graph {
        if KNOW_NO_PROTOCOL.contains(&user.as_str()) && used.iter().any(|used| used == PROTOCOL) {
            findings.push(format!("crates/{user}: uses `{PROTOCOL}`, but knows no protocol"));
        }
        for used in used {
            let fine = match (layers.get(user), layers.get(used)) {
                (Some(from), Some(to)) => to < from || (Some(from) == top && Some(to) == top),
                // A crate that is not drawn is the other check's finding.
                _ => used != OUTSIDE,
            };
            if !fine {
                findings.push(format!("crates/{user}: uses `{used}`, which is not below it"));
            }
        }
    }
    findings
}

fn architecture(root: &Path) -> Result<String> {
    std::fs::read_to_string(root.join("ARCHITECTURE.md")).context("reading ARCHITECTURE.md")
}

fn drawing(root: &Path, graph: &Graph) -> Result<BTreeMap<String, u32>> {
    Ok(layers_of(&architecture(root)?, graph))
}

fn layers_of(text: &str, graph: &Graph) -> BTreeMap<String, u32> {
    let mut layers = BTreeMap::new();
    for line in text.lines() {
        let line = line.trim_start();
        let Some((number, rest)) = line.split_once(' ') else {
            continue;
        };
        let Ok(number) = number.parse::<u32>() else {
            continue;
        };
        for word in rest.split(|c: char| !c.is_ascii_lowercase() && c != '-') {
            if graph.contains_key(word) {
                layers.entry(word.to_owned()).or_insert(number);
            }
        }
    }
    layers
}

fn graph(root: &Path) -> Result<Graph> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(root)
        .output()
        .context("running cargo metadata")?;
    if !output.status.success() {
        bail!(
            "cargo metadata: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    let metadata: Value = serde_json::from_slice(&output.stdout).context("reading cargo metadata")?;
    let packages = metadata["packages"]
        .as_array()
        .context("cargo metadata without packages")?;
    // A crate goes by the name of its directory: the package of `crates/node` is called `pharos`.
    let mut names = BTreeMap::new();
    for package in packages {
        let manifest = text(&package["manifest_path"])?;
        let directory = Path::new(manifest).parent().and_then(Path::file_name);
        let directory = directory.context("a manifest without a directory")?;
        names.insert(text(&package["name"])?, directory.to_string_lossy().into_owned());
    }
    let mut graph = Graph::new();
    for package in packages {
        let dependencies = package["dependencies"]
            .as_array()
            .context("a package without dependencies")?;
        let mut used = Vec::new();
        for dependency in dependencies {
            let of_tests = dependency["kind"].as_str() == Some("dev");
            if let Some(name) = names.get(text(&dependency["name"])?).filter(|_| !of_tests) {
                used.push(name.clone());
            }
        }
        graph.insert(names[text(&package["name"])?].clone(), used);
    }
    Ok(graph)
}

fn text(value: &Value) -> Result<&str> {
    value.as_str().context("cargo metadata of an unknown form")
}

#[cfg(test)]
mod tests {
    use super::{Graph, layers_of, wrong_arrows};

    const DRAWING: &str =
        "```\n 7  node (bin pharos) ── cli\n 2  ledger   admin-api   contracts\n 0  types  words\n```\n";

    fn graph(arrows: &[(&str, &[&str])]) -> Graph {
        arrows
            .iter()
            .map(|(user, used)| {
                (
                    (*user).to_owned(),
                    used.iter().map(|name| (*name).to_owned()).collect(),
                )
            })
            .collect()
    }

    #[test]
    fn an_arrow_up_or_sideways_is_found() {
        let graph = graph(&[
            ("node", &["cli", "ledger"]),
            ("cli", &["admin-api"]),
            ("ledger", &["types", "admin-api"]),
            ("admin-api", &[]),
            ("types", &["ledger"]),
            ("storage", &["wire"]),
        ]);
        let found = wrong_arrows(&graph, &layers_of(DRAWING, &graph));
        assert_eq!(
            found,
            [
                "crates/ledger: uses `admin-api`, which is not below it",
                "crates/storage: uses `wire`, but knows no protocol",
                "crates/types: uses `ledger`, which is not below it"
            ]
        );
    }
}
