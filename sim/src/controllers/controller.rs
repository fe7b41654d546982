//! A controller, and the pods that it makes from its template.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{
        PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod, PodSpec, Volume,
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time},
};
use kube_batch_api::kind::ApplyObject as _;
use kube_batch_cache::store::Store;
use kube_batch_manifest::defaults::fill_spec;
use kube_batch_model::{
    facts::batch_job::BatchJobFacts,
    membership::GROUP_ANNOTATION,
    name::{Name, ObjectKey},
};

use super::{plan::NewPod, pods::Pods, template::Template};
use crate::admission::admit;

/// Which kind of controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ControllerKind {
    /// batch/v1 Job: pods that have succeeded are not replaced.
    Job,
    /// apps/v1 ReplicaSet.
    ReplicaSet,
    /// apps/v1 Deployment, which creates its pods without a ReplicaSet here.
    Deployment,
    /// apps/v1 StatefulSet.
    StatefulSet,
}

impl ControllerKind {
    /// All kinds.
    const ALL: [Self; 4] = [Self::Job, Self::ReplicaSet, Self::Deployment, Self::StatefulSet];

    /// The kind in manifests.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Job => "Job",
            Self::ReplicaSet => "ReplicaSet",
            Self::Deployment => "Deployment",
            Self::StatefulSet => "StatefulSet",
        }
    }

    pub(super) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    const fn api_version(self) -> &'static str {
        match self {
            Self::Job => "batch/v1",
            Self::ReplicaSet | Self::Deployment | Self::StatefulSet => "apps/v1",
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
    /// The Deployment or JobSet that controls it.
    pub(crate) owner: Option<Name>,
    /// The pods it wants.
    pub(crate) pods: Pods,
    /// Template of the pods.
    pub(crate) template: Template,
    /// What the scheduler reads of the manifest of a Job.
    pub(crate) manifest: Option<Arc<BatchJobFacts>>,
}

impl Controller {
    /// A controller; without a creation time in its manifest, it is created now.
    pub(crate) fn new(
        kind: ControllerKind,
        key: ObjectKey,
        meta: &ObjectMeta,
        now: Timestamp,
        pods: Pods,
        template: Template,
    ) -> Self {
        let owner = meta.owner_references.iter().flatten().find(|o| o.controller == Some(true));
        Self {
            uid: Name::from(meta.uid.as_deref().unwrap_or_default()),
            created: meta.creation_timestamp.as_ref().map_or(now, |time| time.0),
            owner: owner.map(|owner| Name::from(owner.name.as_str())),
            key,
            kind,
            pods,
            template,
            manifest: None,
        }
    }

    /// The job that its pods belong to: their PodGroup, else the controller itself.
    pub(crate) fn job(&self) -> ObjectKey {
        let meta = self.template.pod.metadata.as_ref();
        let annotations = meta.and_then(|meta| meta.annotations.as_ref());
        let group = annotations.and_then(|all| all.get(GROUP_ANNOTATION));
        match group.filter(|group| !group.is_empty()) {
            Some(group) => ObjectKey::new(self.key.namespace.clone(), group.as_str()),
            None => self.key.clone(),
        }
    }

    /// The scheduler that its pods name.
    pub(crate) fn scheduler(&self) -> Option<&str> {
        self.template.pod.spec.as_ref()?.scheduler_name.as_deref()
    }

