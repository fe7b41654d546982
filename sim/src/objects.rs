//! Creates, updates and deletes objects of a simulated cluster.

use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{Pod, PodTemplateSpec},
};
use kube_batch_api::{
    crd::ApiVersion,
    facts::{
        FactError,
        pod::{Interner, TaskFacts},
    },
    name::{Name, ObjectKey},
    status::TaskStatus,
};
use kube_batch_manifest::{
    defaults,
    object::{Kind, Object},
};

use crate::{
    controllers::{Controller, ControllerKind, make_pod},
    world::World,
};

/// Annotation of a pod that ends by itself: the number of seconds after which it succeeds.
pub const DURATION_ANNOTATION: &str = "kube-batch.sim/duration-seconds";

/// Maximum number of pods of one controller. Guessed: ten times the largest cluster that Kubernetes
/// supports, and few enough to be created in seconds.
const MAX_PODS: usize = 1_500_000;

impl World {
    /// Creates an object, or replaces the one with its name, and sets the defaults of an API server.
    ///
    /// A PodGroup or queue without status keeps its current one, as only the scheduler writes it. A
    /// pod keeps its node and phase.
    ///
    /// # Errors
    ///
    /// [`FactError`] if the object is invalid: only this object is ignored.
    pub fn apply(&mut self, mut object: Object) -> Result<(), FactError> {
        self.keep_state(&mut object);
        defaults::fill(&mut object, self.now());
        let key = object.key();
        let stored = match object {
            Object::Node(node) => self.store.apply_node(&node),
            Object::Pod(pod) => return self.apply_pod(&pod),
            Object::Namespace(namespace) => self.store.apply_namespace(&namespace),
            Object::PersistentVolume(volume) => self.store.apply_volume(&volume),
            Object::PersistentVolumeClaim(claim) => self.store.apply_claim(&claim),
            Object::StorageClass(class) => self.store.apply_storage_class(&class),
            Object::CsiNode(node) => self.store.apply_csi_node(&node),
            Object::CsiDriver(driver) => self.store.apply_csi_driver(&driver),
            Object::ResourceClaim(claim) => self.store.apply_resource_claim(&claim),
            Object::PriorityClass(class) => self.store.apply_priority_class(&class),
            Object::PodDisruptionBudget(budget) => self.store.apply_budget(&budget),
            Object::Job(job) => return self.apply_job(key, *job),
            Object::ReplicaSet(set) => {
                let wanted = set.spec.replicas.unwrap_or(1);
                let template = set.spec.template.unwrap_or_default();
                let kind = ControllerKind::ReplicaSet;
                return self.apply_controller(kind, key, &set.metadata, wanted, template);
            }
            Object::PodGroup(version, group) => {
                let (meta, status) = (&group.metadata, group.status.as_ref());
                self.store.apply_group(version, meta, &group.spec, status)
            }
            Object::Queue(version, queue) => {
                let (meta, status) = (&queue.metadata, queue.status.as_ref());
                self.store.apply_queue(version, meta, &queue.spec, status)
            }
        };
        stored.map(drop)
    }

    /// Keeps the fields that an update of the spec does not change.
    fn keep_state(&self, object: &mut Object) {
        let is_pod = object.kind() == Kind::Pod;
        let mut key = object.key();
        if is_pod && key.namespace.is_empty() {
            key.namespace = Name::from(defaults::NAMESPACE);
        }
        if let Object::Pod(pod) = object {
            let Some(facts) = self.store.pods.get(&key) else { return };
            let status = pod.status.get_or_insert_default();
            if status.phase.is_none() {
                status.phase = phase_of(facts.status).map(str::to_owned);
            }
            let spec = pod.spec.get_or_insert_default();
            spec.node_name = spec.node_name.take().or(facts.node.as_ref().map(Name::to_string));
        } else if let Object::PodGroup(version, group) = object {
            let stored = self.store.groups.get(&(key, *version));
            group.status = group.status.take().or(stored.map(|facts| facts.status.clone()));
        } else if let Object::Queue(version, queue) = object {
            let stored = self.store.queues.get(&(key.name, *version));
            queue.status = queue.status.take().or(stored.map(|facts| facts.status.clone()));
        }
    }

    fn apply_pod(&mut self, pod: &Pod) -> Result<(), FactError> {
        let meta = &pod.metadata;
        let key = ObjectKey::new(
            meta.namespace.as_deref().unwrap_or_default(),
            meta.name.as_deref().unwrap_or_default(),
        );
        let text = meta.annotations.as_ref().and_then(|all| all.get(DURATION_ANNOTATION));
        let seconds = text.map(|text| {
            text.parse().map_err(|_| {
                let field = format!("metadata.annotations[{DURATION_ANNOTATION}]");
                let problem = format!("\"{text}\" is not a number of seconds");
                FactError::new(format!("Pod {key}"), field, problem)
            })
        });
        let seconds = seconds.transpose()?;
        self.store.apply_pod(pod)?;
        if let Some(seconds) = seconds {
            self.set_duration(key, seconds);
        }
        Ok(())
    }

