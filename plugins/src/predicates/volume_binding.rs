//! Volumes: bound volumes must be reachable, and unbound claims must find a volume.
//!
//! A node is refused if a bound volume cannot be reached from it, and, with a reason of its own, if
//! an unbound claim finds no volume. Claims whose class waits for the
//! first consumer are bound when the pod is placed: on the node each such claim of the pod, the
//! smallest first, must find a volume of its own. That is the smallest available volume of its class
//! that is large enough, has its modes, matches its selector and can be reached from the node; or
//! else the provisioner of the class must be able to create one there. A claim for which a node was
//! selected can only be provisioned there. Of volumes of one size, the first by name is chosen.
//!
//! The volumes of a task that is placed in the cycle are assumed to be taken, as in Kubernetes'
//! volume binder: other claims do not get them, and a claim that several pods share is decided by
//! the first. A volume that is made for the first can be used on other nodes if an access mode of the claim is
//! for many nodes, and the nodes have equal values of the labels that the CSINodes of the driver and the topologies
//! of the class name.
//!
//! Source: Kubernetes 1.36, `plugins/volumebinding/binder.go`,
//! `component-helpers/storage/volume/pv_helpers.go`. Storage capacity is not watched.

mod available;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use kube_batch_framework::plugin::{Dependencies, Dependency, NodesByDomain};
use kube_batch_model::{
    column::{Column, NodeIdx},
    decision::ClaimChoice,
    facts::{node::NodeFacts, storage::ClaimFacts},
    name::{Name, ObjectKey},
    reason::{Cause, Inadmissible, Unfit},
    status::Placement,
};

use self::available::{AvailableVolume, AvailableVolumes, ClaimToBind, VolumeChoice};
use super::{
    arguments::PredicatesArguments,
    filter::{Filter, Query},
};
use crate::{
    compiled::Opening, constraint_classes::ConstraintClassIdx, node_terms::AnyOf,
    pod_count::Placed, volume_claims::ResolvedClaims,
};

kube_batch_model::row_type! {
    /// Row of a claim that is bound when a pod is placed.
    pub(crate) UnboundClaim,
}

#[derive(Debug)]
struct VolumeBinding {
    refusals: Column<ConstraintClassIdx, Option<Name>>,
    bound: Column<ConstraintClassIdx, BoundVolumes>,
    unbound: UnboundClaims,
}

/// The bound volumes of a constraint class that can refuse a node, in the order of the claims. The
/// first that refuses gives the reason.
#[derive(Clone, Debug, Default)]
struct BoundVolumes(Vec<BoundVolume>);

#[derive(Clone, Debug)]
enum BoundVolume {
    /// It does not exist.
    Missing,
    /// It can be reached from these nodes.
    Within(AnyOf),
}

impl BoundVolumes {
    fn new(opening: Opening<'_>, resolved: &ResolvedClaims) -> Self {
        let bound = resolved.bound.iter().filter_map(|claim| {
            let Some(volume) = &claim.volume else { return Some(BoundVolume::Missing) };
            let terms = volume.node_affinity.as_ref()?;
            Some(BoundVolume::Within(opening.compiler().any_of(terms)))
        });
        Self(bound.collect())
    }

    fn check(&self, node: NodeIdx) -> Result<(), Unfit> {
        self.0.iter().try_for_each(|volume| match volume {
            BoundVolume::Missing => Err(Unfit::VolumeMissing),
            BoundVolume::Within(affinity) if affinity.passes(node) => Ok(()),
            BoundVolume::Within(_) => Err(Unfit::VolumeAffinity),
        })
    }
}

pub(super) fn build(opening: Opening<'_>, _: &PredicatesArguments) -> Box<dyn Filter> {
    let mut built = VolumeBinding {
        refusals: opening.by_class(None),
        bound: opening.by_class(BoundVolumes::default()),
        unbound: UnboundClaims::new(opening),
    };
    for class in opening.classes().to_place() {
        match &opening.claims()[class] {
            Ok(resolved) => {
                built.bound[class] = BoundVolumes::new(opening, resolved);
                built.unbound.add(opening, class, &resolved.unbound);
            }
            Err(reason) => built.refusals[class] = Some(reason.clone()),
        }
    }
    Box::new(built)
}

impl Filter for VolumeBinding {
    fn dependencies(&self, class: ConstraintClassIdx) -> Dependencies {
        Dependencies::NONE
            .with_if(Dependency::Class, !self.bound[class].0.is_empty())
            .with_if(Dependency::Cluster, !self.unbound.of_class[class].is_empty())
    }

