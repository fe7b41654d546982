//! The jobs that the last cycle could not schedule, however many of their pods arrive for now: they lack more pods than
//! one, or their PodGroup.
//!
//! Without this, a gang of a hundred pods that are created one after the other would lead to a hundred cycles, of which
//! only the last can decide anything about it.

use std::collections::HashMap;

use kube_batch_framework::report::JobReport;
use kube_batch_model::{name::JobKey, problem::JobProblem, why::Why};

/// How many pods each of these jobs lacks at least.
#[derive(Debug, Default)]
pub(crate) struct Forming(HashMap<JobKey, u32>);

impl Forming {
    /// The jobs of a cycle that lack pods or their PodGroup.
    pub(crate) fn of<'r>(jobs: impl Iterator<Item = &'r JobReport>) -> Self {
        let with_problems = jobs.filter_map(|report| match report.unschedulable.as_deref()? {
            Why::Invalid(invalid) => Some((&report.key, &invalid.problem)),
            Why::NotAdmitted(_) | Why::NotTried(_) | Why::NoPlace(_) => None,
        });
        Self::of_problems(with_problems)
    }

    fn of_problems<'r>(problems: impl Iterator<Item = (&'r JobKey, &'r JobProblem)>) -> Self {
        Self(problems.filter_map(|(key, problem)| Some((key.clone(), lacking(problem)?))).collect())
    }

    /// Whether a job cannot be scheduled yet although another pod of it has arrived.
    pub(crate) fn still_forms(&mut self, job: &JobKey) -> bool {
        let Some(n_lacking) = self.0.get_mut(job) else { return false };
        *n_lacking = n_lacking.saturating_sub(1);
        *n_lacking > 0
    }
}

/// How many pods a job lacks at least, with this problem; `None` if that is not known.
fn lacking(problem: &JobProblem) -> Option<u32> {
    match problem {
        JobProblem::NotEnoughTasks { valid, min }
        | JobProblem::NotEnoughTasksOfRole { valid, min, .. } => Some(min.saturating_sub(*valid)),
        // When the PodGroup arrives, or can be read, or its queue changes, a cycle runs.
        JobProblem::NoPodGroup(_)
        | JobProblem::Unreadable(_)
        | JobProblem::QueueNotFound(_)
        | JobProblem::QueueParent { .. }
        | JobProblem::QueueNotLeaf { .. }
        | JobProblem::QueueClosed(_)
        | JobProblem::QueueNotAllowed { .. }
        | JobProblem::QueueDiffers { .. }
        | JobProblem::NoComposite(_)
        | JobProblem::TooManyComposites { .. }
        | JobProblem::TopologyNotSupported
        | JobProblem::TierNotDeclared { .. } => Some(u32::MAX),
        JobProblem::NotInGroup { .. }
        | JobProblem::NotEnoughGroups { .. }
        | JobProblem::Inconsistent(_)
        | JobProblem::Scattered(_)
        | JobProblem::ScatteredComposite(_)
        | JobProblem::Other { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use kube_batch_model::name::ObjectKey;

    use super::*;

    fn key(name: &str) -> JobKey {
        JobKey::annotated(ObjectKey::new("ns", name))
    }

    fn forming(problem: &JobProblem) -> Forming {
        Forming::of_problems(std::iter::once((&key("gang"), problem)))
    }

    #[test]
    fn a_gang_forms_until_its_last_pod_arrives() {
        let problem = JobProblem::NotEnoughTasks { valid: 97, min: 100 };
        let mut forming = forming(&problem);
        let answers: Vec<bool> = (0..4).map(|_| forming.still_forms(&key("gang"))).collect();
        assert_eq!(answers, [true, true, false, false]);
        assert!(!forming.still_forms(&key("unknown")));
    }

    #[test]
    fn pods_do_not_replace_a_missing_pod_group() {
        let problem = JobProblem::NoPodGroup(ObjectKey::new("ns", "gang"));
        let mut forming = forming(&problem);
        assert!((0..1000).all(|_| forming.still_forms(&key("gang"))));
    }
}
