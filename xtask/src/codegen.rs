//! Generated files: written from the code, committed, and checked for drift.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, bail, ensure};
use xtask_launcher::build::{self, root};

use crate::chart::{self, Files};

/// All generated files.
fn files() -> anyhow::Result<Files> {
    let mut files = from_types()?;
    files.extend(chart::files(&files)?);
    Ok(files)
}

/// The files that are made from the types of other crates. A program makes them, so that this one is compiled without
/// those crates.
fn from_types() -> anyhow::Result<Files> {
    let program = build::example("generated").context("build the program that generates files")?;
    let output = Command::new(program).stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "the program that generates files failed");
    serde_json::from_slice(&output.stdout).context("read the generated files")
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
            if !files.contains_key(&name) {
                stale.push(format!("{name} (not generated)"));
            }
        }
    }
    if stale.is_empty() {
        return Ok(());
    }
    bail!("stale generated files, run `cargo xtask codegen`:\n  {}", stale.join("\n  "))
}
