//! What a class of tasks needs of devices.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kube_batch_devices::{
    claims::{Claim, MAX_REQUESTS, number_of_requests},
    extended::{Unprovided, claim_for},
    pod::{Readiness, readiness, resolve},
};
use kube_batch_model::{
    column::{Column, Dim, NodeIdx},
    devices::{ClaimDemand, ExtendedClaim},
    facts::device::claim::{Allocation, ResourceClaimFacts},
    name::{Name, ObjectKey},
};

use super::in_use::{ClaimIdx, ClaimsInUse};
use crate::{
    compiled::Opening, constraint_classes::ConstraintClassIdx, node_terms::AnyOf,
    session_tables::SessionTables,
};

/// How the claim for extended resources is called in messages: it has no name before it is made.
pub(super) const EXTENDED_CLAIM: &str = "extended resources";

/// What the tasks of a class need.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClassDevices {
    /// The namespace of its first task.
    pub(super) namespace: Name,
    /// Why no node is eligible.
    pub(crate) refusal: Option<Name>,
    /// The claim for extended resources that an earlier attempt left behind.
    pub(super) leftover: Option<ObjectKey>,
    /// Its claims, in the order of the pod.
    pub(super) claims: Vec<ClassClaim>,
    /// Its extended resources that classes of devices stand for.
    pub(super) extended: Option<ExtendedNeed>,
    /// Whether its status names a claim for these.
    pub(super) names_claim: bool,
    /// Whether a binding condition of an allocated claim has failed.
    pub(super) has_failed: bool,
    /// Whether claims or devices that other nodes can use too decide.
    pub(crate) depends_on_other_nodes: bool,
}

/// A claim of the tasks of a class. Its position is that among the claims of each task.
#[derive(Clone, Debug)]
pub(super) struct ClassClaim {
    /// The claim, if it is the same for all tasks of the class; otherwise each has its own.
    pub(super) row: Option<ClaimIdx>,
    pub(super) need: Need,
}

/// What a claim needs of a node.
#[derive(Clone, Debug)]
pub(super) enum Need {
    /// It is allocated: the nodes that can use its devices, if not all.
    Allocated(Option<AnyOf>),
    /// Devices. In messages it is called as the claim of the first task of the class.
    Devices(Arc<str>, Claim),
}

impl ClassDevices {
    pub(super) fn new(
        opening: Opening<'_>,
        (tables, claims): (&mut SessionTables, &mut ClaimsInUse),
        class: ConstraintClassIdx,
    ) -> Self {
        let demand = opening.devices(class);
        let task = opening.classes().first_task(class);
        let facts = &opening.cluster.tasks.facts[task];
        let objects = &opening.cluster.devices;
        let find = |name: &Name| {
            let namespace = facts.key.namespace.clone();
            objects.claims.get(&ObjectKey { namespace, name: name.clone() })
        };
        let job = opening.cluster.tasks.job[task];
        let group = job.and_then(|job| opening.cluster.jobs.group[job].as_ref());
        let group = group.filter(|group| !group.claims.is_empty()).map(|group| &group.uid);
        let owners: Vec<&Name> = [&facts.uid].into_iter().chain(group).collect();
        let resolved = match resolve((&facts.key, &owners), &facts.device_claims, find) {
            Ok(resolved) => resolved,
            Err(refusal) => return Self::refused(refusal),
        };
        if let Some(leftover) = &demand.leftover {
            let refusal = "cannot schedule extended resource claim".to_owned();
            return Self { leftover: Some(leftover.clone()), ..Self::refused(refusal) };
        }
        let open = resolved.iter().filter(|claim| claim.allocation.is_none());
        let n_requests: usize = open.map(|claim| number_of_requests(&claim.spec)).sum();
        if n_requests > MAX_REQUESTS {
            return Self::refused(format!(
                "the claims of the pod have {n_requests} requests, kube-batch reads at most {MAX_REQUESTS}"
            ));
        }
        let classes = &objects.published.classes;
        let mut new = Self {
            namespace: facts.key.namespace.clone(),
            names_claim: demand.names_claim,
            ..Self::default()
        };
        for claim in resolved {
            let is_own =
                demand.claims.iter().any(|own| *own == ClaimDemand::Own(Arc::clone(&claim.spec)))
                    && claim.controller.as_ref() == Some(&facts.uid);
            let need = match &claim.allocation {
                Some(allocation) => {
                    new.has_failed |= has_failed(claim, allocation);
                    let terms = allocation.nodes.as_ref();
                    Need::Allocated(terms.map(|terms| opening.compiler().any_of(terms)))
                }
                None => {
                    let name = claim.key.to_string();
                    match tables.claim(classes, &claim.key.namespace, (&name, &claim.spec)) {
                        Ok(ready) => Need::Devices(name.into(), ready),
                        Err(refusal) => return Self::refused(refusal),
                    }
                }
            };
            let row = (!is_own).then(|| claims.row(&claim.key));
            new.claims.push(ClassClaim { row, need });
        }
        new.extended = ExtendedNeed::new(opening, tables, class);
        let of_extended = new.extended.iter().flat_map(ExtendedNeed::claims);
        let is_shared = of_extended.into_iter().any(|claim| !tables.devices().is_local(claim));
        new.depends_on_other_nodes = is_shared
            || new.claims.iter().any(|claim| match &claim.need {
                Need::Allocated(_) => false,
                Need::Devices(_, ready) => claim.row.is_some() || !tables.devices().is_local(ready),
            });
        new
    }

