//! How long a pod runs at most, as its manifest says.
// Parity: new, see docs/parity.md#a12.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use serde::{Deserialize, Serialize};

use crate::{duration, name::Name};

/// Annotation of a pod: how long it runs at most, such as `2h`.
pub const RUN_TIME: &str = "scheduling.sigs.dev/run-time";

/// How long a pod runs at most after its start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RunTime {
    /// The shorter of `spec.activeDeadlineSeconds` and the annotation [`RUN_TIME`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
    /// The value of the annotation, if that is no duration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<Name>,
}

impl RunTime {
    /// Reads it; `None` if the pod says nothing.
    pub(super) fn of(pod: &Pod) -> Option<Self> {
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
        (seconds.is_some() || unreadable.is_some()).then_some(Self { seconds, unreadable })
    }

    /// As a duration.
    pub fn duration(&self) -> Option<Duration> {
        self.seconds.map(Duration::from_secs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn run_time(deadline: Option<i64>, annotation: Option<&str>) -> Option<RunTime> {
        let annotations = annotation.map(|text| json!({RUN_TIME: text}));
        let pod = json!({
            "metadata": {"annotations": annotations},
            "spec": {"activeDeadlineSeconds": deadline, "containers": []},
        });
        RunTime::of(&serde_json::from_value(pod).expect("a pod"))
    }

    #[test]
    fn the_shorter_of_deadline_and_annotation_counts() {
        let seconds = |deadline, annotation| run_time(deadline, annotation)?.seconds;
        assert_eq!(run_time(None, None), None);
        assert_eq!(seconds(Some(60), None), Some(60));
        assert_eq!(seconds(None, Some("1m30s")), Some(90));
        assert_eq!(seconds(None, Some("1.5s")), Some(2));
        assert_eq!(seconds(Some(60), Some("1h")), Some(60));
        assert_eq!(seconds(Some(600), Some("1m")), Some(60));
    }

    #[test]
    fn an_annotation_that_is_no_duration_is_kept_for_the_message() {
        let read = run_time(Some(60), Some("soon")).expect("it says something");
        assert_eq!((read.seconds, read.unreadable.as_deref()), (Some(60), Some("soon")));
    }
}
