//! Composite PodGroups of which too few groups exist with enough pods.
// Parity: see docs/parity.md#k8.

use kube_batch_api::{
    cluster::Cluster, column::JobIdx, composites::Composites, facts::composite::CompositeFacts,
    name::Name, reason::JobProblem,
};

/// Marks the jobs that cannot start because too few groups of a composite PodGroup above them could. Returns
/// these jobs.
pub(crate) fn mark_incomplete_composites(
    cluster: &mut Cluster,
    composites: &Composites,
) -> Vec<JobIdx> {
    let mut problems: Vec<(JobIdx, JobProblem)> = Vec::new();
    let is_valid = |job: JobIdx| cluster.jobs.problem[job].is_none();
    for row in composites.ids() {
        let facts = &composites.get(row).facts;
        let n_valid = composites.n_complete(row, &is_valid);
        if n_valid < facts.min_groups {
            let problem = not_enough_groups(facts, n_valid);
            let jobs = composites.jobs(row).into_iter().filter(|job| is_valid(*job));
            problems.extend(jobs.map(|job| (job, problem.clone())));
        }
    }
    // The innermost is the first.
    for (job, problem) in &problems {
        cluster.jobs.problem[*job].get_or_insert_with(|| problem.clone());
    }
    let mut marked: Vec<JobIdx> = problems.into_iter().map(|(job, _)| job).collect();
    marked.sort_unstable();
    marked.dedup();
    marked
}

fn not_enough_groups(facts: &CompositeFacts, n_valid: u32) -> JobProblem {
    let message = format!(
        "only {n_valid} of the required {} groups of CompositePodGroup {} exist with enough pods",
        facts.min_groups, facts.key
    );
    JobProblem::Other { reason: "NotEnoughGroups", message: Name::from(message) }
}
