//! Composite PodGroups that cannot start: too few groups exist with enough pods, or pods run in several of the
//! domains of which all must be in one.
// Parity: see docs/parity.md#k8.

use kube_batch_model::{
    cluster::Cluster,
    column::JobIdx,
    gang::{
        Members,
        tree::{Completeness, GangTree},
    },
    name::ObjectKey,
    problem::JobProblem,
};

use crate::{policy::Policy, topology::Home};

/// Marks the jobs that cannot start because too few groups of a composite PodGroup above them could. Returns
/// these jobs.
pub(crate) fn mark_incomplete(cluster: &mut Cluster, gangs: &GangTree) -> Vec<JobIdx> {
    let mut problems: Vec<(JobIdx, JobProblem)> = Vec::new();
    let is_valid = |job: JobIdx| cluster.jobs.problem[job].is_none();
    for row in gangs.ids() {
        let members = is_valid.members(gangs, row);
        if !members.are_enough() {
            let problem = not_enough_groups(&gangs.get(row).facts.key, members);
            let jobs = gangs.jobs(row).into_iter().filter(|job| is_valid(*job));
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

/// Marks the jobs whose composite PodGroup requires one topology domain while its tasks are in several. Returns
/// these jobs.
pub(crate) fn mark_scattered(
    cluster: &mut Cluster,
    gangs: &GangTree,
    policy: &Policy,
) -> Vec<JobIdx> {
    let mut marked = Vec::new();
    for row in gangs.ids() {
        let level = policy.about(cluster).level_of_composite(row);
        if level.is_none_or(|level| level.home() != Home::Scattered) {
            continue;
        }
        let problem = JobProblem::ScatteredComposite(gangs.get(row).facts.key.clone());
        for job in gangs.jobs(row) {
            if cluster.jobs.problem[job].is_none() {
                cluster.jobs.problem[job] = Some(problem.clone());
                marked.push(job);
            }
        }
    }
    marked
}

fn not_enough_groups(composite: &ObjectKey, Members { n, min }: Members) -> JobProblem {
    JobProblem::NotEnoughGroups { composite: composite.clone(), min, n_valid: n }
}
