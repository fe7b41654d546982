//! Domains that jobs require.

use std::collections::BTreeSet;

use kube_batch_model::{facts::topology::TopologyLevel, name::Name};

use super::view::{Job, Pod, View};

/// The pods of a job that requires a domain of a node label, and of which some get a place, are in one domain.
pub(super) fn jobs_are_in_one_domain(view: &View<'_>) -> Vec<String> {
    let mut problems = Vec::new();
    for (key, job) in &view.jobs {
        let Some(TopologyLevel::Label(level)) = &job.required else { continue };
        let domains = domains(view, job, level);
        let gets_place = |pod: &&Pod<'_>| pod.bound_to().or(pod.newly_nominated_for()).is_some();
        if job.pods.iter().any(gets_place) && domains.len() != 1 {
            problems.push(format!("job {key} is in the domains {domains:?} of {level}"));
        } else if job.pods.iter().any(gets_place) && domains.contains(&None) {
            problems.push(format!("job {key} is on nodes without the label {level}"));
        }
    }
    problems
}

/// The domains of the pods of a job, without those that leave.
fn domains<'p>(view: &View<'p>, job: &Job<'p>, level: &Name) -> BTreeSet<Option<&'p Name>> {
    let staying = job.pods.iter().filter(|pod| !pod.leaves());
    let nodes =
        staying.filter_map(|pod| pod.bound_to().or(pod.present_on()).or(pod.newly_nominated_for()));
    nodes.filter_map(|node| view.nodes.get(node)).map(|node| node.facts.labels.get(level)).collect()
}
