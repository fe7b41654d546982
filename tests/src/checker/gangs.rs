//! All or nothing.

use kube_batch_api::decision::EvictReason;

use super::view::{Job, View};

/// A job of which pods are bound runs its minimum then.
pub(super) fn gangs_start_whole(view: &View<'_>) -> Vec<String> {
    let mut problems = Vec::new();
    for (key, job) in &view.jobs {
        let starts = job.pods.iter().any(|pod| pod.bound_to().is_some());
        let n_ready = job.n_ready();
        if starts && n_ready < job.min {
            let min = job.min;
            problems
                .push(format!("job {key} starts with {n_ready} pods, and its minimum is {min}"));
        }
    }
    problems
}

/// A job that loses pods to others keeps its minimum, or all of it leaves.
pub(super) fn gangs_keep_their_minimum_or_leave_whole(view: &View<'_>) -> Vec<String> {
    let mut problems = Vec::new();
    for (key, job) in &view.jobs {
        let n_ready = job.n_ready();
        let may_leave = job.leaves_whole() && view.evicts_whole_gangs();
        if loses(job) && had_minimum(job) && n_ready < job.min && !may_leave {
            let min = job.min;
            problems
                .push(format!("job {key} is left with {n_ready} pods, and its minimum is {min}"));
        }
    }
    problems
}

fn loses(job: &Job<'_>) -> bool {
    job.evicted()
        .any(|pod| pod.eviction().is_some_and(|eviction| eviction.reason != EvictReason::StaleGang))
}

/// A minimum that was not met protects nothing, nor does one of 0 or 1 (docs/parity.md#p3).
fn had_minimum(job: &Job<'_>) -> bool {
    let n_ready = job.pods.iter().filter(|pod| pod.was_ready()).count();
    job.min > 1 && n_ready >= job.min
}
