//! Answers about devices that are kept during a session, because they are needed in every action.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kube_batch_api::column::{NodeIdx, Ordinal as _};
use kube_batch_devices::{rows::WantedIdx, search::Refusal};
use kube_batch_framework::plugin::{Capacity, NodesByDomain};

/// The nodes on which a search found no devices for the claims of a class, as long as what is in use stays the same:
/// a node is searched for each action, and once more to explain why a task waits.
#[derive(Debug, Default)]
pub(super) struct RefusedNodes {
    /// `DynamicResources::version` and the alternative that is tried first.
    of: (u64, usize),
    /// By node, two bits for each capacity; empty if there are none.
    bits: Vec<u8>,
}

impl RefusedNodes {
    const INSUFFICIENT: u8 = 1;
    const TOO_COMPLEX: u8 = 2;

    pub(super) fn known(
        &self,
        (node, capacity, first): (NodeIdx, Capacity, usize),
        version: u64,
    ) -> Option<Refusal> {
        let bits = *self.bits.get(node.at()).filter(|_| self.of == (version, first))?;
        match bits >> Self::shift(capacity) & 3 {
            Self::INSUFFICIENT => Some(Refusal::Insufficient),
            Self::TOO_COMPLEX => Some(Refusal::TooComplex),
            _ => None,
        }
    }

    pub(super) fn add(
        &mut self,
        (node, capacity, first): (NodeIdx, Capacity, usize),
        version: u64,
        refusal: &Refusal,
    ) {
        let bits = match refusal {
            Refusal::Insufficient => Self::INSUFFICIENT,
            Refusal::TooComplex => Self::TOO_COMPLEX,
            Refusal::InvalidPools | Refusal::Error(_) => return,
        };
        if self.of != (version, first) {
            self.of = (version, first);
            self.bits.clear();
        }
        if self.bits.len() <= node.at() {
            self.bits.resize(node.at() + 1, 0);
        }
        self.bits[node.at()] |= bits << Self::shift(capacity);
    }

    const fn shift(capacity: Capacity) -> u8 {
        match capacity {
            Capacity::Idle => 0,
            Capacity::FutureIdle => 2,
        }
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
