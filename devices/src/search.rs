//! The search for the devices of some claims on a node: a direct transcription of Kubernetes' rules.
//!
//! Depth first, claims, requests and devices in order; the first complete solution wins. No device is better
//! than another.
//!
//! Source: Kubernetes 1.37, `dynamic-resource-allocation/structured/internal/incubating/allocator_incubating.go`.

use std::collections::BTreeMap;

use kube_batch_model::{
    column::NodeIdx,
    facts::device::{
        DeviceId,
        request::{AllocationMode, Alternatives, Constraint},
    },
    name::Name,
};

use crate::{
    capacity::{TooLarge, consumed_by_share, has_capacity},
    claims::{Claim, MAX_DEVICES, alternatives},
    constraints::permits,
    inventory::{Device, Inventory, PoolState, PoolView},
    rows::{CounterIdx, DeviceIdx},
    selectors::Selectors,
    usage::Usage,
    wanted::{AllWanted, Match, Matching, SelectorFailure},
};

/// Maximum number of steps of the search on a node: a step tries a device, and compares it with one that is chosen.
/// Guessed: about two milliseconds.
pub(crate) const MAX_STEPS: u32 = 20_000;

/// Maximum depth of the search, which is the number of devices and requests of a pod. Guessed: the stack of a
/// thread holds many times that.
const MAX_DEPTH: usize = 1_024;

/// Why the devices of a node do not serve some claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// They do not suffice.
    Insufficient,
    /// They do not suffice, and a pool of the node is invalid.
    InvalidPools,
    /// The search takes too long.
    TooComplex,
    /// Something is wrong with a claim or its class, for this node at least.
    Error(String),
}

/// The devices chosen for a claim, in the order in which they were chosen.
pub type Chosen = Vec<ChosenDevice>;

/// A device chosen for a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChosenDevice {
    /// The device.
    pub device: DeviceIdx,
    /// Position of the request.
    pub request: usize,
    /// Position of the alternative.
    pub alternative: usize,
    /// What the share consumes, if it is one: by capacity, in nano-units.
    pub share: Option<BTreeMap<Name, i128>>,
}

/// What a search reads.
#[derive(Clone, Copy, Debug)]
pub struct Devices<'a> {
    /// All devices.
    pub inventory: &'a Inventory,
    /// What requests want.
    pub wanted: &'a AllWanted,
    /// Why selectors fail.
    pub selectors: &'a Selectors,
    /// The alternative of each `firstAvailable` that is tried first; those before it are tried last. 0 is Kubernetes'
    /// order.
    pub first: usize,
}

/// What is in use. A device must be free, and have enough left, according to every one of them.
pub type InUse<'a> = &'a [&'a Usage];

impl Devices<'_> {
    /// Whether only devices that concern one node alone can serve a claim.
    pub fn is_local(&self, claim: &Claim) -> bool {
        let mut rows = claim.requests.iter().flat_map(|request| &request.alternatives);
        rows.all(|row| {
            let matching = self.wanted.get(*row);
            let devices = self.inventory.devices().iter();
            let mut matching = devices.filter(|(row, _)| matching.of(*row) == Match::Yes);
            matching.all(|(_, device)| device.is_local)
        })
    }

    /// Whether some device of a pool serves a request of a claim on a node, if it is free.
    pub fn may_serve(&self, claim: &Claim, view: &PoolView, node: NodeIdx) -> bool {
        let rows = || claim.requests.iter().flat_map(|request| &request.alternatives);
        view.state == PoolState::Complete
            && view.rows().any(|device| {
                self.inventory.devices()[device].is_usable_on(node)
                    && rows().any(|row| self.wanted.get(*row).of(device) == Match::Yes)
            })
    }

    /// Chooses devices of a node for all claims, each with its namespace and name.
    ///
    /// # Errors
    ///
    /// Why there are none.
    pub fn choose(
        &self,
        node: NodeIdx,
        claims: &[(&str, &Claim)],
        in_use: InUse<'_>,
    ) -> Result<Vec<Chosen>, Refusal> {
        self.choose_within(node, claims, in_use, MAX_STEPS).0
    }

    /// Chooses devices of a node for claims that may be given these only; also returns how many steps it took. If one
    /// of the devices is allocated to another claim, there is no search.
    pub fn choose_among(
        &self,
        among: &[DeviceIdx],
        (node, claims): (NodeIdx, &[(&str, &Claim)]),
        in_use: InUse<'_>,
    ) -> (Result<Vec<Chosen>, Refusal>, u32) {
        if among.iter().any(|row| in_use.iter().any(|usage| usage.is_exclusive(*row))) {
            return (Err(Refusal::Insufficient), 0);
        }
        match Search::new(*self, node, claims, in_use) {
            Ok(mut search) => {
                search.rows.retain(|row| among.contains(row));
                Search { among: Some(among), ..search }.run()
            }
            Err(refusal) => (Err(refusal), 0),
        }
    }

    /// Chooses devices of a node for all claims within a number of steps; also returns how many it took.
    pub(crate) fn choose_within(
        &self,
        node: NodeIdx,
        claims: &[(&str, &Claim)],
        in_use: InUse<'_>,
        max_steps: u32,
    ) -> (Result<Vec<Chosen>, Refusal>, u32) {
        match Search::new(*self, node, claims, in_use) {
            Ok(search) => Search { max_steps, ..search }.run(),
            Err(refusal) => (Err(refusal), 0),
        }
    }
}

