//! A job that waits in vain is tried again when one field changes on which its tries depend.

use std::collections::BTreeMap;

use kube_batch_cache::store::Store;
use kube_batch_framework::{memory::Memory, report::Cycle};
use kube_batch_model::{
    decision::Decision,
    facts::{group::RoleFacts, run_time::RunTime},
    resource::ResourceList,
};
use kube_batch_sim::simulation::Simulation;

use super::{
    cycle,
    history::{
        History, WITH_SHARES, WITHOUT_SHARES, change_group, change_pod, composite, delete_pod,
        group, group_of_volcano, node, pod, queue, running, terminating, what_waits, with_role,
        with_run_time,
    },
    read, simulation,
};

/// The pod that a decision nominates.
pub(super) fn nominated(decision: &Decision) -> Option<String> {
    match decision {
        Decision::Nominate { pod, .. } => Some(pod.key.name.to_string()),
        Decision::Bind { .. }
        | Decision::Evict { .. }
        | Decision::Withdraw { .. }
        | Decision::Deallocate { .. } => None,
    }
}

fn all_nominated(cycle: &Cycle) -> Vec<String> {
    cycle.decisions.iter().filter_map(nominated).collect()
}

fn cpus(n: i64) -> ResourceList {
    let amounts = BTreeMap::from([("cpu".into(), n * 1000)]);
    ResourceList::try_from(amounts).expect("an amount that is not negative")
}

/// A pod of another job fills the node.
fn preempts(waits: &str, spec: &str) -> History<'static> {
    History {
        actions: "allocate, preempt",
        plugins: WITHOUT_SHARES,
        gang: "",
        objects: vec![
            queue("default", "weight: 1"),
            queue("other", "weight: 1"),
            node("n", "2"),
            group("runs", "minMember: 1"),
            running("runs", "runs", "2", "n"),
            group("waits", waits),
            pod("waits", "waits", "2", spec),
        ],
    }
}

#[test]
fn of_its_group() {
    preempts("minMember: 1", "").decides_after(|store| {
        change_group(store, "waits", |group| group.priority_class = Some("high".into()));
    });
    preempts("minMember: 1, priorityClassName: high, queue: other", "").decides_after(|store| {
        change_group(store, "waits", |group| group.queue = Some("default".into()));
    });
    let never = preempts("minMember: 1, priorityClassName: high", "preemptionPolicy: Never, ");
    never.decides_after(|store| {
        change_group(store, "waits", |group| group.never_preempts = Some(false));
    });
}

#[test]
fn of_its_pod() {
    let never = preempts("minMember: 1, priorityClassName: high", "preemptionPolicy: Never, ");
    never.decides_after(|store| {
        change_pod(store, "waits", |pod| pod.never_preempts = false);
    });
    let gated = History {
        actions: "allocate",
        plugins: WITHOUT_SHARES,
        gang: "",
        objects: vec![
            queue("default", "weight: 1"),
            node("n", "2"),
            group("waits", "minMember: 1"),
            pod("large", "waits", "9", ""),
            pod("small", "waits", "1", "schedulingGates: [{name: gate}], "),
        ],
    };
    gated.decides_after(|store| change_pod(store, "small", |pod| pod.gated = false));
}

/// Pods of two roles, of which only one fits.
fn with_roles(role_of_small: &str) -> History<'static> {
    History {
        actions: "allocate",
        plugins: WITHOUT_SHARES,
        gang: "",
        objects: vec![
            queue("default", "weight: 1"),
            node("n", "2"),
            group_of_volcano("waits", "minMember: 1, minTaskMember: {a: 1}"),
            with_role(&pod("large", "waits", "9", ""), "a"),
            with_role(&pod("small", "waits", "1", ""), role_of_small),
        ],
    }
}

#[test]
fn of_its_roles() {
    with_roles("b").decides_after(|store| {
        change_pod(store, "small", |pod| pod.role = Some("a".into()));
    });
    with_roles("b").decides_after(|store| {
        change_group(store, "waits", |group| group.roles = Vec::new());
    });
}

#[test]
fn of_its_topology() {
    let history = History {
        actions: "allocate",
        plugins: "{name: predicates}, {name: nodeorder}, {name: topology}",
        gang: "",
        objects: vec![
            queue("default", "weight: 1"),
            node("n", "2"),
            node("m", "2"),
            group("waits", "minMember: 2").replacen(
                "namespace: ns",
                "namespace: ns, annotations: {scheduling.sigs.dev/topology-required: on}",
                1,
            ),
            pod("waits-0", "waits", "2", ""),
            pod("waits-1", "waits", "2", ""),
        ],
    };
    history.decides_after(|store| change_group(store, "waits", |group| group.topology = None));
}

