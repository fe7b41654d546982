//! Generated files: written from the code, committed, and checked for drift.

use std::{fs, path::Path};

use anyhow::{Context, bail};
use kube_batch_api::crd;
use kube_batch_sim::outcome::Outcome;
use xtask_launcher::build::root;

use crate::{chart, performance, policy};

/// The first line of every generated manifest.
const HEADER: &str = "# Generated from the Rust types by `cargo xtask codegen`; do not edit.\n";

/// All generated files: path below the root, and content.
fn files() -> anyhow::Result<Vec<(String, String)>> {
    let mut crds = Vec::new();
    for (name, definition) in crd::definitions() {
        let yaml = serde_saphyr::to_string(&definition).context("write a CRD as YAML")?;
        crds.push((name, format!("{HEADER}{yaml}")));
    }
    let policy = policy::file();
    let mut files = chart::files(&crds, &policy)?;
    files.push(policy);
    files.extend(crds.into_iter().map(|(name, content)| (format!("crds/{name}"), content)));
    let schema = serde_json::to_string_pretty(&schemars::schema_for!(Outcome))?;
    files.push(("docs/simulate.schema.json".to_owned(), format!("{schema}\n")));
    files.push(performance::file()?);
    Ok(files)
}

/// Directories with generated files only.
const GENERATED_ONLY: [&str; 3] = ["crds", "deploy/chart/crds", "deploy/chart/files"];

/// Writes every generated file.
pub(crate) fn write() -> anyhow::Result<()> {
    for (path, content) in files()? {
        let path = root().join(path);
        fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
        fs::write(&path, content).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

/// Fails if a generated file is out of date, or if a directory has a file that is not generated.
pub(crate) fn check() -> anyhow::Result<()> {
    let files = files()?;
    let mut stale: Vec<String> = Vec::new();
    for (path, content) in &files {
        if fs::read_to_string(root().join(path)).ok().as_ref() != Some(content) {
            stale.push(path.clone());
        }
    }
    for directory in GENERATED_ONLY {
        let entries = fs::read_dir(root().join(directory));
        for entry in entries.with_context(|| format!("list {directory}/"))? {
            let name = format!("{directory}/{}", entry?.file_name().to_string_lossy());
            if !files.iter().any(|(path, _)| *path == name) {
                stale.push(format!("{name} (not generated)"));
            }
        }
    }
    if stale.is_empty() {
        return Ok(());
    }
    bail!("stale generated files, run `cargo xtask codegen`:\n  {}", stale.join("\n  "))
}