/// One position of the search.
#[derive(Clone, Copy, Debug)]
struct Place {
    claim: usize,
    request: usize,
    /// The alternative that is tried; 0 before one is chosen.
    alternative: usize,
    /// How many devices of it are chosen.
    n_chosen: usize,
    /// Position of the next device to try.
    next: usize,
}

/// Why a branch of the search ends.
enum Stop {
    /// No device is left.
    DeadEnd,
    /// The claim would have more devices than it may: only other alternatives of it can help.
    LimitExceeded,
    /// The whole search ends.
    Refused(Refusal),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

struct Search<'a> {
    devices: Devices<'a>,
    node: NodeIdx,
    claims: &'a [(&'a str, &'a Claim)],
    in_use: InUse<'a>,
    /// The devices of the node, in order.
    rows: Vec<DeviceIdx>,
    /// The only devices that may be chosen; `None` for all.
    among: Option<&'a [DeviceIdx]>,
    has_invalid_pools: bool,
    /// The devices that each alternative with mode All takes, by claim, request and alternative.
    all: BTreeMap<(usize, usize, usize), Vec<DeviceIdx>>,
    chosen: Vec<Chosen>,
    n_steps: u32,
    max_steps: u32,
    depth: usize,
}

impl<'a> Search<'a> {
    fn new(
        devices: Devices<'a>,
        node: NodeIdx,
        claims: &'a [(&'a str, &'a Claim)],
        in_use: InUse<'a>,
    ) -> Result<Self, Refusal> {
        let mut new = Self {
            devices,
            node,
            claims,
            in_use,
            rows: Vec::new(),
            among: None,
            has_invalid_pools: false,
            all: BTreeMap::new(),
            chosen: vec![Vec::new(); claims.len()],
            n_steps: 0,
            max_steps: MAX_STEPS,
            depth: 0,
        };
        for view in devices.inventory.pools_of(node) {
            match view.state {
                PoolState::Complete => new.rows.extend(view.rows()),
                PoolState::Incomplete => {}
                PoolState::Invalid => new.has_invalid_pools = true,
            }
        }
        for (at, (name, claim)) in claims.iter().enumerate() {
            if let Some(problem) = &claim.problem {
                return Err(Refusal::Error(problem.clone()));
            }
            new.count(at, name, claim)?;
        }
        Ok(new)
    }

    /// Lists the devices of requests for all, and checks that the claim can have few enough.
    fn count(&mut self, at: usize, name: &str, claim: &Claim) -> Result<(), Refusal> {
        let name_of = |at: usize| alternatives(&claim.spec).nth(at).map(|(name, _)| name);
        let mut n_alternatives = 0;
        let mut n_before = 0;
        for (request_at, request) in claim.requests.iter().enumerate() {
            let mut least = u64::MAX;
            let mut label = 0;
            for (alternative, row) in request.alternatives.iter().enumerate() {
                label = n_alternatives;
                n_alternatives += 1;
                let matching = self.devices.wanted.get(*row);
                let n = match matching.wanted.mode {
                    AllocationMode::ExactCount(n) => n,
                    AllocationMode::All => {
                        let devices = self.all_devices(
                            &format!(
                                "claim {name}, request {}",
                                name_of(label).unwrap_or_default()
                            ),
                            name,
                            matching,
                        )?;
                        let n = devices.len() as u64;
                        self.all.insert((at, request_at, alternative), devices);
                        n
                    }
                    AllocationMode::Unknown(_) => unreachable!("a claim with it has a problem"),
                };
                least = least.min(n);
            }
            if n_before + least > MAX_DEVICES {
                let label = name_of(label).unwrap_or_default();
                return Err(Refusal::Error(format!(
                    "claim {name}, request {label}: adding {least} devices exceeds the claim limit of {MAX_DEVICES}, with {n_before} already accounted for"
                )));
            }
            n_before += least;
        }
        Ok(())
    }

