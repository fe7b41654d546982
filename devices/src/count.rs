//! How many tasks a node has devices for: an estimate for choosing topology domains.

use std::collections::BTreeMap;

use kube_batch_model::{column::NodeIdx, facts::device::request::AllocationMode};

use crate::{
    claims::Claim,
    inventory::{PoolState, PoolView},
    rows::WantedIdx,
    search::{Devices, InUse},
};

impl Devices<'_> {
    /// How many times a node has the devices of these claims. An upper bound: the free devices of each request
    /// are counted by themselves, and constraints are left out. [`u64::MAX`] if requests do not say how many
    /// devices they take, or if devices can be shared.
    pub fn max_times(&self, node: NodeIdx, claims: &[(&str, &Claim)], in_use: InUse<'_>) -> u64 {
        let mut n_wanted = BTreeMap::<WantedIdx, u64>::new();
        let requests = claims.iter().flat_map(|(_, claim)| &claim.requests);
        for request in requests.filter(|request| !request.is_list) {
            for row in &request.alternatives {
                let wanted = &self.wanted.get(*row).wanted;
                if let AllocationMode::ExactCount(n) = wanted.mode
                    && !wanted.admin_access
                {
                    *n_wanted.entry(*row).or_default() += n;
                }
            }
        }
        let times = n_wanted.into_iter().map(|(row, n)| {
            let n_free = self.count_free(node, row, in_use);
            n_free.and_then(|n_free| n_free.checked_div(n)).unwrap_or(u64::MAX)
        });
        times.min().unwrap_or(u64::MAX)
    }

    /// How many devices of a node a request could have, each by itself; `None` if some can be shared.
    fn count_free(&self, node: NodeIdx, row: WantedIdx, in_use: InUse<'_>) -> Option<u64> {
        let matching = self.wanted.get(row);
        let views = self.inventory.pools_of(node);
        let complete = views.filter(|view| view.state == PoolState::Complete);
        let mut n_free = 0;
        for device in complete.flat_map(PoolView::rows) {
            n_free += u64::from(self.can_have(matching, device, in_use)?);
        }
        Some(n_free)
    }
}
