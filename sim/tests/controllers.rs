//! Which pods the simulated controllers create, and when pods end.

use kube_batch_framework::candidates::Search;
use kube_batch_scheduler::registry::Registry;
use kube_batch_sim::suite::{CaseOutcome, run_all};

/// A queue, and a node with room for this many pods of the templates below.
fn cluster(cpu: usize) -> String {
    format!(
        "- {{apiVersion: scheduling.sigs.dev/v1alpha2, kind: Queue, metadata: {{name: default}}}}\n\
         - {{apiVersion: v1, kind: Node, metadata: {{name: n}}, status: {{allocatable: {{cpu: {cpu}, pods: 110}}}}}}\n"
    )
}

const POD_SPEC: &str =
    "{schedulerName: kube-batch, containers: [{name: c, resources: {requests: {cpu: 1}}}]}";

/// A template whose pods run for `duration`, or until the end.
fn template(duration: Option<&str>) -> String {
    let annotations = duration.map_or_else(String::new, |duration| {
        format!("metadata: {{annotations: {{kube-batch.sim/duration-seconds: '{duration}'}}}}, ")
    });
    format!("template: {{{annotations}spec: {POD_SPEC}}}")
}

fn check(objects: &str, rest: &str) {
    let case = format!("name: test\nobjects:\n{objects}{rest}\n");
    for result in run_all(case.as_bytes(), &Registry::builtin(), Search::Index) {
        assert_eq!(result.outcome, CaseOutcome::Pass, "{case}");
    }
}

fn job(name: &str, spec: &str, duration: Option<&str>) -> String {
    let template = template(duration);
    format!(
        "- {{apiVersion: batch/v1, kind: Job, metadata: {{name: {name}}}, spec: {{{spec}, {template}}}}}\n"
    )
}

/// A pod that runs at the start.
fn running(name: &str, owner: &str) -> String {
    format!(
        "- {{apiVersion: v1, kind: Pod, metadata: {{name: {name}, ownerReferences: [{owner}]}}, \
         spec: {{nodeName: n, schedulerName: kube-batch, containers: [{{name: c, resources: {{requests: {{cpu: 1}}}}}}]}}, \
         status: {{phase: Running}}}}\n"
    )
}

fn owner(kind: &str, name: &str, uid: &str) -> String {
    format!("{{apiVersion: v1, kind: {kind}, name: {name}, uid: {uid}, controller: true}}")
}

#[test]
fn a_pod_ends_exactly_when_its_duration_is_over() {
    for duration in ["10", "10s", "9.5s"] {
        let objects = cluster(1)
            + &job("a", "parallelism: 1", Some(duration))
            + &job("b", "parallelism: 1", None);
        // It starts in cycle 1, and its place is free in cycle 11.
        let steps = "steps:\n- {cycles: 10, expect: {binds: {default/a-0: n}, bindCount: 1}}\n\
                     - {cycles: 1, expect: {binds: {default/b-0: n}}}\n";
        check(&objects, steps);
    }
}

#[test]
fn a_job_runs_until_its_completions() {
    let objects = cluster(8) + &job("a", "parallelism: 2, completions: 5", Some("2"));
    let steps = "steps:\n- {cycles: 1, expect: {bindCount: 2}}\n- {cycles: 2, expect: {bindCount: 2}}\n\
                 - {cycles: 2, expect: {bindCount: 1}}\n- {cycles: 9, expect: {bindCount: 0, pods: {default/a: {total: 5, running: 5}}}}\n";
    check(&objects, steps);
}

#[test]
fn an_indexed_job_creates_and_replaces_indexes_in_order() {
    let spec = "parallelism: 3, completions: 12, completionMode: Indexed";
    let objects = cluster(3) + &job("a", spec, None);
    let steps = "steps:\n- {cycles: 1, expect: {binds: {default/a-0: n, default/a-1: n, default/a-2: n}}}\n\
                 - {setPodPhase: {default/a-1: Failed}, cycles: 1, expect: {binds: {default/a-1-1: n}, bindCount: 1}}\n\
                 - {setPodPhase: {default/a-0: Succeeded}, cycles: 1, expect: {binds: {default/a-3: n}, bindCount: 1}}\n";
    check(&objects, steps);
}

#[test]
fn indexes_that_the_status_reports_are_not_run_again() {
    let spec = "parallelism: 9, completions: 6, completionMode: Indexed";
    let job = job("a", spec, None)
        .replace("}}\n", "}, status: {succeeded: 3, completedIndexes: '0,2-3'}}\n");
    let expect = "expect: {binds: {default/a-1: n, default/a-4: n, default/a-5: n}, bindCount: 3}";
    check(&(cluster(9) + &job), expect);
}