/// A queue holds what it deserves, until a pod of a third queue comes that fits nowhere.
#[test]
fn of_the_shares() {
    let history = History {
        actions: "reclaim, allocate",
        plugins: WITH_SHARES,
        gang: "",
        objects: vec![
            queue("one", "weight: 1"),
            queue("two", "weight: 1"),
            queue("three", "weight: 2"),
            node("n", "2"),
            node("m", "2"),
            group("runs", "minMember: 1, queue: two"),
            running("runs-0", "runs", "1", "n"),
            running("runs-1", "runs", "1", "n"),
            group("waits", "minMember: 1, queue: one"),
            pod("waits", "waits", "1", "nodeSelector: {on: n}, "),
            group("unfit", "minMember: 1, queue: three"),
            pod("unfit", "unfit", "9", "schedulingGates: [{name: gate}], "),
        ],
    };
    history.decides_after(|store| change_pod(store, "unfit", |pod| pod.gated = false));
}

/// A gang that runs, and a job of higher priority.
fn preempts_gang(runs: &str, roles: [&str; 3]) -> History<'static> {
    History {
        actions: "allocate, preempt",
        plugins: WITHOUT_SHARES,
        gang: "",
        objects: vec![
            queue("default", "weight: 1"),
            node("n", "2"),
            node("m", "1"),
            group_of_volcano("runs", runs),
            with_role(&running("runs-0", "runs", "1", "n"), roles[0]),
            with_role(&running("runs-1", "runs", "1", "n"), roles[1]),
            with_role(&running("runs-2", "runs", "1", "m"), roles[2]),
            group("waits", "minMember: 1, priorityClassName: high"),
            pod("waits", "waits", "1", "nodeSelector: {on: n}, "),
        ],
    }
}

#[test]
fn of_a_gang_that_runs() {
    preempts_gang("minMember: 2, minTaskMember: {a: 2}", ["a", "a", "b"]).decides_after(|store| {
        change_group(store, "runs", |group| {
            group.roles = vec![RoleFacts { name: "a".into(), min: 1 }];
        });
    });
    preempts_gang("minMember: 3", ["a", "a", "a"]).decides_after(|store| {
        change_group(store, "runs", |group| group.leaves_whole = true);
    });
    preempts_gang("minMember: 1, priorityClassName: high", ["a", "a", "a"]).decides_after(
        |store| {
            change_group(store, "runs", |group| group.priority_class = None);
        },
    );
    let mut of_other = preempts_gang("minMember: 1, queue: other", ["a", "a", "a"]);
    of_other.objects.insert(0, queue("other", "weight: 1"));
    of_other.decides_after(|store| {
        change_group(store, "runs", |group| group.queue = Some("default".into()));
    });
}

/// A gang that runs is needed by its composite PodGroup, until it is no part of it.
#[test]
fn of_a_composite_that_runs() {
    let mut history = preempts("minMember: 1, priorityClassName: high", "nodeSelector: {on: n}, ");
    history.objects.extend([
        node("m", "2"),
        group("beside", "minMember: 1"),
        running("beside", "beside", "2", "m"),
        composite("run", 2, ""),
    ]);
    let cycles = history.cycles(6, |at, store| {
        for name in ["runs", "beside"] {
            let parent = (at < 4).then(|| "run".into());
            change_group(store, name, |group| group.parent = parent);
        }
    });
    assert_eq!(cycles[3].decisions, []);
    assert_ne!(cycles[4].decisions, []);
}

/// A gang that needs two places which another queue has to give up, in a queue whose capability is kept for the
/// executors of another job.
#[test]
fn of_what_is_kept_for_another_job() {
    let history = History {
        actions: "reclaim, allocate",
        plugins: WITH_SHARES,
        gang: "",
        objects: vec![
            queue("one", "weight: 9, capability: {cpu: '3.2'}"),
            queue("two", "weight: 1"),
            node("n", "2"),
            node("m", "1"),
            group_of_volcano("g", "minMember: 1, queue: one, minResources: {cpu: '2'}"),
            running("g", "g", "1", "m"),
            group("runs-0", "minMember: 1, queue: two"),
            running("runs-0", "runs-0", "1", "n"),
            group("runs-1", "minMember: 1, queue: two"),
            running("runs-1", "runs-1", "1", "n"),
            group("waits", "minMember: 2, queue: one"),
            pod("waits-0", "waits", "800m", "nodeSelector: {on: n}, "),
            pod("waits-1", "waits", "800m", "nodeSelector: {on: n}, "),
        ],
    };
    history.decides_after(|store| {
        change_group(store, "g", |group| group.min_resources = cpus(1));
    });
}

/// The pod that runs may be evicted some seconds later.
#[test]
fn of_the_time() {
    let mut history = preempts("minMember: 1, priorityClassName: high", "");
    history.objects[0] = queue("default", "weight: 1, minRuntime: 10s");
    let mut simulation = history.in_vain();
    let decides = |_| !cycle(&mut simulation).0.decisions.is_empty();
    assert!((0..20).any(decides), "the job is not tried again");
}