    /// The devices that a request for all takes.
    fn all_devices(
        &self,
        at: &str,
        claim: &str,
        matching: &Matching,
    ) -> Result<Vec<DeviceIdx>, Refusal> {
        let inventory = self.devices.inventory;
        for view in inventory.pools_of(self.node) {
            let state = match view.state {
                PoolState::Complete => continue,
                PoolState::Incomplete => "being updated",
                PoolState::Invalid => "invalid",
            };
            let pool = inventory.pool(view.pool);
            return Err(Refusal::Error(format!(
                "{at}: asks for all devices, but resource pool {}/{} is currently {state}",
                pool.driver, pool.name
            )));
        }
        let mut all = Vec::new();
        for row in &self.rows {
            let device = &inventory.devices()[*row];
            if self.is_match(claim, matching, *row)?
                && device.is_usable_on(self.node)
                && capacity_of(matching, device)
                    .map_err(|error| too_large(at, device, &error))?
                    .is_some()
            {
                all.push(*row);
            }
        }
        Ok(all)
    }

    /// Whether the selectors hold for a device.
    fn is_match(&self, claim: &str, matching: &Matching, row: DeviceIdx) -> Result<bool, Refusal> {
        match matching.of(row) {
            Match::Yes => Ok(true),
            Match::No => Ok(false),
            Match::Fails => Err(self.selector_error(claim, matching, row)),
        }
    }

    fn selector_error(&self, claim: &str, matching: &Matching, row: DeviceIdx) -> Refusal {
        let Some(error) = matching.error(row) else {
            unreachable!("the selectors fail on the device");
        };
        let whose = match error.is_of_class {
            true => format!("class {}", matching.class.name),
            false => format!("claim {claim}"),
        };
        let at = error.at;
        let id = &self.devices.inventory.devices()[row].id;
        match &error.problem {
            SelectorFailure::TooComplex => Refusal::TooComplex,
            SelectorFailure::Compile(text) => Refusal::Error(format!(
                "{whose}: selector #{at}: CEL compile error: compilation failed: {text}"
            )),
            SelectorFailure::Evaluate(text) => Refusal::Error(format!(
                "{whose}: selector #{at} on device {id}: CEL runtime error: {text}"
            )),
        }
    }

    fn run(mut self) -> (Result<Vec<Chosen>, Refusal>, u32) {
        let start = Place { claim: 0, request: 0, alternative: 0, n_chosen: 0, next: 0 };
        let end = self.start_request(start);
        let answer = match end {
            Ok(()) => Ok(self.chosen),
            Err(Stop::Refused(refusal)) => Err(refusal),
            Err(Stop::DeadEnd | Stop::LimitExceeded) => Err(match self.has_invalid_pools {
                true => Refusal::InvalidPools,
                false => Refusal::Insufficient,
            }),
        };
        (answer, self.n_steps)
    }

    /// Chooses the devices of a request and of all that follow.
    fn start_request(&mut self, place: Place) -> Result<(), Stop> {
        let Some((_, claim)) = self.claims.get(place.claim) else { return Ok(()) };
        let Some(request) = claim.requests.get(place.request) else {
            let next = Place { claim: place.claim + 1, request: 0, ..place };
            return match self.start_request(next) {
                // The limit is that of another claim, about which no choice for this one matters.
                Err(Stop::LimitExceeded) => Err(self.nothing_helps()),
                answer => answer,
            };
        };
        let mut stop = Stop::DeadEnd;
        let n_alternatives = request.alternatives.len();
        let first = self.devices.first.min(n_alternatives.saturating_sub(1));
        for alternative in (first..n_alternatives).chain(0..first) {
            match self.place(Place { alternative, n_chosen: 0, next: 0, ..place }) {
                Err(end @ (Stop::DeadEnd | Stop::LimitExceeded)) => stop = end,
                answer => return answer,
            }
        }
        // A list has been tried to its end, so that an earlier device can help again.
        Err(if request.is_list { Stop::DeadEnd } else { stop })
    }

    fn nothing_helps(&self) -> Stop {
        Stop::Refused(match self.has_invalid_pools {
            true => Refusal::InvalidPools,
            false => Refusal::Insufficient,
        })
    }

