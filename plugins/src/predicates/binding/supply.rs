//! Free volumes, and what a claim asks of one.
//!
//! Volumes stand in order of size, then name, so that the first that will do is the one to take.
//! Those that only few nodes reach (local disks) are found by the label value that says so; the
//! others are few, or are all alike.

use std::{collections::BTreeMap, sync::Arc};

use kube_batch_api::{
    cluster::Cluster,
    column::{Column, NodeIdx},
    facts::storage::{ClaimFacts, StorageClassFacts, VolumeFacts},
    name::Name,
    selector::LabelSelector,
};

use crate::{
    node_labels::{Key, NodeLabels, Value},
    node_tests::{AllOf, AnyOf, Compiler},
    rows::row_type,
};

/// Provisioner of classes whose volumes are made by hand.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

row_type! {
    /// Row of a volume that is free, or reserved for a claim that is not bound yet.
    Free,
    /// Row of the candidates of claims that ask for the same.
    CandidatesIdx,
}

/// The volumes that claims can get.
#[derive(Debug, Default)]
pub(super) struct Supply {
    volumes: Column<Free, Volume>,
    candidates: Column<CandidatesIdx, Candidates>,
    by_shape: BTreeMap<Shape, CandidatesIdx>,
    is_stocked: bool,
}

#[derive(Debug)]
struct Volume {
    facts: Arc<VolumeFacts>,
    affinity: Option<AnyOf>,
    is_taken: bool,
}

/// What a claim asks of a volume.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Shape {
    class: Name,
    request_bytes: i64,
    access_modes: Vec<Name>,
    volume_mode: Name,
    selector: Option<LabelSelector>,
}

impl Shape {
    fn of(claim: &ClaimFacts) -> Self {
        Self {
            class: claim.class.clone().unwrap_or_default(),
            request_bytes: claim.request_bytes,
            access_modes: claim.access_modes.clone(),
            volume_mode: claim.volume_mode.clone(),
            selector: claim.selector.clone(),
        }
    }

    /// Whether the volume is large enough and of the right mode: all that is asked of one that is
    /// reserved for the claim.
    fn holds(&self, volume: &VolumeFacts) -> bool {
        volume.class == self.class
            && volume.capacity_bytes >= self.request_bytes
            && volume.volume_mode == self.volume_mode
    }

    fn suits(&self, volume: &VolumeFacts) -> bool {
        volume.claim.is_none()
            && volume.available
            && self.holds(volume)
            && self.access_modes.iter().all(|mode| volume.access_modes.contains(mode))
            && self.selector.as_ref().is_none_or(|selector| selector.matches(&volume.labels))
    }
}

/// Volumes that suit a claim, ascending in each list.
#[derive(Debug, Default)]
struct Candidates {
    anywhere: Vec<Free>,
    /// Those that need one of a few values of a label, by that value.
    by_label: BTreeMap<(Key, Value), Vec<Free>>,
    /// The keys in `by_label`.
    keys: Vec<Key>,
}

/// What a claim needs, and how it can be had.
#[derive(Debug)]
pub(super) struct Demand {
    /// The node that was selected for it; `Some(None)` if that is not in the snapshot.
    selected: Option<Option<NodeIdx>>,
    /// The volume that is reserved for it.
    reserved: Option<Free>,
    candidates: CandidatesIdx,
    provision: Provision,
}

/// Where a volume can be made for a claim.
#[derive(Debug)]
enum Provision {
    Nowhere,
    Anywhere,
    Within(AnyOf),
}

impl Provision {
    fn of(compiler: &mut Compiler<'_>, class: Option<&StorageClassFacts>) -> Self {
        match class {
            Some(class) if matches!(&*class.provisioner, "" | NO_PROVISIONER) => Self::Nowhere,
            Some(class) if class.topologies.is_empty() => Self::Anywhere,
            Some(class) => {
                let terms = class.topologies.iter().map(LabelSelector::requirements);
                Self::Within(compiler.alternatives(terms))
            }
            None => Self::Nowhere,
        }
    }

    fn reaches(&self, labels: &NodeLabels, node: NodeIdx) -> bool {
        match self {
            Self::Nowhere => false,
            Self::Anywhere => true,
            Self::Within(places) => places.passes(labels, node),
        }
    }
}

impl Supply {
    /// What a claim asks for.
    pub(super) fn demand(&mut self, compiler: &mut Compiler<'_>, claim: &ClaimFacts) -> Demand {
        if !self.is_stocked {
            self.stock(compiler);
        }
        let cluster = compiler.cluster;
        let class = claim.class.as_ref().and_then(|class| cluster.storage.classes.get(class));
        Demand {
            selected: claim.selected_node.as_ref().map(|name| node_row(cluster, name)),
            reserved: self.reserved(claim),
            candidates: self.candidates(Shape::of(claim)),
            provision: Provision::of(compiler, class.map(|class| &**class)),
        }
    }

