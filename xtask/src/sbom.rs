//! The SBOM of the released binary, in the format CycloneDX.
//!
//! cargo-cyclonedx writes it. What it must hold is checked here against what Cargo would build, because
//! an SBOM that lacks a crate is worse than none.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::Command,
};

use anyhow::{Context, ensure};
use cargo_metadata::MetadataCommand;
use serde_json::Value;
use xtask_launcher::build::{self, root};

use crate::tools;

/// The newest version of the specification that cargo-cyclonedx writes.
const SPEC_VERSION: &str = "1.5";

/// The SBOM as JSON, with `time` in seconds since 1970 as the time when it was made.
pub(crate) fn bom(time: &str) -> anyhow::Result<String> {
    let bom = generate(time)?;
    let problems = problems(&serde_json::from_str(&bom)?, &dependencies()?);
    ensure!(problems.is_empty(), "the SBOM is not complete:\n  {}", problems.join("\n  "));
    Ok(bom)
}

/// Runs cargo-cyclonedx, which writes a file beside the manifest of every crate that has a binary.
fn generate(time: &str) -> anyhow::Result<String> {
    let status = Command::new(tools::CYCLONEDX.provide()?)
        .args(["cyclonedx", "--quiet", "--format", "json", "--spec-version", SPEC_VERSION])
        .args(["--describe", "binaries", "--no-build-deps", "--target", &build::host()?])
        .args(["--manifest-path", "operator/Cargo.toml"])
        .env("SOURCE_DATE_EPOCH", time)
        .current_dir(root())
        .status()
        .context("run cargo-cyclonedx")?;
    let mut bom = None;
    for package in MetadataCommand::new().current_dir(root()).no_deps().exec()?.packages {
        let directory = package.manifest_path.parent().context("a manifest has a directory")?;
        for binary in package.targets.iter().filter(|target| target.is_bin()) {
            let path = directory.join(format!("{}_bin.cdx.json", binary.name));
            if !path.exists() {
                continue;
            }
            if binary.name == "kube-batch" {
                bom = Some(fs::read_to_string(&path)?);
            }
            fs::remove_file(&path)?;
        }
    }
    ensure!(status.success(), "cargo-cyclonedx failed");
    let bom = bom.context("cargo-cyclonedx wrote no SBOM of kube-batch")?;
    Ok(without_directory(&bom, &root().display().to_string()))
}

/// Without the directory that it was written in, which says nothing about the binary.
fn without_directory(bom: &str, directory: &str) -> String {
    bom.replace(&format!("path+file://{directory}/"), "path+file:///")
}

/// Name and version of each crate in the binary, with its licence.
type Crates = BTreeMap<(String, String), String>;

/// What Cargo links into the binary.
fn dependencies() -> anyhow::Result<Crates> {
    let output = build::cargo()
        .args(["tree", "--locked", "--package", "kube-batch", "--edges", "normal"])
        .args(["--target", &build::host()?, "--prefix", "none", "--format", "{p}|{l}"])
        .output()
        .context("run cargo tree")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout)?;
    // The first one is the binary itself.
    lines.lines().skip(1).filter(|line| !line.is_empty()).map(crate_of).collect()
}

/// Reads a line such as `tokio v1.54.1|MIT` or `kube-batch-api v0.6.0 (/path)|Apache-2.0`; a crate that
/// was listed before ends with ` (*)`.
fn crate_of(line: &str) -> anyhow::Result<((String, String), String)> {
    let (package, licence) = line.split_once('|').with_context(|| format!("`{line}`"))?;
    let mut words = package.split(' ');
    let name = words.next().unwrap_or_default().to_owned();
    let version = words.next().and_then(|version| version.strip_prefix('v'));
    let version = version.with_context(|| format!("`{line}` has no version"))?.to_owned();
    Ok(((name, version), licence.trim_end_matches(" (*)").to_owned()))
}