#[test]
fn suspended_and_finished_jobs_create_no_pods() {
    let suspended = job("a", "suspend: true, parallelism: 2", None);
    check(&(cluster(2) + &suspended), "expect: {bindCount: 0, pods: {default/a: {total: 0}}}");
    for type_ in ["Complete", "Failed"] {
        let status = format!("}}, status: {{conditions: [{{type: {type_}, status: 'True'}}]}}}}\n");
        let finished = job("a", "parallelism: 2", None).replace("}}\n", &status);
        check(&(cluster(2) + &finished), "expect: {bindCount: 0, pods: {default/a: {total: 0}}}");
    }
}

#[test]
fn a_suspended_job_loses_its_pods_and_gets_new_ones_when_it_is_resumed() {
    let objects = cluster(2) + &job("a", "parallelism: 2", None);
    let suspended = job("a", "suspend: true, parallelism: 2", None);
    let resumed = job("a", "parallelism: 2", None);
    let steps = format!(
        "steps:\n- {{cycles: 1, expect: {{bindCount: 2}}}}\n\
         - update:\n  {suspended}  cycles: 1\n  expect: {{pods: {{default/a: {{total: 0}}}}}}\n\
         - update:\n  {resumed}  cycles: 1\n  expect: {{bindCount: 2, binds: {{default/a-2: n, default/a-3: n}}}}\n"
    );
    check(&objects, &steps);
}

#[test]
fn a_job_fails_at_its_deadline() {
    let objects = cluster(1)
        + &job("a", "activeDeadlineSeconds: 5, parallelism: 1", None)
        + &job("b", "parallelism: 1", None);
    // The deadline counts from the creation of its pods, one second before cycle 1.
    let steps = "steps:\n- {cycles: 4, expect: {binds: {default/a-0: n}, bindCount: 1}}\n\
                 - {cycles: 1, expect: {binds: {default/b-0: n}}}\n\
                 - {cycles: 3, expect: {bindCount: 0, pods: {default/a: {total: 0}}}}\n";
    check(&objects, steps);
}

#[test]
fn a_job_fails_when_more_pods_fail_than_its_limit() {
    let spec = POD_SPEC.replacen('{', "{activeDeadlineSeconds: 1, ", 1);
    let job = job("a", "backoffLimit: 2, parallelism: 1", None).replace(POD_SPEC, &spec);
    let steps = "steps:\n- {cycles: 9, expect: {bindCount: 3}}\n";
    check(&(cluster(1) + &job), steps);
}

#[test]
fn a_new_pod_never_gets_the_name_of_an_existing_one() {
    let other = owner("Job", "other", "x");
    let objects = cluster(4)
        + &running("a-0", &other)
        + &running("a-1", &other)
        + &job("a", "parallelism: 2", None);
    check(&objects, "expect: {binds: {default/a-2: n, default/a-3: n}, bindCount: 2}");
    let spec = "parallelism: 2, completions: 2, completionMode: Indexed";
    let objects = cluster(4) + &running("a-0", &other) + &job("a", spec, None);
    check(&objects, "expect: {binds: {default/a-0-1: n, default/a-1: n}, bindCount: 2}");
}

#[test]
fn pods_of_the_input_belong_to_the_controller_they_name() {
    // The manifest of the Job has no uid, unlike the pod.
    let objects = cluster(4)
        + &running("a-x7k2p", &owner("Job", "a", "f00"))
        + &job("a", "parallelism: 2", None);
    check(&objects, "expect: {binds: {default/a-0: n}, bindCount: 1}");
    // It has another uid: the pod is of an earlier Job of that name.
    let other = job("a", "parallelism: 2", None).replace("name: a}", "name: a, uid: bar}");
    let objects = cluster(4) + &running("a-x7k2p", &owner("Job", "a", "f00")) + &other;
    check(&objects, "expect: {bindCount: 2}");
}

fn deployment(kind: &str, name: &str, meta: &str, replicas: usize) -> String {
    let template = template(None);
    format!(
        "- {{apiVersion: apps/v1, kind: {kind}, metadata: {{name: {name}{meta}}}, spec: {{replicas: {replicas}, {template}}}}}\n"
    )
}

