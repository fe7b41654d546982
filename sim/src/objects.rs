//! Creates, updates and deletes objects of a simulated cluster.

use k8s_openapi::{
    api::{
        apps::v1::StatefulSet,
        core::v1::{Pod, PodTemplateSpec},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube_batch_api::{jobset::JobSet, kind::ApplyObject as _, read};
use kube_batch_manifest::{
    defaults,
    object::{Kind, Object},
};
use kube_batch_model::{
    facts::{FactError, pod::Interner},
    name::{Name, ObjectKey},
    status::TaskStatus,
};
use serde_json::json;

use crate::{
    arrivals::Announced,
    controllers::{
        Controller, ControllerKind, NewPod, Numbers, Ordinals, PodTimer, Pods, Template,
        in_template, job_controller, jobs_of, number_of_pods,
    },
    world::World,
};

impl World {
    /// Creates an object, or replaces the one with its name, and sets the defaults of an API server.
    ///
    /// A PodGroup or queue without status keeps its current one, as only the scheduler writes it. A
    /// pod keeps its node and phase.
    ///
    /// # Errors
    ///
    /// [`FactError`] if the object is invalid: only this object is ignored.
    pub fn apply(&mut self, object: Object) -> Result<(), FactError> {
        let Some(mut object) = self.announce(object)? else { return Ok(()) };
        self.keep_state(&mut object);
        let is_dated = object.meta().creation_timestamp.is_some();
        // An API server that has stored an object has set its own defaults.
        let is_stored = object.meta().uid.is_some();
        defaults::fill(&mut object, self.now());
        let key = object.key();
        if !is_dated && self.n_cycles() == 0 {
            self.undated.push((object.kind(), object.served(), key.clone()));
        }
        match object {
            Object::Pod(pod) => {
                self.apply_pod(&pod)?;
                let has_priority = pod.spec.is_some_and(|spec| spec.priority.is_some());
                if !has_priority && !is_stored {
                    self.unadmitted.push(key);
                }
                Ok(())
            }
            Object::ResourceClaimTemplate(template) => self.claim_templates.apply(key, &template),
            Object::Job(job) => self.apply_controller(job_controller(key, &job, self.now())?),
            Object::ReplicaSet(set) => {
                let (meta, spec) = (&set.metadata, set.spec);
                let template = spec.template.unwrap_or_default();
                let kind = ControllerKind::ReplicaSet;
                self.apply_deployment(kind, key, meta, spec.replicas, template)
            }
            Object::Deployment(deployment) => {
                let (meta, spec) = (&deployment.metadata, deployment.spec);
                let kind = ControllerKind::Deployment;
                self.apply_deployment(kind, key, meta, spec.replicas, spec.template)
            }
            Object::StatefulSet(set) => self.apply_stateful_set(key, *set),
            Object::JobSet(set) => self.apply_job_set(key, *set),
            object => {
                let stored = object.apply(&mut self.store);
                stored.expect("the kinds that are not stored are above").map(drop)
            }
        }
    }

    /// Keeps an object that is created later, or returns it.
    fn announce(&mut self, object: Object) -> Result<Option<Object>, FactError> {
        let object = match self.arrivals.announce(object)? {
            Announced::Now(object) => return Ok(Some(object)),
            Announced::Later(object) => object,
        };
        // So that its problems are reported now.
        let mut scratch =
            Self::new(self.environment, self.options().clone(), [].into_iter().collect());
        scratch.begin();
        scratch.apply(object)?;
        Ok(None)
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
            group.status = group.status.take().or(stored.map(|facts| json!(facts.status)));
        } else if let Object::Queue(version, queue) = object {
            let stored = self.store.queues.get(&(key.name, *version));
            queue.status = queue.status.take().or(stored.map(|facts| json!(facts.status)));
        }
    }

    fn apply_pod(&mut self, pod: &Pod) -> Result<(), FactError> {
        let meta = &pod.metadata;
        let key = ObjectKey::new(
            meta.namespace.as_deref().unwrap_or_default(),
            meta.name.as_deref().unwrap_or_default(),
        );
        let timer = PodTimer::of(&format!("Pod {key}"), meta, pod.spec.as_ref())?;
        self.store.apply(pod)?;
        self.set_timer(key, timer);
        Ok(())
    }

    fn apply_deployment(
        &mut self,
        kind: ControllerKind,
        key: ObjectKey,
        meta: &ObjectMeta,
        replicas: Option<i32>,
        template: PodTemplateSpec,
    ) -> Result<(), FactError> {
        let replicas = number_of_pods(kind.name(), &key, "spec.replicas", replicas.unwrap_or(1))?;
        let pods = Pods::Replicas(replicas, Numbers::default());
        let template = Template::new(&format!("{} {key}", kind.name()), template)?;
        self.apply_controller(Controller::new(kind, key, meta, self.now(), pods, template))
    }

    fn apply_stateful_set(&mut self, key: ObjectKey, set: StatefulSet) -> Result<(), FactError> {
        let kind = ControllerKind::StatefulSet;
        let spec = set.spec;
        let count = |field, value| number_of_pods(kind.name(), &key, field, value);
        let first = spec.ordinals.and_then(|ordinals| ordinals.start).unwrap_or(0);
        let pods = Pods::Ordinals(Ordinals {
            first: count("spec.ordinals.start", first)?,
            replicas: count("spec.replicas", spec.replicas.unwrap_or(1))?,
            one_by_one: spec.pod_management_policy.as_deref() != Some("Parallel"),
        });
        let mut template = Template::new(&format!("{} {key}", kind.name()), spec.template)?;
        template.claims = spec.volume_claim_templates.unwrap_or_default();
        self.apply_controller(Controller::new(kind, key, &set.metadata, self.now(), pods, template))
    }

    fn apply_job_set(&mut self, key: ObjectKey, job_set: JobSet) -> Result<(), FactError> {
        for job in jobs_of(&key, &job_set, self.now()) {
            check_template(&job?, self)?;
        }
        self.controllers.apply_job_set(key, job_set);
        Ok(())
    }

    fn apply_controller(&mut self, controller: Controller) -> Result<(), FactError> {
        check_template(&controller, self)?;
        self.controllers.apply(controller);
        Ok(())
    }

    /// Deletes an object at once, and the pods of a controller with it. Returns whether it existed.
    pub fn delete(&mut self, kind: Kind, key: &ObjectKey) -> bool {
        match kind {
            Kind::Pod => {
                let known = self.store.pods.get(key).is_some();
                self.remove_pod(key);
                known
            }
            Kind::ResourceClaimTemplate => self.claim_templates.delete(key),
            Kind::Job => self.controllers.delete(ControllerKind::Job, key, &mut self.store),
            Kind::ReplicaSet => {
                self.controllers.delete(ControllerKind::ReplicaSet, key, &mut self.store)
            }
            Kind::Deployment => {
                self.controllers.delete(ControllerKind::Deployment, key, &mut self.store)
            }
            Kind::StatefulSet => {
                self.controllers.delete(ControllerKind::StatefulSet, key, &mut self.store)
            }
            Kind::JobSet => self.controllers.delete_job_set(key, &mut self.store),
            kind => kind.delete(key, &mut self.store),
        }
    }

    /// Sets the phase of a pod, as its kubelet would. Returns whether the pod exists.
    pub fn set_phase(&mut self, key: &ObjectKey, phase: PodPhase) -> bool {
        let known = self.store.pods.get(key).is_some();
        self.change_pod(key, |facts| {
            let was_releasing = facts.status == TaskStatus::Releasing || facts.ended_in_deletion;
            let of_job = facts.controller.as_ref().is_some_and(|owner| &*owner.kind == "Job");
            facts.ended_in_deletion = match phase {
                PodPhase::Succeeded => was_releasing && !of_job,
                PodPhase::Failed => was_releasing,
                PodPhase::Pending | PodPhase::Running | PodPhase::Unknown => false,
            };
            facts.status = match phase {
                PodPhase::Pending if facts.node.is_some() => TaskStatus::Bound,
                PodPhase::Pending => TaskStatus::Pending,
                PodPhase::Running => TaskStatus::Running,
                PodPhase::Succeeded => TaskStatus::Succeeded,
                PodPhase::Failed => TaskStatus::Failed,
                PodPhase::Unknown => TaskStatus::Unknown,
            };
        });
        known
    }
}

/// Reports problems of the pods of a controller for the controller, before any pod is created.
fn check_template(controller: &Controller, world: &World) -> Result<(), FactError> {
    let name = controller.key.name.clone();
    let new = NewPod { name, index: Some(0), n_failed_before: 0 };
    let pod = controller.make_pod(&new, &world.store, controller.created);
    let facts = read::pod(&pod, &mut Interner::default());
    let object = || format!("{} {}", controller.kind.name(), controller.key);
    facts.map(drop).map_err(|error| in_template(&object(), &error))
}

/// The phase of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodPhase {
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

impl PodPhase {
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
        | TaskStatus::Releasing
        | TaskStatus::Stuck => None,
    }
}

#[cfg(test)]
mod tests {
    use kube_batch_cache::snapshot::SnapshotOptions;
    use kube_batch_manifest::object::Served;
    use kube_batch_model::group_version::GroupVersion;
    use kube_batch_yaml::{Limits, Problems, parse};

    use super::*;
    use crate::world::Environment;

    #[test]
    fn objects_of_every_kind_are_created_and_deleted() {
        for kind in Kind::ALL {
            let text = "metadata: {name: a, namespace: default}\nspec: {}";
            let node = parse(text, &Limits::default()).expect("YAML");
            let served = Served::Custom(GroupVersion::V1Alpha2);
            let object = Object::read(*kind, served, &node, &Problems::default());
            let object = object.expect("an object");
            let key = object.key();
            let (environment, options) = (Environment::default(), SnapshotOptions::default());
            let mut world = World::new(environment, options, [].into_iter().collect());
            world.apply(object).expect("a valid object");
            assert!(world.delete(*kind, &key), "{kind}");
            assert!(!world.delete(*kind, &key), "{kind}");
        }
    }
}
