//! Available volumes, and which of them a claim can be bound to.
//!
//! Volumes are in order of size, then name, so that the first that matches is the smallest. Volumes
//! that only few nodes can reach, such as local disks, are indexed by the label value that says so.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kube_batch_api::{
    cluster::Cluster,
    column::{Column, NodeIdx},
    facts::storage::{ClaimFacts, StorageClassFacts, VolumeFacts},
    name::Name,
    selector::{LabelSelector, Requirement},
};
use kube_batch_framework::plugin::NodesByDomain;

use crate::{
    compiled::Opening,
    node_labels::{Key, LabelColumn, Value},
    node_tests::{AllOf, AnyOf},
};

/// Provisioner of classes whose volumes are created by hand.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

kube_batch_api::row_type! {
    /// Row of a volume.
    pub(crate) AvailableVolume,
    /// Row of the matching volumes of claims with equal requirements.
    pub(crate) MatchingIdx,
}

/// The volumes of the cluster, and which of them match which claims.
#[derive(Debug, Default)]
pub(super) struct AvailableVolumes {
    /// Filled when the first claim is added.
    volumes: Option<Column<AvailableVolume, Volume>>,
    matching: Column<MatchingIdx, MatchingVolumes>,
    by_requirements: BTreeMap<Requirements, MatchingIdx>,
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
}

/// What a claim requires of a volume.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Requirements {
    class: Name,
    request_bytes: i64,
    access_modes: Vec<Name>,
    volume_mode: Name,
    selector: Option<LabelSelector>,
}

impl Requirements {
    fn of(claim: &ClaimFacts) -> Self {
        Self {
            class: claim.class.clone().unwrap_or_default(),
            request_bytes: claim.request_bytes,
            access_modes: claim.access_modes.clone(),
            volume_mode: claim.volume_mode.clone(),
            selector: claim.selector.clone(),
        }
    }

