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
                 - {setPodPhase: {default/a-1: Failed}, cycles: 9, expect: {bindCount: 0}}\n\
                 - {cycles: 1, expect: {binds: {default/a-1-1: n}, bindCount: 1}}\n\
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
    // They fail in seconds 2, 13 and 34: replacements wait for 10 s, then 20 s.
    let steps = "steps:\n- {cycles: 11, expect: {bindCount: 1}}\n- {cycles: 1, expect: {bindCount: 1}}\n\
                 - {cycles: 20, expect: {bindCount: 0}}\n- {cycles: 100, expect: {bindCount: 1}}\n";
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

/// A cluster in which a job of higher priority takes the places of `n` pods of Job `a`, which has `spec` too.
fn preempted(n: usize, spec: &str) -> String {
    let urgent = "{schedulerName: kube-batch, priorityClassName: urgent, containers: [{name: c, resources: {requests: {cpu: 1}}}]}";
    let job_b = format!(
        "- {{apiVersion: batch/v1, kind: Job, metadata: {{name: b, creationTimestamp: '2025-01-02T00:00:00Z'}}, \
         spec: {{parallelism: {n}, template: {{spec: {urgent}}}}}}}\n"
    );
    let class = "- {apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: urgent}, value: 100}\n";
    let running: String = (0..n)
        .map(|index| running(&format!("a-{index}"), &owner("Job", "a", "default/a")))
        .collect();
    let spec = format!("parallelism: {n}, completions: {n}, {spec}");
    cluster(n) + class + &job("a", &spec, None) + &running + &job_b
}

fn check_preempted(n: usize, spec: &str, steps: &str) {
    let config = "config:\n  actions: allocate, preempt\n  tiers:\n  - plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: nodeorder}]\n";
    let case = format!("name: test\n{config}objects:\n{}{steps}\n", preempted(n, spec));
    for result in run_all(case.as_bytes(), &Registry::builtin(), Search::Index) {
        assert_eq!(result.outcome, CaseOutcome::Pass, "{case}");
    }
}

const IGNORE: &str =
    "podFailurePolicy: {rules: [{action: Ignore, onPodConditions: [{type: DisruptionTarget}]}]}";

#[test]
fn a_job_fails_when_more_pods_are_evicted_than_its_limit() {
    let evicted = "steps:\n- {cycles: 2, expect: {evictCount: 7, pods: {default/a: {total: 0}}}}\n";
    check_preempted(
        7,
        "backoffLimit: 6",
        &format!("{evicted}- {{cycles: 900, expect: {{pods: {{default/a: {{total: 0}}}}}}}}\n"),
    );
    // Seven failures delay the replacements by 640 s, more than the 600 s that they may.
    let later = |total: usize| format!("expect: {{pods: {{default/a: {{total: {total}}}}}}}");
    let steps =
        format!("{evicted}- {{cycles: 590, {}}}\n- {{cycles: 20, {}}}\n", later(0), later(7));
    check_preempted(7, IGNORE, &steps);
    check_preempted(7, "backoffLimit: 7", &steps);
    check_preempted(7, "backoffLimit: 2147483647", &steps);
}

#[test]
fn a_rule_may_fail_the_job_or_an_index() {
    let rule = |action: &str| {
        format!(
            "podFailurePolicy: {{rules: [{{action: {action}, onPodConditions: [{{type: DisruptionTarget}}]}}]}}"
        )
    };
    let steps = |total: usize| {
        format!(
            "steps:\n- {{cycles: 2, expect: {{evictCount: 2}}}}\n- {{cycles: 100, expect: {{pods: {{default/a: {{total: {total}}}}}}}}}\n"
        )
    };
    check_preempted(2, &rule("FailJob"), &steps(0));
    check_preempted(2, &rule("Count"), &steps(2));
    let indexed = "completionMode: Indexed, backoffLimitPerIndex: 1";
    check_preempted(2, &format!("{indexed}, {}", rule("FailIndex")), &steps(0));
    // The first rule that matches decides, here by the exit code.
    let exit = "podFailurePolicy: {rules: [{action: FailJob, onExitCodes: {operator: In, values: [143]}}, {action: Ignore, onPodConditions: [{type: DisruptionTarget}]}]}";
    check_preempted(2, exit, &steps(0));
}

