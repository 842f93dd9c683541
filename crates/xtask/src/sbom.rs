//! The bill of materials of the binary: what `pharos` is made of, as CycloneDX 1.5 in JSON.
//!
//! Asked of `cargo metadata` for one platform, from the package `pharos` along normal and build dependencies; what only tests
//! use is not in it. The same sources give the same document: it has no time and no serial number.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use cyclonedx_bom::external_models::normalized_string::NormalizedString;
use cyclonedx_bom::external_models::spdx::SpdxExpression;
use cyclonedx_bom::external_models::uri::Purl;
use cyclonedx_bom::models::bom::{Bom, SpecVersion};
use cyclonedx_bom::models::component::{Classification, Component, Components};
use cyclonedx_bom::models::dependency::{Dependencies, Dependency};
use cyclonedx_bom::models::hash::{Hash, HashAlgorithm, HashValue, Hashes};
use cyclonedx_bom::models::license::{LicenseChoice, Licenses};
use cyclonedx_bom::models::metadata::Metadata;
use cyclonedx_bom::validation::Validate as _;
use serde_json::Value;

/// Package that the document describes.
const ROOT: &str = "pharos";

/// Writes the document to standard output.
///
/// `platform`: a target triple; `None`: the one of this machine.
///
/// # Errors
/// Cargo does not answer, or the document does not keep to the standard.
pub(crate) fn run(platform: Option<&str>) -> Result<()> {
    let root = crate::source::repository_root()?;
    let platform = platform.map_or_else(host, |named| Ok(named.to_owned()))?;
    let bom = document(&root, &platform)?;
    let mut text = Vec::new();
    bom.output_as_json_v1_5(&mut text)
        .context("writing the document")?;
    text.push(b'\n');
    std::io::stdout().write_all(&text)?;
    Ok(())
}

fn document(root: &Path, platform: &str) -> Result<Bom> {
    let metadata = metadata(root, platform)?;
    let checksums = checksums(root)?;
    let packages: BTreeMap<&str, &Value> = list(&metadata["packages"])
        .filter_map(|package| Some((package["id"].as_str()?, package)))
        .collect();
    let edges = edges(&metadata);
    let start = packages.iter().find(|(_, package)| package["name"] == ROOT);
    let start = *start.with_context(|| format!("there is no package {ROOT}"))?.0;
    let used = reachable(start, &edges);
    let reference = |id: &str| packages.get(id).map(|package| reference(package));
    let mut components = Vec::new();
    let mut dependencies = Vec::new();
    for id in &used {
        let package = packages.get(id).context("an edge to no package")?;
        if *id != start {
            components.push(component(package, Classification::Library, &checksums)?);
        }
        let below = edges.get(id).into_iter().flatten();
        let mut below: Vec<String> = below.filter_map(|id| reference(id)).collect();
        below.sort();
        dependencies.push(Dependency {
            dependency_ref: self::reference(package),
            dependencies: below,
        });
    }
    let binary = packages.get(start).context("no root")?;
    let bom = Bom {
        metadata: Some(Metadata {
            component: Some(component(binary, Classification::Application, &checksums)?),
            ..Metadata::default()
        }),
        components: Some(Components(components)),
        dependencies: Some(Dependencies(dependencies)),
        ..Bom::default()
    };
    let checked = bom.validate_version(SpecVersion::V1_5);
    if !checked.passed() {
        bail!("the document is not as CycloneDX wants it: {checked:?}");
    }
    Ok(bom)
}

/// Dependencies of each package for building and running, by package id.
fn edges(metadata: &Value) -> BTreeMap<&str, BTreeSet<&str>> {
    let nodes = list(&metadata["resolve"]["nodes"]);
    nodes
        .filter_map(|node| {
            let ships = |edge: &&Value| list(&edge["dep_kinds"]).any(|kind| kind["kind"] != "dev");
            let below = list(&node["deps"]).filter(ships);
            let below = below.filter_map(|edge| edge["pkg"].as_str()).collect();
            Some((node["id"].as_str()?, below))
        })
        .collect()
}

