//! The priority of new pods, as the admission plugin Priority of the API server sets it.
//!
//! Source: `plugin/pkg/admission/priority/admission.go` of Kubernetes 1.37.

use std::collections::BTreeMap;

use kube_batch_cache::store::Store;
use kube_batch_model::name::{Name, ObjectKey};

/// Classes that exist in every cluster, and their values.
const SYSTEM_CLASSES: [(&str, i32); 2] =
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];

/// What a pod gets that names no priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Admitted {
    pub(crate) priority: i32,
    /// Whether `preemptionPolicy: Never` is set in a pod that names no policy.
    pub(crate) never_preempts: bool,
    /// Whether the class that the pod names does not exist: an API server would reject the pod.
    pub(crate) is_unknown: bool,
}

/// The priority of the class that a pod names, else of the global default class, else 0. A pod whose
/// class does not exist is treated as one that names none.
pub(crate) fn admit(class: Option<&str>, store: &Store) -> Admitted {
    let class = class.filter(|class| !class.is_empty());
    let system = SYSTEM_CLASSES.iter().find(|(name, _)| Some(*name) == class);
    if let Some((_, priority)) = system {
        return Admitted { priority: *priority, ..Admitted::default() };
    }
    let named = class.and_then(|class| store.priority_classes.get(&Name::from(class)));
    let is_unknown = class.is_some() && named.is_none();
    let default = || {
        let defaults = store.priority_classes.values().filter(|class| class.global_default);
        defaults.min_by_key(|class| class.value)
    };
    let class = named.or_else(default);
    Admitted {
        priority: class.map_or(0, |class| class.value),
        never_preempts: class.is_some_and(|class| class.never_preempts),
        is_unknown,
    }
}

/// Pods whose priority class does not exist: by class, their number and one of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnknownClasses(BTreeMap<Name, (usize, ObjectKey)>);

impl UnknownClasses {
    pub(crate) fn add(&mut self, class: Name, pod: &ObjectKey) {
        self.0.entry(class).or_insert_with(|| (0, pod.clone())).0 += 1;
    }

    /// The classes, in order of name, with the number of pods that name them, and one of the pods.
    pub fn iter(&self) -> impl Iterator<Item = (&Name, usize, &ObjectKey)> {
        self.0.iter().map(|(class, (count, pod))| (class, *count, pod))
    }
}