#[test]
fn each_index_waits_for_its_own_failures() {
    let spec = format!("completionMode: Indexed, backoffLimitPerIndex: 3, {IGNORE}");
    let later = |total: usize| format!("expect: {{pods: {{default/a: {{total: {total}}}}}}}");
    let steps = format!(
        "steps:\n- {{cycles: 2, expect: {{evictCount: 7}}}}\n- {{cycles: 6, {}}}\n- {{cycles: 4, {}}}\n",
        later(0),
        later(7)
    );
    check_preempted(7, &spec, &steps);
}

#[test]
fn a_pod_that_succeeds_ends_the_delay() {
    let objects = cluster(2) + &job("a", "parallelism: 2, completions: 9, backoffLimit: 9", None);
    let steps = "steps:\n- {cycles: 1, expect: {bindCount: 2}}\n\
                 - {setPodPhase: {default/a-0: Failed}, cycles: 5, expect: {bindCount: 0}}\n\
                 - {setPodPhase: {default/a-1: Succeeded}, cycles: 1, expect: {bindCount: 2}}\n";
    check(&objects, steps);
}

#[test]
fn a_terminating_pod_is_replaced_at_once_or_when_it_has_ended() {
    let case = |spec: &str, total: usize| {
        let environment = "environment: {terminationCycles: 30}\n";
        let config = "config:\n  actions: allocate, preempt\n  tiers:\n  - plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: nodeorder}]\n";
        let steps = format!(
            "steps:\n- {{cycles: 20, expect: {{evictCount: 1, pods: {{default/a: {{total: {total}}}}}}}}}\n"
        );
        format!("name: test\n{environment}{config}objects:\n{}{steps}", preempted(1, spec))
    };
    for (spec, total) in [("backoffLimit: 6", 1), ("podReplacementPolicy: Failed", 0), (IGNORE, 0)]
    {
        let case = case(spec, total);
        for result in run_all(case.as_bytes(), &Registry::builtin(), Search::Index) {
            assert_eq!(result.outcome, CaseOutcome::Pass, "{case}");
        }
    }
}

#[test]
fn a_job_set_is_created_again_or_fails_with_its_jobs() {
    let set = |policy: &str| {
        let job = format!(
            "{{spec: {{backoffLimit: 0, parallelism: 1, completions: 1, template: {{spec: {POD_SPEC}}}}}}}"
        );
        format!(
            "- {{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {{name: s}}, spec: {{{policy}replicatedJobs: \
             [{{name: w, replicas: 2, template: {job}}}]}}}}\n"
        )
    };
    let fails = "steps:\n- {cycles: 1, expect: {bindCount: 2}}\n\
                 - {setPodPhase: {default/s-w-0-0: Failed}, cycles: 2, expect: {bindCount: 0, pods: {default/s-w-1: {running: 0}}}}\n";
    let again = "steps:\n- {cycles: 1, expect: {bindCount: 2}}\n\
                 - {setPodPhase: {default/s-w-0-0: Failed}, cycles: 2, expect: {bindCount: 2, pods: {default/s-w-1: {running: 1}}}}\n";
    check(&(cluster(2) + &set("")), fails);
    check(&(cluster(2) + &set("failurePolicy: {maxRestarts: 1}, ")), again);
    let rule = "failurePolicy: {maxRestarts: 1, rules: [{action: FailJobSet, onJobFailureReasons: [BackoffLimitExceeded]}]}, ";
    check(&(cluster(2) + &set(rule)), fails);
}
