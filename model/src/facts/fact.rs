//! What all facts have in common.

use serde::Serialize;

use super::size::Bounds;

/// The facts of an object.
pub trait Fact: PartialEq + Serialize {
    /// The most that is kept of an object. Kinds without a namespace are written by administrators, nodes and
    /// drivers.
    const BOUNDS: Bounds = Bounds::ADMINISTRATORS;

    /// Whether both lead to the same decisions, ignoring fields that the scheduler writes.
    fn decides_like(&self, other: &Self) -> bool {
        self == other
    }

    /// Whether the object takes and changes nothing that another job could use: a pod that waits, a claim that was
    /// made for it, or a PodGroup. Such an object does not change the generation of the store, so the framework compares
    /// what a try of the job reads of it: `framework/src/job_input.rs`.
    fn concerns_only_its_job(&self) -> bool {
        false
    }

    /// Whether other jobs may be able to use what it had, once it is gone, or `next` has taken its place.
    fn leaves_something(&self, _next: Option<&Self>) -> bool {
        !self.concerns_only_its_job()
    }

    /// Takes over the fields that do not change any more once an earlier version of the object has them.
    fn keep(&mut self, _earlier: &Self) {}
}
