//! Programs of others that tasks run: built by Cargo from a pinned version, and kept in the user's
//! cache, which all checkouts share.

use std::{env, path::PathBuf};

use anyhow::{Context, ensure};
use xtask_launcher::build;

/// A program that `cargo install` builds.
pub(crate) struct Tool {
    /// The package, and the name of its program.
    package: &'static str,
    version: &'static str,
}

/// Checks licences, sources, bans and advisories of dependencies.
pub(crate) const DENY: Tool = Tool { package: "cargo-deny", version: "0.20.2" };

/// Writes an SBOM.
pub(crate) const CYCLONEDX: Tool = Tool { package: "cargo-cyclonedx", version: "0.5.9" };

impl Tool {
    /// The path of the program, which is built if it is missing.
    pub(crate) fn provide(&self) -> anyhow::Result<PathBuf> {
        let directory = cache()?.join(format!("{}-{}", self.package, self.version));
        let program = directory.join("bin").join(self.package);
        if program.is_file() {
            return Ok(program);
        }
        eprintln!("building {} {}, once; this takes a minute or two", self.package, self.version);
        // Not optimised: that takes less than half the time to build, and each runs for seconds.
        let status = build::cargo()
            .args([
                "install",
                "--quiet",
                "--debug",
                "--locked",
                "--version",
                self.version,
                "--root",
            ])
            .arg(&directory)
            .arg(self.package)
            // Cargo builds in a temporary directory then.
            .env_remove("CARGO_TARGET_DIR")
            .status()
            .context("run cargo")?;
        ensure!(status.success(), "cargo could not install {} {}", self.package, self.version);
        Ok(program)
    }
}

fn cache() -> anyhow::Result<PathBuf> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME")
        .or_else(|| env::home_dir().map(|home| home.join(".cache")))
        .context("find the user's cache directory: set HOME or XDG_CACHE_HOME")?;
    Ok(cache.join("kube-batch").join("tools"))
}