    /// A pod of this controller.
    pub(crate) fn make_pod(&self, new: &NewPod, store: &Store, now: Timestamp) -> Pod {
        let name = &new.name;
        let template = self.template.pod.metadata.clone().unwrap_or_default();
        let mut labels = template.labels.unwrap_or_default();
        for (label, value) in self.labels(new) {
            labels.entry(label.to_owned()).or_insert(value);
        }
        let mut spec = self.template.pod.spec.clone().unwrap_or_default();
        if spec.priority.is_none() {
            let admitted = admit(spec.priority_class_name.as_deref(), store);
            spec.priority = Some(admitted.priority);
            if admitted.never_preempts {
                spec.preemption_policy.get_or_insert_with(|| "Never".to_owned());
            }
        }
        for claim in &self.template.claims {
            add_claim(&mut spec, claim, name);
        }
        let mut pod = Pod {
            metadata: ObjectMeta {
                uid: Some(format!("{}/{name}", self.key.namespace)),
                namespace: Some(self.key.namespace.to_string()),
                creation_timestamp: Some(Time(now)),
                labels: Some(labels),
                annotations: with_index_failures(template.annotations, new),
                owner_references: Some(vec![OwnerReference {
                    api_version: self.kind.api_version().to_owned(),
                    kind: self.kind.name().to_owned(),
                    name: self.key.name.to_string(),
                    uid: self.uid.to_string(),
                    controller: Some(true),
                    ..Default::default()
                }]),
                name: Some(name.to_string()),
                ..Default::default()
            },
            spec: Some(spec),
            status: None,
        };
        fill_spec(&mut pod);
        pod
    }

    /// Labels that Kubernetes' controllers set, and that affinity terms select by.
    fn labels(&self, new: &NewPod) -> Vec<(&'static str, String)> {
        let name = self.key.name.to_string();
        match self.kind {
            ControllerKind::Job => {
                let index = new.index.map(|index| index.to_string());
                let index = index.map(|index| ("batch.kubernetes.io/job-completion-index", index));
                let names = [("batch.kubernetes.io/job-name", name.clone()), ("job-name", name)];
                names.into_iter().chain(index).collect()
            }
            ControllerKind::StatefulSet => {
                let ordinal = new.index.unwrap_or_default().to_string();
                let pod = new.name.to_string();
                vec![
                    ("statefulset.kubernetes.io/pod-name", pod),
                    ("apps.kubernetes.io/pod-index", ordinal),
                ]
            }
            ControllerKind::ReplicaSet | ControllerKind::Deployment => Vec::new(),
        }
    }

    /// What the scheduler knows of it now, if it is a Job.
    pub(crate) fn batch_job(&self) -> Option<BatchJobFacts> {
        let facts = self.pods.facts(self.manifest.as_ref()?)?;
        Some(BatchJobFacts { key: self.key.clone(), uid: self.uid.clone(), ..facts })
    }

    /// Creates the claims of a new pod that do not exist.
    pub(crate) fn make_claims(&self, new: &NewPod, store: &mut Store) {
        for template in &self.template.claims {
            let name = claim_name(template, &new.name);
            let key = ObjectKey::new(self.key.namespace.clone(), name.as_str());
            if store.claims.get(&key).is_some() {
                continue;
            }
            let mut claim = template.clone();
            claim.metadata.uid = Some(key.to_string());
            claim.metadata.namespace = Some(key.namespace.to_string());
            claim.metadata.name = Some(name);
            // An invalid template was rejected with its StatefulSet.
            let _ = store.apply(&claim);
        }
    }
}

/// How many pods of its index have failed before a pod, as the Job controller says it.
fn with_index_failures(
    annotations: Option<BTreeMap<String, String>>,
    new: &NewPod,
) -> Option<BTreeMap<String, String>> {
    if new.n_failed_before == 0 {
        return annotations;
    }
    let mut annotations = annotations.unwrap_or_default();
    let failures = new.n_failed_before.to_string();
    annotations.insert("batch.kubernetes.io/job-index-failure-count".to_owned(), failures);
    Some(annotations)
}

fn claim_name(template: &PersistentVolumeClaim, pod: &Name) -> String {
    format!("{}-{pod}", template.metadata.name.as_deref().unwrap_or_default())
}

/// Mounts the claim of this pod, in place of a volume of the same name.
fn add_claim(spec: &mut PodSpec, template: &PersistentVolumeClaim, pod: &Name) {
    let name = template.metadata.name.clone().unwrap_or_default();
    let source = PersistentVolumeClaimVolumeSource {
        claim_name: claim_name(template, pod),
        ..PersistentVolumeClaimVolumeSource::default()
    };
    let volumes = spec.volumes.get_or_insert_default();
    volumes.retain(|volume| volume.name != name);
    volumes.push(Volume { name, persistent_volume_claim: Some(source), ..Volume::default() });
}
