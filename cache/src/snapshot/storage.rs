//! Volumes and claims, with the decisions in flight applied.

use std::sync::Arc;

use kube_batch_model::{cluster::Storage, decision::ClaimChoice, name::Name};

use crate::{
    assumed::{Assumed, InFlight},
    store::Store,
};

pub(crate) fn storage_of(store: &Store, assumed: &Assumed) -> Storage {
    let mut storage = Storage {
        volumes: store.volumes.iter().map(|(k, v)| (k.clone(), Arc::clone(v))).collect(),
        claims: store.claims.iter().map(|(k, v)| (k.clone(), Arc::clone(v))).collect(),
        classes: store.storage_classes.iter().map(|(k, v)| (k.clone(), Arc::clone(v))).collect(),
        csi_nodes: store.csi_nodes.iter().map(|(k, v)| (k.clone(), Arc::clone(v))).collect(),
        csi_drivers: store.csi_drivers.iter().map(|(k, v)| (k.clone(), Arc::clone(v))).collect(),
    };
    for (_, in_flight, _) in assumed.iter() {
        if let InFlight::Bind { node, claims, .. } = in_flight {
            for choice in claims {
                settle_claim(&mut storage, choice, node);
            }
        }
    }
    storage
}

/// The claim as it will be when its choice is written: bound to its volume, or waiting for one on
/// the node.
fn settle_claim(storage: &mut Storage, choice: &ClaimChoice, node: &Name) {
    let claim = storage.claims.get_mut(&choice.claim).filter(|claim| claim.volume.is_none());
    let Some(claim) = claim.map(Arc::make_mut) else { return };
    let Some(volume) = &choice.volume else {
        claim.selected_node = Some(choice.node(node).clone());
        return;
    };
    claim.volume = Some(volume.clone());
    claim.bind_completed = true;
    if let Some(volume) = storage.volumes.get_mut(volume).map(Arc::make_mut) {
        volume.claim = Some((claim.key.clone(), Some(claim.uid.clone())));
    }
}
