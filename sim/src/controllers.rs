//! Simulated Job and ReplicaSet controllers, as far as they matter to a scheduler.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Pod, PodTemplateSpec},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time},
};
use kube_batch_api::{
    facts::FactError,
    name::{Name, ObjectKey},
    status::TaskStatus,
};
use kube_batch_cache::store::Store;
use kube_batch_manifest::defaults::merge_label_keys;

/// Which kind of controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ControllerKind {
    /// batch/v1 Job: pods that have succeeded are not replaced.
    Job,
    /// apps/v1 ReplicaSet.
    ReplicaSet,
}

impl ControllerKind {
    /// The kind in manifests.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Job => "Job",
            Self::ReplicaSet => "ReplicaSet",
        }
    }
}

/// A controller that creates pods.
#[derive(Clone, Debug)]
pub struct Controller {
    /// Namespace and name.
    pub key: ObjectKey,
    /// Its uid.
    pub uid: Name,
    /// Which kind.
    pub kind: ControllerKind,
    /// Creation time: older ones act first.
    pub created: Timestamp,
    /// Desired number of pods.
    pub wanted: usize,
    /// Template of the pods.
    pub template: PodTemplateSpec,
}

/// All controllers, and the names they have used.
#[derive(Debug, Default)]
pub struct Controllers {
    by_key: BTreeMap<(ControllerKind, ObjectKey), Controller>,
    next_number: BTreeMap<Name, usize>,
    /// Invalid templates, with the reason.
    broken: Vec<FactError>,
}

impl Controllers {
    /// Adds or replaces a controller.
    pub fn apply(&mut self, controller: Controller) {
        self.by_key.insert((controller.kind, controller.key.clone()), controller);
    }

    /// Removes a controller and its pods.
    pub fn delete(&mut self, kind: ControllerKind, key: &ObjectKey, store: &mut Store) -> bool {
        let Some(controller) = self.by_key.remove(&(kind, key.clone())) else { return false };
        for pod in pods_of(&controller, store) {
            store.pods.delete(&pod.0);
        }
        true
    }

    /// Whether there is a controller of this kind and name.
    pub fn contains(&self, kind: ControllerKind, key: &ObjectKey) -> bool {
        self.by_key.contains_key(&(kind, key.clone()))
    }

    /// Removes and returns the problems found so far.
    pub fn take_problems(&mut self) -> Vec<FactError> {
        std::mem::take(&mut self.broken)
    }

    /// Creates missing pods, oldest controller first.
    pub(crate) fn run(&mut self, store: &mut Store, now: Timestamp) {
        let mut controllers: Vec<Controller> = self.by_key.values().cloned().collect();
        controllers.sort_by(|l, r| (l.created, &l.key).cmp(&(r.created, &r.key)));
        for controller in controllers {
            let mut present = pods_of(&controller, store)
                .into_iter()
                .filter(|(_, status)| match status {
                    TaskStatus::Succeeded => controller.kind == ControllerKind::Job,
                    TaskStatus::Failed | TaskStatus::Releasing => false,
                    TaskStatus::Pending
                    | TaskStatus::Allocated
                    | TaskStatus::Pipelined
                    | TaskStatus::Binding
                    | TaskStatus::Bound
                    | TaskStatus::Running
                    | TaskStatus::Unknown => true,
                })
                .count();
            while present < controller.wanted {
                let number = self.next_number.entry(controller.uid.clone()).or_default();
                let pod = make_pod(&controller, *number, store, now);
                *number += 1;
                present += 1;
                if let Err(error) = store.apply_pod(&pod) {
                    self.broken.push(error);
                    break;
                }
            }
        }
    }
}

fn pods_of(controller: &Controller, store: &Store) -> Vec<(ObjectKey, TaskStatus)> {
    let owned = store.pods.values().filter(|facts| {
        facts.key.namespace == controller.key.namespace
            && facts.controller.as_ref().is_some_and(|owner| owner.uid == controller.uid)
    });
    owned.map(|facts| (facts.key.clone(), facts.status)).collect()
}

/// The pod with this number of a controller.
pub(crate) fn make_pod(
    controller: &Controller,
    number: usize,
    store: &Store,
    now: Timestamp,
) -> Pod {
    let name = format!("{}-{number}", controller.key.name);
    let template = controller.template.metadata.clone().unwrap_or_default();
    let mut spec = controller.template.spec.clone().unwrap_or_default();
    if spec.priority.is_none() {
        spec.priority = Some(admitted_priority(spec.priority_class_name.as_deref(), store));
    }
    let mut pod = Pod {
        metadata: ObjectMeta {
            uid: Some(format!("{}/{name}", controller.key.namespace)),
            namespace: Some(controller.key.namespace.to_string()),
            creation_timestamp: Some(Time(now)),
            labels: template.labels,
            annotations: template.annotations,
            owner_references: Some(vec![OwnerReference {
                api_version: match controller.kind {
                    ControllerKind::Job => "batch/v1".to_owned(),
                    ControllerKind::ReplicaSet => "apps/v1".to_owned(),
                },
                kind: controller.kind.name().to_owned(),
                name: controller.key.name.to_string(),
                uid: controller.uid.to_string(),
                controller: Some(true),
                ..Default::default()
            }]),
            name: Some(name),
            ..Default::default()
        },
        spec: Some(spec),
        status: None,
    };
    merge_label_keys(&mut pod);
    pod
}

/// The priority that admission sets: of the named class, else the global default, else 0.
fn admitted_priority(class: Option<&str>, store: &Store) -> i32 {
    let named = class.and_then(|class| store.priority_classes.get(&Name::from(class)));
    let default = store.priority_classes.values().filter(|class| class.global_default);
    named.map(|class| class.value).or_else(|| default.map(|class| class.value).min()).unwrap_or(0)
}
