//! A job is tried again if its turns depended on more than fields, and reported again if a cycle adds to its report.

use std::sync::Arc;

use jiff::Timestamp;
use kube_batch_cache::assumed::Assumed;
use kube_batch_framework::{candidates::Search, memory::Memory, report::Cycle};
use kube_batch_model::{
    decision::Decision, facts::class::PodTemplate, group_version::GroupVersion, name::ObjectKey,
};
use kube_batch_scheduler::core::{Core, CycleInput};

use super::{
    assert_same,
    fields::{beside_a_reservation, beside_its_own_pod, nominated},
    history::{
        History, WITH_SHARES, WITHOUT_SHARES, change_pod, composite, delete_pod, group, node, pod,
        queue, running, terminating, what_waits, with_run_time,
    },
    read, simulation,
};

/// A job that may use what is reserved, because its pods end before, until it is too late for that.
#[test]
fn of_the_end_of_a_run_time() {
    let mut history = beside_a_reservation();
    history.objects.truncate(7);
    let early =
        |name: &str| with_run_time(&pod(name, "waits", "1", "nodeSelector: {on: n}, "), "3590s");
    history.objects.extend([group("waits", "minMember: 2"), early("waits-0"), early("waits-1")]);
    let cycles = history.cycles(20, |_, _| {});
    assert_ne!(what_waits(&cycles[19]), what_waits(&cycles[3]), "time changes nothing");
}

/// Pods of a queue that holds what it deserves wait: one fits nowhere, and the place of the other one is kept for another
/// queue, until the job there can use it no more.
#[test]
fn of_what_is_withheld() {
    let history = History {
        actions: "allocate",
        plugins: WITH_SHARES,
        gang: "",
        objects: vec![
            queue("one", "weight: 1"),
            queue("two", "weight: 1"),
            node("n", "2"),
            node("m", "2"),
            group("runs", "minMember: 1, queue: one"),
            running("runs-0", "runs", "1", "n"),
            running("runs-1", "runs", "1", "m"),
            group("waits", "minMember: 1, queue: one"),
            pod("waits-0", "waits", "9", ""),
            pod("waits-1", "waits", "1", ""),
            group("other", "minMember: 1, queue: two"),
            pod("other", "other", "2", ""),
        ],
    };
    let nowhere = ("on".into(), "nowhere".into());
    history.differs_after(|store| {
        let key = ObjectKey::new("ns", "other");
        let mut template = PodTemplate::clone(&store.pods.get(&key).expect("the pod").template);
        template.node_selector = vec![nowhere.clone()];
        let template = store.interner_mut().new_template(template);
        change_pod(store, "other", |pod| pod.template = template);
    });
}

/// A gang of another queue is protected from a job, because it is much larger.
#[test]
fn of_a_gang_that_is_protected() {
    let mut history = History {
        actions: "reclaim, allocate",
        plugins: WITH_SHARES,
        gang: "gang.evictWholeGangs: true, gang.maxLoss: 2",
        objects: vec![
            queue("one", "weight: 1"),
            queue("two", "weight: 1"),
            node("n", "4"),
            node("m", "4"),
            group("runs", "minMember: 2, queue: one"),
            running("runs-0", "runs", "4", "n"),
            running("runs-1", "runs", "4", "m"),
            group("waits", "minMember: 1, queue: two"),
            pod("waits", "waits", "1", ""),
        ],
    };
    let cycles = history.cycles(4, |_, _| {});
    let is_protected = |cycle: &Cycle| format!("{:?}", cycle.jobs).contains("ProtectedGang {");
    assert!(cycles.iter().all(is_protected), "{:#?}", cycles[0].jobs);
    // More pods that could use what the gang has.
    history.objects.extend([
        group("others", "minMember: 3, queue: two"),
        pod("others-0", "others", "1", ""),
        pod("others-1", "others", "1", ""),
        pod("others-2", "others", "1", "schedulingGates: [{name: gate}], "),
    ]);
    let [_, after] = history.around(|store| {
        change_pod(store, "others-2", |pod| pod.gated = false);
    });
    assert_ne!(after.decisions, []);
}

