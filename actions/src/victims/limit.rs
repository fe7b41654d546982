//! Which victims a search may choose: the search begins with the narrowest limit that could suffice.

use std::collections::BTreeSet;

use kube_batch_framework::session::Session;
use kube_batch_model::column::{JobIdx, TaskIdx};

use super::{loss::Bound, policy::VictimPolicy};

/// Which victims a search may choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Limit {
    /// Whether disruption budgets may be violated.
    pub(super) may_violate: bool,
    /// The highest priority of a victim's job.
    pub(super) priority: i32,
    /// Which gangs may be evicted.
    pub(super) bound: Bound,
}

impl Limit {
    /// Admits every victim.
    pub(super) const WIDEST: Self =
        Self { may_violate: true, priority: i32::MAX, bound: Bound::Widest };

    /// The limits to try for a task of the job, one after another, until its job finds its places: no
    /// budget is violated if that is possible, and the highest priority of a victim is the lowest
    /// possible.
    // Parity: new, see docs/parity.md#p10.
    pub(super) fn of(
        policy: VictimPolicy<'_>,
        session: &Session,
        preemptor: TaskIdx,
        bounds: &[Bound],
    ) -> Vec<Self> {
        let cluster = session.cluster();
        let with_victims = |job: &JobIdx| {
            let mut tasks = cluster.jobs.tasks[*job].iter();
            tasks.any(|task| {
                cluster.tasks.placement[task].node.is_some()
                    && policy.considers(cluster, preemptor, task)
            })
        };
        let jobs = cluster.jobs.key.ids().filter(with_victims);
        let priorities: BTreeSet<i32> = jobs.map(|job| cluster.jobs.priority[job]).collect();
        let modes: &[bool] = if cluster.budgets.is_empty() { &[true] } else { &[false, true] };
        let mut limits = Vec::new();
        for may_violate in modes.iter().copied() {
            for priority in priorities.iter().copied() {
                limits.extend(bounds.iter().map(|bound| Self {
                    may_violate,
                    priority,
                    bound: *bound,
                }));
            }
        }
        limits
    }

    pub(super) const fn admits_priority(self, priority: i32) -> bool {
        priority <= self.priority
    }

    /// Whether these evictions together are within the budgets, or may violate them.
    pub(super) fn admits_violations(self, session: &Session, victims: &[TaskIdx]) -> bool {
        self.may_violate || !session.plugins().violates_budget(victims).contains(&true)
    }
}