    fn stock(&mut self, compiler: &mut Compiler<'_>) {
        let mut volumes: Vec<&Arc<VolumeFacts>> =
            compiler.cluster.storage.volumes.values().collect();
        volumes.sort_by(|l, r| (l.capacity_bytes, &l.name).cmp(&(r.capacity_bytes, &r.name)));
        let stocked = volumes.into_iter().map(|facts| Volume {
            affinity: facts.node_affinity.as_ref().map(|terms| compiler.any_of(terms)),
            facts: Arc::clone(facts),
            is_taken: false,
        });
        self.volumes = stocked.collect();
        self.is_stocked = true;
    }

    fn reserved(&self, claim: &ClaimFacts) -> Option<Free> {
        let shape = Shape::of(claim);
        let is_for = |facts: &VolumeFacts| {
            facts.claim.as_ref().is_some_and(|(key, uid)| {
                *key == claim.key && uid.as_ref().is_none_or(|uid| *uid == claim.uid)
            })
        };
        let mut volumes = self.volumes.iter();
        let found = volumes.find(|(_, volume)| is_for(&volume.facts) && shape.holds(&volume.facts));
        found.map(|(volume, _)| volume)
    }

    fn candidates(&mut self, shape: Shape) -> CandidatesIdx {
        if let Some(candidates) = self.by_shape.get(&shape) {
            return *candidates;
        }
        let mut candidates = Candidates::default();
        for (row, volume) in self.volumes.iter().filter(|(_, volume)| shape.suits(&volume.facts)) {
            let places = volume.affinity.as_ref().and_then(AnyOf::only).and_then(AllOf::few_values);
            let Some((key, values)) = places else {
                candidates.anywhere.push(row);
                continue;
            };
            for value in values {
                candidates.by_label.entry((key, *value)).or_default().push(row);
            }
            if !candidates.keys.contains(&key) {
                candidates.keys.push(key);
            }
        }
        let row = self.candidates.push(candidates);
        self.by_shape.insert(shape, row);
        row
    }

    /// Whether a volume can be reached from a node.
    pub(super) fn reaches(&self, labels: &NodeLabels, volume: Free, node: NodeIdx) -> bool {
        self.volumes[volume].affinity.as_ref().is_none_or(|any| any.passes(labels, node))
    }

    /// What a claim gets on a node: a volume that is neither taken nor among `chosen`, or
    /// `Some(None)` if one is made for it; `None` if it gets nothing there.
    pub(super) fn choose(
        &self,
        labels: &NodeLabels,
        demand: &Demand,
        node: NodeIdx,
        chosen: &[Free],
    ) -> Option<Option<Free>> {
        let volume = match (&demand.selected, demand.reserved) {
            (Some(selected), _) if *selected != Some(node) => return None,
            (Some(_), _) => None,
            (None, Some(reserved)) => {
                Some(reserved).filter(|volume| self.reaches(labels, *volume, node))
            }
            (None, None) => self.smallest(labels, demand.candidates, node, chosen),
        };
        match volume {
            Some(volume) => Some(Some(volume)),
            None => demand.provision.reaches(labels, node).then_some(None),
        }
    }

    fn smallest(
        &self,
        labels: &NodeLabels,
        candidates: CandidatesIdx,
        node: NodeIdx,
        chosen: &[Free],
    ) -> Option<Free> {
        let candidates = &self.candidates[candidates];
        let local = candidates.keys.iter().filter_map(|key| {
            let place = (*key, labels.value(*key, node));
            candidates.by_label.get(&place)
        });
        let is_free = |volume: &&Free| {
            !self.volumes[**volume].is_taken
                && !chosen.contains(volume)
                && self.reaches(labels, **volume, node)
        };
        let lists = std::iter::once(&candidates.anywhere).chain(local);
        lists.filter_map(|volumes| volumes.iter().find(is_free)).min().copied()
    }

    /// The name of a volume.
    pub(super) fn name(&self, volume: Free) -> &Name {
        &self.volumes[volume].facts.name
    }

    /// Takes a volume, or gives it back.
    pub(super) fn set_taken(&mut self, volume: Free, is_taken: bool) {
        self.volumes[volume].is_taken = is_taken;
    }
}

fn node_row(cluster: &Cluster, name: &Name) -> Option<NodeIdx> {
    let mut nodes = cluster.nodes.facts.iter();
    nodes.find(|(_, facts)| facts.name == *name).map(|(node, _)| node)
}
