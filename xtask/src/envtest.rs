//! The servers of the test bed, for whoever wants to run them.

use kube_batch_testbed::assets::{Assets, Binary};

/// Builds the servers unless they are there, and prints their folder alone to standard output.
pub(crate) fn run() -> anyhow::Result<()> {
    let assets = Assets::provide(&Binary::ALL)?;
    println!("{}", assets.folder().display());
    Ok(())
}