    fn apply_job(&mut self, key: ObjectKey, job: Job) -> Result<(), FactError> {
        let spec = job.spec.unwrap_or_default();
        let wanted = spec.parallelism.unwrap_or(1);
        self.apply_controller(ControllerKind::Job, key, &job.metadata, wanted, spec.template)
    }

    fn apply_controller(
        &mut self,
        kind: ControllerKind,
        key: ObjectKey,
        meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
        wanted: i32,
        template: PodTemplateSpec,
    ) -> Result<(), FactError> {
        let reject = |problem| {
            let field = match kind {
                ControllerKind::Job => "spec.parallelism",
                ControllerKind::ReplicaSet => "spec.replicas",
            };
            FactError::new(format!("{} {key}", kind.name()), field, problem)
        };
        let wanted =
            usize::try_from(wanted).map_err(|_| reject(format!("{wanted} is negative")))?;
        if wanted > MAX_PODS {
            return Err(reject(format!("{wanted} is more than {MAX_PODS} pods")));
        }
        let created = meta.creation_timestamp.as_ref().map_or(self.now(), |time| time.0);
        let uid = Name::from(meta.uid.as_deref().unwrap_or_default());
        let controller = Controller { key, uid, kind, created, wanted, template };
        // Problems of its pods are reported for the controller, before any pod is created.
        let pod = make_pod(&controller, 0, &self.store, created);
        TaskFacts::from_pod(&pod, &mut Interner::default()).map_err(|error| {
            let object = format!("{} {}", kind.name(), controller.key);
            FactError::new(object, format!("spec.template.{}", error.field), error.problem)
        })?;
        self.controllers.apply(controller);
        Ok(())
    }

    /// Deletes an object at once, and the pods of a controller with it. Returns whether it existed.
    pub fn delete(&mut self, kind: Kind, key: &ObjectKey) -> bool {
        let name = &key.name;
        match kind {
            Kind::Pod => {
                let known = self.store.pods.get(key).is_some();
                self.remove_pod(key);
                known
            }
            Kind::Node => self.store.nodes.delete(name),
            Kind::Namespace => self.store.namespaces.delete(name),
            Kind::PersistentVolume => self.store.volumes.delete(name),
            Kind::PersistentVolumeClaim => self.store.claims.delete(key),
            Kind::StorageClass => self.store.storage_classes.delete(name),
            Kind::CsiNode => self.store.csi_nodes.delete(name),
            Kind::CsiDriver => self.store.csi_drivers.delete(name),
            Kind::ResourceClaim => self.store.resource_claims.delete(key),
            Kind::PriorityClass => self.store.priority_classes.delete(name),
            Kind::PodDisruptionBudget => self.store.budgets.delete(key),
            Kind::Job => self.controllers.delete(ControllerKind::Job, key, &mut self.store),
            Kind::ReplicaSet => {
                self.controllers.delete(ControllerKind::ReplicaSet, key, &mut self.store)
            }
            Kind::PodGroup => {
                let groups = &mut self.store.groups;
                ApiVersion::ALL.map(|v| groups.delete(&(key.clone(), v))).contains(&true)
            }
            Kind::Queue => {
                let queues = &mut self.store.queues;
                ApiVersion::ALL.map(|v| queues.delete(&(name.clone(), v))).contains(&true)
            }
        }
    }

    /// Sets the phase of a pod, as its kubelet would. Returns whether the pod exists.
    pub fn set_phase(&mut self, key: &ObjectKey, phase: Phase) -> bool {
        let known = self.store.pods.get(key).is_some();
        self.change_pod(key, |facts| {
            facts.status = match phase {
                Phase::Pending if facts.node.is_some() => TaskStatus::Bound,
                Phase::Pending => TaskStatus::Pending,
                Phase::Running => TaskStatus::Running,
                Phase::Succeeded => TaskStatus::Succeeded,
                Phase::Failed => TaskStatus::Failed,
                Phase::Unknown => TaskStatus::Unknown,
            };
        });
        known
    }
}

/// The phase of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not started.
    Pending,
    /// Running.
    Running,
    /// Finished with success.
    Succeeded,
    /// Finished with failure.
    Failed,
    /// Not reported by its node.
    Unknown,
}

impl Phase {
    /// All, by name.
    pub const NAMES: [(&str, Self); 5] = [
        ("Pending", Self::Pending),
        ("Running", Self::Running),
        ("Succeeded", Self::Succeeded),
        ("Failed", Self::Failed),
        ("Unknown", Self::Unknown),
    ];
}

fn phase_of(status: TaskStatus) -> Option<&'static str> {
    match status {
        TaskStatus::Running => Some("Running"),
        TaskStatus::Succeeded => Some("Succeeded"),
        TaskStatus::Failed => Some("Failed"),
        TaskStatus::Unknown => Some("Unknown"),
        TaskStatus::Pending
        | TaskStatus::Allocated
        | TaskStatus::Pipelined
        | TaskStatus::Binding
        | TaskStatus::Bound
        | TaskStatus::Releasing => None,
    }
}
