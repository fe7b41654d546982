//! Available volumes, and which of them a claim can be bound to.
//!
//! Volumes are in order of size, then name, so that the first that matches is the smallest. Volumes
//! that only few nodes can reach, such as local disks, are indexed by the label value that says so.
//!
//! The claims of a pod are in order of size too. So what is too small or in use for one claim is so for all that
//! follow it with the same requirements, and a [`Choosing`] goes through the volumes once for all of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, OnceLock},
};

use kube_batch_framework::plugin::NodesByDomain;
use kube_batch_model::{
    cluster::Cluster,
    column::{Column, NodeIdx},
    facts::storage::{ClaimFacts, StorageClassFacts, VolumeFacts},
    name::{Name, ObjectKey},
    selector::{LabelSelector, Requirement},
};

use crate::{
    compiled::Opening,
    node_labels::{Key, LabelColumn, Value},
    node_terms::{AllOf, AnyOf},
};

/// Provisioner of classes whose volumes are created by hand.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

kube_batch_model::row_type! {
    /// Row of a volume.
    pub(crate) AvailableVolume,
    /// Row of the matching volumes of claims with equal requirements.
    pub(crate) MatchingIdx,
}

/// The volumes of the cluster, and which of them match which claims.
#[derive(Debug, Default)]
pub(super) struct AvailableVolumes {
    /// Filled when the first claim is added.
    listed: Option<Listed>,
    /// Those that match are found when a claim is considered for a node: not for every claim that waits.
    matching: Column<MatchingIdx, (Requirements, OnceLock<MatchingVolumes>)>,
    by_requirements: BTreeMap<Requirements, MatchingIdx>,
    classes: BTreeMap<Name, Arc<ClassOfClaims>>,
}

/// How much longer it takes to match a volume with the requirements of a claim than to look at it.
const STEPS_OF_A_MATCH: usize = 8;

/// All volumes.
#[derive(Debug)]
struct Listed {
    /// In order of size, then name.
    volumes: Column<AvailableVolume, Volume>,
    /// Those whose `claimRef` names a claim.
    by_claim: BTreeMap<ObjectKey, Vec<AvailableVolume>>,
}

#[derive(Debug)]
struct Volume {
    facts: Arc<VolumeFacts>,
    affinity: Option<AnyOf>,
    is_taken: bool,
}

impl Volume {
    fn is_reachable(&self, node: NodeIdx) -> bool {
        self.affinity.as_ref().is_none_or(|affinity| affinity.passes(node))
    }

    const fn is_near_some_nodes(&self) -> bool {
        self.affinity.is_some()
    }
}

/// What a claim requires of a volume besides its size.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Requirements {
    class: Name,
    access_modes: Vec<Name>,
    volume_mode: Name,
    selector: Option<LabelSelector>,
}

impl Requirements {
    fn of(claim: &ClaimFacts) -> Self {
        Self {
            class: claim.class.clone().unwrap_or_default(),
            access_modes: claim.access_modes.clone(),
            volume_mode: claim.volume_mode.clone(),
            selector: claim.selector.clone(),
        }
    }

    /// Whether a volume that is reserved for the claim can be bound to it: access modes and selector
    /// are not compared.
    fn match_reserved(&self, volume: &VolumeFacts) -> bool {
        volume.class == self.class && volume.volume_mode == self.volume_mode
    }

    /// Whether an available volume can be bound to the claim.
    fn match_available(&self, volume: &VolumeFacts) -> bool {
        volume.claim.is_none()
            && volume.available
            && self.match_reserved(volume)
            && self.access_modes.iter().all(|mode| volume.access_modes.contains(mode))
            && self.selector.as_ref().is_none_or(|selector| selector.matches(&volume.labels))
    }
}

/// The volumes that match a claim, in order of size and name.
#[derive(Debug, Default)]
struct MatchingVolumes {
    anywhere: Vec<AvailableVolume>,
    /// Those that require one of a few values of a label, by that value.
    by_label: BTreeMap<(Key, Value), Vec<AvailableVolume>>,
    /// The labels in `by_label`.
    labels: Vec<Arc<LabelColumn>>,
}

impl MatchingVolumes {
    /// The lists of those that a node may reach.
    fn lists(&self, node: NodeIdx) -> impl Iterator<Item = &[AvailableVolume]> {
        let local = self.labels.iter().map(move |labels| {
            let place = (labels.key(), labels.value(node));
            self.by_label.get(&place).map_or(&[][..], Vec::as_slice)
        });
        std::iter::once(&*self.anywhere).chain(local)
    }
}

/// An unbound claim, and the ways to bind it.
#[derive(Debug)]
pub(super) struct ClaimToBind {
    selected_node: SelectedNode,
    /// The volume that is reserved for it.
    reserved: Option<AvailableVolume>,
    matching: MatchingIdx,
    request_bytes: i64,
    class: Arc<ClassOfClaims>,
    is_for_many_nodes: bool,
}

