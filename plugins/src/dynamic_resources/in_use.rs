//! Which claims hold which devices, now and once terminating pods are gone, as tasks move.

use std::{collections::BTreeMap, sync::Arc};

use kube_batch_devices::{
    inventory::Inventory,
    result::score,
    search::Chosen,
    usage::{Held, Usage},
};
use kube_batch_model::{
    column::{Column, NodeIdx},
    devices::ExtendedClaim,
    facts::{
        device::claim::{Allocation, ResourceClaimFacts},
        pod::TaskFacts,
    },
    name::{Name, ObjectKey},
    status::{Placement, TaskStatus},
};

use crate::{constraint_classes::ConstraintClassIdx, device_tables::HeldBy};

kube_batch_model::row_type! {
    /// Row of a claim for devices.
    pub(crate) ClaimIdx,
}

/// All claims, and the devices that they hold.
#[derive(Debug)]
pub(super) struct ClaimsInUse {
    claims: Column<ClaimIdx, ClaimState>,
    rows: BTreeMap<ObjectKey, ClaimIdx>,
    /// While terminating pods are still there.
    now: Usage,
    /// Once they are gone, and pods that wait for them have started.
    future: Usage,
}

/// A claim.
#[derive(Debug)]
struct ClaimState {
    key: ObjectKey,
    /// `None` if it does not exist.
    facts: Option<Arc<ResourceClaimFacts>>,
    /// What it is given in this cycle.
    chosen: Option<NewAllocation>,
    /// The devices of its allocation, whichever it is.
    devices: Arc<Held>,
    users: Users,
    /// How many of them were placed in this cycle. What the claim is given is for these: others that use it, such
    /// as a pod on a node whose claim was never allocated, keep no devices.
    n_placed: u32,
    /// How many tasks without a place it is reserved for.
    n_waiting: u32,
    holds: Holds,
}

/// An allocation that is made in this cycle.
#[derive(Clone, Debug)]
pub(super) struct NewAllocation {
    pub(super) devices: Chosen,
    pub(super) node: NodeIdx,
    /// The class of the task with which the claim was allocated.
    pub(super) class: ConstraintClassIdx,
    /// The position of the claim among those of that class.
    pub(super) at: usize,
}

/// How many tasks with a place use a claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Users {
    now: u32,
    future: u32,
}

/// When a claim holds its devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Holds {
    now: bool,
    future: bool,
}

impl ClaimState {
    fn new(key: ObjectKey, facts: Option<Arc<ResourceClaimFacts>>) -> Self {
        let (devices, users, holds) = (Arc::default(), Users::default(), Holds::default());
        let chosen = None;
        Self { key, facts, chosen, devices, users, n_placed: 0, n_waiting: 0, holds }
    }

    /// What the API shows that it was given.
    fn allocated(&self) -> Option<&Allocation> {
        self.facts.as_ref()?.allocation.as_ref()
    }

    fn is_allocated(&self) -> bool {
        self.allocated().is_some() || self.chosen.is_some()
    }

    /// When it holds its devices, given who uses it.
    fn should_hold(&self) -> Holds {
        let Users { now, future } = self.users;
        let Some(facts) = self.facts.as_ref().filter(|facts| facts.allocation.is_some()) else {
            return Holds { now: now > 0, future: future > 0 };
        };
        // The claim controller deallocates it when its last user is gone. Users that are not pods stay, and so do
        // pods that wait; a pod that is not there any more is gone.
        let had_users = !facts.reserved_for.is_empty() || now > 0;
        let is_used_by_others =
            self.n_waiting > 0 || facts.reserved_for.iter().any(|consumer| !consumer.is_pod());
        let is_freed = facts.is_protected && had_users && future == 0 && !is_used_by_others;
        Holds { now: true, future: !is_freed }
    }
}

/// What a placement adds to the users of a claim.
fn users_of(at: Placement) -> Users {
    let has_node = at.node.is_some() && at.status.is_on_node();
    let (waits, leaves) = (at.status == TaskStatus::Pipelined, at.status == TaskStatus::Releasing);
    Users { now: u32::from(has_node && !waits), future: u32::from(has_node && !leaves) }
}

/// Whether a task without a node that gets this status is placed in this cycle.
const fn is_choice(status: TaskStatus) -> bool {
    matches!(status, TaskStatus::Allocated | TaskStatus::Pipelined)
}

impl ClaimsInUse {
    /// The claims of the cluster.
    pub(super) fn new(inventory: &Inventory, claims: Vec<HeldBy>) -> Self {
        let none = Usage::none(inventory);
        let mut new =
            Self { claims: Column::new(), rows: BTreeMap::new(), now: none.clone(), future: none };
        for (facts, devices) in claims {
            let key = facts.key.clone();
            let state = ClaimState { devices, ..ClaimState::new(key.clone(), Some(facts)) };
            let row = new.claims.push(state);
            new.rows.insert(key, row);
            new.update(inventory, row);
        }
        new
    }

    /// The row of a claim, which may not exist.
    pub(super) fn row(&mut self, key: &ObjectKey) -> ClaimIdx {
        if let Some(row) = self.rows.get(key) {
            return *row;
        }
        let row = self.claims.push(ClaimState::new(key.clone(), None));
        self.rows.insert(key.clone(), row);
        row
    }

