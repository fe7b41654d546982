//! Claims for devices (Dynamic Resource Allocation).
//!
//! A node must be able to use the devices of every claim of the pod that is allocated, and have devices for
//! all others together. The devices are chosen when a task is placed, by
//! [`kube_batch_devices`], and are free again when the placement is rolled back. A claim that several
//! tasks name is allocated with the first of them.
//!
//! A device is free *in future* if every pod that uses its claim is being terminated: tasks that wait for
//! terminating pods can be given it.
//!
//! Source: Kubernetes 1.37, `plugins/dynamicresources`. Differences are in docs/parity.md#devices.
// Parity: see docs/parity.md#devices.

mod answers;
mod class_devices;
mod in_use;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use kube_batch_devices::{
    claims::Claim,
    inventory::Inventory,
    long::LongSearches,
    result::score_of,
    rows::{DeviceIdx, WantedIdx},
    search::{Chosen, Devices, InUse, Refusal},
    usage::Usage,
};
use kube_batch_framework::plugin::{Capacity, NodesByDomain};
use kube_batch_model::{
    cluster::Cluster,
    column::{Column, JobIdx, NodeIdx, TaskIdx},
    decision::DeviceChoice,
    devices::{ClaimDemand, ExtendedClaim},
    facts::{
        device::{
            claim::{Allocation, ClaimEntry, Consumer, ResourceClaimFacts},
            request::{Alternatives, ClaimSpec},
        },
        group::GroupFacts,
        node::NodeFacts,
        pod::TaskFacts,
    },
    name::{Name, ObjectKey},
    status::TaskStatus,
};

use self::{
    answers::{KnownDomains, RefusedNodes},
    class_devices::{ClassClaim, ClassDevices, EXTENDED_CLAIM, ExtendedKind, Need, has_failed},
    in_use::{ClaimIdx, ClaimsInUse, NewAllocation},
};
use crate::{
    compiled::Opening, constraint_classes::ConstraintClassIdx, pod_count::Placed,
    session_tables::SessionTables,
};

/// The claims of the cluster for devices, as tasks are placed.
#[derive(Debug)]
pub(crate) struct DynamicResources {
    pub(crate) classes: Column<ConstraintClassIdx, ClassDevices>,
    /// Whether the tasks of a class have claims.
    pub(crate) has_claims: Column<ConstraintClassIdx, bool>,
    tables: SessionTables,
    claims: ClaimsInUse,
    pub(crate) nodes: Column<NodeIdx, Arc<NodeFacts>>,
    of_tasks: BTreeMap<TaskIdx, TaskClaims>,
    /// Searches that take long.
    long: Mutex<LongSearches>,
    /// Whether a search for a class took long.
    took_long: Column<ConstraintClassIdx, AtomicBool>,
    /// The nodes that have no devices for a class.
    refused: Column<ConstraintClassIdx, Mutex<RefusedNodes>>,
    /// The steps of the others.
    n_steps: AtomicU64,
    domains: Mutex<KnownDomains>,
    /// Grows with every change of what is in use.
    pub(crate) version: u64,
    /// The alternative of `firstAvailable` that is tried first, if that is prescribed.
    pub(crate) first: Option<usize>,
    /// The alternative that was prescribed when a task was placed on a node: it gets its devices again if the
    /// placement is repeated.
    first_of: BTreeMap<(TaskIdx, NodeIdx), usize>,
}

/// The claims of a task.
#[derive(Debug)]
struct TaskClaims {
    class: ConstraintClassIdx,
    /// In the order of the pod; the one for extended resources comes last.
    rows: Vec<ClaimIdx>,
    /// Those that its PodGroup has too, and how the PodGroup is recorded as their user.
    of_group: Option<(Vec<ClaimIdx>, Consumer)>,
    /// The node for which it was nominated, and the devices that were chosen for it there.
    nominated: Option<(NodeIdx, Vec<DeviceIdx>)>,
}