/// What the claims of a class have in common.
#[derive(Debug)]
struct ClassOfClaims {
    provision: Provision,
    /// Of claims that are for many nodes.
    reach: Reach,
}

static ONE_NODE: Reach = Reach::OneNode;

impl ClaimToBind {
    fn reach(&self) -> &Reach {
        if self.is_for_many_nodes { &self.class.reach } else { &ONE_NODE }
    }
}

/// From where a volume can be used that is made for a claim, besides the node of the first pod.
#[derive(Debug)]
enum Reach {
    /// From nowhere: it is made for one node.
    OneNode,
    /// From the nodes with the same values of these labels.
    Labels(Vec<Arc<LabelColumn>>),
}

/// Access modes with which the pods of several nodes use a volume.
const MODES_OF_MANY_NODES: [&str; 2] = ["ReadWriteMany", "ReadOnlyMany"];

impl Reach {
    /// As the driver of the class on the nodes, and the topologies of the class say.
    fn of(opening: Opening<'_>, class: Option<&StorageClassFacts>) -> Self {
        let Some(class) = class else { return Self::OneNode };
        let csi_nodes = opening.cluster.storage.csi_nodes.values();
        let of_driver = csi_nodes.filter_map(|node| node.topology_keys.get(&class.provisioner));
        let of_class = class.topologies.iter().flat_map(LabelSelector::requirements);
        let keys: BTreeSet<&Name> =
            of_driver.flatten().chain(of_class.map(Requirement::key)).collect();
        let labels = opening.compiled.labels();
        Self::Labels(keys.into_iter().map(|key| labels.column(opening.cluster, key)).collect())
    }

    fn has(&self, first: NodeIdx, node: NodeIdx) -> bool {
        match self {
            Self::OneNode => first == node,
            Self::Labels(labels) => {
                first == node
                    || labels
                        .iter()
                        .all(|labels| labels.has(node) && labels.value(node) == labels.value(first))
            }
        }
    }
}

/// The node for which the claim was to be provisioned in an earlier cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SelectedNode {
    None,
    Node(NodeIdx),
    /// A node that does not exist.
    Missing,
}

impl SelectedNode {
    fn of(cluster: &Cluster, claim: &ClaimFacts) -> Self {
        let Some(name) = &claim.selected_node else { return Self::None };
        cluster.nodes.row(name).map_or(Self::Missing, Self::Node)
    }
}

/// Where the provisioner of a claim's class can create a volume.
#[derive(Debug)]
enum Provision {
    Nowhere,
    Anywhere,
    Within(AnyOf),
}

impl Provision {
    fn of(opening: Opening<'_>, class: Option<&StorageClassFacts>) -> Self {
        match class {
            Some(class) if matches!(&*class.provisioner, "" | NO_PROVISIONER) => Self::Nowhere,
            Some(class) if class.topologies.is_empty() => Self::Anywhere,
            Some(class) => {
                let terms = class.topologies.iter().map(LabelSelector::requirements);
                Self::Within(opening.compiler().alternatives(terms))
            }
            None => Self::Nowhere,
        }
    }

    fn is_possible(&self, node: NodeIdx) -> bool {
        match self {
            Self::Nowhere => false,
            Self::Anywhere => true,
            Self::Within(topologies) => topologies.passes(node),
        }
    }
}

/// The volume a claim gets on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VolumeChoice {
    /// A volume that exists.
    Existing(AvailableVolume),
    /// A volume that the provisioner creates.
    Provision,
    /// None: the claim cannot be bound on this node.
    Unavailable,
}

impl AvailableVolumes {
    /// Finds the ways to bind a claim.
    pub(super) fn claim_to_bind(
        &mut self,
        opening: Opening<'_>,
        claim: &ClaimFacts,
    ) -> ClaimToBind {
        let cluster = opening.cluster;
        let listed = self.listed.get_or_insert_with(|| Listed::new(opening));
        let requirements = Requirements::of(claim);
        let name = requirements.class.clone();
        let class = self.classes.entry(name).or_insert_with_key(|name| {
            let facts = cluster.storage.classes.get(name).map(|facts| &**facts);
            let (provision, reach) = (Provision::of(opening, facts), Reach::of(opening, facts));
            Arc::new(ClassOfClaims { provision, reach })
        });
        let is_for_many = |mode: &Name| MODES_OF_MANY_NODES.contains(&&**mode);
        ClaimToBind {
            selected_node: SelectedNode::of(cluster, claim),
            reserved: listed.reserved(claim, &requirements),
            request_bytes: claim.request_bytes,
            class: Arc::clone(class),
            is_for_many_nodes: claim.access_modes.iter().any(is_for_many),
            matching: *self.by_requirements.entry(requirements).or_insert_with_key(
                |requirements| self.matching.push((requirements.clone(), OnceLock::new())),
            ),
        }
    }