    /// Whether a volume that is reserved for the claim can be bound to it: access modes and selector
    /// are not compared.
    fn match_reserved(&self, volume: &VolumeFacts) -> bool {
        volume.class == self.class
            && volume.capacity_bytes >= self.request_bytes
            && volume.volume_mode == self.volume_mode
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

/// An unbound claim, and the ways to bind it.
#[derive(Debug)]
pub(super) struct ClaimToBind {
    selected_node: SelectedNode,
    /// The volume that is reserved for it.
    reserved: Option<AvailableVolume>,
    matching: MatchingIdx,
    provision: Provision,
    reach: Reach,
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
    /// As the access modes of the claim, the driver of its class on the nodes, and the topologies of the class say.
    fn of(opening: Opening<'_>, claim: &ClaimFacts, class: Option<&StorageClassFacts>) -> Self {
        let is_for_many = |mode: &Name| MODES_OF_MANY_NODES.contains(&&**mode);
        let Some(class) = class.filter(|_| claim.access_modes.iter().any(is_for_many)) else {
            return Self::OneNode;
        };
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
        let mut nodes = cluster.nodes.facts.iter();
        let found = nodes.find(|(_, facts)| facts.name == *name);
        found.map_or(Self::Missing, |(node, _)| Self::Node(node))
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
        let volumes = self.volumes.get_or_insert_with(|| list(opening));
        let requirements = Requirements::of(claim);
        let class = claim.class.as_ref().and_then(|class| cluster.storage.classes.get(class));
        ClaimToBind {
            selected_node: SelectedNode::of(cluster, claim),
            reserved: reserved(volumes, claim, &requirements),
            matching: *self.by_requirements.entry(requirements).or_insert_with_key(
                |requirements| self.matching.push(MatchingVolumes::new(volumes, requirements)),
            ),
            provision: Provision::of(opening, class.map(|class| &**class)),
            reach: Reach::of(opening, claim, class.map(|class| &**class)),
        }
    }

    fn volume(&self, row: AvailableVolume) -> &Volume {
        &self.volumes.as_ref().expect("a volume is listed")[row]
    }

    /// Whether a volume can be reached from a node.
    pub(super) fn is_reachable(&self, volume: AvailableVolume, node: NodeIdx) -> bool {
        self.volume(volume).is_reachable(node)
    }

    /// Whether a volume that is made for a claim on its first node can be used from another.
    pub(super) fn is_made_within_reach(claim: &ClaimToBind, first: NodeIdx, node: NodeIdx) -> bool {
        claim.reach.has(first, node) && claim.provision.is_possible(node)
    }

    /// The sets of nodes of which the first pod chooses one for all pods that share a claim, if a volume must be made
    /// for it.
    pub(super) fn domains_to_choose(&self, claim: &ClaimToBind) -> NodesByDomain {
        let Reach::Labels(labels) = &claim.reach else { return NodesByDomain::default() };
        let matching = &self.matching[claim.matching];
        if labels.is_empty()
            || claim.reserved.is_some()
            || claim.selected_node != SelectedNode::None
            || !matching.anywhere.is_empty()
            || !matching.by_label.is_empty()
        {
            return NodesByDomain::default();
        }
        let mut domains = BTreeMap::<Vec<Value>, Vec<NodeIdx>>::new();
        for node in labels.iter().take(1).flat_map(|labels| labels.nodes()) {
            let values: Vec<Value> = labels.iter().map(|labels| labels.value(node)).collect();
            if claim.provision.is_possible(node) && !values.iter().any(|value| value.is_absent()) {
                domains.entry(values).or_default().push(node);
            }
        }
        domains.into_values().collect()
    }

    /// The volume a claim gets on a node, which is neither taken nor among `chosen`.
    pub(super) fn choose(
        &self,
        claim: &ClaimToBind,
        node: NodeIdx,
        chosen: &[AvailableVolume],
    ) -> VolumeChoice {
        let volume = match (claim.selected_node, claim.reserved) {
            (SelectedNode::Missing, _) => return VolumeChoice::Unavailable,
            (SelectedNode::Node(selected), _) if selected != node => {
                return VolumeChoice::Unavailable;
            }
            (SelectedNode::Node(_), _) => None,
            (SelectedNode::None, Some(reserved)) => {
                Some(reserved).filter(|volume| self.is_reachable(*volume, node))
            }
            (SelectedNode::None, None) => self.smallest(claim.matching, node, chosen),
        };
        match volume {
            Some(volume) => VolumeChoice::Existing(volume),
            None if claim.provision.is_possible(node) => VolumeChoice::Provision,
            None => VolumeChoice::Unavailable,
        }
    }

    fn smallest(
        &self,
        matching: MatchingIdx,
        node: NodeIdx,
        chosen: &[AvailableVolume],
    ) -> Option<AvailableVolume> {
        let matching = &self.matching[matching];
        let local = matching.labels.iter().filter_map(|labels| {
            let place = (labels.key(), labels.value(node));
            matching.by_label.get(&place)
        });
        let is_free = |row: &&AvailableVolume| {
            let volume = self.volume(**row);
            !volume.is_taken && !chosen.contains(row) && volume.is_reachable(node)
        };
        let lists = std::iter::once(&matching.anywhere).chain(local);
        lists.filter_map(|volumes| volumes.iter().find(is_free)).min().copied()
    }

    /// The name of a volume.
    pub(super) fn name(&self, volume: AvailableVolume) -> &Name {
        &self.volume(volume).facts.name
    }

    /// Marks a volume as taken by a claim, or as available again.
    pub(super) fn set_taken(&mut self, volume: AvailableVolume, is_taken: bool) {
        self.volumes.as_mut().expect("a volume is listed")[volume].is_taken = is_taken;
    }
}

/// All volumes, in order of size, then name.
fn list(opening: Opening<'_>) -> Column<AvailableVolume, Volume> {
    let mut volumes: Vec<&Arc<VolumeFacts>> = opening.cluster.storage.volumes.values().collect();
    volumes.sort_by(|l, r| (l.capacity_bytes, &l.name).cmp(&(r.capacity_bytes, &r.name)));
    let listed = volumes.into_iter().map(|facts| Volume {
        affinity: facts.node_affinity.as_ref().map(|terms| opening.compiler().any_of(terms)),
        facts: Arc::clone(facts),
        is_taken: false,
    });
    listed.collect()
}

/// The volume whose `claimRef` names the claim.
fn reserved(
    volumes: &Column<AvailableVolume, Volume>,
    claim: &ClaimFacts,
    requirements: &Requirements,
) -> Option<AvailableVolume> {
    let is_for = |facts: &VolumeFacts| {
        facts.claim.as_ref().is_some_and(|(key, uid)| {
            *key == claim.key && uid.as_ref().is_none_or(|uid| *uid == claim.uid)
        })
    };
    let mut volumes = volumes.iter();
    let found = volumes
        .find(|(_, volume)| is_for(&volume.facts) && requirements.match_reserved(&volume.facts));
    found.map(|(row, _)| row)
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
