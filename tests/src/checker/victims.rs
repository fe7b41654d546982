//! Who may be evicted, and for whom.

use kube_batch_model::decision::EvictReason;

use super::view::{Eviction, Job, Pod, View};

/// A victim of preempt has a lower priority and is of the same queue; a victim of reclaim is of another
/// queue. The job that they leave for gets a place.
pub(super) fn victims_are_permitted(view: &View<'_>) -> Vec<String> {
    let mut problems = Vec::new();
    for job in view.jobs.values() {
        for pod in job.evicted() {
            if let Some(problem) = pod.eviction().and_then(|of| problem_of(view, job, pod, of)) {
                problems.push(format!("pod {} is evicted, but {problem}", pod.key()));
            }
        }
    }
    problems
}

fn problem_of(
    view: &View<'_>,
    own: &Job<'_>,
    pod: &Pod<'_>,
    eviction: Eviction<'_>,
) -> Option<String> {
    let Eviction { reason, by, queue, .. } = eviction;
    let Some(taker) = view.jobs.get(by) else { return Some(format!("job {by} does not exist")) };
    let is_own = std::ptr::eq(own, taker);
    if taker.queue != *queue {
        return Some(format!("job {by} is of queue {}, not {queue}", taker.queue));
    }
    if reason == EvictReason::StaleGang {
        return (!is_own).then(|| format!("as a stale gang, by job {by}"));
    }
    let gets_a_place = |pod: &&&Pod<'_>| pod.bound_to().or(pod.nominated_for()).is_some();
    let Some(highest) = taker.pods.iter().filter(gets_a_place).map(|pod| pod.facts.priority).max()
    else {
        return Some(format!("no pod of job {by} gets a place"));
    };
    let same_queue = own.queue == taker.queue;
    match reason {
        EvictReason::Reclaim if same_queue => Some(format!("job {by} is of its own queue")),
        EvictReason::Preempt if !same_queue => Some(format!("job {by} is of another queue")),
        EvictReason::Preempt if is_own => {
            let is_lower = pod.facts.priority < highest;
            (!is_lower)
                .then(|| "no pod of its job that gets a place has a higher priority".to_owned())
        }
        EvictReason::Preempt if view.compares_priorities() => {
            let most = if taker.priority_of_pods { highest } else { i32::MAX };
            let (lower, higher) = (own.priority, taker.priority.min(most));
            (lower >= higher).then(|| format!("its priority is {lower}, and that of {by} {higher}"))
        }
        EvictReason::Preempt | EvictReason::Reclaim | EvictReason::StaleGang => None,
    }
}