/// The claims of a class that are to be allocated on a node.
struct Unallocated<'a> {
    /// Their positions among the claims of the task.
    at: Vec<usize>,
    claims: Vec<(&'a str, &'a Claim)>,
}

impl DynamicResources {
    /// The state, if a claim of some class of tasks to place has alternatives.
    pub(crate) fn if_alternatives(opening: Opening<'_>) -> Option<Self> {
        let has_list = |spec: &ClaimSpec| {
            let mut requests = spec.requests.iter();
            requests.any(|own| matches!(own.alternatives, Alternatives::FirstAvailable(_)))
        };
        let claims = &opening.cluster.devices.claims;
        let has_alternatives = |demand: &ClaimDemand| match demand {
            ClaimDemand::Own(spec) => has_list(spec),
            ClaimDemand::Entry(namespace, entry) => entry.claim().is_some_and(|name| {
                let key = ObjectKey::new(namespace.clone(), name.clone());
                claims.get(&key).is_some_and(|claim| has_list(&claim.spec))
            }),
        };
        let mut classes = opening.classes().to_place();
        let is_needed =
            classes.any(|class| opening.devices(class).claims.iter().any(has_alternatives));
        is_needed.then(|| Self::new(opening))
    }

    /// Whether the devices of some class can be used by several nodes.
    pub(crate) fn depends_on_other_nodes(&self) -> bool {
        self.classes.values().any(|class| class.depends_on_other_nodes)
    }

    /// The state when a session opens.
    pub(crate) fn new(opening: Opening<'_>) -> Self {
        let cluster = opening.cluster;
        let objects = &cluster.devices;
        let mut tables = SessionTables::of(cluster);
        let held = tables.shared.held(&objects.claims);
        let mut claims = ClaimsInUse::new(tables.inventory(), held);
        let mut classes = opening.by_class(ClassDevices::default());
        let mut has_claims = opening.by_class(false);
        for class in opening.classes().present().filter(|class| !opening.devices(*class).is_empty())
        {
            has_claims[class] = true;
        }
        for class in opening.classes().to_place().filter(|class| has_claims[*class]) {
            classes[class] = ClassDevices::new(opening, (&mut tables, &mut claims), class);
        }
        tables.keep();
        let mut of_tasks = Vec::new();
        let are_used = !objects.claims.is_empty() || has_claims.values().any(|has_some| *has_some);
        for (task, facts) in cluster.tasks.facts.iter().filter(|_| are_used) {
            if cluster.status(task) == TaskStatus::Pending {
                claims.count_waiting(tables.inventory(), facts);
            }
            let class = cluster.classes.constraint_class[cluster.tasks.class[task]];
            if has_claims[class] {
                let rows =
                    claims_of(facts, &mut claims, !opening.devices(class).extended.is_empty());
                let group =
                    cluster.tasks.job[task].and_then(|job| cluster.jobs.group[job].as_ref());
                let of_group = group.and_then(|group| claims_of_group(facts, group, &mut claims));
                let nominated = nominated_devices(cluster, tables.inventory(), task);
                of_tasks.push((task, TaskClaims { class, rows, of_group, nominated }));
            }
        }
        let of_tasks = of_tasks.into_iter().collect();
        let nodes = cluster.nodes.facts.values().cloned().collect();
        let refused = classes.ids().map(|_| Mutex::default()).collect();
        let classes_taking_long = classes.ids().map(|_| AtomicBool::new(false)).collect();
        Self {
            classes,
            has_claims,
            tables,
            claims,
            nodes,
            of_tasks,
            long: Mutex::default(),
            took_long: classes_taking_long,
            refused,
            n_steps: AtomicU64::new(0),
            domains: Mutex::default(),
            version: 0,
            first: None,
            first_of: BTreeMap::new(),
        }
    }
}

/// The node for which a task was nominated, and the devices that were chosen for it there, if they still exist.
// Parity: see docs/parity.md#v13.
fn nominated_devices(
    cluster: &Cluster,
    inventory: &Inventory,
    task: TaskIdx,
) -> Option<(NodeIdx, Vec<DeviceIdx>)> {
    let node = cluster.tasks.nominated[task]?;
    let ids = cluster.tasks.nominated_devices[task].as_ref()?;
    let devices: Vec<DeviceIdx> = ids.iter().flat_map(|id| inventory.rows_of(id)).collect();
    (!devices.is_empty()).then_some((node, devices))
}

