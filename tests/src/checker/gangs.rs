//! All or nothing.

use kube_batch_model::{decision::EvictReason, facts::composite::CompositeFacts, name::Name};

use super::view::{Job, Pod, View};

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
        let may_leave = job.leaves_whole()
            && (view.evicts_whole_gangs() || job.composites.iter().any(|one| one.leaves_whole));
        if loses(job) && had_minimum(job) && n_ready < job.min && !may_leave {
            let min = job.min;
            problems
                .push(format!("job {key} is left with {n_ready} pods, and its minimum is {min}"));
        }
    }
    problems
}

/// If pods of a job are bound, or nominated for a node by an eviction, every composite PodGroup above it is
/// complete then: as many of its groups as its minimum requires have their minimum of pods.
pub(super) fn composites_start_whole(view: &View<'_>) -> Vec<String> {
    let mut problems = Vec::new();
    for (key, job) in &view.jobs {
        if job.pods.iter().any(|pod| pod.bound_to().is_some()) {
            for composite in &job.composites {
                let n_complete = n_complete(view, composite, When::After);
                let min = composite.min_groups as usize;
                if n_complete < min {
                    problems.push(format!(
                        "job {key} starts with {n_complete} groups of {}, and its minimum is {min}",
                        composite.key
                    ));
                }
            }
        }
    }
    problems
}

/// A composite PodGroup that was complete and loses pods to others is complete without them, or all its groups
/// have lost their minimum.
pub(super) fn composites_keep_their_minimum_or_leave_whole(view: &View<'_>) -> Vec<String> {
    let mut problems = Vec::new();
    for composite in view.store.composites.values() {
        let min = composite.min_groups as usize;
        let before = n_complete(view, composite, When::Before);
        let after = n_complete(view, composite, When::After);
        let jobs = jobs_below(view, composite);
        let loses_some = jobs.iter().any(|job| loses(job));
        let is_left = jobs.iter().any(|job| job.n_ready() >= job.min.max(1));
        if loses_some && before >= min && after < min && is_left {
            problems.push(format!(
                "{after} groups of {} are left, and its minimum is {min}",
                composite.key
            ));
        }
    }
    problems
}

/// Before the decisions of the cycle, or after.
#[derive(Clone, Copy)]
enum When {
    Before,
    After,
}

impl When {
    fn is_ready(self, pod: &Pod<'_>) -> bool {
        match self {
            Self::Before => pod.was_ready(),
            Self::After => pod.is_ready(),
        }
    }
}

/// The jobs below a composite PodGroup.
fn jobs_below<'v>(view: &'v View<'_>, composite: &CompositeFacts) -> Vec<&'v Job<'v>> {
    let is_below = |job: &&Job<'_>| job.composites.iter().any(|one| one.key == composite.key);
    view.jobs.values().filter(is_below).collect()
}

/// How many groups of a composite PodGroup are complete by the pods that are ready at a time.
fn n_complete(view: &View<'_>, composite: &CompositeFacts, when: When) -> usize {
    let is_child = |parent: Option<&Name>| parent == Some(&composite.key.name);
    let jobs = view.jobs.values().filter(|job| {
        let parent = job.composites.first().map(|parent| &parent.key.name);
        let n_ready = job.pods.iter().filter(|pod| when.is_ready(pod)).count();
        is_child(parent) && n_ready >= job.min
    });
    let inner = view.store.composites.values().filter(|inner| {
        is_child(inner.parent.as_ref())
            && n_complete(view, inner, when) >= inner.min_groups as usize
    });
    jobs.count() + inner.count()
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
