//! The part of a pod on which its placement depends.

use k8s_openapi::api::core::v1::{
    Affinity, Pod, PodAffinityTerm, PodSpec, Toleration as ApiToleration,
    TopologySpreadConstraint as ApiSpread,
};
use kube_batch_model::{
    facts::{
        FactError,
        class::{
            ClaimRef, Disk, HostPort, PodMatcher, PodTemplate, PodTerm, PodTerms, SpreadConstraint,
            Toleration, TolerationOperator, decimal_integer,
        },
        metadata::MetadataPrefixes,
    },
    name::{Name, ObjectKey},
    quantity::Quantity,
    resource::ResourceList,
    selector::{Labels, Requirement},
};

use super::{
    affinity::affinity_terms,
    extended::extended_requests,
    limits,
    metadata::selected,
    request::{containers, effective_request, is_sidecar},
    selector::{label_selector, label_selector_problem, node_affinity},
};

/// Reads the placement part of a pod.
///
/// # Errors
///
/// [`FactError`] if a resource amount cannot be read: skip the pod.
pub fn template(
    pod: &Pod,
    key: &ObjectKey,
    labels: &Labels,
    prefixes: &MetadataPrefixes,
) -> Result<PodTemplate, FactError> {
    let Some(spec) = &pod.spec else {
        return Err(FactError::new(format!("Pod {key}"), "spec", "is missing"));
    };
    if let Some(why) = limits::excess(pod, spec) {
        let spec = limits::with_common_requests(spec);
        return Ok(refused(&effective_request(pod, &spec, key)?.request, why));
    }
    let requests = effective_request(pod, spec, key)?;
    if let Some(why) = limits::excessive_amount(&requests.request) {
        return Ok(refused(&requests.request, why));
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
    let nodes = affinity.and_then(|affinity| affinity.node_affinity.as_ref());
    let nodes = nodes.map(node_affinity).unwrap_or_default();
    Ok(PodTemplate {
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
        node_affinity: nodes.required(),
        preferred_nodes: nodes.preferred(),
        tolerations: spec.tolerations.iter().flatten().map(toleration).collect(),
        host_ports: host_ports(spec),
        pod_terms,
        spread,
        claims,
        extended: extended_requests(spec),
        disks: disks(spec),
        images: images(spec),
        n_containers: containers(spec).count(),
        metadata: selected(prefixes, &pod.metadata),
        refused: None,
    })
}

/// What is kept of a pod that is not scheduled.
pub(super) fn refused(request: &ResourceList, why: String) -> PodTemplate {
    let request = limits::bounded(request);
    PodTemplate { request, refused: Some(why.into()), ..PodTemplate::default() }
}

fn toleration(toleration: &ApiToleration) -> Toleration {
    let number = || decimal_integer(toleration.value.as_deref().unwrap_or_default());
    Toleration {
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

fn is_qos_best_effort(spec: &PodSpec) -> bool {
    containers(spec).all(|container| {
        let resources = container.resources.as_ref();
        let lists = [
            resources.and_then(|r| r.requests.as_ref()),
            resources.and_then(|r| r.limits.as_ref()),
        ];
        lists.into_iter().flatten().flatten().all(|(name, quantity)| {
            !matches!(name.as_str(), "cpu" | "memory")
                || quantity.0.parse().is_ok_and(|q: Quantity| q.milli() == 0)
        })
    })
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
    let namespace_selector = term.namespace_selector.as_ref().map(label_selector);
    if namespaces.is_empty() && namespace_selector.is_none() {
        namespaces.push(own_namespace.clone());
    }
    namespaces.sort_unstable();
    namespaces.dedup();
    PodTerm {
        matcher: PodMatcher {
            namespaces,
            namespace_selector,
            selector: term.label_selector.as_ref().map(label_selector),
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
    let selector = constraint.label_selector.as_ref().map(label_selector);
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
