//! Runs the first cycle of a shape, such as FILL-100-1000-10. `cargo xtask instructions` counts its instructions.

use anyhow::Context;
use kube_batch_tests::shapes::shape;

fn main() -> anyhow::Result<()> {
    let name = std::env::args().nth(1).context("usage: first_cycle SHAPE")?;
    let shape = shape(&name).with_context(|| format!("there is no shape {name}"))?;
    // The decisions are used, so that nothing of the cycle can be left out.
    println!("{}", shape.first_cycle().decisions.len());
    Ok(())
}
