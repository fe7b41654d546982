//! The part of a pod on which its placement depends.
//!
//! Pods created from one template share one [`PodTemplate`]. Templates are compared by content, so
//! that predicates and scores are evaluated once for ten thousand identical pods.

use std::{
    hash::{Hash, Hasher},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use super::{extended::ExtendedRequests, metadata::Metadata, request::ScoringAmounts};
use crate::{
    name::{Name, ObjectKey},
    resource::ResourceList,
    selector::{LabelSelector, Labels, NodeTerm},
};

/// What predicates and scores read of a pod, apart from its labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PodTemplate {
    /// The effective request, `pods: 1` included.
    pub request: ResourceList,
    /// What resource scores count for the pod once it is on a node.
    pub scoring: ScoringAmounts,
    /// What resource scores count for the pod before it is placed: Kubernetes 1.36 omits its
    /// pod-level requests.
    pub arriving: ScoringAmounts,
    /// Whether the pod has neither requests nor limits for CPU and memory (QoS class BestEffort).
    pub qos_best_effort: bool,
    /// The namespace, if placement depends on it (inter-pod terms, spread constraints, claims).
    pub namespace: Option<Name>,
    /// `spec.nodeSelector`: label and value.
    pub node_selector: Vec<(Name, Name)>,
    /// Alternatives of the required node affinity; `None` without one.
    pub node_affinity: Option<Vec<NodeTerm>>,
    /// Preferred node affinity: weight and term.
    pub preferred_nodes: Vec<(i64, NodeTerm)>,
    /// Tolerations.
    pub tolerations: Vec<Toleration>,
    /// Host ports, sorted, each once.
    pub host_ports: Vec<HostPort>,
    /// Terms about other pods.
    pub pod_terms: PodTerms,
    /// Topology spread constraints.
    pub spread: Vec<SpreadConstraint>,
    /// Claims, by volume.
    pub claims: Vec<ClaimRef>,
    /// The containers that request extended resources.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extended: Vec<ExtendedRequests>,
    /// Disks named in the pod itself.
    pub disks: Vec<Disk>,
    /// Images of containers and init containers, and of image volumes.
    pub images: Vec<Name>,
    /// Number of containers and init containers.
    pub n_containers: usize,
    /// The labels and annotations that plugins read.
    #[serde(default, skip_serializing_if = "Metadata::is_empty")]
    pub metadata: Metadata,
    /// Why the pod is not scheduled: it is larger than what is read of a pod. Then nothing but its
    /// request is here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Name>,
}

/// Terms about other pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PodTerms {
    /// Must share a domain with matching pods.
    pub required: Vec<PodTerm>,
    /// Must not share a domain with matching pods.
    pub required_anti: Vec<PodTerm>,
    /// Prefers to share a domain with matching pods: weight and term.
    pub preferred: Vec<(i64, PodTerm)>,
    /// Prefers not to share a domain with matching pods: weight and term.
    pub preferred_anti: Vec<(i64, PodTerm)>,
    /// Which selector cannot be parsed, and why; such a pod fits on no node.
    pub broken: Option<Name>,
}

impl PodTerms {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.required.is_empty()
            && self.required_anti.is_empty()
            && self.preferred.is_empty()
            && self.preferred_anti.is_empty()
    }

    /// All terms.
    pub fn iter(&self) -> impl Iterator<Item = &PodTerm> {
        let weighted = self.preferred.iter().chain(&self.preferred_anti).map(|(_, term)| term);
        self.required.iter().chain(&self.required_anti).chain(weighted)
    }
}

/// One term about other pods.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PodTerm {
    /// Which pods.
    pub matcher: PodMatcher,
    /// The node label whose equal values make a domain.
    pub topology_key: Name,
}

/// The pods that a term selects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PodMatcher {
    /// Namespaces by name.
    pub namespaces: Vec<Name>,
    /// Namespaces by label.
    pub namespace_selector: Option<LabelSelector>,
    /// Pods by label; absent matches nothing.
    pub selector: Option<LabelSelector>,
}

