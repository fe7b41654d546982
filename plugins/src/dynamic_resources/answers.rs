//! Answers about devices that are kept during a session, because they are needed in every action.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kube_batch_devices::{rows::WantedIdx, search::Refusal};
use kube_batch_framework::plugin::{Capacity, NodesByDomain};
use kube_batch_model::column::{NodeIdx, Ordinal as _};

/// The nodes on which a search found no devices for the claims of a class, as long as what is in use stays the same:
/// a node is searched for each action, and once more to explain why a task waits.
#[derive(Debug, Default)]
pub(super) struct RefusedNodes {
    /// `DynamicResources::version` and the alternative that is tried first.
    of: (u64, usize),
    /// By node, then by capacity; nodes beyond the end are unknown.
    reasons: Vec<[Option<Reason>; 2]>,
}

/// The refusals that are worth keeping: the others are rare.
#[derive(Clone, Copy, Debug)]
enum Reason {
    Insufficient,
    TooComplex,
}

impl RefusedNodes {
    pub(super) fn known(
        &self,
        (node, capacity, first): (NodeIdx, Capacity, usize),
        version: u64,
    ) -> Option<Refusal> {
        let of_node = self.reasons.get(node.at()).filter(|_| self.of == (version, first))?;
        Some(match of_node[capacity as usize]? {
            Reason::Insufficient => Refusal::Insufficient,
            Reason::TooComplex => Refusal::TooComplex,
        })
    }

    pub(super) fn add(
        &mut self,
        (node, capacity, first): (NodeIdx, Capacity, usize),
        version: u64,
        refusal: &Refusal,
    ) {
        let reason = match refusal {
            Refusal::Insufficient => Reason::Insufficient,
            Refusal::TooComplex => Reason::TooComplex,
            Refusal::InvalidPools | Refusal::Error(_) => return,
        };
        if self.of != (version, first) {
            self.of = (version, first);
            self.reasons.clear();
        }
        if self.reasons.len() <= node.at() {
            self.reasons.resize(node.at() + 1, [None; 2]);
        }
        self.reasons[node.at()][capacity as usize] = Some(reason);
    }
}

/// The nodes of pools that could serve claims, by the requests that admit the same devices.
#[derive(Debug, Default)]
pub(super) struct KnownDomains {
    by_requests: BTreeMap<BTreeSet<WantedIdx>, NodesByDomain>,
    n_nodes: usize,
}

/// Maximum number of nodes in [`KnownDomains`]: some megabytes.
const MAX_KNOWN_NODES: usize = 200_000;

impl KnownDomains {
    pub(super) fn of(
        &mut self,
        requests: BTreeSet<WantedIdx>,
        find: impl FnOnce() -> NodesByDomain,
    ) -> NodesByDomain {
        if let Some(known) = self.by_requests.get(&requests) {
            return Arc::clone(known);
        }
        let domains = find();
        // A domain takes about as much as some nodes.
        let n_nodes: usize = domains.iter().map(|nodes| 4 + nodes.len()).sum();
        if self.n_nodes + n_nodes > MAX_KNOWN_NODES {
            *self = Self::default();
        }
        self.n_nodes += n_nodes;
        self.by_requests.insert(requests, Arc::clone(&domains));
        domains
    }
}
