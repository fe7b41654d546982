//! The resources that a turn may use: all, or what one queue may borrow of another's share.

use kube_batch_api::{
    column::Dim,
    resource::{Request, ResourceVector},
};

/// The resources a turn may use.
#[derive(Debug)]
pub(crate) enum Budget<'a> {
    /// What is idle, and what is being released.
    All,
    /// What is idle, as long as the idle total stays above what is reserved.
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

    /// The first resource of which the request would use a reserved amount.
    pub(crate) fn reserved_dim(&self, request: &Request) -> Option<Dim> {
        match self {
            Budget::All => None,
            Budget::Lent(lending) => lending.reserved_dim(request),
        }
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
    /// What must stay idle, by dimension.
    pub(crate) reserved: ResourceVector,
}

impl Lending {
    /// The first resource of which the request would use a reserved amount. A request for more than is
    /// idle in the whole cluster fits on no node, which is another failure.
    fn reserved_dim(&self, request: &Request) -> Option<Dim> {
        let mut amounts = request.shared();
        amounts.find_map(|(dim, amount)| {
            let left = self.idle[dim] - amount;
            (0..self.reserved[dim]).contains(&left).then_some(dim)
        })
    }

    fn take(&mut self, request: &Request) {
        for (dim, amount) in request.amounts() {
            self.idle[*dim] -= amount;
        }
    }
}
