//! The pods and pod templates in objects.

use k8s_openapi::{
    api::core::v1::{PodSpec, PodTemplateSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use crate::object::Object;

/// A pod, or a template of pods.
#[derive(Clone, Debug)]
pub struct PodPart<'a> {
    /// What precedes the paths of its fields: empty, or `spec.template.`.
    pub prefix: String,
    /// Its labels and annotations.
    pub metadata: Option<&'a ObjectMeta>,
    /// Its spec.
    pub spec: Option<&'a PodSpec>,
}

impl<'a> PodPart<'a> {
    fn of_template(prefix: impl Into<String>, template: &'a PodTemplateSpec) -> Self {
        let (metadata, spec) = (template.metadata.as_ref(), template.spec.as_ref());
        Self { prefix: prefix.into(), metadata, spec }
    }
}

/// The pod that an object is, or the templates of the pods that its controller creates.
pub fn pod_parts(object: &Object) -> Vec<PodPart<'_>> {
    let template = |template| vec![PodPart::of_template("spec.template.", template)];
    match object {
        Object::Pod(pod) => vec![PodPart {
            prefix: String::new(),
            metadata: Some(&pod.metadata),
            spec: pod.spec.as_ref(),
        }],
        Object::Job(job) => job.spec.iter().flat_map(|spec| template(&spec.template)).collect(),
        Object::ReplicaSet(set) => set.spec.template.iter().flat_map(template).collect(),
        Object::Deployment(deployment) => template(&deployment.spec.template),
        Object::StatefulSet(set) => template(&set.spec.template),
        Object::JobSet(set) => {
            let mut parts = Vec::new();
            for (at, job) in set.spec.replicated_jobs.iter().enumerate() {
                let prefix = format!("spec.replicatedJobs[{at}].template.spec.template.");
                let spec = job.template.spec.iter();
                parts.extend(spec.map(|spec| PodPart::of_template(prefix.clone(), &spec.template)));
            }
            parts
        }
        // No other kind has pods or templates of pods.
        _ => Vec::new(),
    }
}