    fn refused(refusal: String) -> Self {
        Self { refusal: Some(Name::from(refusal)), ..Self::default() }
    }

    /// Whether it needs no devices.
    pub(crate) fn is_empty(&self) -> bool {
        self.claims.is_empty() && self.extended.is_none()
    }

    /// The claims that need devices, with their positions.
    pub(super) fn without_devices(
        &self,
    ) -> impl Iterator<Item = (usize, &ClassClaim, &str, &Claim)> {
        self.claims.iter().enumerate().filter_map(|(at, claim)| match &claim.need {
            Need::Devices(name, ready) => Some((at, claim, &**name, ready)),
            Need::Allocated(_) => None,
        })
    }
}

/// Whether the devices of a claim will never be ready, whatever the time.
pub(super) fn has_failed(claim: &ResourceClaimFacts, allocation: &Allocation) -> bool {
    readiness(claim, allocation, None) == Readiness::Failed
}

/// The extended resources of a class of tasks that classes of devices stand for. Nodes that advertise the same of
/// them need the same claim.
#[derive(Clone, Debug)]
pub(super) struct ExtendedNeed {
    of_nodes: Column<NodeIdx, usize>,
    kinds: Vec<ExtendedKind>,
}

/// What is needed on nodes that advertise some resources.
#[derive(Clone, Debug)]
pub(super) enum ExtendedKind {
    /// Nothing: they advertise all.
    Nothing,
    /// A resource that neither they nor classes provide.
    Unprovided,
    /// This claim, to be made for the task.
    Claim(Arc<ExtendedClaim>, Claim),
}

impl ExtendedNeed {
    fn new(
        opening: Opening<'_>,
        tables: &mut SessionTables,
        class: ConstraintClassIdx,
    ) -> Option<Self> {
        let containers = &opening.devices(class).extended;
        let requests = containers.iter().flat_map(|container| &container.requests);
        let resources: BTreeSet<&Name> = requests.map(|request| &request.resource).collect();
        if resources.is_empty() {
            return None;
        }
        let cluster = opening.cluster;
        let classes = &cluster.devices.published.classes;
        let namespace = &cluster.tasks.facts[opening.classes().first_task(class)].key.namespace;
        let dims: Vec<Option<Dim>> =
            resources.iter().map(|resource| cluster.dimensions.get(resource)).collect();
        let mut rows = BTreeMap::<Vec<bool>, usize>::new();
        let mut kinds = Vec::new();
        let mut kind_of = |node: NodeIdx| {
            let allocatable = &cluster.nodes.allocatable[node];
            let has = |dim: &Option<Dim>| dim.is_some_and(|dim| allocatable[dim] > 0);
            let advertised: Vec<bool> = dims.iter().map(has).collect();
            *rows.entry(advertised).or_insert_with_key(|advertised| {
                let is_advertised = |resource: &Name| {
                    let mut resources = resources.iter().zip(advertised);
                    resources.any(|(own, is_advertised)| *own == resource && *is_advertised)
                };
                kinds.push(match claim_for(containers, classes, is_advertised) {
                    Ok(None) => ExtendedKind::Nothing,
                    Ok(Some(made)) => {
                        match tables.claim(classes, namespace, (EXTENDED_CLAIM, &made.spec)) {
                            Ok(ready) => ExtendedKind::Claim(Arc::new(made), ready),
                            Err(_) => ExtendedKind::Unprovided,
                        }
                    }
                    Err(Unprovided) => ExtendedKind::Unprovided,
                });
                kinds.len() - 1
            })
        };
        let of_nodes = cluster.nodes.facts.ids().map(&mut kind_of).collect();
        Some(Self { of_nodes, kinds })
    }

    /// What is needed on a node.
    pub(super) fn on(&self, node: NodeIdx) -> &ExtendedKind {
        &self.kinds[self.of_nodes[node]]
    }

    fn claims(&self) -> impl Iterator<Item = &Claim> {
        self.kinds.iter().filter_map(|kind| match kind {
            ExtendedKind::Claim(_, claim) => Some(claim),
            ExtendedKind::Nothing | ExtendedKind::Unprovided => None,
        })
    }
}
