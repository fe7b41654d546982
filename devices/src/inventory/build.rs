//! Builds the inventory from slices.

use super::*;

impl Inventory {
    /// The devices of some slices, tainted by some rules.
    pub fn new<'a>(
        nodes: &'a Column<NodeIdx, Arc<NodeFacts>>,
        slices: impl IntoIterator<Item = &'a Arc<SliceFacts>>,
        rules: &'a [Arc<DeviceTaintRuleFacts>],
    ) -> Self {
        Builder::new(nodes, slices, rules).build()
    }
}

/// The order of slices: by pool, by generation and by name.
fn order(slice: &SliceFacts) -> (&Name, &Name, i64, &Name) {
    (&slice.driver, &slice.pool, slice.generation, &slice.name)
}

/// A slice, and where its devices are.
struct Slice {
    facts: Arc<SliceFacts>,
    devices: Range<u32>,
    nodes: Nodes,
    pool: PoolIdx,
    key: usize,
}

/// The slices of one generation of a pool.
struct Generation {
    number: i64,
    /// How many slices there are.
    n_slices: usize,
    /// How many there should be.
    n_expected: i64,
    /// Whether a set of counters is there twice, or a device names a counter that is not.
    has_wrong_counters: bool,
    /// The highest generation of the pool.
    newest: i64,
}

pub(super) struct Builder<'a> {
    names: BTreeMap<&'a str, NodeIdx>,
    node_facts: &'a Column<NodeIdx, Arc<NodeFacts>>,
    rules: &'a [Arc<DeviceTaintRuleFacts>],
    /// The slices by driver and name of the pool, by generation, and by their own name.
    sorted: Vec<&'a Arc<SliceFacts>>,
    matching: BTreeMap<&'a [NodeTerm], Arc<NodeSet>>,
    generations: Column<PoolIdx, Generation>,
    slices: Vec<Slice>,
    inventory: Inventory,
}

impl<'a> Builder<'a> {
    pub(super) fn new(
        nodes: &'a Column<NodeIdx, Arc<NodeFacts>>,
        slices: impl IntoIterator<Item = &'a Arc<SliceFacts>>,
        rules: &'a [Arc<DeviceTaintRuleFacts>],
    ) -> Self {
        let slices = slices.into_iter().filter(|slice| !slice.has_compatibility_groups);
        let mut sorted: Vec<&Arc<SliceFacts>> = slices.collect();
        sorted.sort_by(|l, r| order(l).cmp(&order(r)));
        Self {
            names: nodes.iter().map(|(row, facts)| (&*facts.name, row)).collect(),
            node_facts: nodes,
            rules,
            sorted,
            matching: BTreeMap::new(),
            generations: Column::new(),
            slices: Vec::new(),
            inventory: Inventory::default(),
        }
    }

    pub(super) fn build(mut self) -> Inventory {
        let sorted = std::mem::take(&mut self.sorted);
        let pools = sorted.chunk_by(|l, r| l.driver == r.driver && l.pool == r.pool);
        for (key, pool) in pools.enumerate() {
            let newest = pool.last().map_or(0, |slice| slice.generation);
            let first = self.inventory.devices.len();
            for slices in pool.chunk_by(|l, r| l.generation == r.generation) {
                self.add_generation(key, newest, slices);
            }
            self.list_devices((pool[0].driver.clone(), pool[0].pool.clone()), first);
        }
        self.sort_into_nodes();
        self.inventory
    }

    /// Lists the devices of a pool by name, from the first row of the pool on.
    fn list_devices(&mut self, pool: (Name, Name), first: usize) {
        let devices = &mut self.inventory.devices;
        let rows = (first..devices.len()).map(DeviceIdx::new);
        let mut rows: Vec<(Name, DeviceIdx)> =
            rows.map(|row| (devices[row].id.device.clone(), row)).collect();
        rows.sort();
        for twins in rows.chunk_by(|(l, _), (r, _)| l == r) {
            twins.iter().for_each(|(_, row)| devices[*row].is_listed_once = twins.len() == 1);
        }
        self.inventory.rows.push((pool, rows));
    }