/// A gang with one pod for each of two nodes; the second is reserved for an older job.
pub(super) fn beside_a_reservation() -> History<'static> {
    History {
        actions: "allocate, preempt",
        plugins: "{name: predicates}, {name: nodeorder}, {name: proportion}, \
                  {name: reservation, arguments: {reservation.after: 0s}}",
        gang: "",
        objects: vec![
            queue("default", "weight: 1"),
            node("n", "4"),
            node("m", "1"),
            group("long", "minMember: 1"),
            with_run_time(&running("long", "long", "3", "n"), "1h"),
            group("big", "minMember: 1"),
            pod("big", "big", "4", ""),
            group("waits", "minMember: 2"),
            pod("waits-0", "waits", "1", "nodeSelector: {on: m}, "),
            pod("waits-1", "waits", "1", "nodeSelector: {on: n}, "),
        ],
    }
}

#[test]
fn of_a_reservation() {
    beside_a_reservation().decides_after(|store| {
        delete_pod(store, "big");
    });
}

/// The condition has to be written on the pod that exists.
#[test]
fn of_a_pod_that_was_made_again() {
    let mut simulation = preempts("minMember: 1", "").in_vain();
    change_pod(&mut simulation.world.store, "waits", |pod| pod.uid = "again".into());
    let (cycle, _) = cycle(&mut simulation);
    let pods = cycle.jobs.iter().flat_map(|job| &job.unplaced);
    assert_eq!(pods.map(|pod| &*pod.uid).collect::<Vec<_>>(), ["again"]);
}

/// A pod of another scheduler comes that names the PodGroup.
#[test]
fn of_a_mistake_that_is_reported() {
    let mut history = preempts("minMember: 1", "");
    history.objects.push(pod("other", "waits", "1", "").replacen("kube-batch", "other", 1));
    let case = read(&history.text());
    let late = case.objects.len() - 1;
    let mut simulation = simulation(&case, Memory::with_budget(u64::MAX), |at| at != late);
    let warnings = |simulation: &mut Simulation| {
        let (cycle, _) = cycle(simulation);
        cycle.jobs.iter().map(|job| job.warnings.len()).sum::<usize>()
    };
    assert_eq!((0..4).map(|_| warnings(&mut simulation)).sum::<usize>(), 0);
    simulation.world.apply(case.objects[late].value.clone()).expect("valid");
    assert_eq!(warnings(&mut simulation), 1);
}

/// A pod of a job runs, and another one may wait for its place.
pub(super) fn beside_its_own_pod() -> History<'static> {
    History {
        actions: "allocate, preempt",
        plugins: WITHOUT_SHARES,
        gang: "",
        objects: vec![
            queue("default", "weight: 1"),
            node("n", "2"),
            group("waits", "minMember: 1, priorityClassName: high"),
            running("runs", "waits", "2", "n"),
        ],
    }
}

#[test]
fn of_the_priority_of_a_pod() {
    let mut history = beside_its_own_pod();
    history.objects.push(pod("waits", "waits", "2", ""));
    history.decides_after(|store| change_pod(store, "waits", |pod| pod.priority = 1));
}

/// It could evict a pod from a node that is reserved for a job of another queue, if it ended before that starts.
#[test]
fn of_its_run_time() {
    let on_n = "nodeSelector: {on: n}, ";
    let earlier = |object: &str| {
        object.replacen("metadata: {", "metadata: {creationTimestamp: '2024-12-31T00:00:00Z', ", 1)
    };
    let history = History {
        actions: "allocate, preempt",
        plugins: "{name: predicates}, {name: nodeorder}, {name: proportion}, \
                  {name: reservation, arguments: {reservation.after: 1h}}",
        gang: "",
        objects: vec![
            queue("one", "weight: 1"),
            queue("two", "weight: 1"),
            node("n", "4"),
            node("idle", "20"),
            group("low", "minMember: 1, queue: one"),
            with_run_time(&running("low", "low", "2", "n"), "1h"),
            group("long", "minMember: 1, queue: two"),
            with_run_time(&running("long", "long", "2", "n"), "1h"),
            earlier(&group("big", "minMember: 1, queue: two")),
            earlier(&pod("big", "big", "4", on_n)),
            group("waits", "minMember: 1, priorityClassName: high, queue: one"),
            pod("waits", "waits", "2", on_n),
        ],
    };
    history.decides_after(|store| {
        change_pod(store, "waits", |pod| {
            pod.run_time = Some(RunTime { seconds: Some(60), unreadable: None });
        });
    });
}