/// What an SBOM lacks of the parts that the specification requires, and of the crates in the binary.
fn problems(bom: &Value, crates: &Crates) -> Vec<String> {
    let mut problems = Vec::new();
    for (field, wanted) in [("bomFormat", "CycloneDX"), ("specVersion", SPEC_VERSION)] {
        if bom[field] != wanted {
            problems.push(format!("{field} is {}, not {wanted}", bom[field]));
        }
    }
    if !bom["version"].is_u64() {
        problems.push("it has no version".to_owned());
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let components: Vec<&Value> = bom["components"].as_array().into_iter().flatten().collect();
    let mut references: BTreeSet<String> =
        BTreeSet::from([text(&bom["metadata"]["component"]["bom-ref"])]);
    let mut found = BTreeMap::new();
    for component in components {
        let (name, version) = (text(&component["name"]), text(&component["version"]));
        if component["type"] != "library" || !text(&component["purl"]).starts_with("pkg:cargo/") {
            problems.push(format!("{name} {version} is no crate"));
        }
        if !references.insert(text(&component["bom-ref"])) {
            problems.push(format!("{name} {version} has no reference of its own"));
        }
        found.insert((name, version), component["licenses"].clone());
    }
    for ((name, version), licence) in crates {
        match found.get(&(name.clone(), version.clone())) {
            None => problems.push(format!("{name} {version} is missing")),
            Some(stated) if is_licence(stated, licence) => {}
            Some(stated) => problems.push(format!("{name} {version}: {stated} is not {licence}")),
        }
    }
    for edge in bom["dependencies"].as_array().into_iter().flatten() {
        let on = edge["dependsOn"].as_array().into_iter().flatten();
        for reference in on.chain([&edge["ref"]]).map(text) {
            if !references.contains(&reference) {
                problems.push(format!("a dependency is on {reference}, which is no component"));
            }
        }
    }
    problems
}

/// Whether the SBOM states the licence of a manifest, in which `/` is the older way to write `OR`.
fn is_licence(stated: &Value, licence: &str) -> bool {
    let words =
        |text: &str| -> Vec<String> { text.split_whitespace().map(str::to_owned).collect() };
    let stated = stated[0]["expression"].as_str().unwrap_or_default();
    !stated.is_empty() && words(stated) == words(&licence.replace('/', " OR "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bom() -> Value {
        serde_json::json!({
            "bomFormat": "CycloneDX",
            "specVersion": SPEC_VERSION,
            "version": 1,
            "metadata": {"component": {"bom-ref": "self"}},
            "components": [{
                "type": "library", "bom-ref": "a", "name": "a", "version": "1.0.0",
                "purl": "pkg:cargo/a@1.0.0", "licenses": [{"expression": "MIT OR Apache-2.0"}],
            }],
            "dependencies": [{"ref": "self", "dependsOn": ["a"]}, {"ref": "a"}],
        })
    }

    fn crates(lines: &[&str]) -> Crates {
        lines.iter().map(|line| crate_of(line).expect("a crate")).collect()
    }

    #[test]
    fn an_sbom_holds_every_crate_with_its_licence() {
        let crates = crates(&["a v1.0.0|MIT / Apache-2.0", "a v1.0.0|MIT/Apache-2.0 (*)"]);
        assert_eq!(problems(&bom(), &crates), Vec::<String>::new());
    }

    #[test]
    fn what_an_sbom_lacks_is_listed() {
        let mut bom = bom();
        bom["specVersion"] = "1.3".into();
        bom["dependencies"][1]["ref"] = "b".into();
        let crates = crates(&["a v1.0.0|MIT", "a v1.0.1|MIT", "c v2.0.0 (/somewhere/c)|ISC"]);
        let expected = [
            "specVersion is \"1.3\", not 1.5",
            "a 1.0.0: [{\"expression\":\"MIT OR Apache-2.0\"}] is not MIT",
            "a 1.0.1 is missing",
            "c 2.0.0 is missing",
            "a dependency is on b, which is no component",
        ];
        assert_eq!(problems(&bom, &crates), expected);
    }

    #[test]
    fn the_directory_of_the_build_is_not_in_it() {
        let text = "\"path+file:///home/me/kube-batch/api#kube-batch-api@0.6.0\"";
        let expected = "\"path+file:///api#kube-batch-api@0.6.0\"";
        assert_eq!(without_directory(text, "/home/me/kube-batch"), expected);
    }
}
