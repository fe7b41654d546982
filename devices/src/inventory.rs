//! The devices of the cluster, and which of them each node can use, in the order in which they are tried.
//!
//! Drivers rely on the order: pools without binding conditions first; then by driver and name of the pool, as
//! plain strings; then by name of the slice; then as the slice lists them.
//!
//! Only the highest generation of a pool that a node sees counts, and only if all its slices are there.
//! Pools that are incomplete or contradict themselves give no devices.
//!
//! Source: Kubernetes 1.37, `dynamic-resource-allocation/structured/internal/incubating/pools_incubating.go`.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    sync::Arc,
};

use fixedbitset::FixedBitSet;
use kube_batch_model::{
    column::{Column, NodeIdx, Ordinal},
    facts::{
        device::{
            DeviceId,
            slice::{DeviceFacts, DeviceNodes, SliceFacts, SliceNodes},
            taint::{DeviceTaint, DeviceTaintRuleFacts},
        },
        node::NodeFacts,
    },
    name::Name,
    node_set::NodeSet,
    selector::NodeTerm,
};

mod build;

use crate::rows::{CounterIdx, DeviceIdx, PoolIdx};

/// All devices.
#[derive(Debug, Default)]
pub struct Inventory {
    devices: Column<DeviceIdx, Device>,
    pools: Column<PoolIdx, Pool>,
    /// What each counter has when nothing is in use, in nano-units.
    counters: Column<CounterIdx, i128>,
    /// For each counter, the first counter of its set.
    first_of_set: Column<CounterIdx, CounterIdx>,
    /// The rows of devices by driver, pool and name, all ascending: one for each slice that lists a device.
    rows: Vec<PoolRows>,
    nodes: Column<NodeIdx, NodeDevices>,
    /// The pools of nodes that see the same slices, apart from those of one node.
    shared: Vec<Vec<PoolView>>,
}

/// The driver and the name of a pool, and the rows of its devices by name.
type PoolRows = ((Name, Name), Vec<(Name, DeviceIdx)>);

/// The devices of a pool by name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolDevices<'a> {
    rows: &'a [(Name, DeviceIdx)],
    /// Where the devices begin that follow the last that was looked up.
    next: usize,
}

impl<'a> PoolDevices<'a> {
    /// The rows of a device, found at once if its name follows that of the last.
    pub(crate) fn next_rows(&mut self, name: &Name) -> impl Iterator<Item = DeviceIdx> + use<'a> {
        let is_it = |(own, _): &(Name, DeviceIdx)| own == name;
        if !self.rows.get(self.next).is_some_and(is_it) {
            self.next = self.rows.partition_point(|(own, _)| own < name);
        }
        let rest = &self.rows[self.next..];
        let n_rows = rest.iter().take_while(|row| is_it(row)).count();
        self.next += n_rows;
        rest[..n_rows].iter().map(|(_, row)| *row)
    }
}

/// A device of a slice.
#[derive(Debug)]
pub struct Device {
    /// What identifies it.
    pub id: DeviceId,
    /// The slice.
    pub slice: Arc<SliceFacts>,
    at: usize,
    /// Its pool.
    pub pool: PoolIdx,
    /// The taints that keep requests away, those of rules included.
    pub taints: Vec<DeviceTaint>,
    /// The counters that it consumes, in nano-units.
    pub consumes: Vec<(CounterIdx, i128)>,
    /// The nodes that can use it, if its slice leaves that to the device.
    nodes: Option<Nodes>,
    /// Whether it is allocated in shares.
    pub is_shared: bool,
    /// Whether no other slice lists it, of any generation of the pool.
    pub is_listed_once: bool,
    /// The node that alone can use it, if there is one.
    pub node: Option<NodeIdx>,
    /// Whether using it concerns one node alone.
    pub is_local: bool,
}

impl Device {
    /// The device as it was published.
    pub fn facts(&self) -> &DeviceFacts {
        &self.slice.devices[self.at]
    }

    /// Who can use it.
    pub fn published_nodes(&self) -> &DeviceNodes {
        match &self.slice.nodes {
            SliceNodes::All(nodes) => nodes,
            SliceNodes::PerDevice => &self.facts().nodes,
        }
    }

    /// Whether it is either free or not, for every node that sees its slice: it consumes no counters, and cannot be
    /// shared.
    pub fn is_plain(&self) -> bool {
        self.is_single() && self.consumes.is_empty()
    }

    /// Whether it can be taken alone if it is free and its pool has the counters that it consumes: it cannot be shared,
    /// and every node that sees its slice can use it.
    pub fn is_single(&self) -> bool {
        self.nodes.is_none() && !self.is_shared
    }