    /// Adds some slices of one generation of a pool, of which there is at least one. `key` is the number of the pool.
    fn add_generation(&mut self, key: usize, newest: i64, slices: &[&'a Arc<SliceFacts>]) {
        let mut of_sets = BTreeMap::new();
        let mut counters = Vec::new();
        let mut has_wrong_counters = false;
        for set in slices.iter().flat_map(|slice| &slice.counters) {
            let first = CounterIdx::new(self.inventory.counters.len());
            let of_set = set.counters.iter().map(|(counter, amount)| {
                let row = self.inventory.counters.push(amount.nano());
                self.inventory.first_of_set.push(first);
                counters.push(row);
                (counter, row)
            });
            let of_set: BTreeMap<&Name, CounterIdx> = of_set.collect();
            has_wrong_counters |= of_sets.insert(&set.name, of_set).is_some();
        }
        let pool = self.inventory.pools.push(Pool {
            driver: slices[0].driver.clone(),
            name: slices[0].pool.clone(),
            counters,
        });
        for facts in slices {
            let start = self.inventory.devices.len() as u32;
            let nodes = self.nodes_of(facts);
            for at in 0..facts.devices.len() {
                has_wrong_counters |= !self.add_device(pool, (facts, &nodes), at, &of_sets);
            }
            let devices = start..self.inventory.devices.len() as u32;
            self.slices.push(Slice { facts: Arc::clone(facts), devices, nodes, pool, key });
        }
        self.mark_local(pool, slices.len());
        self.generations.push(Generation {
            number: slices[0].generation,
            n_slices: slices.len(),
            n_expected: slices.last().map_or(0, |slice| slice.n_slices),
            has_wrong_counters,
            newest,
        });
    }

    /// Marks the devices of the last slices, all of one pool, that concern one node alone.
    fn mark_local(&mut self, pool: PoolIdx, n_slices: usize) {
        let slices = &self.slices[self.slices.len() - n_slices..];
        let node_of = |slice: &Slice| match slice.nodes {
            Nodes::One(node) => Some(node),
            Nodes::All | Nodes::Some(_) | Nodes::None => None,
        };
        let first = slices.first().and_then(node_of);
        let is_all_local = first.is_some() && slices.iter().all(|slice| node_of(slice) == first);
        for slice in slices.iter().filter(|slice| node_of(slice).is_some() && slice.pool == pool) {
            for row in slice.devices.clone().map(|at| DeviceIdx::new(at as usize)) {
                let device = &mut self.inventory.devices[row];
                device.is_local = is_all_local || device.consumes.is_empty();
            }
        }
    }

    /// Adds a device. Returns whether the pool has the counters that it consumes.
    fn add_device(
        &mut self,
        pool: PoolIdx,
        (slice, nodes): (&'a Arc<SliceFacts>, &Nodes),
        at: usize,
        of_sets: &BTreeMap<&Name, BTreeMap<&Name, CounterIdx>>,
    ) -> bool {
        let facts = &slice.devices[at];
        let id = DeviceId {
            driver: slice.driver.clone(),
            pool: slice.pool.clone(),
            device: facts.name.clone(),
        };
        let of_rules = self.rules.iter().filter(|rule| rule.taints(&id)).map(|rule| &rule.taint);
        let taints = facts.taints.iter().chain(of_rules).filter(|taint| taint.keeps_away());
        let mut knows_all = true;
        let mut consumes = Vec::new();
        for consumed in &facts.consumes {
            for (counter, amount) in &consumed.counters {
                match of_sets.get(&consumed.set).and_then(|set| set.get(counter)) {
                    Some(row) => consumes.push((*row, amount.nano())),
                    None => knows_all = false,
                }
            }
            knows_all &= of_sets.contains_key(&consumed.set);
        }
        let own_nodes = match slice.nodes {
            SliceNodes::PerDevice => Some(self.nodes_named(&facts.nodes)),
            SliceNodes::All(_) => None,
        };
        let device = Device {
            node: match own_nodes.as_ref().unwrap_or(nodes) {
                Nodes::One(node) => Some(*node),
                Nodes::All | Nodes::Some(_) | Nodes::None => None,
            },
            taints: taints.cloned().collect(),
            slice: Arc::clone(slice),
            at,
            pool,
            consumes,
            is_local: false,
            is_listed_once: true,
            is_shared: facts.allow_multiple_allocations,
            nodes: own_nodes,
            id,
        };
        self.inventory.devices.push(device);
        knows_all
    }

    /// The nodes that see a slice.
    fn nodes_of(&mut self, slice: &'a SliceFacts) -> Nodes {
        match &slice.nodes {
            SliceNodes::All(nodes) => self.nodes_named(nodes),
            SliceNodes::PerDevice => {
                let of_devices: Vec<Nodes> =
                    slice.devices.iter().map(|device| self.nodes_named(&device.nodes)).collect();
                if of_devices.iter().any(|nodes| matches!(nodes, Nodes::All)) {
                    return Nodes::All;
                }
                let ids = self.node_facts.ids();
                let seen = ids.map(|node| of_devices.iter().any(|nodes| nodes.contains(node)));
                Nodes::Some(Arc::new(NodeSet::of(seen)))
            }
        }
    }

    fn nodes_named(&mut self, nodes: &'a DeviceNodes) -> Nodes {
        match nodes {
            DeviceNodes::None => Nodes::None,
            DeviceNodes::All => Nodes::All,
            DeviceNodes::Node(name) => match self.names.get(&**name) {
                Some(node) => Nodes::One(*node),
                None => Nodes::None,
            },
            DeviceNodes::Selector(terms) => {
                let node_facts = self.node_facts;
                let matching = self.matching.entry(terms).or_insert_with(|| {
                    let matches = |facts: &Arc<NodeFacts>| {
                        terms.iter().any(|term| term.matches(&facts.name, &facts.labels))
                    };
                    Arc::new(NodeSet::of(node_facts.values().map(matches)))
                });
                Nodes::Some(Arc::clone(matching))
            }
        }
    }

    /// Gives each node the pools that it sees.
    fn sort_into_nodes(&mut self) {
        let mut own = BTreeMap::<NodeIdx, Vec<usize>>::new();
        let mut for_all = Vec::new();
        let mut for_some = Vec::new();
        for (at, slice) in self.slices.iter().enumerate() {
            match &slice.nodes {
                Nodes::One(node) => own.entry(*node).or_default().push(at),
                Nodes::All => for_all.push(at),
                Nodes::Some(nodes) if !nodes.is_empty() => for_some.push((at, Arc::clone(nodes))),
                Nodes::Some(_) | Nodes::None => {}
            }
        }
        let mut groups = BTreeMap::<Vec<usize>, usize>::new();
        let mut slices_of_groups: Vec<Vec<usize>> = Vec::new();
        for node in self.node_facts.ids() {
            let seen = for_some.iter().filter(|(_, nodes)| nodes.contains(node));
            let seen: Vec<usize> = seen.map(|(at, _)| *at).collect();
            let shared = *groups.entry(seen).or_insert_with_key(|seen| {
                let mut slices: Vec<usize> = seen.iter().chain(&for_all).copied().collect();
                slices.sort_unstable();
                self.inventory.shared.push(self.views(&slices));
                slices_of_groups.push(slices);
                slices_of_groups.len() - 1
            });
            let own = own.get(&node).map(|own| self.own_views(own, &slices_of_groups[shared]));
            self.inventory.nodes.push(NodeDevices { own: own.unwrap_or_default(), shared });
        }
    }

    /// The pools that have a slice of the node alone, with the other slices that it sees of them.
    fn own_views(&self, own: &[usize], shared: &[usize]) -> Vec<PoolView> {
        let keys: BTreeSet<usize> = own.iter().map(|at| self.slices[*at].key).collect();
        let shared = shared.iter().filter(|at| keys.contains(&self.slices[**at].key));
        let mut slices: Vec<usize> = own.iter().chain(shared).copied().collect();
        slices.sort_unstable();
        self.views(&slices)
    }

    /// The pools of some slices, which are ascending, in the order in which they are tried.
    fn views(&self, slices: &[usize]) -> Vec<PoolView> {
        let is_same = |l: &usize, r: &usize| self.slices[*l].key == self.slices[*r].key;
        let views = slices.chunk_by(is_same).filter_map(|slices| self.view(slices));
        let mut views: Vec<PoolView> = views.collect();
        views.sort_by_key(|view| (view.has_binding_conditions, view.pool));
        views
    }

    /// A pool of which a node sees these slices; `None` if it is outdated.
    fn view(&self, slices: &[usize]) -> Option<PoolView> {
        // Slices are in the order of their generations.
        let pool = self.slices[*slices.last()?].pool;
        let slices = slices.iter().map(|at| &self.slices[*at]).filter(|slice| slice.pool == pool);
        let slices: Vec<&Slice> = slices.collect();
        let generation = &self.generations[pool];
        let is_expected = |n: usize| i64::try_from(n) == Ok(generation.n_expected);
        let is_complete = is_expected(slices.len()) || {
            if generation.newest > generation.number {
                return None;
            }
            is_expected(generation.n_slices)
        };
        let is_listed_once =
            |row: u32| self.inventory.devices[DeviceIdx::new(row as usize)].is_listed_once;
        let mut rows = slices.iter().flat_map(|slice| slice.devices.clone());
        let mut names = BTreeSet::new();
        let mut devices = slices.iter().flat_map(|slice| &slice.facts.devices);
        let is_duplicate =
            !rows.all(is_listed_once) && devices.any(|device| !names.insert(&device.name));
        let state = if !is_complete {
            PoolState::Incomplete
        } else if is_duplicate || generation.has_wrong_counters {
            PoolState::Invalid
        } else {
            PoolState::Complete
        };
        let mut devices = slices.iter().flat_map(|slice| &slice.facts.devices);
        Some(PoolView {
            has_binding_conditions: devices.any(|device| !device.binding_conditions.is_empty()),
            pool,
            state,
            devices: slices.iter().map(|slice| slice.devices.clone()).collect(),
        })
    }
}