/// Runs cycles whose decisions all fail before the next one: the API server rejects them.
fn cycles_that_fail(history: &History<'_>, memory: Memory, n: usize) -> Vec<Cycle> {
    let case = read(&history.text());
    let mut world = simulation(&case, Memory::none(), |_| true).world;
    let mut core = Core::new(Arc::new(case.conf.clone()), case.options.clone(), Search::Index)
        .with_memory(memory);
    let one = |_| {
        world.tick();
        let now = world.now();
        let elapsed = now.duration_since(Timestamp::UNIX_EPOCH).unsigned_abs();
        let assumed = &mut Assumed::default();
        let input = CycleInput { store: &mut world.store, assumed, now, elapsed };
        Cycle { work: 0, ..core.cycle(input, &mut |_| {}).cycle }
    };
    (0..n).map(one).collect()
}

/// No other job makes room for a pod, but another pod of its job does.
#[test]
fn of_an_eviction_that_failed() {
    let mut history = beside_its_own_pod();
    history
        .objects
        .extend([pod("high", "waits", "2", "priority: 1, "), pod("large", "waits", "9", "")]);
    let [with, without] = [Memory::with_budget(u64::MAX), Memory::none()]
        .map(|memory| cycles_that_fail(&history, memory, 3));
    let has_evicted =
        |cycle: &Cycle| cycle.decisions.iter().any(|it| matches!(it, Decision::Evict { .. }));
    assert!(without.iter().all(has_evicted), "{without:#?}");
    for (with, without) in with.iter().zip(&without) {
        assert_same(with, without, String::new);
    }
}

/// A pod of one of the groups of a composite PodGroup, which is its only pod.
fn pod_of_group(name: &str, cpu: &str, ports: &[u16]) -> [String; 2] {
    let group = format!(
        "{{apiVersion: scheduling.k8s.io/v1beta1, kind: PodGroup, metadata: {{name: {name}, namespace: ns}}, \
         spec: {{workloadRef: {{workloadName: w, templateName: {name}}}, schedulingPolicy: {{gang: {{minCount: 1}}}}, \
         parentCompositePodGroupName: run}}}}"
    );
    let port = |port: &u16| format!("{{containerPort: {port}, hostPort: {port}}}");
    let ports: Vec<String> = ports.iter().map(port).collect();
    let pod = format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: ns, uid: {name}}}, spec: {{schedulerName: kube-batch, \
         schedulingGroup: {{podGroupName: {name}}}, containers: [{{name: c, ports: [{}], \
         resources: {{requests: {{cpu: '{cpu}'}}}}}}]}}}}",
        ports.join(", ")
    );
    [group, pod]
}

/// No two of three groups fit beside each other: one needs the CPUs that another one has, and the port of the third.
#[test]
fn of_the_other_groups_of_its_composite() {
    let groups = [
        pod_of_group("a", "2", &[80]),
        pod_of_group("b", "2", &[81]),
        pod_of_group("c", "1m", &[80, 81]),
    ];
    let history = History {
        actions: "allocate",
        plugins: WITHOUT_SHARES,
        gang: "",
        objects: [queue("default", "weight: 1"), node("n", "2"), composite("run", 2, "")]
            .into_iter()
            .chain(groups.into_iter().flatten())
            .collect(),
    };
    let [before, after] = history.around(|store| {
        delete_pod(store, "b");
        store.groups.delete(&(ObjectKey::new("ns", "b"), GroupVersion::Kubernetes));
    });
    assert_eq!(after.decisions, []);
    assert_ne!(what_waits(&after)[0], what_waits(&before)[0]);
}

