//! The resources that a turn may use: all, or what one queue may borrow of another's share.

use kube_batch_framework::{failure::Failure, session::Session, withheld::Withheld};
use kube_batch_model::{
    column::{Dim, TaskIdx},
    resource::{Request, ResourceVector},
};

/// The resources a turn may use.
#[derive(Debug)]
pub(crate) enum Budget<'a> {
    /// What is idle, and what is being released.
    All,
    /// What is idle, as long as the idle total stays above what is withheld.
    Lent(&'a mut Lending),
}

impl Budget<'_> {
    /// What is left to lend, to come back to.
    pub(crate) fn idle(&self) -> Option<ResourceVector> {
        match self {
            Budget::All => None,
            Budget::Lent(lending) => Some(lending.idle.clone()),
        }
    }

    /// The job for which a resource is withheld that a task may not use, although it has just been
    /// placed on idle resources.
    pub(crate) fn refusal(&self, session: &Session, task: TaskIdx) -> Option<Failure> {
        let Budget::Lent(lending) = self else { return None };
        let withheld = &lending.withheld;
        let mut dims = lending.withheld_dims(session, task);
        let refused = dims.find(|dim| !withheld.can_be_reclaimed(session, task, *dim));
        refused.map(|dim| Failure::Withheld(withheld.job(session, dim)))
    }

    /// Subtracts the request of a task that was given idle resources.
    pub(crate) fn take(&mut self, request: &Request) {
        if let Budget::Lent(lending) = self {
            lending.take(request);
        }
    }

    /// Comes back to what was left.
    pub(crate) fn restore(&mut self, idle: Option<ResourceVector>) {
        if let (Budget::Lent(lending), Some(idle)) = (self, idle) {
            lending.idle = idle;
        }
    }
}

/// What may still be lent.
#[derive(Debug)]
pub(crate) struct Lending {
    /// What is idle in the whole cluster and not nominated, after the moves of this pass.
    pub(crate) idle: ResourceVector,
    /// What must stay idle.
    pub(crate) withheld: Withheld,
}

impl Lending {
    /// The resources of which the request of a task fits into what is idle, but uses what is withheld, unless less is
    /// withheld by as much now that the task has been placed. A
    /// request for more than is idle in the whole cluster fits on no node and is not refused here.
    fn withheld_dims<'a>(
        &'a self,
        session: &'a Session,
        task: TaskIdx,
    ) -> impl Iterator<Item = Dim> + use<'a> {
        let amounts = session.cluster().request(task).shared();
        let refused = amounts.filter(move |(dim, amount)| {
            let (before, after) = (self.idle[*dim], self.idle[*dim] - amount);
            let withheld = self.withheld.amount(session, *dim, None);
            (0..withheld).contains(&after)
                && after - withheld < before - self.withheld.amount(session, *dim, Some(task))
        });
        refused.map(|(dim, _)| dim)
    }

    fn take(&mut self, request: &Request) {
        for (dim, amount) in request.amounts() {
            self.idle[*dim] -= amount;
        }
    }
}
