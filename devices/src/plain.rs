//! The devices of a plain claim: a number of devices of one class, each free or not, or one that consumes counters.
//!
//! Most claims are plain, and most devices: a search would take the first free ones that match. This takes them
//! without one.

use kube_batch_api::{column::NodeIdx, facts::device::request::AllocationMode};

use crate::{
    claims::{Claim, MAX_DEVICES},
    inventory::PoolState,
    rows::DeviceIdx,
    search::{Chosen, ChosenDevice, Devices, InUse, Refusal},
    wanted::{Matching, Test},
};

/// The number of devices of a plain claim.
fn number(claim: &Claim, matching: &Matching) -> Option<usize> {
    let wanted = &matching.wanted;
    let is_plain = claim.problem.is_none()
        && claim.spec.constraints.is_empty()
        && !claim.requests[0].is_list
        && !wanted.admin_access
        && wanted.capacity.is_empty();
    match wanted.mode {
        AllocationMode::ExactCount(n) if is_plain && n <= MAX_DEVICES => usize::try_from(n).ok(),
        AllocationMode::ExactCount(_) | AllocationMode::All | AllocationMode::Unknown(_) => None,
    }
}

impl Devices<'_> {
    /// Chooses the devices of a node for a single claim, if the claim is plain and so are the devices that match;
    /// otherwise `None`, and a search has to.
    pub(crate) fn choose_plain(
        &self,
        node: NodeIdx,
        claims: &[(&str, &Claim)],
        in_use: InUse<'_>,
    ) -> Option<Result<Vec<Chosen>, Refusal>> {
        let [(_, claim)] = claims else { return None };
        let [request] = claim.requests.as_slice() else { return None };
        let [row] = request.alternatives.as_slice() else { return None };
        let matching = self.wanted.get(*row);
        let n_wanted = number(claim, matching)?;
        let (mut chosen, mut has_invalid_pools) = (Vec::with_capacity(n_wanted), false);
        let is_free = |row: DeviceIdx| in_use.iter().all(|usage| !usage.is_exclusive(row));
        let has_counters = |row: DeviceIdx| {
            let device = &self.inventory.devices()[row];
            in_use.iter().all(|usage| usage.has_counters(self.inventory, device, |_| 0))
        };
        for view in self.inventory.pools_of(node) {
            has_invalid_pools |= view.state == PoolState::Invalid;
            if view.state != PoolState::Complete {
                continue;
            }
            for device in view.rows() {
                if chosen.len() == n_wanted {
                    break;
                }
                let can_have = match matching.test(device) {
                    Test::Never => false,
                    Test::Free => is_free(device),
                    Test::Counters if n_wanted == 1 => is_free(device) && has_counters(device),
                    Test::Counters | Test::Search => return None,
                };
                if can_have {
                    chosen.push(ChosenDevice { device, request: 0, alternative: 0, share: None });
                }
            }
        }
        Some(match chosen.len() == n_wanted {
            true => Ok(vec![chosen]),
            false if has_invalid_pools => Err(Refusal::InvalidPools),
            false => Err(Refusal::Insufficient),
        })
    }
}
