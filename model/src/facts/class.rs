//! The part of a pod on which its placement depends.
//!
//! Pods created from one template share one [`PodTemplate`]. Templates are compared by content, so
//! that predicates and scores are evaluated once for ten thousand identical pods.

use std::{
    hash::{Hash, Hasher},
    sync::Arc,
};

use k8s_openapi::api::core::v1::{
    Affinity, NodeAffinity, Pod, PodAffinityTerm, PodSpec, PreferredSchedulingTerm,
    Toleration as ApiToleration, TopologySpreadConstraint as ApiSpread,
};
use serde::{Deserialize, Serialize};

use super::{
    FactError,
    affinity::affinity_terms,
    extended::{ExtendedRequests, extended_requests},
    limits,
    metadata::{Metadata, MetadataPrefixes},
    request::{ScoringAmounts, containers, effective_request, is_sidecar},
};
use crate::{
    name::{Name, ObjectKey},
    resource::ResourceList,
    selector::{LabelSelector, Labels, NodeTerm, Requirement, problem::label_selector_problem},
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

impl Toleration {
    fn from_api(toleration: &ApiToleration) -> Self {
        let number = || decimal_integer(toleration.value.as_deref().unwrap_or_default());
        Self {
            key: Name::from(toleration.key.as_deref().unwrap_or_default()),
            operator: match toleration.operator.as_deref() {
                None | Some("" | "Equal") => TolerationOperator::Equal,
                Some("Exists") => TolerationOperator::Exists,
                Some("Lt") => number().map_or(TolerationOperator::Never, TolerationOperator::Lt),
                Some("Gt") => number().map_or(TolerationOperator::Never, TolerationOperator::Gt),
                Some(_) => TolerationOperator::Never,
            },
            value: Name::from(toleration.value.as_deref().unwrap_or_default()),
            effect: toleration.effect.as_deref().filter(|e| !e.is_empty()).map(Name::from),
        }
    }
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

impl PodTemplate {
    /// Reads the placement part of a pod.
    ///
    /// # Errors
    ///
    /// [`FactError`] if a resource amount cannot be read: skip the pod.
    pub fn from_pod(
        pod: &Pod,
        key: &ObjectKey,
        labels: &Labels,
        prefixes: &MetadataPrefixes,
    ) -> Result<Self, FactError> {
        let Some(spec) = &pod.spec else {
            return Err(FactError::new(format!("Pod {key}"), "spec", "is missing"));
        };
        if let Some(why) = limits::excess(pod, spec) {
            let spec = limits::with_common_requests(spec);
            return Ok(Self::refused(&effective_request(pod, &spec, key)?.request, why));
        }
        let requests = effective_request(pod, spec, key)?;
        if let Some(why) = limits::excessive_amount(&requests.request) {
            return Ok(Self::refused(&requests.request, why));
        }
        let affinity = spec.affinity.as_ref();
        let claims = claims(spec, key);
        let pod_terms = pod_terms(affinity, &key.namespace);
        let spread: Vec<SpreadConstraint> = spec
            .topology_spread_constraints
            .iter()
            .flatten()
            .map(|constraint| spread_constraint(constraint, &key.namespace, labels))
            .collect();
        let sees_namespace = !claims.is_empty() || !pod_terms.is_empty() || !spread.is_empty();
        let node_affinity = affinity.and_then(|affinity| affinity.node_affinity.as_ref());
        Ok(Self {
            request: requests.request,
            scoring: requests.scoring,
            arriving: requests.arriving,
            qos_best_effort: is_qos_best_effort(spec),
            namespace: sees_namespace.then(|| key.namespace.clone()),
            node_selector: spec
                .node_selector
                .iter()
                .flatten()
                .map(|(key, value)| (Name::from(key.as_str()), Name::from(value.as_str())))
                .collect(),
            node_affinity: required_nodes(node_affinity),
            preferred_nodes: preferred_nodes(
                node_affinity
                    .and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_deref())
                    .unwrap_or_default(),
            ),
            tolerations: spec.tolerations.iter().flatten().map(Toleration::from_api).collect(),
            host_ports: host_ports(spec),
            pod_terms,
            spread,
            claims,
            extended: extended_requests(spec),
            disks: disks(spec),
            images: images(spec),
            n_containers: containers(spec).count(),
            metadata: prefixes.select(&pod.metadata),
            refused: None,
        })
    }

    /// What is kept of a pod that is not scheduled.
    pub(super) fn refused(request: &ResourceList, why: String) -> Self {
        let request = limits::bounded(request);
        Self { request, refused: Some(why.into()), ..Self::default() }
    }
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

fn is_qos_best_effort(spec: &PodSpec) -> bool {
    containers(spec).all(|container| {
        let resources = container.resources.as_ref();
        let lists = [
            resources.and_then(|r| r.requests.as_ref()),
            resources.and_then(|r| r.limits.as_ref()),
        ];
        lists.into_iter().flatten().flatten().all(|(name, quantity)| {
            !matches!(name.as_str(), "cpu" | "memory")
                || quantity.0.parse().is_ok_and(|q: crate::quantity::Quantity| q.milli() == 0)
        })
    })
}

fn required_nodes(affinity: Option<&NodeAffinity>) -> Option<Vec<NodeTerm>> {
    let required = affinity?.required_during_scheduling_ignored_during_execution.as_ref()?;
    Some(required.node_selector_terms.iter().map(NodeTerm::from_api).collect())
}

/// Preferred terms with their weights; a weight of 0 prefers nothing.
pub fn preferred_nodes(preferred: &[PreferredSchedulingTerm]) -> Vec<(i64, NodeTerm)> {
    let preferred = preferred.iter().filter(|preferred| preferred.weight != 0);
    preferred
        .map(|preferred| (preferred.weight.into(), NodeTerm::from_api(&preferred.preference)))
        .collect()
}

fn pod_terms(affinity: Option<&Affinity>, namespace: &Name) -> PodTerms {
    let mut terms = PodTerms::default();
    for found in affinity.into_iter().flat_map(affinity_terms) {
        let term = pod_term(found.term, namespace);
        match (found.weight, found.is_anti) {
            (None, false) => terms.required.push(term),
            (None, true) => terms.required_anti.push(term),
            (Some(weight), false) => terms.preferred.push((weight.into(), term)),
            (Some(weight), true) => terms.preferred_anti.push((weight.into(), term)),
        }
    }
    terms.broken = affinity.and_then(broken_selector).map(Name::from);
    terms
}

/// The first label selector of pod affinity and anti-affinity that cannot be parsed: its path in the
/// pod, and why.
fn broken_selector(affinity: &Affinity) -> Option<String> {
    affinity_terms(affinity).find_map(|found| {
        let selectors = [
            ("labelSelector", found.term.label_selector.as_ref()),
            ("namespaceSelector", found.term.namespace_selector.as_ref()),
        ];
        selectors.into_iter().find_map(|(field, selector)| {
            let problem = label_selector_problem(selector?)?;
            let path = format!("spec.affinity.{}.{field}.{}", found.path(), problem.path);
            Some(format!("{path}: {}", problem.message))
        })
    })
}

fn pod_term(term: &PodAffinityTerm, own_namespace: &Name) -> PodTerm {
    let mut namespaces: Vec<Name> =
        term.namespaces.iter().flatten().map(|name| Name::from(name.as_str())).collect();
    let namespace_selector = term.namespace_selector.as_ref().map(LabelSelector::from_api);
    if namespaces.is_empty() && namespace_selector.is_none() {
        namespaces.push(own_namespace.clone());
    }
    namespaces.sort_unstable();
    namespaces.dedup();
    PodTerm {
        matcher: PodMatcher {
            namespaces,
            namespace_selector,
            selector: term.label_selector.as_ref().map(LabelSelector::from_api),
        },
        topology_key: Name::from(term.topology_key.as_str()),
    }
}

fn spread_constraint(
    constraint: &ApiSpread,
    namespace: &Name,
    labels: &Labels,
) -> SpreadConstraint {
    let own_values = constraint.match_label_keys.iter().flatten().filter_map(|key| {
        let value = labels.get(key)?;
        Some(Requirement::equals(Name::from(key.as_str()), value.clone()))
    });
    let selector = constraint.label_selector.as_ref().map(LabelSelector::from_api);
    SpreadConstraint {
        topology_key: Name::from(constraint.topology_key.as_str()),
        max_skew: constraint.max_skew.into(),
        min_domains: constraint.min_domains.unwrap_or(1).into(),
        matcher: PodMatcher {
            namespaces: vec![namespace.clone()],
            namespace_selector: None,
            selector: selector.map(|selector| selector.and(own_values)),
        },
        do_not_schedule: constraint.when_unsatisfiable != "ScheduleAnyway",
        honor_affinity: constraint.node_affinity_policy.as_deref() != Some("Ignore"),
        honor_taints: constraint.node_taints_policy.as_deref() == Some("Honor"),
    }
}

fn host_ports(spec: &PodSpec) -> Vec<HostPort> {
    let sidecars = spec.init_containers.iter().flatten().filter(|c| is_sidecar(c));
    let mut ports: Vec<HostPort> = sidecars
        .chain(&spec.containers)
        .flat_map(|container| container.ports.iter().flatten())
        .filter_map(|port| {
            let number = port.host_port.filter(|number| *number > 0)?;
            let or = |text: &Option<String>, default: &str| match text.as_deref() {
                None | Some("") => Name::from(default),
                Some(text) => Name::from(text),
            };
            Some(HostPort {
                port: number,
                protocol: or(&port.protocol, "TCP"),
                address: or(&port.host_ip, "0.0.0.0"),
            })
        })
        .collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

fn claims(spec: &PodSpec, key: &ObjectKey) -> Vec<ClaimRef> {
    spec.volumes
        .iter()
        .flatten()
        .filter_map(|volume| {
            if let Some(source) = &volume.persistent_volume_claim {
                let claim = ObjectKey::new(key.namespace.clone(), source.claim_name.as_str());
                return Some(ClaimRef { claim, ephemeral: None });
            }
            volume.ephemeral.as_ref()?;
            let name = format!("{}-{}", key.name, volume.name);
            let claim = ObjectKey::new(key.namespace.clone(), name);
            Some(ClaimRef { claim, ephemeral: Some(Name::from(volume.name.as_str())) })
        })
        .collect()
}

fn disks(spec: &PodSpec) -> Vec<Disk> {
    spec.volumes
        .iter()
        .flatten()
        .filter_map(|volume| {
            if let Some(gce) = &volume.gce_persistent_disk {
                let read_only = gce.read_only.unwrap_or(false);
                return Some(Disk::Gce { name: Name::from(gce.pd_name.as_str()), read_only });
            }
            if let Some(aws) = &volume.aws_elastic_block_store {
                return Some(Disk::Aws { id: Name::from(aws.volume_id.as_str()) });
            }
            if let Some(iscsi) = &volume.iscsi {
                let read_only = iscsi.read_only.unwrap_or(false);
                return Some(Disk::Iscsi { iqn: Name::from(iscsi.iqn.as_str()), read_only });
            }
            volume.rbd.as_ref().map(|rbd| Disk::Rbd {
                monitors: rbd.monitors.iter().map(|m| Name::from(m.as_str())).collect(),
                pool: Name::from(rbd.pool.as_deref().unwrap_or("rbd")),
                image: Name::from(rbd.image.as_str()),
                read_only: rbd.read_only.unwrap_or(false),
            })
        })
        .collect()
}

fn images(spec: &PodSpec) -> Vec<Name> {
    let of_volumes = spec
        .volumes
        .iter()
        .flatten()
        .filter_map(|volume| volume.image.as_ref()?.reference.as_deref());
    containers(spec)
        .filter_map(|container| container.image.as_deref())
        .chain(of_volumes)
        .map(normalized_image)
        .collect()
}

/// An image name with `:latest` where it names no tag.
pub(super) fn normalized_image(image: &str) -> Name {
    let last_part = image.rsplit('/').next().unwrap_or(image);
    if last_part.contains(':') { Name::from(image) } else { Name::from(format!("{image}:latest")) }
}
