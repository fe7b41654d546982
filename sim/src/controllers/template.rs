//! Templates of pods, and when their pods end.

use jiff::SignedDuration;
use k8s_openapi::{
    api::core::v1::{PersistentVolumeClaim, PodSpec, PodTemplateSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube_batch_model::{duration, facts::FactError, status::TaskStatus};

/// Annotation of a pod that ends by itself, or of a pod template: the time after which it succeeds,
/// in seconds or as a duration such as `1m30s`.
pub const DURATION_ANNOTATION: &str = "kube-batch.sim/duration-seconds";

/// When a running pod ends, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PodTimer {
    /// Time from its start.
    pub(crate) after: SignedDuration,
    /// `Succeeded` when its duration is over, `Failed` after its deadline.
    pub(crate) status: TaskStatus,
}

impl PodTimer {
    /// The timer of a pod or template.
    ///
    /// # Errors
    ///
    /// [`FactError`] if the annotation is not a duration.
    pub(crate) fn of(
        object: &str,
        meta: &ObjectMeta,
        spec: Option<&PodSpec>,
    ) -> Result<Option<Self>, FactError> {
        let text = meta.annotations.as_ref().and_then(|all| all.get(DURATION_ANNOTATION));
        let duration = text.map(|text| {
            let parsed = duration::parse_or_seconds(text).map_err(|problem| {
                let field = format!("metadata.annotations[{DURATION_ANNOTATION}]");
                FactError::new(object, field, format!("\"{text}\": {problem}"))
            })?;
            Ok(SignedDuration::try_from(parsed).unwrap_or(SignedDuration::MAX))
        });
        let ends = duration.transpose()?.map(|after| Self { after, status: TaskStatus::Succeeded });
        let deadline = spec.and_then(|spec| spec.active_deadline_seconds);
        let stops = deadline.map(|secs| Self {
            after: SignedDuration::from_secs(secs),
            status: TaskStatus::Failed,
        });
        // At the same time, it has done its work.
        Ok(ends.into_iter().chain(stops).min_by_key(|timer| timer.after))
    }
}

/// The template of the pods of a controller.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    pub(crate) pod: PodTemplateSpec,
    pub(crate) timer: Option<PodTimer>,
    /// Claims that each pod gets, of StatefulSets.
    pub(crate) claims: Vec<PersistentVolumeClaim>,
}

impl Template {
    /// A template without claims.
    ///
    /// # Errors
    ///
    /// [`FactError`] if an annotation cannot be used.
    pub(crate) fn new(object: &str, pod: PodTemplateSpec) -> Result<Self, FactError> {
        let meta = pod.metadata.clone().unwrap_or_default();
        let timer = PodTimer::of(object, &meta, pod.spec.as_ref())
            .map_err(|error| in_template(object, &error))?;
        Ok(Self { pod, timer, claims: Vec::new() })
    }
}

/// A problem of a pod as one of the template it is made from.
pub(crate) fn in_template(object: &str, error: &FactError) -> FactError {
    FactError::new(object, format!("spec.template.{}", error.field), error.problem.clone())
}
