//! The files of a release, in `target/dist`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, ensure};
use cargo_metadata::MetadataCommand;
use clap::Subcommand;
use kube_batch_testbed::assets::Assets;
use xtask_launcher::build::{self, root};

use crate::sbom;

/// The version of the workspace.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Arguments of `dist`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    part: Part,
    /// The tag that is released; fails if it does not name the version of the workspace.
    #[arg(long, global = true)]
    tag: Option<String>,
}

/// Which files to write.
#[derive(Clone, Copy, Debug, Subcommand)]
enum Part {
    /// The static binary for this machine's architecture, as an archive and for the image.
    Binary,
    /// The CRDs, the packaged chart and the SBOM.
    Manifests,
    /// The checksums of all files in target/dist.
    Checksums,
}

/// Writes files of a release and prints their paths.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let expected = format!("v{VERSION}");
    let tag = args.tag.as_ref().unwrap_or(&expected);
    ensure!(*tag == expected, "the tag is {tag}, and the version of the workspace {VERSION}");
    let written = match args.part {
        Part::Binary => binary()?,
        Part::Manifests => manifests()?,
        Part::Checksums => vec![checksums()?],
    };
    for path in written {
        println!("{}", path.display());
    }
    Ok(())
}

/// The directory of the files, which is created.
fn directory() -> anyhow::Result<PathBuf> {
    let metadata = MetadataCommand::new().current_dir(root()).no_deps().exec()?;
    let directory = metadata.target_directory.into_std_path_buf().join("dist");
    fs::create_dir_all(&directory).with_context(|| format!("create {}", directory.display()))?;
    Ok(directory)
}

/// When the commit was made, in seconds since 1970. Files carry this time, so that the same sources give
/// the same files.
fn commit_time() -> anyhow::Result<String> {
    let time = output(Command::new("git").args(["log", "--max-count=1", "--format=%ct"]))?;
    Ok(time.trim().to_owned())
}

/// The architecture of this machine, as container images name it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// The binary alone, from which the Containerfile makes the image, and an archive of it with the licence.
fn binary() -> anyhow::Result<Vec<PathBuf>> {
    let directory = directory()?;
    let image = directory.join(format!("image-{}", architecture()));
    fs::create_dir_all(&image)?;
    let binary = image.join("kube-batch");
    fs::copy(build::static_release()?, &binary).context("copy the binary")?;
    let archive = directory.join(format!("kube-batch-{VERSION}-linux-{}.tar.gz", architecture()));
    output(
        Command::new("tar")
            .args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner"])
            .args(["--use-compress-program=gzip --no-name", "--create"])
            .arg(format!("--mtime=@{}", commit_time()?))
            .arg("--file")
            .arg(&archive)
            .arg("--directory")
            .arg(&image)
            .arg("kube-batch")
            .arg("--directory")
            .arg(root())
            .arg("LICENSE"),
    )?;
    Ok(vec![binary, archive])
}

fn manifests() -> anyhow::Result<Vec<PathBuf>> {
    let directory = directory()?;
    let mut written = Vec::new();
    for (suffix, source) in [("", "deploy/chart/crds"), ("-v1alpha1", "deploy/components/v1alpha1")]
    {
        let path = directory.join(format!("kube-batch-{VERSION}-crds{suffix}.yaml"));
        fs::write(&path, crds(&root().join(source))?)?;
        written.push(path);
    }
    output(
        Command::new(Assets::helm()?)
            .args(["package", "deploy/chart", "--destination"])
            .arg(&directory),
    )?;
    written.push(directory.join(format!("kube-batch-{VERSION}.tgz")));
    written.push(sbom()?);
    Ok(written)
}

/// Writes the SBOM of the binary and returns its path.
pub(crate) fn sbom() -> anyhow::Result<PathBuf> {
    let path = directory()?.join(format!("kube-batch-{VERSION}.cdx.json"));
    fs::write(&path, sbom::bom(&commit_time()?)?)?;
    Ok(path)
}

/// The CRDs of a directory as one file.
fn crds(directory: &Path) -> anyhow::Result<String> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.file_name().is_some_and(|name| name != "kustomization.yaml") {
            paths.push(path);
        }
    }
    paths.sort();
    let texts: Result<Vec<String>, _> = paths.iter().map(fs::read_to_string).collect();
    Ok(texts?.join("---\n"))
}

/// Writes `SHA256SUMS`, in the format that `sha256sum --check` reads.
fn checksums() -> anyhow::Result<PathBuf> {
    let directory = directory()?;
    let path = directory.join("SHA256SUMS");
    let mut names = Vec::new();
    for entry in fs::read_dir(&directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_signature = Path::new(&name).extension().is_some_and(|kind| kind == "bundle");
        if entry.file_type()?.is_file() && name != "SHA256SUMS" && !is_signature {
            names.push(name);
        }
    }
    ensure!(!names.is_empty(), "there are no files in {}", directory.display());
    names.sort();
    let sums = output(Command::new("sha256sum").arg("--").args(&names).current_dir(&directory))?;
    fs::write(&path, sums)?;
    Ok(path)
}

/// Runs a program in the root of the repository, unless it has another directory, and returns what it
/// printed.
fn output(command: &mut Command) -> anyhow::Result<String> {
    if command.get_current_dir().is_none() {
        command.current_dir(root());
    }
    let program = command.get_program().display().to_string();
    let output = command.output().with_context(|| format!("run {program}"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} failed: {}", error.trim_end());
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crds_of_a_release_are_separate_documents() {
        for directory in ["deploy/chart/crds", "deploy/components/v1alpha1"] {
            let text = crds(&root().join(directory)).expect("CRDs");
            let documents: Vec<serde_json::Value> =
                serde_saphyr::from_multiple(&text).expect("YAML");
            let kinds: Vec<&str> =
                documents.iter().filter_map(|document| document["kind"].as_str()).collect();
            assert_eq!(kinds, ["CustomResourceDefinition"; 2], "{directory}");
        }
    }
}