/// A pod is nominated for the place of its victim, and the pods of other jobs wait.
fn beside_a_nomination(others: &[&str]) -> History<'static> {
    let other = |name: &&str| {
        let spec = "nodeSelector: {on: n}, ";
        [group(name, "minMember: 1"), pod(name, name, "1", spec)]
    };
    History {
        actions: "allocate, preempt",
        plugins: WITHOUT_SHARES,
        gang: "",
        objects: [
            queue("default", "weight: 1"),
            node("n", "2"),
            node("m", "2"),
            group("runs", "minMember: 1"),
            running("runs-0", "runs", "2", "n"),
            group("keeps", "minMember: 1, priorityClassName: high"),
            running("keeps", "keeps", "2", "m"),
            group("high", "minMember: 1, priorityClassName: high"),
            pod("high", "high", "2", ""),
        ]
        .into_iter()
        .chain(others.iter().flat_map(other))
        .collect(),
    }
}

/// The pods that cycles nominate which begin after a change; before it, only `high` is nominated.
fn nominated_after(others: &[&str], change: impl Fn(&mut Store)) -> Vec<String> {
    let [before, after] = beside_a_nomination(others).around(change);
    assert_eq!(all_nominated(&before), ["high"]);
    all_nominated(&after)
}

#[test]
fn of_a_nomination() {
    // It is deleted.
    let nominated = nominated_after(&["waits"], |store| {
        delete_pod(store, "high");
    });
    assert_eq!(nominated, ["waits"]);
    // A smaller pod is nominated instead.
    let nominated = nominated_after(&["less", "waits"], |store| {
        delete_pod(store, "high");
        change_pod(store, "less", |pod| pod.nominated_node = Some("n".into()));
    });
    assert_eq!(nominated, ["less", "waits"]);
}

/// Two pods terminate. A pod that is nominated for the place of one of them is then nominated for the other.
#[test]
fn of_the_node_of_a_nomination() {
    let history = History {
        actions: "allocate",
        plugins: WITHOUT_SHARES,
        gang: "gang.terminationTimeout: 10h",
        objects: vec![
            queue("default", "weight: 1"),
            node("n", "2"),
            node("m", "2"),
            group("runs", "minMember: 1"),
            terminating("runs-0", "runs", "n", "2025-01-01T01:00:00Z"),
            terminating("runs-1", "runs", "m", "2025-01-01T01:00:00Z"),
            group("high", "minMember: 1, priorityClassName: high"),
            pod("high", "high", "2", ""),
            group("waits", "minMember: 1"),
            pod("waits", "waits", "2", "nodeSelector: {on: n}, "),
        ],
    };
    let cycles = history.cycles(6, |at, store| {
        change_pod(store, "high", |pod| {
            pod.nominated_node = Some(if at < 4 { "n" } else { "m" }.into());
        });
    });
    assert_eq!(all_nominated(&cycles[3]), ["high"]);
    assert_eq!(all_nominated(&cycles[4]), ["high", "waits"]);
}

/// One pod of a gang waits for the place of a pod that terminates, until that is known not to end.
#[test]
fn of_a_pod_that_does_not_end() {
    let history = History {
        actions: "allocate",
        plugins: WITHOUT_SHARES,
        gang: "gang.terminationTimeout: 6s",
        objects: vec![
            queue("default", "weight: 1"),
            node("n", "2"),
            node("m", "2"),
            group("runs", "minMember: 1"),
            terminating("runs", "runs", "n", "2024-12-31T00:00:00Z"),
            group("keeps", "minMember: 1"),
            running("keeps", "keeps", "2", "m"),
            group("waits", "minMember: 2"),
            pod("waits-0", "waits", "2", "nodeSelector: {on: n}, "),
            pod("waits-1", "waits", "2", "nodeSelector: {on: m}, "),
        ],
    };
    let cycles = history.cycles(9, |_, _| {});
    assert_ne!(what_waits(&cycles[8]), what_waits(&cycles[3]), "time changes nothing");
}

const TOPOLOGY: &str = "{name: predicates}, {name: nodeorder}, {name: topology}";

/// It becomes part of a composite PodGroup that requires one topology domain.
#[test]
fn of_its_composite() {
    let constraints = ", schedulingConstraints: {topology: [{key: on}]}";
    let history = History {
        actions: "allocate",
        plugins: TOPOLOGY,
        gang: "",
        objects: vec![
            queue("default", "weight: 1"),
            node("n", "2"),
            node("m", "2"),
            composite("run", 1, constraints),
            group("waits", "minMember: 3"),
            pod("waits-0", "waits", "2", ""),
            pod("waits-1", "waits", "2", ""),
            pod("waits-2", "waits", "2", ""),
        ],
    };
    history.differs_after(|store| {
        change_group(store, "waits", |group| group.parent = Some("run".into()));
    });
}