/// The claims that a pod shares with its PodGroup.
fn claims_of_group(
    facts: &TaskFacts,
    group: &GroupFacts,
    claims: &mut ClaimsInUse,
) -> Option<(Vec<ClaimIdx>, Consumer)> {
    let is_shared = |entry: &&ClaimEntry| group.claims.iter().any(|other| entry.is_same(other));
    let shared = facts.device_claims.iter().filter(is_shared).filter_map(ClaimEntry::claim);
    let key = |name: &Name| ObjectKey::new(facts.key.namespace.clone(), name.clone());
    let rows: Vec<ClaimIdx> = shared.map(|name| claims.row(&key(name))).collect();
    (!rows.is_empty()).then(|| (rows, Consumer::group(&group.key.name, &group.uid)))
}

/// The claims of a pod, each once, in their order, and that for its extended resources.
fn claims_of(facts: &TaskFacts, claims: &mut ClaimsInUse, is_extended: bool) -> Vec<ClaimIdx> {
    let mut rows = Vec::new();
    for key in facts.claim_keys() {
        let row = claims.row(&key);
        if !rows.contains(&row) {
            rows.push(row);
        }
    }
    if is_extended {
        rows.push(claims.row(&ExtendedClaim::key(&facts.key, &facts.uid)));
    }
    rows
}

impl DynamicResources {
    /// What must be free for a task that uses this capacity.
    fn in_use(&self, capacity: Capacity) -> Vec<&Usage> {
        match capacity {
            Capacity::Idle => vec![self.claims.now(), self.claims.future()],
            Capacity::FutureIdle => vec![self.claims.future()],
        }
    }