impl PodMatcher {
    /// Whether it matches a pod. `namespace_labels` are those of the pod's namespace.
    pub fn matches(&self, namespace: &Name, namespace_labels: &Labels, labels: &Labels) -> bool {
        self.concerns(namespace, namespace_labels)
            && self.selector.as_ref().is_some_and(|selector| selector.matches(labels))
    }

    /// Whether it can match pods of a namespace with these labels.
    pub fn concerns(&self, namespace: &Name, namespace_labels: &Labels) -> bool {
        self.namespaces.contains(namespace)
            || self.namespace_selector.as_ref().is_some_and(|s| s.matches(namespace_labels))
    }
}

/// A topology spread constraint.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SpreadConstraint {
    /// The node label whose values are the domains.
    pub topology_key: Name,
    /// The largest difference allowed.
    pub max_skew: i64,
    /// Fewer domains than this count as one empty domain.
    pub min_domains: i64,
    /// Which pods are counted; the selector with the pod's own `matchLabelKeys` merged in.
    pub matcher: PodMatcher,
    /// Whether nodes that would exceed the skew are refused, and not only scored lower.
    pub do_not_schedule: bool,
    /// Whether only nodes that match the pod's node affinity are counted.
    pub honor_affinity: bool,
    /// Whether only nodes whose taints the pod tolerates are counted.
    pub honor_taints: bool,
}

/// A toleration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Toleration {
    /// The key; empty means every key.
    pub key: Name,
    /// How the value is compared.
    pub operator: TolerationOperator,
    /// The value to compare with.
    pub value: Name,
    /// The effect; `None` means every effect.
    pub effect: Option<Name>,
}

/// How a toleration compares the value of a taint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TolerationOperator {
    /// The value must be equal.
    Equal,
    /// Any value.
    Exists,
    /// The value of the taint must be a smaller number.
    Lt(i64),
    /// The value of the taint must be a larger number.
    Gt(i64),
    /// An operator that never matches.
    Never,
}

/// A number as Kubernetes compares it: decimal, without a plus sign or leading zeros. Not `-0`.
pub fn decimal_integer(text: &str) -> Option<i64> {
    let number: i64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

/// A port on the node's own address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HostPort {
    /// The port number.
    pub port: i32,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: Name,
    /// The address; `0.0.0.0` is all of them.
    pub address: Name,
}

/// A persistent volume claim of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ClaimRef {
    /// The claim.
    pub claim: ObjectKey,
    /// For a generic ephemeral volume, the volume's name: the claim must belong to the pod.
    pub ephemeral: Option<Name>,
}

/// A disk that a pod names itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Disk {
    /// A Google persistent disk.
    Gce {
        /// Its name.
        name: Name,
        /// Whether it is mounted read-only.
        read_only: bool,
    },
    /// An Amazon volume.
    Aws {
        /// Its id.
        id: Name,
    },
    /// An iSCSI target.
    Iscsi {
        /// Its qualified name.
        iqn: Name,
        /// Whether it is mounted read-only.
        read_only: bool,
    },
    /// A Ceph block device.
    Rbd {
        /// Monitors.
        monitors: Vec<Name>,
        /// Pool.
        pool: Name,
        /// Image.
        image: Name,
        /// Whether it is mounted read-only.
        read_only: bool,
    },
}

/// A template, compared without its request.
#[derive(Clone, Debug)]
pub struct Constraints(pub Arc<PodTemplate>);

impl Constraints {
    /// All that is compared. Without `..`, so that the compiler reports a missing field.
    fn parts(&self) -> impl Eq + Hash + use<'_> {
        let PodTemplate {
            request: _,
            scoring: _,
            arriving: _,
            qos_best_effort,
            namespace,
            node_selector,
            node_affinity,
            preferred_nodes,
            tolerations,
            host_ports,
            pod_terms,
            spread,
            claims,
            extended: _,
            disks,
            images,
            n_containers,
            metadata,
            refused,
        } = &*self.0;
        let nodes = (node_selector, node_affinity, preferred_nodes, tolerations);
        let others = (namespace, host_ports, pod_terms, spread);
        let volumes = (claims, disks, images);
        (nodes, others, volumes, (qos_best_effort, n_containers, metadata, refused))
    }
}

impl PartialEq for Constraints {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for Constraints {}

impl Hash for Constraints {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parts().hash(state);
    }
}