    /// The namespace and the name of a claim.
    pub(super) fn key(&self, row: ClaimIdx) -> &ObjectKey {
        &self.claims[row].key
    }

    /// Whether a claim exists.
    pub(super) fn exists(&self, row: ClaimIdx) -> bool {
        self.claims[row].facts.is_some()
    }

    /// How good the devices are that a claim was allocated before this cycle.
    pub(super) fn allocated_score(&self, row: ClaimIdx) -> Option<i64> {
        let state = &self.claims[row];
        Some(score(&state.facts.as_ref()?.spec, state.allocated()?))
    }

    /// The facts of an allocated claim that no placed task uses, and that is reserved for no other pod than this.
    pub(super) fn unused_but_by(&self, row: ClaimIdx, uid: &Name) -> Option<&ResourceClaimFacts> {
        let state = &self.claims[row];
        let facts = state.facts.as_deref().filter(|facts| facts.allocation.is_some())?;
        let is_unused = state.users == Users::default()
            && facts.reserved_for.iter().all(|consumer| consumer.uid == *uid);
        is_unused.then_some(facts)
    }

    /// What a claim is given in this cycle.
    pub(super) fn chosen(&self, row: ClaimIdx) -> Option<&NewAllocation> {
        self.claims[row].chosen.as_ref()
    }

    /// What is in use while terminating pods are there.
    pub(super) const fn now(&self) -> &Usage {
        &self.now
    }

    /// What is in use once they are gone.
    pub(super) const fn future(&self) -> &Usage {
        &self.future
    }

    /// Whether a claim holds its devices already.
    pub(super) fn holds_now(&self, row: ClaimIdx) -> bool {
        self.claims[row].holds.now
    }

    /// Whether a claim can use its devices in future: it stays allocated, or they are given to no other claim.
    pub(super) fn keeps_devices(&self, row: ClaimIdx) -> bool {
        let state = &self.claims[row];
        let is_taken = |device| self.future.is_in_use(device);
        state.holds.future || !state.devices.exclusive().any(is_taken)
    }

    /// Gives a claim devices in this cycle. `held` are those that count as in use.
    pub(super) fn choose(&mut self, row: ClaimIdx, chosen: NewAllocation, held: Held) {
        let state = &mut self.claims[row];
        state.devices = Arc::new(held);
        state.chosen = Some(chosen);
    }

    /// Counts a pod without a place among the users of the claims that are reserved for it.
    pub(super) fn count_waiting(&mut self, inventory: &Inventory, pod: &TaskFacts) {
        let is_extended = !pod.template.extended.is_empty();
        let extended = is_extended.then(|| ExtendedClaim::key(&pod.key, &pod.uid));
        for key in pod.claim_keys().chain(extended) {
            let Some(row) = self.rows.get(&key) else { continue };
            let state = &mut self.claims[*row];
            let mut users = state.facts.iter().flat_map(|facts| &facts.reserved_for);
            if users.any(|consumer| consumer.uid == pod.uid) {
                state.n_waiting += 1;
                self.update(inventory, *row);
            }
        }
    }

    /// Follows the placement of a task that uses a claim.
    pub(super) fn moved(
        &mut self,
        inventory: &Inventory,
        row: ClaimIdx,
        (from, to): (Placement, Placement),
    ) {
        let (before, after) = (users_of(from), users_of(to));
        let state = &mut self.claims[row];
        state.users.now = state.users.now + after.now - before.now;
        state.users.future = state.users.future + after.future - before.future;
        match (from.node, to.node) {
            (None, Some(_)) if is_choice(to.status) => state.n_placed += 1,
            (Some(_), None) => state.n_placed = state.n_placed.saturating_sub(1),
            (None | Some(_), _) => {}
        }
        if state.n_placed == 0 && state.chosen.is_some() {
            self.take_back(inventory, row);
        }
        self.update(inventory, row);
    }

    /// Takes back what the claim was given in this cycle.
    fn take_back(&mut self, inventory: &Inventory, row: ClaimIdx) {
        let Self { claims, now, future, .. } = self;
        let state = &mut claims[row];
        let holds = std::mem::take(&mut state.holds);
        for usage in [(now, holds.now), (future, holds.future)] {
            if let (usage, true) = usage {
                usage.remove(inventory, &state.devices);
            }
        }
        state.chosen = None;
        state.devices = Arc::default();
    }

    /// Has the claim hold its devices exactly when it should.
    fn update(&mut self, inventory: &Inventory, row: ClaimIdx) {
        let Self { claims, now, future, .. } = self;
        let state = &mut claims[row];
        let should = state.should_hold();
        let holds = std::mem::replace(&mut state.holds, should);
        if !state.is_allocated() {
            state.holds = Holds::default();
            return;
        }
        for (usage, held, holds) in
            [(now, holds.now, should.now), (future, holds.future, should.future)]
        {
            match (held, holds) {
                (false, true) => usage.add(inventory, &state.devices),
                (true, false) => usage.remove(inventory, &state.devices),
                (false, false) | (true, true) => {}
            }
        }
    }
}
