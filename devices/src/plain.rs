//! The devices of a plain claim: a number of devices of one class, each free or not, or one that consumes counters.
//!
//! Most claims are plain, and most devices: a search would take the first free ones that match. This takes them
//! without one.

use kube_batch_model::{column::NodeIdx, facts::device::request::AllocationMode};

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
    /// Whether a request can have a device, and no other; `None` if only a search can tell.
    pub(crate) fn can_have(
        &self,
        matching: &Matching,
        device: DeviceIdx,
        in_use: InUse<'_>,
    ) -> Option<bool> {
        let is_free = || in_use.iter().all(|usage| !usage.is_exclusive(device));
        let has_counters = || {
            let device = &self.inventory.devices()[device];
            in_use.iter().all(|usage| usage.has_counters(self.inventory, device, |_| 0))
        };
        match matching.test(device) {
            Test::Never => Some(false),
            Test::Free => Some(is_free()),
            Test::Counters => Some(is_free() && has_counters()),
            Test::Search => None,
        }
    }

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
        for view in self.inventory.pools_of(node) {
            has_invalid_pools |= view.state == PoolState::Invalid;
            if view.state != PoolState::Complete {
                continue;
            }
            for device in view.rows() {
                if chosen.len() == n_wanted {
                    break;
                }
                // Several devices may need more of a counter than there is.
                if n_wanted > 1 && matching.test(device) == Test::Counters {
                    return None;
                }
                if self.can_have(matching, device, in_use)? {
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