    fn volumes(&self) -> &Column<AvailableVolume, Volume> {
        &self.listed.as_ref().expect("volumes are listed with the first claim").volumes
    }

    fn volume(&self, row: AvailableVolume) -> &Volume {
        &self.volumes()[row]
    }

    /// The volumes that match a claim, whatever their size, and whether they were looked for only now.
    fn matching(&self, row: MatchingIdx) -> (&MatchingVolumes, bool) {
        let (requirements, matching) = &self.matching[row];
        let is_new = matching.get().is_none();
        (matching.get_or_init(|| MatchingVolumes::new(self.volumes(), requirements)), is_new)
    }

    /// Whether a volume can be reached from a node.
    pub(super) fn is_reachable(&self, volume: AvailableVolume, node: NodeIdx) -> bool {
        self.volume(volume).is_reachable(node)
    }

    /// Whether a volume that is made for a claim on its first node can be used from another.
    pub(super) fn is_made_within_reach(claim: &ClaimToBind, first: NodeIdx, node: NodeIdx) -> bool {
        claim.reach().has(first, node) && claim.class.provision.is_possible(node)
    }

    /// The sets of nodes of which the first pod chooses one for all pods that share a claim, if a volume must be made
    /// for it.
    pub(super) fn domains_to_choose(&self, claim: &ClaimToBind) -> NodesByDomain {
        let Reach::Labels(labels) = claim.reach() else { return NodesByDomain::default() };
        if labels.is_empty()
            || claim.reserved.is_some()
            || claim.selected_node != SelectedNode::None
            || self.is_matched(claim)
        {
            return NodesByDomain::default();
        }
        let mut domains = BTreeMap::<Vec<Value>, Vec<NodeIdx>>::new();
        for node in labels.iter().take(1).flat_map(|labels| labels.nodes()) {
            let values: Vec<Value> = labels.iter().map(|labels| labels.value(node)).collect();
            if claim.class.provision.is_possible(node)
                && !values.iter().any(|value| value.is_absent())
            {
                domains.entry(values).or_default().push(node);
            }
        }
        domains.into_values().collect()
    }

    /// Whether some volume matches a claim, available or taken.
    fn is_matched(&self, claim: &ClaimToBind) -> bool {
        let (matching, _) = self.matching(claim.matching);
        let lists = std::iter::once(&matching.anywhere).chain(matching.by_label.values());
        // The last is the largest.
        lists.filter_map(|rows| rows.last()).any(|row| self.is_large_enough(*row, claim))
    }

    fn is_large_enough(&self, row: AvailableVolume, claim: &ClaimToBind) -> bool {
        self.volume(row).facts.capacity_bytes >= claim.request_bytes
    }

    /// Chooses volumes for the claims of a pod on a node, the smallest claim first.
    pub(super) fn choosing(&self, node: NodeIdx) -> Choosing<'_> {
        let (positions, chosen) = (BTreeMap::new(), BTreeSet::new());
        Choosing { volumes: self, node, positions, chosen, n_steps: 0, depends_on_node: false }
    }

    /// The name of a volume.
    pub(super) fn name(&self, volume: AvailableVolume) -> &Name {
        &self.volume(volume).facts.name
    }

    /// Marks a volume as taken by a claim, or as available again.
    pub(super) fn set_taken(&mut self, volume: AvailableVolume, is_taken: bool) {
        let listed = self.listed.as_mut().expect("volumes are listed with the first claim");
        listed.volumes[volume].is_taken = is_taken;
    }
}

impl Listed {
    fn new(opening: Opening<'_>) -> Self {
        let mut volumes: Vec<&Arc<VolumeFacts>> =
            opening.cluster.storage.volumes.values().collect();
        volumes.sort_by(|l, r| (l.capacity_bytes, &l.name).cmp(&(r.capacity_bytes, &r.name)));
        let listed = volumes.into_iter().map(|facts| Volume {
            affinity: facts.node_affinity.as_ref().map(|terms| opening.compiler().any_of(terms)),
            facts: Arc::clone(facts),
            is_taken: false,
        });
        let volumes: Column<AvailableVolume, Volume> = listed.collect();
        let mut by_claim = BTreeMap::<ObjectKey, Vec<AvailableVolume>>::new();
        for (row, volume) in volumes.iter() {
            if let Some((claim, _)) = &volume.facts.claim {
                by_claim.entry(claim.clone()).or_default().push(row);
            }
        }
        Self { volumes, by_claim }
    }