    /// What it consumes of a counter, in nano-units.
    pub(crate) fn consumed_of(&self, counter: CounterIdx) -> i128 {
        let consumed = self.consumes.iter().filter(|(own, _)| *own == counter);
        consumed.map(|(_, amount)| *amount).sum()
    }

    /// Whether a node that sees its slice can use it.
    pub fn is_usable_on(&self, node: NodeIdx) -> bool {
        self.nodes.as_ref().is_none_or(|nodes| nodes.contains(node))
    }
}

/// The slices of one generation of a pool.
#[derive(Debug)]
pub struct Pool {
    /// The driver.
    pub driver: Name,
    /// The pool.
    pub name: Name,
    /// Its counters.
    pub counters: Vec<CounterIdx>,
}

/// The nodes that see a slice or a device.
#[derive(Clone, Debug)]
enum Nodes {
    All,
    One(NodeIdx),
    Some(Arc<NodeSet>),
    None,
}

impl Nodes {
    fn contains(&self, node: NodeIdx) -> bool {
        match self {
            Self::All => true,
            Self::One(one) => *one == node,
            Self::Some(nodes) => nodes.contains(node),
            Self::None => false,
        }
    }
}

/// A pool as a node sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolView {
    /// Whether one of its devices has binding conditions.
    has_binding_conditions: bool,
    /// The pool.
    pub pool: PoolIdx,
    /// Whether its devices can be used.
    pub state: PoolState,
    /// Its devices, slice by slice.
    pub devices: Vec<Range<u32>>,
}

impl PoolView {
    /// The rows of its devices, in order.
    pub fn rows(&self) -> impl Iterator<Item = DeviceIdx> {
        self.devices.iter().flat_map(|range| range.clone().map(|at| DeviceIdx::new(at as usize)))
    }
}

/// Whether the devices of a pool can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolState {
    /// They can.
    Complete,
    /// Slices are missing.
    Incomplete,
    /// The slices contradict each other.
    Invalid,
}

/// The pools of a node.
#[derive(Clone, Debug, Default)]
struct NodeDevices {
    /// Those with a slice of this node alone.
    own: Vec<PoolView>,
    /// Position of the others.
    shared: usize,
}

impl Inventory {
    /// All devices, in the order of their rows.
    pub const fn devices(&self) -> &Column<DeviceIdx, Device> {
        &self.devices
    }

    /// A pool.
    pub fn pool(&self, pool: PoolIdx) -> &Pool {
        &self.pools[pool]
    }

    /// What each counter has when nothing is in use, in nano-units.
    pub const fn counters(&self) -> &Column<CounterIdx, i128> {
        &self.counters
    }

    /// The first counter of the set of a counter.
    pub(crate) fn first_of_set(&self, counter: CounterIdx) -> CounterIdx {
        self.first_of_set[counter]
    }

    /// The rows of a device: one for each slice that lists it.
    pub fn rows_of(&self, id: &DeviceId) -> impl Iterator<Item = DeviceIdx> {
        self.devices_of(id).next_rows(&id.device)
    }

    /// The devices of the pool that a device is of.
    pub(crate) fn devices_of(&self, id: &DeviceId) -> PoolDevices<'_> {
        let pool = (&id.driver, &id.pool);
        let order = |((driver, name), _): &PoolRows| (driver, name).cmp(&pool);
        let found = self.rows.binary_search_by(order);
        PoolDevices { rows: found.map_or(&[][..], |at| self.rows[at].1.as_slice()), next: 0 }
    }

    /// The devices that some node can use, as far as their pools are concerned.
    pub fn usable(&self) -> FixedBitSet {
        let mut usable = FixedBitSet::with_capacity(self.devices.len());
        let own = self.nodes.values().flat_map(|node| &node.own);
        let views = own.chain(self.shared.iter().flatten());
        for view in views.filter(|view| view.state == PoolState::Complete) {
            usable.extend(view.rows().map(Ordinal::at));
        }
        usable
    }

    /// The pools that a node sees, in the order in which they are tried.
    pub fn pools_of(&self, node: NodeIdx) -> impl Iterator<Item = &PoolView> {
        let NodeDevices { own, shared } = &self.nodes[node];
        let is_same = |one: &PoolView, other: &PoolView| {
            let (one, other) = (&self.pools[one.pool], &self.pools[other.pool]);
            one.driver == other.driver && one.name == other.name
        };
        let shared = self.shared[*shared].iter();
        let mut shared =
            shared.filter(move |view| !own.iter().any(|own| is_same(own, view))).peekable();
        let mut own = own.iter().peekable();
        let order = |view: &PoolView| (view.has_binding_conditions, view.pool);
        std::iter::from_fn(move || match (own.peek(), shared.peek()) {
            (Some(l), Some(r)) if order(l) > order(r) => shared.next(),
            (Some(_), _) => own.next(),
            (None, _) => shared.next(),
        })
    }
}