#[test]
fn a_deployment_counts_the_pods_of_its_replica_sets() {
    let deployment_only = deployment("Deployment", "web", "", 3);
    check(&(cluster(9) + &deployment_only), "expect: {bindCount: 3, binds: {default/web-0: n}}");
    let pod = running("web-5d4f8-abcde", &owner("ReplicaSet", "web-5d4f8", "rs"));
    check(&(cluster(9) + &deployment_only + &pod), "expect: {bindCount: 2}");
    let meta = format!(", uid: rs, ownerReferences: [{}]", owner("Deployment", "web", "d"));
    let set = deployment("ReplicaSet", "web-5d4f8", &meta, 3);
    check(
        &(cluster(9) + &deployment_only + &set + &pod),
        "expect: {bindCount: 2, binds: {default/web-5d4f8-0: n}}",
    );
}

#[test]
fn a_stateful_set_starts_its_pods_one_by_one_unless_it_says_otherwise() {
    let set = deployment("StatefulSet", "db", "", 3);
    let steps = "steps:\n- {cycles: 1, expect: {binds: {default/db-0: n}, bindCount: 1}}\n\
                 - {cycles: 2, expect: {binds: {default/db-1: n, default/db-2: n}}}\n\
                 - {setPodPhase: {default/db-1: Failed}, cycles: 1, expect: {binds: {default/db-1: n}, bindCount: 1}}\n";
    check(&(cluster(9) + &set), steps);
    let parallel = set.replace("replicas: 3", "replicas: 3, podManagementPolicy: Parallel");
    check(&(cluster(9) + &parallel), "expect: {bindCount: 3}");
}

#[test]
fn a_stateful_set_creates_the_claims_of_its_pods() {
    let class = "- {apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: fast}, provisioner: p, volumeBindingMode: WaitForFirstConsumer}\n";
    let claims = "volumeClaimTemplates: [{metadata: {name: data}, spec: {storageClassName: fast, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}], replicas: 1";
    let set = deployment("StatefulSet", "db", "", 1).replace("replicas: 1", claims);
    check(&(cluster(9) + class + &set), "expect: {binds: {default/db-0: n}}");
}

#[test]
fn a_job_set_becomes_jobs() {
    let job = format!("{{spec: {{parallelism: 2, completions: 2, {}}}}}", template(Some("3")));
    let set = format!(
        "- apiVersion: jobset.x-k8s.io/v1alpha2\n  kind: JobSet\n  metadata: {{name: train}}\n  spec:\n    replicatedJobs:\n    \
         - {{name: leader, template: {job}}}\n    - {{name: workers, replicas: 2, template: {job}}}\n"
    );
    let expect = "expect: {bindCount: 6, binds: {default/train-leader-0-0: n, default/train-workers-1-1: n}}";
    check(&(cluster(9) + &set), expect);
    let suspended = set.replace("    replicatedJobs", "    suspend: true\n    replicatedJobs");
    check(&(cluster(9) + &suspended), "expect: {bindCount: 0}");
    // A Job that its controller has created already is not created again.
    let meta =
        format!("name: train-leader-0, ownerReferences: [{}]", owner("JobSet", "train", "s"));
    let existing =
        self::job("train-leader-0", "parallelism: 1", None).replace("name: train-leader-0", &meta);
    check(&(cluster(9) + &set + &existing), "expect: {bindCount: 5}");
    let delete = "steps:\n- {cycles: 1}\n- {delete: [{kind: JobSet, name: train}], cycles: 1, expect: {pods: {default/train-leader-0: {total: 0}}}}\n";
    check(&(cluster(9) + &set), delete);
}

#[test]
fn problems_of_templates_are_reported_for_their_controllers() {
    for (objects, message) in [
        (
            job("a", "parallelism: 1", Some("soon")),
            "Job default/a: spec.template.metadata.annotations[kube-batch.sim/duration-seconds]: \"soon\": expected a duration",
        ),
        (job("a", "completions: -1", None), "Job default/a: spec.completions: -1 is negative"),
        (
            deployment("StatefulSet", "a", "", 1).replace("cpu: 1", "cpu: 1x"),
            "StatefulSet default/a: spec.template.spec.containers[0]",
        ),
    ] {
        let case = format!("name: test\nobjects:\n{objects}expect: {{bindCount: 0}}\n");
        let results = run_all(case.as_bytes(), &Registry::builtin(), Search::Index);
        let CaseOutcome::Invalid(problems) = &results[0].outcome else { panic!("{results:?}") };
        assert!(problems[0].message.contains(message), "{message} in {}", problems[0].message);
    }
}
