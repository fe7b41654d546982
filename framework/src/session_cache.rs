//! Values that plugins derive from the cluster when a session opens, computed once and shared.
//!
//! Plugins do not know one another, but several of them may need the same derived value, such as
//! compiled node selectors or the topology domains of the nodes. The session gives every plugin the
//! same cache. The first plugin that requests a type computes its value, the others get that value.
//!
//! A value is a function of the cluster alone ([`FromCluster`]): it cannot depend on the arguments
//! of a plugin, so the order of the plugins makes no difference. It is shared immutably. State that
//! follows placements, such as the number of pods in a topology domain, belongs to the plugin that
//! keeps it: shared counts would have to be updated exactly once for each placement, whichever
//! plugins are configured and in whichever order they are called.

use std::{
    any::{Any, TypeId},
    collections::BTreeMap,
    sync::Arc,
};

use jiff::Timestamp;
use kube_batch_model::cluster::Cluster;

/// A value that plugins derive from the cluster when a session opens.
pub trait FromCluster: Any + Send + Sync {
    /// Computes the value. The same cluster gives the same value.
    fn from_cluster(cluster: &Cluster) -> Self;
}

/// The values derived so far, by type. Lives while a session opens.
pub struct SessionCache<'c> {
    cluster: &'c Cluster,
    now: Timestamp,
    values: BTreeMap<TypeId, Arc<dyn Any + Send + Sync>>,
}

impl<'c> SessionCache<'c> {
    /// An empty cache for a cluster at the time of a cycle.
    pub const fn new(cluster: &'c Cluster, now: Timestamp) -> Self {
        Self { cluster, now, values: BTreeMap::new() }
    }

    /// The time of the cycle. A plugin whose answers depend on it keeps it, and says in
    /// [`Plugin::next_change`](crate::plugin::Plugin::next_change) when they change.
    pub const fn now(&self) -> Timestamp {
        self.now
    }

    /// The value of a type, computed on the first call.
    pub fn get<T: FromCluster>(&mut self) -> Arc<T> {
        let cluster = self.cluster;
        let entry = self.values.entry(TypeId::of::<T>());
        let value = entry.or_insert_with(|| Arc::new(T::from_cluster(cluster)));
        Arc::downcast(Arc::clone(value)).expect("a value is stored under its own type")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube_batch_model::resource::Dimensions;

    struct NumberOfNodes(usize);

    impl FromCluster for NumberOfNodes {
        fn from_cluster(cluster: &Cluster) -> Self {
            Self(cluster.nodes.facts.len())
        }
    }

    #[test]
    fn a_value_is_computed_once() {
        let cluster = Cluster {
            dimensions: Dimensions::new([]),
            nodes: Default::default(),
            queues: Default::default(),
            jobs: Default::default(),
            tasks: Default::default(),
            classes: Default::default(),
            matchers: Default::default(),
            storage: Default::default(),
            devices: Default::default(),
            device_totals: Default::default(),
            terminating: Default::default(),
            budgets: Default::default(),
        };
        let mut cache = SessionCache::new(&cluster, Timestamp::MAX);
        let first = cache.get::<NumberOfNodes>();
        assert_eq!(first.0, 0);
        assert!(Arc::ptr_eq(&first, &cache.get::<NumberOfNodes>()));
    }
}