fn reachable<'a>(start: &'a str, edges: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut next = vec![start];
    while let Some(id) = next.pop() {
        if found.insert(id) {
            next.extend(edges.get(id).into_iter().flatten());
        }
    }
    found
}

fn component(
    package: &Value,
    kind: Classification,
    checksums: &BTreeMap<String, String>,
) -> Result<Component> {
    let (name, version) = (text(package, "name"), text(package, "version"));
    let reference = reference(package);
    let mut component = Component::new(kind, name, version, Some(reference.clone()));
    component.purl = Some(Purl::new("cargo", name, version)?);
    component.description = package["description"].as_str().map(NormalizedString::new);
    if let Some(licence) = package["license"].as_str() {
        let expression = SpdxExpression::parse_lax(licence.to_owned())
            .with_context(|| format!("the licence of {name}"))?;
        component.licenses = Some(Licenses(vec![LicenseChoice::Expression(expression)]));
    }
    component.hashes = checksums.get(&reference).map(|checksum| {
        Hashes(vec![Hash {
            alg: HashAlgorithm::SHA_256,
            content: HashValue(checksum.clone()),
        }])
    });
    Ok(component)
}

/// Reference to a package in other parts of the document.
fn reference(package: &Value) -> String {
    format!("{}@{}", text(package, "name"), text(package, "version"))
}

/// Checksums of what comes from a registry, by reference.
fn checksums(root: &Path) -> Result<BTreeMap<String, String>> {
    let lock = std::fs::read_to_string(root.join("Cargo.lock")).context("reading Cargo.lock")?;
    let lock: toml::Table = lock.parse().context("Cargo.lock")?;
    let packages = lock.get("package").and_then(toml::Value::as_array);
    let said = |package: &toml::Value| {
        let text = |key: &str| Some(package.get(key)?.as_str()?.to_owned());
        Some((
            format!("{}@{}", text("name")?, text("version")?),
            text("checksum")?,
        ))
    };
    Ok(packages.into_iter().flatten().filter_map(said).collect())
}

fn metadata(root: &Path, platform: &str) -> Result<Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let asked = Command::new(cargo)
        .args([
            "metadata",
            "--locked",
            "--format-version",
            "1",
            "--filter-platform",
            platform,
        ])
        .current_dir(root)
        .output()
        .context("asking cargo")?;
    if !asked.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&asked.stderr));
    }
    serde_json::from_slice(&asked.stdout).context("what cargo says is no JSON")
}

/// The platform that the compiler builds for when nothing is said.
fn host() -> Result<String> {
    let asked = Command::new("rustc")
        .arg("-vV")
        .output()
        .context("asking rustc")?;
    let said = String::from_utf8_lossy(&asked.stdout).into_owned();
    let line = said.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(line.context("rustc does not say what it is for")?.to_owned())
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text<'a>(package: &'a Value, key: &str) -> &'a str {
    package[key].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The document lists shipped packages with licence and checksum, and no package that only tests use.
    #[test]
    fn the_document_has_what_ships_and_nothing_else() {
        let root = crate::source::repository_root().unwrap();
        let bom = document(&root, "x86_64-unknown-linux-gnu").unwrap();
        let Components(components) = bom.components.unwrap();
        let find = |name: &str| components.iter().find(|it| it.name.to_string() == name);
        let tokio = find("tokio").unwrap();
        assert_eq!(tokio.hashes.as_ref().unwrap().0.len(), 1);
        assert!(tokio.licenses.is_some() && tokio.purl.is_some());
        assert!(find("pharos-broker").is_some() && find("rustls").is_some());
        for test_only in ["proptest", "shuttle", "pharos-sim", "pharos-xtask"] {
            assert!(find(test_only).is_none(), "{test_only}");
        }
        let Dependencies(edges) = bom.dependencies.unwrap();
        assert_eq!(edges.len(), components.len() + 1, "one for each, and the binary");
    }
}