/// A gang that is incomplete for too long is evicted at the end of the cycle.
#[test]
fn of_an_incomplete_gang() {
    let history = History {
        actions: "allocate",
        plugins: WITHOUT_SHARES,
        gang: "gang.stalenessGracePeriod: 6s",
        objects: vec![
            queue("default", "weight: 1"),
            node("n", "2"),
            group("waits", "minMember: 2"),
            running("waits-0", "waits", "1", "n"),
            pod("waits-1", "waits", "9", ""),
        ],
    };
    let cycles = history.cycles(12, |_, _| {});
    assert!(cycles.iter().any(|cycle| !cycle.decisions.is_empty()), "it becomes stale");
}

/// A job that fits nowhere comes before one that reclaims in the same cycle: then their queue is at its share.
#[test]
fn of_the_share_of_its_queue_after_the_cycle() {
    let runs = |n: u32| {
        let name = format!("runs-{n}");
        [group(&name, "minMember: 1, queue: two"), running(&name, &name, "1", "n")]
    };
    let history = History {
        actions: "reclaim",
        plugins: WITH_SHARES,
        gang: "",
        objects: [queue("one", "weight: 1"), queue("two", "weight: 1"), node("n", "4")]
            .into_iter()
            .chain((0..4).flat_map(runs))
            .chain([
                group("waits", "minMember: 1, priorityClassName: high, queue: one"),
                pod("waits", "waits", "9", ""),
                group("other", "minMember: 1, queue: one"),
                pod("other", "other", "2", "schedulingGates: [{name: gate}], "),
            ])
            .collect(),
    };
    let [_, after] = history.around(|store| {
        change_pod(store, "other", |pod| pod.gated = false);
    });
    assert_ne!(after.decisions, []);
}

/// A job that fits nowhere comes before one that reclaims a pod of it in the same cycle: it was bound from another queue.
#[test]
fn of_its_pods_that_are_evicted_in_the_same_cycle() {
    let history = History {
        actions: "allocate, reclaim",
        plugins: WITH_SHARES,
        gang: "",
        objects: vec![
            queue("one", "weight: 1"),
            queue("two", "weight: 9"),
            queue("three", "weight: 1"),
            node("n", "2"),
            group("waits", "minMember: 1, queue: one"),
            running("runs-0", "waits", "1", "n"),
            running("runs-1", "waits", "1", "n"),
            pod("waits", "waits", "9", ""),
            group("large", "minMember: 1, queue: two"),
            pod("large", "large", "9", ""),
            group("other", "minMember: 1, queue: two"),
            pod("other", "other", "1", "schedulingGates: [{name: gate}], "),
        ],
    };
    let cycles = history.cycles(6, |at, store| match at {
        0 => {
            for name in ["runs-0", "runs-1"] {
                change_pod(store, name, |pod| pod.bound_queue = Some("three".into()));
            }
        }
        4 => change_pod(store, "other", |pod| pod.gated = false),
        _ => {}
    });
    assert_ne!(cycles[4].decisions, []);
}

/// Two pods come that want the place of one that terminates, and the one that is nominated for it is deleted: then the
/// cluster is as it was before their first cycle.
#[test]
fn of_a_nomination_that_came_first() {
    let gated = "schedulingGates: [{name: gate}], ";
    let history = History {
        actions: "allocate",
        plugins: WITHOUT_SHARES,
        gang: "gang.terminationTimeout: 10h",
        objects: vec![
            queue("default", "weight: 1"),
            node("n", "2"),
            group("runs", "minMember: 1"),
            terminating("runs", "runs", "n", "2025-01-01T01:00:00Z"),
            group("high", "minMember: 1, priorityClassName: high"),
            pod("high", "high", "2", gated),
            group("waits", "minMember: 1"),
            pod("waits", "waits", "2", gated),
        ],
    };
    let cycles = history.cycles(4, |at, store| match at {
        2 => {
            for name in ["high", "waits"] {
                change_pod(store, name, |pod| pod.gated = false);
            }
        }
        3 => delete_pod(store, "high"),
        _ => {}
    });
    let nominated = [2, 3].map(|at| cycles[at].decisions.iter().find_map(nominated));
    assert_eq!(nominated, ["high", "waits"].map(|name| Some(name.to_owned())));
}