    /// Chooses the next device of an alternative, and all that follow.
    fn place(&mut self, place: Place) -> Result<(), Stop> {
        self.depth += 1;
        let answer = match self.depth > MAX_DEPTH {
            true => Err(Refusal::TooComplex.into()),
            false => self.place_at_depth(place),
        };
        self.depth -= 1;
        answer
    }

    fn place_at_depth(&mut self, place: Place) -> Result<(), Stop> {
        let (_, claim) = self.claims[place.claim];
        let row = claim.requests[place.request].alternatives[place.alternative];
        let matching = self.devices.wanted.get(row);
        let key = (place.claim, place.request, place.alternative);
        let n_wanted = match matching.wanted.mode {
            AllocationMode::ExactCount(n) => n,
            AllocationMode::All => self.all[&key].len() as u64,
            AllocationMode::Unknown(_) => unreachable!("a claim with it has a problem"),
        };
        if place.n_chosen as u64 >= n_wanted {
            let is_all = matching.wanted.mode == AllocationMode::All;
            if is_all && n_wanted == 0 {
                return Err(Stop::DeadEnd);
            }
            return self.start_request(Place { request: place.request + 1, ..place });
        }
        let n_chosen = self.chosen[place.claim].len() as u64;
        if n_wanted - place.n_chosen as u64 > MAX_DEVICES.saturating_sub(n_chosen) {
            return Err(Stop::LimitExceeded);
        }
        if matching.wanted.mode == AllocationMode::All {
            let device = self.all[&key][place.n_chosen];
            return self.try_device(place, matching, device, IsAll::Yes);
        }
        for next in place.next..self.rows.len() {
            self.n_steps += 1;
            if self.n_steps > self.max_steps {
                return Err(Refusal::TooComplex.into());
            }
            let device = self.rows[next];
            let place = Place { next: next + 1, ..place };
            match self.try_device(place, matching, device, IsAll::No) {
                Err(Stop::DeadEnd) => {}
                answer => return answer,
            }
        }
        Err(Stop::DeadEnd)
    }

    /// Takes a device, and chooses all that follow.
    fn try_device(
        &mut self,
        place: Place,
        matching: &Matching,
        row: DeviceIdx,
        is_all: IsAll,
    ) -> Result<(), Stop> {
        let (name, claim) = self.claims[place.claim];
        let device = &self.devices.inventory.devices()[row];
        let is_allowed = self.among.is_none_or(|among| among.contains(&row));
        if !is_allowed || !self.is_free(place.claim, matching, row) {
            return Err(Stop::DeadEnd);
        }
        if is_all == IsAll::No
            && !(self.is_match(name, matching, row)? && device.is_usable_on(self.node))
        {
            return Err(Stop::DeadEnd);
        }
        self.n_steps += self.taken().count() as u32;
        let at = || format!("claim {name}, request {}", label(claim, place));
        let capacity = capacity_of(matching, device);
        let Some(share) = capacity.map_err(|error| too_large(&at(), device, &error))? else {
            return Err(Stop::DeadEnd);
        };
        if !self.has_left(row, share.as_ref())
            || !self.has_counters(row)
            || !matching.tolerates(row)
        {
            return Err(Stop::DeadEnd);
        }
        if !self.constraints_permit(place, device) {
            return Err(match is_all {
                IsAll::No => Stop::DeadEnd,
                IsAll::Yes => Refusal::Error(format!(
                    "{}: cannot add device {} because a claim constraint would not be satisfied",
                    at(),
                    device.id
                ))
                .into(),
            });
        }
        let Place { request, alternative, .. } = place;
        self.chosen[place.claim].push(ChosenDevice { device: row, request, alternative, share });
        let answer = self.place(Place { n_chosen: place.n_chosen + 1, ..place });
        if answer.is_err() {
            self.chosen[place.claim].pop();
        }
        answer
    }

    /// The devices that are chosen already.
    fn taken(&self) -> impl Iterator<Item = &ChosenDevice> {
        self.chosen.iter().flatten()
    }

    /// Whether the device is free, or can be shared. With admin access, only the claim itself must not have it.
    fn is_free(&self, claim: usize, matching: &Matching, row: DeviceIdx) -> bool {
        if matching.wanted.admin_access {
            return !self.chosen[claim].iter().any(|chosen| chosen.device == row);
        }
        let is_taken = |chosen: &ChosenDevice| chosen.device == row && chosen.share.is_none();
        !self.in_use.iter().any(|usage| usage.is_exclusive(row)) && !self.taken().any(is_taken)
    }