    /// The claims of a class that are to be allocated on a node; `None` if nothing provides what they need.
    fn unallocated(&self, class: ConstraintClassIdx, node: NodeIdx) -> Option<Unallocated<'_>> {
        let own = &self.classes[class];
        let is_open =
            |claim: &ClassClaim| claim.row.is_none_or(|row| self.claims.chosen(row).is_none());
        let open = own.without_devices().filter(|(_, claim, _, _)| is_open(claim));
        let mut unallocated = Unallocated { at: Vec::new(), claims: Vec::new() };
        for (at, _, name, ready) in open {
            unallocated.at.push(at);
            unallocated.claims.push((name, ready));
        }
        match own.extended.as_ref().map(|extended| extended.on(node)) {
            None | Some(ExtendedKind::Nothing) => {}
            Some(ExtendedKind::Unprovided) => return None,
            Some(ExtendedKind::Claim(_, ready)) => {
                unallocated.at.push(own.claims.len());
                unallocated.claims.push((EXTENDED_CLAIM, ready));
            }
        }
        Some(unallocated)
    }

    /// Chooses devices of a node for the claims of a class that have none, by position.
    pub(crate) fn choose(
        &self,
        class: ConstraintClassIdx,
        node: NodeIdx,
        capacity: Capacity,
    ) -> Result<Vec<(usize, Chosen)>, Refusal> {
        self.choose_from(self.first.unwrap_or(0), class, node, capacity)
    }

    /// Chooses devices of a node for the claims of a class that have none, beginning with the alternative `first`.
    fn choose_from(
        &self,
        first: usize,
        class: ConstraintClassIdx,
        node: NodeIdx,
        capacity: Capacity,
    ) -> Result<Vec<(usize, Chosen)>, Refusal> {
        let mut refused = self.refused[class].lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(refusal) = refused.known((node, capacity, first), self.version) {
            debug_assert!(
                refusal == Refusal::TooComplex || self.is_refused(first, class, node, capacity),
                "it was refused before"
            );
            return Err(refusal);
        }
        let answer = self.search(first, class, node, capacity);
        if let Err(refusal) = &answer {
            refused.add((node, capacity, first), self.version, refusal);
        }
        answer
    }

    /// Whether a search without a limit for its owner finds nothing.
    fn is_refused(
        &self,
        first: usize,
        class: ConstraintClassIdx,
        node: NodeIdx,
        capacity: Capacity,
    ) -> bool {
        let search = |devices: Devices<'_>, claims: &[(&str, &Claim)], in_use: InUse<'_>| {
            Devices { first, ..devices }.choose(node, claims, in_use)
        };
        self.choose_with(class, node, capacity, search).is_err()
    }

    fn search(
        &self,
        first: usize,
        class: ConstraintClassIdx,
        node: NodeIdx,
        capacity: Capacity,
    ) -> Result<Vec<(usize, Chosen)>, Refusal> {
        self.choose_with(class, node, capacity, |devices, claims, in_use| {
            let devices = Devices { first, ..devices };
            let choose_long = || {
                let mut long = self.long.lock().unwrap_or_else(PoisonError::into_inner);
                long.choose(devices, &self.classes[class].namespace, (node, claims), in_use)
            };
            // What took long on one node mostly does on the others.
            if self.took_long[class].load(Ordering::Relaxed) {
                return choose_long();
            }
            let (quick, n_steps) = devices.choose_quickly(node, claims, in_use);
            self.n_steps.fetch_add(n_steps.into(), Ordering::Relaxed);
            quick.unwrap_or_else(|| {
                self.took_long[class].store(true, Ordering::Relaxed);
                choose_long()
            })
        })
    }

    /// Chooses them as `choose` does for claims with their names.
    fn choose_with(
        &self,
        class: ConstraintClassIdx,
        node: NodeIdx,
        capacity: Capacity,
        choose: impl FnOnce(Devices<'_>, &[(&str, &Claim)], InUse<'_>) -> Result<Vec<Chosen>, Refusal>,
    ) -> Result<Vec<(usize, Chosen)>, Refusal> {
        let Unallocated { at, claims } =
            self.unallocated(class, node).ok_or(Refusal::Insufficient)?;
        if claims.is_empty() {
            return Ok(Vec::new());
        }
        let chosen = choose(self.tables.devices(), &claims, &self.in_use(capacity))?;
        Ok(at.into_iter().zip(chosen).collect())
    }

    /// Chooses those devices for a task that were chosen when it was nominated for the node. `None` if they are not
    /// free, or do not serve its claims any more.
    fn choose_again(
        &self,
        task: TaskIdx,
        node: NodeIdx,
        capacity: Capacity,
    ) -> Option<Vec<(usize, Chosen)>> {
        let TaskClaims { class, rows, nominated, .. } = self.of_tasks.get(&task)?;
        let (_, among) = nominated.as_ref().filter(|(own, _)| *own == node)?;
        // A claim that several tasks share has its devices once the first of them is placed.
        let shared = rows.iter().filter_map(|row| self.claims.chosen(*row));
        let shared: Vec<DeviceIdx> =
            shared.flat_map(|chosen| chosen.devices.iter().map(|chosen| chosen.device)).collect();
        let among: Vec<DeviceIdx> =
            among.iter().copied().filter(|device| !shared.contains(device)).collect();
        let chosen = self.choose_with(*class, node, capacity, |devices, claims, in_use| {
            let (chosen, n_steps) = devices.choose_among(&among, (node, claims), in_use);
            self.n_steps.fetch_add(n_steps.into(), Ordering::Relaxed);
            chosen
        });
        chosen.ok()
    }

    /// Whether the devices that were chosen for a nominated task are free in future only.
    pub(crate) fn must_wait(&self, task: TaskIdx) -> bool {
        let nominated = self.of_tasks.get(&task).and_then(|claims| claims.nominated.as_ref());
        nominated.is_some_and(|(node, _)| {
            self.choose_again(task, *node, Capacity::Idle).is_none()
                && self.choose_again(task, *node, Capacity::FutureIdle).is_some()
        })
    }

    /// At most how many tasks of a class a node has devices for.
    pub(crate) fn max_on_node(
        &self,
        class: ConstraintClassIdx,
        node: NodeIdx,
        capacity: Capacity,
    ) -> u64 {
        if self.classes[class].depends_on_other_nodes {
            return u64::MAX;
        }
        self.unallocated(class, node).map_or(0, |Unallocated { claims, .. }| {
            self.tables.devices().max_times(node, &claims, &self.in_use(capacity))
        })
    }

    /// How long searches took so far, in evaluations of a node by other rules: a step takes about as long.
    pub(crate) fn work(&self) -> u64 {
        let long = self.long.lock().unwrap_or_else(PoisonError::into_inner).n_steps();
        self.n_steps.load(Ordering::Relaxed) + long
    }

    /// Whether a node can use the devices of the claims that have some.
    pub(crate) fn can_use(
        &self,
        class: ConstraintClassIdx,
        node: NodeIdx,
        capacity: Capacity,
    ) -> bool {
        self.classes[class].claims.iter().all(|claim| {
            let Some(row) = claim.row else { return true };
            if let Some(chosen) = self.claims.chosen(row) {
                let is_ready = capacity == Capacity::FutureIdle || self.claims.holds_now(row);
                return is_ready && (chosen.node == node || self.reaches(chosen, node));
            }
            self.claims.keeps_devices(row)
        })
    }

    /// Whether a node can use devices that were chosen in this cycle for another node.
    fn reaches(&self, chosen: &NewAllocation, node: NodeIdx) -> bool {
        let name = &self.nodes[chosen.node].name;
        self.tables.devices().reaches(&chosen.devices, name, &self.nodes[node])
    }

    /// Whether a node can use the devices that the claims of a class were allocated before this cycle.
    pub(crate) fn can_use_allocated(&self, class: ConstraintClassIdx, node: NodeIdx) -> bool {
        let own = &self.classes[class];
        let mut allocated = own.claims.iter().filter_map(|claim| match &claim.need {
            Need::Allocated(nodes) => nodes.as_ref(),
            Need::Devices(..) => None,
        });
        !own.has_failed && allocated.all(|nodes| nodes.passes(node))
    }

    /// Whether the tasks of a class would have no claim on a node, although their status names one.
    // Parity: see docs/parity.md#v12.
    pub(crate) fn lacks_named_claim(&self, class: ConstraintClassIdx, node: NodeIdx) -> bool {
        let own = &self.classes[class];
        let mut extended = own.extended.iter().filter(|_| own.names_claim);
        extended.any(|extended| matches!(extended.on(node), ExtendedKind::Nothing))
    }

    /// Whether expressions of claims are evaluated in the next cycle only.
    pub(crate) fn has_postponed(&self) -> bool {
        self.tables.wanted().has_postponed()
    }

    /// Follows the placement of a task: gives devices to its claims, or takes them back.
    pub(crate) fn on_placement(&mut self, placed: &Placed) {
        let Some(TaskClaims { class, rows, .. }) = self.of_tasks.get(&placed.task) else { return };
        let (class, rows) = (*class, rows.clone());
        let capacity = match placed.to.status {
            TaskStatus::Allocated => Some(Capacity::Idle),
            TaskStatus::Pipelined => Some(Capacity::FutureIdle),
            _ => None,
        };
        if let (Some(capacity), Some(node)) = (capacity, placed.to.node)
            && placed.from.node.is_none()
        {
            self.allocate((placed.task, class), &rows, node, capacity);
        }
        for row in rows {
            self.claims.moved(self.tables.inventory(), row, (placed.from, placed.to));
        }
        self.version += 1;
    }

    /// What is to be written to the claims of a task that has been placed.
    pub(crate) fn device_choices(&self, task: TaskIdx) -> Vec<DeviceChoice> {
        let Some(TaskClaims { class, rows, of_group, .. }) = self.of_tasks.get(&task) else {
            return Vec::new();
        };
        let choices = rows.iter().filter_map(|row| {
            let claim = self.claims.key(*row).clone();
            let chosen = self.claims.chosen(*row);
            let allocation = chosen.and_then(|chosen| self.allocation(chosen));
            if self.claims.exists(*row) {
                let group = of_group.as_ref().filter(|(rows, _)| rows.contains(row));
                let group = group.map(|(_, consumer)| consumer.clone());
                return Some(DeviceChoice { claim, allocation, new: None, group });
            }
            // The claim for extended resources is made if the node does not advertise them.
            match self.classes[*class].extended.as_ref()?.on(chosen?.node) {
                ExtendedKind::Claim(made, _) => {
                    let new = Some(Arc::clone(made));
                    Some(DeviceChoice { claim, allocation, new, group: None })
                }
                ExtendedKind::Nothing | ExtendedKind::Unprovided => None,
            }
        });
        choices.collect()
    }

    /// The claims to deallocate: a waiting task cannot use the devices, and no other pod uses the claim.
    // Parity: see docs/parity.md#v9.
    pub(crate) fn claims_to_deallocate(
        &self,
        cluster: &Cluster,
        is_refused: &dyn Fn(JobIdx) -> bool,
    ) -> Vec<(TaskIdx, ObjectKey)> {
        let waiting = self.of_tasks.iter().filter(|(task, _)| cluster.is_waiting(**task));
        let useless = waiting.filter_map(|(task, TaskClaims { class, rows, .. })| {
            if let Some(leftover) = &self.classes[*class].leftover {
                return Some((*task, leftover.clone()));
            }
            let uid = &cluster.tasks.facts[*task].uid;
            let job = cluster.tasks.job[*task]?;
            let is_useless = |facts: &&ResourceClaimFacts| {
                let allocation = facts.allocation.as_ref();
                allocation.is_some_and(|allocation| {
                    has_failed(facts, allocation) || allocation.nodes.is_some() && is_refused(job)
                })
            };
            let unused = rows.iter().filter_map(|row| self.claims.unused_but_by(*row, uid));
            unused.filter(is_useless).map(|facts| (*task, facts.key.clone())).next()
        });
        useless.collect()
    }

    /// How good the devices are that the claims of a class have or would get on a node: the earlier the
    /// alternatives of `firstAvailable`, the better.
    pub(crate) fn score(&self, class: ConstraintClassIdx, node: NodeIdx) -> i64 {
        let own = &self.classes[class];
        let known = own.claims.iter().filter_map(|claim| {
            let chosen = claim.row.and_then(|row| self.claims.chosen(row));
            match (&claim.need, chosen) {
                (Need::Devices(_, ready), Some(chosen)) => Some(score_of(ready, &chosen.devices)),
                (Need::Allocated(_), _) => self.claims.allocated_score(claim.row?),
                (Need::Devices(..), None) => None,
            }
        });
        let capacities = [Capacity::Idle, Capacity::FutureIdle].into_iter();
        let chosen =
            capacities.filter_map(|capacity| self.choose_from(0, class, node, capacity).ok());
        let chosen = chosen.take(1).flatten().filter_map(|(at, chosen)| {
            let Need::Devices(_, claim) = &own.claims.get(at)?.need else { return None };
            Some(score_of(claim, &chosen))
        });
        known.sum::<i64>() + chosen.sum::<i64>()
    }

    /// Whether some request of a class has alternatives.
    pub(crate) fn has_alternatives(&self, class: ConstraintClassIdx) -> bool {
        self.classes[class].claims.iter().any(|claim| match &claim.need {
            Need::Devices(_, claim) => claim.requests.iter().any(|request| request.is_list),
            // What it was given is the same on every node.
            Need::Allocated(_) => false,
        })
    }

    /// The number of alternatives of the request of a class that has most.
    pub(crate) fn n_alternatives(&self, class: ConstraintClassIdx) -> usize {
        let claims = self.classes[class].without_devices().map(|(_, _, _, claim)| claim);
        let requests = claims.flat_map(|claim| &claim.requests);
        requests.map(|request| request.alternatives.len()).max().unwrap_or(1)
    }

    /// The nodes of each pool that could serve a claim which all tasks of a class share and which has no devices yet.
    /// They must all be on nodes that reach the devices of the first of them.
    pub(crate) fn domains_to_choose(&self, class: ConstraintClassIdx) -> NodesByDomain {
        let is_open = |row: ClaimIdx| self.claims.chosen(row).is_none();
        let mut shared = self.classes[class].without_devices();
        let claim = shared.find_map(|(_, claim, _, ready)| {
            claim.row.filter(|row| is_open(*row)).and(Some(ready))
        });
        let Some(claim) = claim else { return NodesByDomain::default() };
        let mut known = self.domains.lock().unwrap_or_else(PoisonError::into_inner);
        let alternatives = claim.requests.iter().flat_map(|request| &request.alternatives);
        let admitting: BTreeSet<WantedIdx> =
            alternatives.map(|row| self.tables.wanted().first_alike(*row)).collect();
        known.of(admitting, || self.nodes_of_pools(claim))
    }

    /// The nodes of each pool that could serve a claim.
    fn nodes_of_pools(&self, claim: &Claim) -> NodesByDomain {
        let devices = self.tables.devices();
        let mut domains: BTreeMap<_, Vec<NodeIdx>> = BTreeMap::new();
        for node in self.nodes.ids() {
            for view in devices.inventory.pools_of(node) {
                if devices.may_serve(claim, view, node) {
                    domains.entry(view.pool).or_default().push(node);
                }
            }
        }
        self.n_steps.fetch_add(self.nodes.len() as u64, Ordering::Relaxed);
        domains.into_values().collect()
    }

    /// Allocates the claims of a task that has been placed on a node.
    fn allocate(
        &mut self,
        (task, class): (TaskIdx, ConstraintClassIdx),
        rows: &[ClaimIdx],
        node: NodeIdx,
        capacity: Capacity,
    ) {
        let first = match self.first {
            Some(first) => {
                self.first_of.insert((task, node), first);
                first
            }
            None => self.first_of.get(&(task, node)).copied().unwrap_or(0),
        };
        let again = self.choose_again(task, node, capacity).map(Ok);
        // The check of the node may have taken the last steps of the namespace: then the search is repeated without
        // that limit, so that no task is placed without its devices.
        let chosen =
            again.unwrap_or_else(|| self.choose_from(first, class, node, capacity)).or_else(|_| {
                self.choose_with(class, node, capacity, |devices, claims, in_use| {
                    devices.choose(node, claims, in_use)
                })
            });
        debug_assert!(chosen.is_ok(), "the node was checked: {chosen:?}");
        let Ok(chosen) = chosen else { return };
        for (at, devices) in chosen {
            let Some(row) = rows.get(at) else { continue };
            let Some(claim) = self.claim(class, at, node) else { continue };
            let held = self.tables.devices().held(claim, &devices);
            self.claims.choose(*row, NewAllocation { devices, node, class, at }, held);
        }
    }

    /// The claim at a position among those of a class, to be allocated on a node.
    fn claim(&self, class: ConstraintClassIdx, at: usize, node: NodeIdx) -> Option<&Claim> {
        let own = &self.classes[class];
        match own.claims.get(at).map(|claim| &claim.need) {
            Some(Need::Devices(_, claim)) => Some(claim),
            Some(Need::Allocated(_)) => None,
            None => match own.extended.as_ref()?.on(node) {
                ExtendedKind::Claim(_, claim) => Some(claim),
                ExtendedKind::Nothing | ExtendedKind::Unprovided => None,
            },
        }
    }

    /// The allocation of a claim, as it is written.
    fn allocation(&self, chosen: &NewAllocation) -> Option<Allocation> {
        let NewAllocation { devices, node, class, at } = chosen;
        let claim = self.claim(*class, *at, *node)?;
        Some(self.tables.devices().allocation(claim, devices, &self.nodes[*node].name))
    }
}
