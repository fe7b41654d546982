//! The servers of the test bed, for other programs.

use kube_batch_testbed::assets::{Assets, Binary};

/// Downloads or builds missing servers, and prints only their directory to standard output.
pub(crate) fn run() -> anyhow::Result<()> {
    let assets = Assets::provide(&Binary::ALL)?;
    println!("{}", assets.directory().display());
    Ok(())
}