    /// The volume whose `claimRef` names the claim.
    fn reserved(&self, claim: &ClaimFacts, requirements: &Requirements) -> Option<AvailableVolume> {
        let is_for = |facts: &VolumeFacts| {
            facts.claim.as_ref().is_some_and(|(_, uid)| {
                uid.as_ref().is_none_or(|uid| *uid == claim.uid)
                    && facts.capacity_bytes >= claim.request_bytes
            })
        };
        let mut rows = self.by_claim.get(&claim.key).into_iter().flatten();
        let found = rows.find(|row| {
            let facts = &self.volumes[**row].facts;
            is_for(facts) && requirements.match_reserved(facts)
        });
        found.copied()
    }
}

/// Chooses volumes for the claims of a pod on a node.
#[derive(Debug)]
pub(super) struct Choosing<'a> {
    volumes: &'a AvailableVolumes,
    node: NodeIdx,
    /// How far each list of each kind of claims was gone through: what is before is too small or not free.
    positions: BTreeMap<MatchingIdx, Vec<usize>>,
    chosen: BTreeSet<AvailableVolume>,
    /// How many claims and volumes were looked at.
    n_steps: usize,
    /// Whether the choices could be others on another node.
    depends_on_node: bool,
}

impl Choosing<'_> {
    /// The volume of a claim that is at least as large as those before it. It is neither taken nor chosen for one of
    /// those, unless it is reserved for this claim.
    pub(super) fn next(&mut self, claim: &ClaimToBind) -> VolumeChoice {
        self.n_steps += 1;
        self.depends_on_node |= matches!(claim.selected_node, SelectedNode::Node(_));
        let volume = match (claim.selected_node, claim.reserved) {
            (SelectedNode::Missing, _) => return VolumeChoice::Unavailable,
            (SelectedNode::Node(selected), _) if selected != self.node => {
                return VolumeChoice::Unavailable;
            }
            (SelectedNode::Node(_), _) => None,
            (SelectedNode::None, Some(reserved)) => {
                self.depends_on_node |= self.volumes.volume(reserved).is_near_some_nodes();
                Some(reserved).filter(|volume| self.volumes.is_reachable(*volume, self.node))
            }
            (SelectedNode::None, None) => self.smallest(claim),
        };
        self.chosen.extend(volume);
        if volume.is_none() {
            self.depends_on_node |= matches!(claim.class.provision, Provision::Within(_));
        }
        match volume {
            Some(volume) => VolumeChoice::Existing(volume),
            None if claim.class.provision.is_possible(self.node) => VolumeChoice::Provision,
            None => VolumeChoice::Unavailable,
        }
    }

    fn smallest(&mut self, claim: &ClaimToBind) -> Option<AvailableVolume> {
        let Self { volumes, node, positions, chosen, n_steps, depends_on_node } = self;
        let (matching, is_new) = volumes.matching(claim.matching);
        if is_new {
            *n_steps += STEPS_OF_A_MATCH * volumes.volumes().len();
        }
        *depends_on_node |= !matching.labels.is_empty();
        let positions = positions.entry(claim.matching);
        let positions = positions.or_insert_with(|| vec![0; 1 + matching.labels.len()]);
        let mut smallest = None;
        for (list, position) in matching.lists(*node).zip(positions) {
            let left = &list[*position..];
            let n_small = left.partition_point(|row| !volumes.is_large_enough(*row, claim));
            let mut is_free = |row: &AvailableVolume| {
                let volume = volumes.volume(*row);
                *depends_on_node |= volume.is_near_some_nodes();
                !volume.is_taken && !chosen.contains(row) && volume.is_reachable(*node)
            };
            let n_in_use = left[n_small..].iter().take_while(|row| !is_free(row)).count();
            *n_steps += 1 + n_in_use;
            *position += n_small + n_in_use;
            let found = list.get(*position).copied();
            smallest = [smallest, found].into_iter().flatten().min();
        }
        smallest
    }

    /// How many claims and volumes were looked at.
    pub(super) const fn n_steps(&self) -> usize {
        self.n_steps
    }

    /// Whether the choices could be others on another node.
    pub(super) const fn depends_on_node(&self) -> bool {
        self.depends_on_node
    }
}

impl MatchingVolumes {
    fn new(volumes: &Column<AvailableVolume, Volume>, requirements: &Requirements) -> Self {
        let mut matching = Self::default();
        let all = volumes.iter();
        for (row, volume) in all.filter(|(_, volume)| requirements.match_available(&volume.facts)) {
            let few = volume.affinity.as_ref().and_then(AnyOf::only).and_then(AllOf::few_values);
            let Some((labels, values)) = few else {
                matching.anywhere.push(row);
                continue;
            };
            for value in values {
                matching.by_label.entry((labels.key(), *value)).or_default().push(row);
            }
            if !matching.labels.iter().any(|known| known.key() == labels.key()) {
                matching.labels.push(Arc::clone(labels));
            }
        }
        matching
    }
}
