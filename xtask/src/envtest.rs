//! The servers of the test bed, for other programs, and Helm.

use kube_batch_testbed::assets::{Assets, Binary};

/// Builds missing servers, and Helm, and prints only the directory of the servers to standard output.
pub(crate) fn run() -> anyhow::Result<()> {
    let assets = Assets::provide(&Binary::ALL)?;
    Assets::helm()?;
    println!("{}", assets.directory().display());
    Ok(())
}
