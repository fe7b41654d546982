//! Gangs some of whose bindings the API server rejects.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use xtask_launcher::build::root;

use crate::{
    bed::{Bed, NAMESPACE, group, nodes, pods},
    webhooks::try_binding,
};

/// Pods of a gang that fills the cluster, half of which cannot be bound.
const N_PODS: usize = 10;
/// How long such a gang may keep what it holds.
const GRACE_PERIOD: Duration = Duration::from_secs(20);
/// The part of a message about an eviction that names the reason.
const STALE: &str = "has had fewer pods than its minimum for too long";

/// Rejects the bindings of the pods `half-5` to `half-9`.
fn install_policy(bed: &Bed) {
    bed.apply(&json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "half"},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["pods/binding"],
            }]},
            "validations": [{
                "expression": "!request.name.matches('^half-[5-9]$')",
                "message": "rejected by the policy of this test",
            }],
        },
    }));
    bed.apply(&json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "half"},
        "spec": {"policyName": "half", "validationActions": ["Deny"]},
    }));
    bed.eventually("the policy rejects bindings", || {
        let error = try_binding(bed, NAMESPACE, "half-5");
        if error.contains("rejected by the policy") { Ok(()) } else { Err(error) }
    });
}

/// Starts a gang that fills the cluster and of which half is rejected, and then creates pods that fit into
/// the places of the other half.
fn half_bound_gang() -> Bed {
    let mut bed = Bed::new(&nodes(N_PODS / 2, "2"));
    install_policy(&bed);
    let sample = fs::read_to_string(root().join("examples/scheduler.yaml")).expect("the sample");
    let period = format!("{{gang.stalenessGracePeriod: {}s, ", GRACE_PERIOD.as_secs());
    let configuration = sample.replace("{gang.", &format!("{period}gang."));
    assert_ne!(configuration, sample);
    let path = bed.plane.log_dir().join("scheduler.yaml");
    fs::write(&path, configuration).expect("a file");
    bed.start_scheduler(&[&format!("--scheduler-conf={}", path.display())]);
    bed.apply(&group("half", N_PODS));
    let mut gang = pods("half", N_PODS, "1");
    for pod in &mut gang {
        // Victims terminate slowly, so that the test sees their conditions.
        pod["metadata"]["annotations"]["testbed.kube-batch/stop-after"] = json!("5s");
    }
    bed.plane.create(&gang).expect("pods are created");
    bed.wait_until_running("half", N_PODS / 2);
    bed.apply(&group("other", 1));
    bed.plane.create(&pods("other", N_PODS / 2, "1")).expect("pods are created");
    bed
}

/// Whether the pod is being deleted with the condition that a stale gang gives it.
fn is_stale_victim(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    let is_stale = |condition: &Value| {
        condition["type"] == "DisruptionTarget"
            && condition["message"].as_str().is_some_and(|message| message.contains(STALE))
    };
    pod["metadata"]["deletionTimestamp"].is_string()
        && conditions.into_iter().flatten().any(is_stale)
}

#[test]
fn a_gang_that_stays_half_bound_is_evicted_after_the_grace_period() {
    let bed = half_bound_gang();
    let started = Instant::now();
    while started.elapsed() < GRACE_PERIOD - Duration::from_secs(5) {
        assert_eq!(bed.n_bound("half"), N_PODS / 2);
        assert_eq!(bed.n_bound("other"), 0, "the places of the other half are kept");
        thread::sleep(Duration::from_millis(500));
    }
    bed.eventually("the running half is evicted", || {
        let n_victims = bed.list("pods").iter().filter(|pod| is_stale_victim(pod)).count();
        if n_victims == N_PODS / 2 { Ok(()) } else { Err(format!("{n_victims} are")) }
    });
    eprintln!("evicted {:.1?} after it ran", started.elapsed());
    assert!(started.elapsed() < GRACE_PERIOD + Duration::from_secs(10));
    let events = bed.list("events");
    let of_pods = events
        .iter()
        .filter(|event| event["reason"] == "Preempted" && event["involvedObject"]["kind"] == "Pod");
    assert_eq!(of_pods.count(), N_PODS / 2, "{events:?}");
    let of_group = |event: &Value| {
        event["reason"] == "Evict"
            && event["message"].as_str().is_some_and(|message| message.contains(STALE))
    };
    assert!(events.iter().any(of_group), "{events:?}");
    bed.wait_until_running("other", N_PODS / 2);
    bed.expect_waiting("half");
}

#[test]
fn a_half_bound_gang_is_completed_when_its_bindings_are_permitted() {
    let bed = half_bound_gang();
    bed.consistently("no other pod gets a place", || {
        let others = bed.n_bound("other");
        if others == 0 { Ok(()) } else { Err(format!("{others} got one")) }
    });
    bed.kubectl(["delete", "validatingadmissionpolicybinding", "half"]).expect("deleted");
    let permitted = Instant::now();
    bed.wait_until_running("half", N_PODS);
    eprintln!("complete {:.1?} after its bindings were permitted", permitted.elapsed());
    assert_eq!(bed.n_bound("other"), 0);
    bed.consistently("the gang runs", || {
        let (gang, others) = (bed.pods_in("half", "Running").len(), bed.n_bound("other"));
        let is_complete = (gang, others) == (N_PODS, 0);
        if is_complete { Ok(()) } else { Err(format!("{gang} and {others} others")) }
    });
}