    fn admit(&self, class: ConstraintClassIdx) -> Result<(), Inadmissible> {
        let refusal = self.refusals[class].clone();
        refusal.map_or(Ok(()), |message| Err(Inadmissible { cause: Cause::Volumes, message }))
    }

    fn check(&self, query: Query) -> Result<(), Unfit> {
        match query.dependency {
            Dependency::Class => self.bound[query.class].check(query.node),
            Dependency::Node | Dependency::Domain => Ok(()),
            Dependency::Cluster => self.unbound.check(query.class, query.node),
        }
    }

    fn on_placement(&mut self, placed: &Placed) {
        self.unbound.on_placement(placed);
    }

    fn work(&self) -> u64 {
        self.unbound.n_steps.load(Ordering::Relaxed)
    }

    fn claim_choices(&self, class: ConstraintClassIdx) -> Vec<ClaimChoice> {
        self.unbound.choices(class)
    }

    fn domains_to_choose(&self, class: ConstraintClassIdx) -> NodesByDomain {
        let unbound = &self.unbound;
        let mut open =
            unbound.of_class[class].iter().filter(|claim| unbound.assumed[**claim].is_none());
        let mut domains =
            open.by_ref().map(|claim| unbound.volumes.domains_to_choose(&unbound.claims[*claim]));
        domains.find(|domains| !domains.is_empty()).unwrap_or_default()
    }
}

/// The claims that are bound when a pod is placed, and the volumes they can get.
#[derive(Debug)]
struct UnboundClaims {
    /// The smallest first.
    of_class: Column<ConstraintClassIdx, Vec<UnboundClaim>>,
    claims: Column<UnboundClaim, ClaimToBind>,
    keys: Column<UnboundClaim, ObjectKey>,
    rows: BTreeMap<ObjectKey, UnboundClaim>,
    volumes: AvailableVolumes,
    /// What the tasks placed so far have decided.
    assumed: Column<UnboundClaim, Option<Assumed>>,
    nodes: Column<NodeIdx, Arc<NodeFacts>>,
    /// Incremented with each claim that is assumed to get a volume, or no longer is.
    generation: u64,
    /// What is the same for all nodes.
    answers: Column<ConstraintClassIdx, Answer>,
    /// How long choosing volumes took beyond what is usual, in evaluations of a node.
    n_steps: AtomicU64,
}

/// Whether the claims of a class can be bound, if that is so on all nodes or on none: twice the generation in which it
/// was found out, and 1 if they can.
#[derive(Debug)]
struct Answer(AtomicU64);

impl Answer {
    const UNKNOWN: u64 = u64::MAX;

    const fn unknown() -> Self {
        Self(AtomicU64::new(Self::UNKNOWN))
    }

    fn get(&self, generation: u64) -> Option<Result<(), Unfit>> {
        let known = self.0.load(Ordering::Relaxed);
        let is_known = known != Self::UNKNOWN && known / 2 == generation;
        is_known.then_some(if known % 2 == 1 { Ok(()) } else { Err(Unfit::NoVolume) })
    }

    fn set(&self, generation: u64, fits: Result<(), Unfit>) {
        self.0.store(2 * generation + u64::from(fits.is_ok()), Ordering::Relaxed);
    }
}

/// As many volumes can be looked at in the time of a usual evaluation of a node.
const STEPS_OF_AN_EVALUATION: usize = 8;

/// The volume a claim is assumed to get.
#[derive(Clone, Copy, Debug)]
struct Assumed {
    /// The node of the first task that uses the claim.
    node: NodeIdx,
    /// `None` if one is created on that node.
    volume: Option<AvailableVolume>,
    n_tasks: u32,
}

impl UnboundClaims {
    fn new(opening: Opening<'_>) -> Self {
        Self {
            of_class: opening.by_class(Vec::new()),
            claims: Column::new(),
            keys: Column::new(),
            rows: BTreeMap::new(),
            volumes: AvailableVolumes::default(),
            assumed: Column::new(),
            nodes: opening.cluster.nodes.facts.values().cloned().collect(),
            generation: 0,
            answers: opening.by_class(()).values().map(|()| Answer::unknown()).collect(),
            n_steps: AtomicU64::new(0),
        }
    }

