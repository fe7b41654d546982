//! The files of the repository.

use std::{path::PathBuf, process::Command};

use xtask_launcher::build::root;

/// Files under version control.
pub(super) fn tracked() -> anyhow::Result<Vec<PathBuf>> {
    let output = Command::new("git").args(["ls-files"]).current_dir(root()).output()?;
    let listing = String::from_utf8(output.stdout)?;
    Ok(listing.lines().map(PathBuf::from).filter(|path| root().join(path).exists()).collect())
}
