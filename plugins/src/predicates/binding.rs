//! Claims that get their volume when a pod is placed.
//!
//! On a node every waiting claim of the pod, the smallest first, must find a volume of its own: a
//! free one of its class that is large enough, fits its modes and selector and can be reached from
//! there, the smallest such; or its class must be able to make one there. A claim for which a node
//! was selected has only that node. Of volumes of one size the first by name is taken.
//!
//! A task that is placed in the cycle takes its volumes with it: others do not get them, and a
//! claim that several pods share is settled by the first.
//!
//! Source: Kubernetes 1.36, `plugins/volumebinding/binder.go`,
//! `component-helpers/storage/volume/pv_helpers.go`. Storage capacity is not watched.

mod supply;

use std::collections::BTreeMap;

use kube_batch_api::{
    column::{Column, NodeIdx},
    decision::ClaimChoice,
    facts::storage::ClaimFacts,
    name::ObjectKey,
    reason::Unfit,
    status::Placement,
};

use self::supply::{Demand, Free, Supply};
use super::claims::Resolved;
use crate::{
    constraint_classes::{ConstraintClassIdx, is_being_placed},
    node_labels::NodeLabels,
    node_tests::Compiler,
    rows::row_type,
};

row_type! {
    /// Row of a waiting claim.
    Waiting,
}

/// Waiting claims, and the volumes they could get.
#[derive(Debug, Default)]
pub(super) struct WaitingClaims {
    of_class: Column<ConstraintClassIdx, Vec<Waiting>>,
    demands: Column<Waiting, Demand>,
    keys: Column<Waiting, ObjectKey>,
    rows: BTreeMap<ObjectKey, Waiting>,
    supply: Supply,
    /// What tasks placed before have settled.
    settled: Column<Waiting, Option<Settled>>,
}

/// Where a claim's volume is, or will be made.
#[derive(Clone, Copy, Debug)]
struct Settled {
    node: NodeIdx,
    volume: Option<Free>,
    n_tasks: u32,
}

impl WaitingClaims {
    pub(super) fn new(n_classes: usize) -> Self {
        Self { of_class: Column::filled(Vec::new(), n_classes), ..Self::default() }
    }

    /// Sets the waiting claims of a constraint class. To be called before any task moves.
    pub(super) fn add(
        &mut self,
        compiler: &mut Compiler<'_>,
        constraint_class: ConstraintClassIdx,
        resolved: &Resolved<'_>,
    ) {
        let mut claims: Vec<&ClaimFacts> = resolved.waiting.clone();
        claims.sort_by_key(|claim| claim.request_bytes);
        for claim in claims {
            let row = match self.rows.get(&claim.key) {
                Some(row) => *row,
                None => {
                    let row = self.demands.push(self.supply.demand(compiler, claim));
                    self.settled.push(None);
                    self.keys.push(claim.key.clone());
                    self.rows.insert(claim.key.clone(), row);
                    row
                }
            };
            self.of_class[constraint_class].push(row);
        }
    }

    /// Whether the constraint class has waiting claims.
    pub(super) fn concerns(&self, constraint_class: ConstraintClassIdx) -> bool {
        !self.of_class[constraint_class].is_empty()
    }

    pub(super) fn check(
        &self,
        labels: &NodeLabels,
        constraint_class: ConstraintClassIdx,
        node: NodeIdx,
    ) -> Result<(), Unfit> {
        let mut chosen = Vec::new();
        for claim in &self.of_class[constraint_class] {
            match self.choose(labels, *claim, node, &chosen) {
                None => return Err(Unfit::NoVolume),
                Some(volume) => chosen.extend(volume),
            }
        }
        Ok(())
    }

    /// What a claim gets on a node: a free volume that is not among `chosen`, or `Some(None)` if one
    /// is made for it; `None` if it gets nothing there.
    fn choose(
        &self,
        labels: &NodeLabels,
        claim: Waiting,
        node: NodeIdx,
        chosen: &[Free],
    ) -> Option<Option<Free>> {
        match self.settled[claim] {
            Some(Settled { volume: Some(volume), .. }) => {
                self.supply.reaches(labels, volume, node).then_some(None)
            }
            Some(Settled { volume: None, node: selected, .. }) => {
                (node == selected).then_some(None)
            }
            None => self.supply.choose(labels, &self.demands[claim], node, chosen),
        }
    }

    /// What the claims of a task of the constraint class that has a place get.
    pub(super) fn choices(&self, constraint_class: ConstraintClassIdx) -> Vec<ClaimChoice> {
        let claims = self.of_class[constraint_class].iter();
        let choices = claims.filter_map(|claim| {
            let settled = self.settled[*claim]?;
            let volume = settled.volume.map(|volume| self.supply.name(volume).clone());
            Some(ClaimChoice { claim: self.keys[*claim].clone(), volume })
        });
        choices.collect()
    }

    /// A task of the constraint class moved.
    pub(super) fn moved(
        &mut self,
        labels: &NodeLabels,
        constraint_class: ConstraintClassIdx,
        from: Placement,
        to: Placement,
    ) {
        let place = |at: Placement| at.node.filter(|_| is_being_placed(at.status));
        if self.of_class[constraint_class].is_empty() || place(from) == place(to) {
            return;
        }
        if place(from).is_some() {
            self.leave(constraint_class);
        }
        if let Some(node) = place(to) {
            self.settle(labels, constraint_class, node);
        }
    }

    fn settle(&mut self, labels: &NodeLabels, constraint_class: ConstraintClassIdx, node: NodeIdx) {
        for at in 0..self.of_class[constraint_class].len() {
            let claim = self.of_class[constraint_class][at];
            if let Some(settled) = &mut self.settled[claim] {
                settled.n_tasks += 1;
                continue;
            }
            let volume = self.supply.choose(labels, &self.demands[claim], node, &[]).flatten();
            if let Some(volume) = volume {
                self.supply.set_taken(volume, true);
            }
            self.settled[claim] = Some(Settled { node, volume, n_tasks: 1 });
        }
    }

    fn leave(&mut self, constraint_class: ConstraintClassIdx) {
        for claim in &self.of_class[constraint_class] {
            let Some(settled) = &mut self.settled[*claim] else { continue };
            settled.n_tasks -= 1;
            if settled.n_tasks > 0 {
                continue;
            }
            if let Some(volume) = settled.volume {
                self.supply.set_taken(volume, false);
            }
            self.settled[*claim] = None;
        }
    }
}
