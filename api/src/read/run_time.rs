//! How long a pod runs at most.

use k8s_openapi::api::core::v1::Pod;
use kube_batch_model::{
    duration,
    facts::run_time::{RUN_TIME, RunTime},
    name::Name,
};

/// Reads it; `None` if the pod says nothing.
pub(super) fn run_time(pod: &Pod) -> Option<RunTime> {
    let deadline = pod.spec.as_ref().and_then(|spec| spec.active_deadline_seconds);
    let deadline = deadline.and_then(|seconds| u64::try_from(seconds).ok());
    let annotation = pod.metadata.annotations.as_ref().and_then(|all| all.get(RUN_TIME));
    let read = annotation.map(|text| duration::parse(text).map_err(|_| Name::from(&**text)));
    let (declared, unreadable) = match read {
        None => (None, None),
        // A part of a second counts as a whole one.
        Some(Ok(time)) => (Some(time.as_secs() + u64::from(time.subsec_nanos() > 0)), None),
        Some(Err(text)) => (None, Some(text)),
    };
    let seconds = deadline.into_iter().chain(declared).min();
    (seconds.is_some() || unreadable.is_some()).then_some(RunTime { seconds, unreadable })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(deadline: Option<i64>, annotation: Option<&str>) -> Option<RunTime> {
        let annotations = annotation.map(|text| json!({RUN_TIME: text}));
        let pod = json!({
            "metadata": {"annotations": annotations},
            "spec": {"activeDeadlineSeconds": deadline, "containers": []},
        });
        super::run_time(&serde_json::from_value(pod).expect("a pod"))
    }

    #[test]
    fn the_shorter_of_deadline_and_annotation_counts() {
        let seconds = |deadline, annotation| read(deadline, annotation)?.seconds;
        assert_eq!(read(None, None), None);
        assert_eq!(seconds(Some(60), None), Some(60));
        assert_eq!(seconds(None, Some("1m30s")), Some(90));
        assert_eq!(seconds(None, Some("1.5s")), Some(2));
        assert_eq!(seconds(Some(60), Some("1h")), Some(60));
        assert_eq!(seconds(Some(600), Some("1m")), Some(60));
    }

    #[test]
    fn an_annotation_that_is_no_duration_is_kept_for_the_message() {
        let read = read(Some(60), Some("soon")).expect("it says something");
        assert_eq!((read.seconds, read.unreadable.as_deref()), (Some(60), Some("soon")));
    }
}
