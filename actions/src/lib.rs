#![doc = include_str!("../README.md")]

pub mod allocate;
pub mod backfill;
mod gang;
pub mod preempt;
pub mod reclaim;
mod victims;

use kube_batch_framework::cycle::Action;

/// The names of all actions, in the order in which they are usually run.
pub const NAMES: [&str; 4] = ["reclaim", "allocate", "backfill", "preempt"];

/// The action of a name, if there is one.
pub fn action(name: &str) -> Option<Box<dyn Action>> {
    Some(match name {
        "reclaim" => Box::new(reclaim::Reclaim),
        "allocate" => Box::new(allocate::Allocate),
        "backfill" => Box::new(backfill::Backfill),
        "preempt" => Box::new(preempt::Preempt),
        _ => return None,
    })
}