    /// Whether a device has enough left for a share.
    fn has_left(&self, row: DeviceIdx, share: Option<&BTreeMap<Name, i128>>) -> bool {
        let Some(share) = share else { return true };
        let facts = self.devices.inventory.devices()[row].facts();
        share.iter().all(|(name, amount)| {
            let own = self.taken().filter(|chosen| chosen.device == row);
            let own: i128 = own.filter_map(|chosen| chosen.share.as_ref()?.get(name)).sum();
            let total = facts.capacity[name].value.nano();
            self.in_use.iter().all(|usage| usage.consumed_of(row, name) + own + amount <= total)
        })
    }

    /// Whether its pool has the counters for a device.
    fn has_counters(&self, row: DeviceIdx) -> bool {
        let inventory = self.devices.inventory;
        let device = &inventory.devices()[row];
        if device.consumes.is_empty() {
            return true;
        }
        let is_shared_here = |usage: &Usage| {
            usage.is_shared(row)
                || self.taken().any(|chosen| chosen.device == row && chosen.share.is_some())
        };
        let is_paid = device.facts().allow_multiple_allocations;
        self.in_use.iter().all(|usage| {
            if is_paid && is_shared_here(usage) {
                return true;
            }
            usage.has_counters(inventory, device, |counter| self.consumed(usage, counter))
        })
    }

    /// What the devices chosen already consume of a counter, besides what is counted as in use.
    fn consumed(&self, usage: &Usage, counter: CounterIdx) -> i128 {
        if self.taken().next().is_none() {
            return 0;
        }
        let devices = self.devices.inventory.devices();
        let mut shared = Vec::new();
        let taken = self.taken().filter(|chosen| {
            // A device that is shared pays once.
            chosen.share.is_none()
                || !usage.is_shared(chosen.device) && {
                    let is_new = !shared.contains(&chosen.device);
                    shared.push(chosen.device);
                    is_new
                }
        });
        let taken: Vec<DeviceIdx> = taken.map(|chosen| chosen.device).collect();
        taken.into_iter().map(|device| devices[device].consumed_of(counter)).sum()
    }

    /// Whether every constraint about the request permits a device.
    fn constraints_permit(&self, place: Place, device: &Device) -> bool {
        let (_, claim) = self.claims[place.claim];
        let is_about = |constraint: &Constraint, request: usize, alternative: usize| {
            let (request, alternative) = names(claim, request, alternative);
            constraint.is_about(request, alternative.map(|name| &**name))
        };
        let constraints = claim.spec.constraints.iter();
        let mut constraints =
            constraints.filter(|constraint| is_about(constraint, place.request, place.alternative));
        constraints.all(|constraint| {
            let chosen = self.chosen[place.claim].iter();
            let chosen =
                chosen.filter(|chosen| is_about(constraint, chosen.request, chosen.alternative));
            let devices = self.devices.inventory.devices();
            permits(constraint, device, chosen.map(|chosen| &devices[chosen.device]))
        })
    }
}

/// What a share of a device consumes; `None` for a device that is allocated exclusively.
type Share = Option<BTreeMap<Name, i128>>;

/// What a device gives while it is not in use; `None` if that is not enough.
fn capacity_of(matching: &Matching, device: &Device) -> Result<Option<Share>, TooLarge> {
    let (facts, requested) = (device.facts(), &matching.wanted.capacity);
    if facts.allow_multiple_allocations {
        Ok(consumed_by_share(facts, requested)?.map(Some))
    } else {
        Ok(has_capacity(facts, requested)?.then_some(None))
    }
}

fn too_large(at: &str, device: &Device, error: &TooLarge) -> Refusal {
    Refusal::Error(format!("{at}: checking capacity for device {}: {error}", device.id))
}

/// Whether a request is for all devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IsAll {
    Yes,
    No,
}

/// The names of a request and of its alternative.
pub(crate) fn names(claim: &Claim, request: usize, alternative: usize) -> (&Name, Option<&Name>) {
    let request = &claim.spec.requests[request];
    let alternative = match &request.alternatives {
        Alternatives::FirstAvailable(list) => list.get(alternative).map(|(name, _)| name),
        Alternatives::Exactly(_) | Alternatives::Unknown => None,
    };
    (&request.name, alternative)
}

/// `request`, or `request/alternative`.
fn label(claim: &Claim, place: Place) -> String {
    match names(claim, place.request, place.alternative) {
        (request, Some(alternative)) => format!("{request}/{alternative}"),
        (request, None) => request.to_string(),
    }
}

/// The identity of a device that was chosen.
pub(crate) fn id(inventory: &Inventory, chosen: &ChosenDevice) -> DeviceId {
    inventory.devices()[chosen.device].id.clone()
}
