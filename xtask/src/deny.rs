//! What dependencies may be, by `deny.toml`.

use std::process::Command;

use anyhow::{Context, ensure};
use xtask_launcher::build::root;

use crate::tools;

/// Which checks to run.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Args {
    /// Do not check advisories, whose database is downloaded.
    #[arg(long)]
    without_advisories: bool,
}

/// Checks the licences and the sources of dependencies, what is banned, and advisories.
pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let mut command = Command::new(tools::DENY.provide()?);
    command.args(["--locked", "check", "--hide-inclusion-graph", "bans", "licenses", "sources"]);
    if !args.without_advisories {
        command.arg("advisories");
    }
    let status = command.current_dir(root()).status().context("run cargo-deny")?;
    ensure!(status.success(), "cargo-deny found what deny.toml does not allow");
    Ok(())
}
