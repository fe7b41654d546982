//! Tasks that a role of their job needs are placed first.
// Parity: new, see docs/parity.md#k6.

use kube_batch_model::{
    cluster::Cluster,
    column::{JobIdx, TaskIdx},
    gang::Sense,
};

/// Moves tasks that the minimum of their role needs to the front; the order is otherwise the same. Tasks that
/// only count toward the minimum of the job must not take their places.
pub(crate) fn short_first(cluster: &Cluster, job: JobIdx, tasks: Vec<TaskIdx>) -> Vec<TaskIdx> {
    let mut missing: Vec<u32> = cluster.missing_of_roles(job, Sense::Pipelined).collect();
    if missing.is_empty() {
        return tasks;
    }
    let mut is_needed = |task: &TaskIdx| {
        let role = cluster.tasks.role[*task].map(|role| &mut missing[usize::from(role)]);
        role.is_some_and(|missing| {
            let is_needed = *missing > 0;
            *missing = missing.saturating_sub(1);
            is_needed
        })
    };
    let (mut needed, others): (Vec<TaskIdx>, Vec<TaskIdx>) =
        tasks.into_iter().partition(|task| is_needed(task));
    needed.extend(others);
    needed
}
