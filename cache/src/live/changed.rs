//! What has changed since the last snapshot.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kube_batch_model::{
    facts::{
        batch_job::BatchJobFacts,
        device::claim::ResourceClaimFacts,
        fact::Fact,
        group::GroupFacts,
        node::{NamespaceFacts, NodeFacts},
        pod::TaskFacts,
        policy::BudgetFacts,
        queue::QueueFacts,
    },
    group_version::GroupVersion,
    name::{Name, ObjectKey},
};

use crate::{
    assumed::{Assumed, Touched},
    store::{Store, Table},
};

/// Facts before they changed; `None` if they are new.
pub(super) type FormerFacts<K, F> = BTreeMap<K, Option<Arc<F>>>;

/// What has changed since the last snapshot.
pub(super) struct Changed {
    pub(super) pods: FormerFacts<ObjectKey, TaskFacts>,
    /// Pods whose decision in flight has changed.
    pub(super) touched: BTreeSet<ObjectKey>,
    pub(super) groups: FormerFacts<(ObjectKey, GroupVersion), GroupFacts>,
    pub(super) queues: FormerFacts<(Name, GroupVersion), QueueFacts>,
    pub(super) nodes: FormerFacts<Name, NodeFacts>,
    pub(super) budgets: FormerFacts<ObjectKey, BudgetFacts>,
    pub(super) batch_jobs: FormerFacts<ObjectKey, BatchJobFacts>,
    pub(super) namespaces: Vec<Name>,
    /// Whether the queue of the jobs of some namespace has changed.
    pub(super) queues_of_namespaces: bool,
    pub(super) priority_classes: bool,
    pub(super) storage: bool,
    pub(super) resource_claims: FormerFacts<ObjectKey, ResourceClaimFacts>,
    /// The claims for devices about which a decision in flight has changed.
    pub(super) claims_in_flight: BTreeSet<ObjectKey>,
    pub(super) device_classes: bool,
    /// Whether slices or rules about their taints have changed.
    pub(super) slices: bool,
    pub(super) composites: bool,
}

impl Changed {
    /// Takes what has changed. `None` if anything may have: this is the first call, or the first for a long
    /// time.
    pub(super) fn take(store: &mut Store, assumed: &mut Assumed) -> Option<Self> {
        // Each is taken, whatever the others say.
        let touched = assumed.take_touched();
        let pods = store.pods.take_former();
        let groups = store.groups.take_former();
        let queues = store.queues.take_former();
        let nodes = store.nodes.take_former();
        let budgets = store.budgets.take_former();
        let batch_jobs = store.batch_jobs.take_former();
        let storage = [
            has_changed(&mut store.volumes),
            has_changed(&mut store.claims),
            has_changed(&mut store.storage_classes),
            has_changed(&mut store.csi_nodes),
            has_changed(&mut store.csi_drivers),
        ];
        let namespaces = store.namespaces.take_former();
        let queue_of = |facts: Option<&Arc<NamespaceFacts>>| facts.and_then(|f| f.queue.clone());
        let has_other_queue = |(name, before): (&Name, &Option<Arc<NamespaceFacts>>)| {
            queue_of(before.as_ref()) != queue_of(store.namespaces.get(name))
        };
        let queues_of_namespaces = namespaces.iter().flatten().any(has_other_queue);
        let priority_classes = has_changed(&mut store.priority_classes);
        let resource_claims = store.resource_claims.take_former();
        let device_classes = has_changed(&mut store.device_classes);
        let slices =
            [has_changed(&mut store.resource_slices), has_changed(&mut store.device_taint_rules)];
        let composites = has_changed(&mut store.composites);
        let Touched { pods: touched, has_volumes, claims: claims_in_flight } = touched?;
        Some(Self {
            pods: pods?,
            touched,
            groups: groups?,
            queues: queues?,
            nodes: nodes?,
            budgets: budgets?,
            batch_jobs: batch_jobs?,
            namespaces: namespaces?.into_keys().collect(),
            queues_of_namespaces,
            priority_classes,
            storage: has_volumes || storage.contains(&true),
            resource_claims: resource_claims?,
            claims_in_flight,
            device_classes,
            slices: slices.contains(&true),
            composites,
        })
    }
}

fn has_changed<K: Ord + Clone, F: Fact>(table: &mut Table<K, F>) -> bool {
    table.take_former().is_none_or(|former| !former.is_empty())
}