    /// Adds the claims of a constraint class.
    fn add(&mut self, opening: Opening<'_>, class: ConstraintClassIdx, claims: &[Arc<ClaimFacts>]) {
        let mut claims: Vec<&ClaimFacts> = claims.iter().map(|claim| &**claim).collect();
        claims.sort_by_key(|claim| claim.request_bytes);
        for claim in claims {
            let row = match self.rows.get(&claim.key) {
                Some(row) => *row,
                None => {
                    let row = self.claims.push(self.volumes.claim_to_bind(opening, claim));
                    self.assumed.push(None);
                    self.keys.push(claim.key.clone());
                    self.rows.insert(claim.key.clone(), row);
                    row
                }
            };
            self.of_class[class].push(row);
        }
    }

    fn check(&self, class: ConstraintClassIdx, node: NodeIdx) -> Result<(), Unfit> {
        if let Some(fits) = self.answers[class].get(self.generation) {
            return fits;
        }
        let mut choosing = self.volumes.choosing(node);
        let mut depends_on_node = false;
        let fits = self.of_class[class].iter().try_for_each(|claim| match self.assumed[*claim] {
            Some(assumed) => {
                depends_on_node = true;
                self.check_assumed(*claim, assumed, node)
            }
            None => match choosing.next(&self.claims[*claim]) {
                VolumeChoice::Existing(_) | VolumeChoice::Provision => Ok(()),
                VolumeChoice::Unavailable => Err(Unfit::NoVolume),
            },
        });
        if !depends_on_node && !choosing.depends_on_node() {
            self.answers[class].set(self.generation, fits);
        }
        // The first few are a usual evaluation.
        let n_more = choosing.n_steps() / STEPS_OF_AN_EVALUATION;
        if n_more > 0 {
            self.n_steps.fetch_add(n_more as u64, Ordering::Relaxed);
        }
        fits
    }

    /// Whether the volume that a claim is assumed to get can be reached from a node.
    fn check_assumed(
        &self,
        claim: UnboundClaim,
        assumed: Assumed,
        node: NodeIdx,
    ) -> Result<(), Unfit> {
        let is_reachable = match assumed.volume {
            Some(volume) => self.volumes.is_reachable(volume, node),
            None => {
                let claim = &self.claims[claim];
                AvailableVolumes::is_made_within_reach(claim, assumed.node, node)
            }
        };
        if is_reachable { Ok(()) } else { Err(Unfit::NoVolume) }
    }

    /// The choices for the claims of a task that has been placed.
    fn choices(&self, class: ConstraintClassIdx) -> Vec<ClaimChoice> {
        let claims = self.of_class[class].iter();
        let choices = claims.filter_map(|claim| {
            let assumed = self.assumed[*claim]?;
            let volume = assumed.volume.map(|volume| self.volumes.name(volume).clone());
            let made_for = volume.is_none().then(|| self.nodes[assumed.node].name.clone());
            Some(ClaimChoice { claim: self.keys[*claim].clone(), volume, made_for })
        });
        choices.collect()
    }

    fn on_placement(&mut self, placed: &Placed) {
        let class = placed.constraint_class;
        let node = |at: Placement| at.node.filter(|_| at.status.is_being_placed());
        let (from, to) = (node(placed.from), node(placed.to));
        if self.of_class[class].is_empty() || from == to {
            return;
        }
        self.generation += 1;
        if from.is_some() {
            self.forget(class);
        }
        if let Some(node) = to {
            self.assume(class, node);
        }
    }

    /// A task of the class has been placed on a node.
    fn assume(&mut self, class: ConstraintClassIdx, node: NodeIdx) {
        let mut choosing = self.volumes.choosing(node);
        for claim in &self.of_class[class] {
            if let Some(assumed) = &mut self.assumed[*claim] {
                assumed.n_tasks += 1;
                continue;
            }
            let volume = match choosing.next(&self.claims[*claim]) {
                VolumeChoice::Existing(volume) => Some(volume),
                VolumeChoice::Provision | VolumeChoice::Unavailable => None,
            };
            self.assumed[*claim] = Some(Assumed { node, volume, n_tasks: 1 });
        }
        for claim in &self.of_class[class] {
            if let Some(Assumed { volume: Some(volume), .. }) = self.assumed[*claim] {
                self.volumes.set_taken(volume, true);
            }
        }
    }

    /// The placement of a task of the class has been rolled back, or confirmed.
    fn forget(&mut self, class: ConstraintClassIdx) {
        for claim in &self.of_class[class] {
            let Some(assumed) = &mut self.assumed[*claim] else { continue };
            assumed.n_tasks -= 1;
            if assumed.n_tasks > 0 {
                continue;
            }
            if let Some(volume) = assumed.volume {
                self.volumes.set_taken(volume, false);
            }
            self.assumed[*claim] = None;
        }
    }
}
