//! The picture of the README: what the jobs of two queues hold over time.

use anyhow::Context;
use kube_batch_sim::{picture, usage::UseOverTime};

use crate::simulated::simulated;

/// As in the README.
const CYCLES: usize = 18;

/// The generated file: path below the root, and content.
pub(super) fn file() -> anyhow::Result<(String, String)> {
    let mut simulation = simulated(&["borrow-and-reclaim.yaml"])?;
    let mut usage = UseOverTime::default();
    usage.begin(&simulation.world);
    for _ in 0..CYCLES {
        simulation.cycle(&mut |_| {});
        usage.record(&simulation);
    }
    let last = &simulation.last().context("no cycle has run")?.snapshot;
    let total = last.dimensions.by_name(&last.total());
    let resource = picture::main_resource(&usage, &total).context("nothing is requested")?;
    let amount = total.get(&resource).copied().unwrap_or(0);
    let content = picture::draw(&usage, &resource, amount);
    Ok(("docs/borrow-and-reclaim.svg".to_owned(), content))
}
