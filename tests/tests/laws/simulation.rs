//! Seeded random clusters, simulated cycle by cycle; properties are checked after each cycle.
//!
//! `KUBE_BATCH_SEEDS=5000 cargo test -p kube-batch-tests --test laws simulation::` runs 5000
//! clusters, `KUBE_BATCH_SEED=7` only that one. A cluster that fails is made smaller as long as it
//! still fails, and printed as a case that `kube-batch test` runs once it says what to expect.

use std::{collections::BTreeMap, panic};

use kube_batch_framework::{
    arguments::ArgumentValue,
    candidates::Search,
    report::{Cycle, JobReport},
};
use kube_batch_model::{
    cluster::Cluster,
    column::{JobIdx, Ordinal, TaskIdx},
    decision::Decision,
    facts::policy::BudgetFacts,
    name::{JobKey, Name, ObjectKey},
    resource::ResourceVector,
    status::TaskStatus,
    why::{Obstacle, Why},
};
use kube_batch_scheduler::{conf::Conf, registry::Registry};
use kube_batch_sim::{case::Case, runner::run_case_observed, simulation::Simulation};
use kube_batch_tests::{random_cluster::RandomCluster, seeds::seeds};

#[test]
fn properties_hold_after_every_cycle() {
    let seeds = seeds(500);
    let mut totals = Totals::default();
    for seed in &seeds {
        let seed = *seed;
        let cluster = RandomCluster::new(seed);
        match simulate(&cluster) {
            Ok(cycles) => totals.add(&cycles),
            Err(why) => fail(cluster, why, &|cluster| simulate(cluster).err()),
        }
    }
    println!("{totals:?}");
    // An idle cluster violates no property.
    assert!(seeds.len() < 100 || totals.binds > seeds.len(), "{totals:?}");
    assert!(seeds.len() < 100 || totals.evictions > seeds.len() / 20, "{totals:?}");
    assert!(seeds.len() < 100 || totals.nominations > seeds.len() / 20, "{totals:?}");
}

/// A nominated pod is bound or nominated again in the next cycle. Once nothing else changes,
/// evictions stop and no nomination is left.
#[test]
fn evictions_lead_to_bindings() {
    let seeds = seeds(500);
    let mut totals = Totals::default();
    for seed in &seeds {
        let cluster = RandomCluster::contended(*seed);
        match simulate(&cluster) {
            Ok(cycles) => {
                if let Some(why) = useless_eviction(&cycles) {
                    let fault =
                        |cluster: &RandomCluster| useless_eviction(&simulate(cluster).ok()?);
                    fail(cluster, why, &fault);
                }
                totals.add(&cycles);
            }
            Err(why) => fail(cluster, why, &|cluster| simulate(cluster).err()),
        }
    }
    println!("{totals:?}");
    assert!(seeds.len() < 100 || totals.evictions > seeds.len() / 4, "{totals:?}");
    assert!(seeds.len() < 100 || totals.nominations > seeds.len() / 4, "{totals:?}");
}

/// The first nomination that was dropped for no other, or the decisions that go on although nothing changes.
fn useless_eviction(cycles: &[Cycle]) -> Option<String> {
    for (at, pair) in cycles.windows(2).enumerate() {
        let [before, after] = pair else { continue };
        let kept: Vec<&ObjectKey> = after
            .decisions
            .iter()
            .filter_map(|decision| match decision {
                Decision::Bind { pod, .. } | Decision::Nominate { pod, .. } => Some(&pod.key),
                Decision::Evict { .. }
                | Decision::Withdraw { .. }
                | Decision::Deallocate { .. } => None,
            })
            .collect();
        let evicted = after.decisions.iter().filter(|made| matches!(made, Decision::Evict { .. }));
        let evicted: Vec<&str> = evicted.map(|made| group_of(&made.pod().key)).collect();
        for decision in &before.decisions {
            if let Decision::Nominate { pod, node, .. } = decision
                && !kept.contains(&&pod.key)
                // A gang that is evicted as a whole has no nominations left.
                && !evicted.contains(&group_of(&pod.key))
                && !is_place_taken(before, after, group_of(&pod.key))
            {
                let (pod, at) = (&pod.key, at + 2);
                return Some(format!("{pod} was nominated for {node}, but not in cycle {at}"));
            }
        }
    }
    let last = cycles.last()?;
    (!last.decisions.is_empty()).then(|| format!("decisions do not stop: {:?}", last.decisions))
}

/// Whether a pod of another group is new on one of the nodes for which pods of a group were nominated: a nomination is no
/// lock, but it is dropped only for a place.
fn is_place_taken(before: &Cycle, after: &Cycle, group: &str) -> bool {
    let nominated = |made: &Decision| match made {
        Decision::Nominate { pod, node, .. } => Some((pod.key.clone(), node.clone())),
        Decision::Bind { .. }
        | Decision::Evict { .. }
        | Decision::Withdraw { .. }
        | Decision::Deallocate { .. } => None,
    };
    let before: Vec<_> = before.decisions.iter().filter_map(nominated).collect();
    let is_lost = |node: &Name| before.iter().any(|(pod, at)| group_of(pod) == group && at == node);
    after.decisions.iter().any(|made| match made {
        Decision::Nominate { pod, node, .. } | Decision::Bind { pod, node, .. } => {
            let is_new = !before.iter().any(|(known, at)| *known == pod.key && at == node);
            is_new && group_of(&pod.key) != group && is_lost(node)
        }
        Decision::Evict { .. } | Decision::Withdraw { .. } | Decision::Deallocate { .. } => false,
    })
}

/// The name of the group of a pod of random clusters, with which the name of the pod begins.
fn group_of(pod: &ObjectKey) -> &str {
    pod.name.split('-').next().unwrap_or_default()
}

/// Number of decisions, to check that the clusters are not idle.
#[derive(Debug, Default)]
struct Totals {
    cycles: usize,
    binds: usize,
    evictions: usize,
    nominations: usize,
    withdrawals: usize,
}

impl Totals {
    fn add(&mut self, cycles: &[Cycle]) {
        self.cycles += cycles.len();
        for decision in cycles.iter().flat_map(|cycle| &cycle.decisions) {
            match decision {
                Decision::Bind { .. } => self.binds += 1,
                Decision::Evict { .. } => self.evictions += 1,
                Decision::Nominate { .. } => self.nominations += 1,
                Decision::Withdraw { .. } => self.withdrawals += 1,
                Decision::Deallocate { .. } => {}
            }
        }
    }
}

/// Panics with the smallest part of the cluster that still fails.
fn fail(
    cluster: RandomCluster,
    why: String,
    fault: &dyn Fn(&RandomCluster) -> Option<String>,
) -> ! {
    let seed = cluster.seed;
    let smallest = shrink(cluster, fault);
    let why = fault(&smallest).unwrap_or(why);
    panic!("SEED={seed}: {why}\n\n{}", smallest.case());
}

/// Leaves out parts as long as the cluster still fails.
fn shrink(
    mut cluster: RandomCluster,
    fault: &dyn Fn(&RandomCluster) -> Option<String>,
) -> RandomCluster {
    loop {
        let mut smaller = Vec::new();
        for at in 0..cluster.changes.len() {
            let mut candidate = cluster.clone();
            candidate.changes.remove(at);
            smaller.push(candidate);
        }
        for at in (0..cluster.objects.len()).rev() {
            let mut candidate = cluster.clone();
            candidate.objects.remove(at);
            smaller.push(candidate);
        }
        match smaller.into_iter().find(|candidate| fault(candidate).is_some()) {
            Some(candidate) => cluster = candidate,
            None => return cluster,
        }
    }
}

/// Simulates a cluster. Returns its cycles, or the first violation.
fn simulate(cluster: &RandomCluster) -> Result<Vec<Cycle>, String> {
    let text = cluster.case();
    let limits = kube_batch_yaml::Limits::default();
    let document = kube_batch_yaml::parse(&text, &limits).map_err(|e| e.to_string())?;
    let case =
        Case::read(&document, &Registry::builtin()).map_err(|problems| format!("{problems:?}"))?;
    let result = panic::catch_unwind(|| {
        let mut cycles = Vec::new();
        let mut violated = None;
        run_case_observed(&case, Search::Index, &mut |simulation| {
            violated = violated.take().or_else(|| violation(&case.conf, simulation));
            cycles.push(without_work(last(simulation)));
        })
        .map_err(|problems| format!("{problems:?}"))?;
        if let Some(violated) = violated {
            return Err(violated);
        }
        let mut naive = Vec::new();
        run_case_observed(&case, Search::Naive, &mut |s| naive.push(without_work(last(s))))
            .map_err(|problems| format!("{problems:?}"))?;
        match cycles.iter().zip(&naive).position(|(index, naive)| index != naive) {
            Some(at) => Err(format!(
                "cycle {}: the index and the naive search differ:\n{:?}\n{:?}",
                at + 1,
                cycles[at].decisions,
                naive[at].decisions
            )),
            None => Ok(cycles),
        }
    });
    result.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Err(text.unwrap_or_else(|| "panicked".to_owned()))
    })
}

/// A cycle, whatever work it took: the searches differ in that.
fn without_work(cycle: &Cycle) -> Cycle {
    Cycle { work: 0, ..cycle.clone() }
}

fn last(simulation: &Simulation) -> &Cycle {
    &simulation.last().expect("a cycle was run").cycle
}

/// The first property that the last cycle violates.
fn violation(conf: &Conf, simulation: &Simulation) -> Option<String> {
    let last = simulation.last()?;
    let checker = Checker::new(conf, &last.snapshot, &last.cycle);
    checker
        .decisions()
        .or_else(|| checker.gangs())
        .or_else(|| checker.evictions())
        .or_else(|| checker.capabilities())
        .or_else(|| checker.lending())
        .or_else(|| checker.written_reports())
}

/// A snapshot, and what a cycle decided.
struct Checker<'a> {
    conf: &'a Conf,
    snapshot: &'a Cluster,
    cycle: &'a Cycle,
    tasks: BTreeMap<&'a ObjectKey, TaskIdx>,
    after: Cluster,
}

impl<'a> Checker<'a> {
    fn new(conf: &'a Conf, snapshot: &'a Cluster, cycle: &'a Cycle) -> Self {
        let tasks = snapshot.tasks.facts.iter().map(|(row, facts)| (&facts.key, row)).collect();
        let mut checker = Self { conf, snapshot, cycle, tasks, after: snapshot.clone() };
        for decision in &cycle.decisions {
            let (pod, node, status) = match decision {
                Decision::Bind { pod, node, .. } => (pod, node, TaskStatus::Allocated),
                Decision::Nominate { pod, node, .. } => (pod, node, TaskStatus::Pipelined),
                Decision::Evict { pod, node, .. } => (pod, node, TaskStatus::Releasing),
                Decision::Withdraw { .. } | Decision::Deallocate { .. } => continue,
            };
            let task = checker.tasks[&pod.key];
            let nodes = &snapshot.nodes.facts;
            let node = nodes.iter().find(|(_, facts)| facts.name == *node).map(|(row, _)| row);
            checker.after.set_placement(task, kube_batch_model::status::Placement { status, node });
        }
        checker
    }

    fn has_plugin(&self, plugin: &str) -> bool {
        self.conf.tiers.iter().flatten().any(|conf| conf.spec.name == plugin)
    }

    /// Every decision is about a pod of kube-batch in the right state, no pod has two decisions,
    /// and the ledgers agree with the placements.
    fn decisions(&self) -> Option<String> {
        let mut seen = Vec::new();
        for decision in &self.cycle.decisions {
            let (pod, from) = match decision {
                Decision::Bind { pod, .. }
                | Decision::Nominate { pod, .. }
                | Decision::Withdraw { pod }
                | Decision::Deallocate { pod, .. } => (pod, &[TaskStatus::Pending][..]),
                Decision::Evict { pod, .. } => (pod, &[TaskStatus::Running, TaskStatus::Bound][..]),
            };
            let task = self.tasks[&pod.key];
            if seen.contains(&task) {
                return Some(format!("{} has two decisions", pod.key));
            }
            seen.push(task);
            if !from.contains(&self.snapshot.status(task)) || !self.snapshot.tasks.ours[task] {
                return Some(format!(
                    "{decision:?} of a task that is {}",
                    self.snapshot.status(task)
                ));
            }
        }
        let violations = self.after.audit();
        (!violations.is_empty()).then(|| format!("{violations:?}"))
    }

    /// A job that gets a binding has its minimum.
    fn gangs(&self) -> Option<String> {
        if !self.has_plugin("gang") {
            return None;
        }
        self.cycle.decisions.iter().find_map(|decision| {
            let Decision::Bind { pod, .. } = decision else { return None };
            let job = self.snapshot.tasks.job[self.tasks[&pod.key]]?;
            let (ready, min) = self.readiness(job);
            (ready < min).then(|| format!("{} is bound, its job has {ready} of {min}", pod.key))
        })
    }

    fn readiness(&self, job: JobIdx) -> (u32, u32) {
        (self.after.jobs.counts[job].ready(), self.after.jobs.min_available[job])
    }

    /// Tasks are evicted only for a job that is then placed, and gangs keep their minimum or leave as a
    /// whole.
    fn evictions(&self) -> Option<String> {
        for decision in &self.cycle.decisions {
            let Decision::Evict { pod, cause, .. } = decision else { continue };
            let by = &cause.job().job;
            let jobs = &self.snapshot.jobs.key;
            let (preemptor, _) = jobs.iter().find(|(_, key)| *key == by)?;
            let counts = &self.after.jobs.counts[preemptor];
            let nominated = counts.pipelined();
            let enough = counts.ready() + nominated >= self.after.jobs.min_available[preemptor];
            if nominated == 0 || (self.has_plugin("gang") && !enough) {
                return Some(format!("{} is evicted for {by}, which is not placed", pod.key));
            }
            let victim = self.snapshot.tasks.job[self.tasks[&pod.key]]?;
            let was = self.snapshot.jobs.counts[victim].ready();
            let (ready, min) = self.readiness(victim);
            let left = |status| self.after.jobs.counts[victim].of(status);
            let is_whole = left(TaskStatus::Running) + left(TaskStatus::Bound) == 0;
            let leaves_whole = self.snapshot.jobs.leaves_whole[victim];
            if is_whole && (leaves_whole || self.evicts_whole_gangs()) {
                continue;
            }
            if self.has_plugin("gang") && min > 1 && was >= min && ready < min {
                return Some(format!(
                    "{} is evicted, which leaves its gang with {ready} of {min}",
                    pod.key
                ));
            }
        }
        None
    }

    /// Whether something is reserved for the job: if it started so, it would not be reclaimed.
    fn has_reservation(&self, job: &JobKey) -> bool {
        let mut reservations =
            self.cycle.queues.iter().filter_map(|queue| queue.reservation.as_ref());
        reservations.any(|own| own.job == *job)
    }

    /// Reports are values: written down and read back, they are the same, and say the same.
    fn written_reports(&self) -> Option<String> {
        self.cycle.jobs.iter().find_map(|report| {
            let written = serde_json::to_string(report).expect("a report has only fields of JSON");
            let read = serde_json::from_str::<JobReport>(&written);
            let is_same =
                read.as_ref().is_ok_and(|read| *read == **report && says_as(read, report));
            (!is_same).then(|| format!("{written} is read as {read:?}"))
        })
    }

    /// Idle resources are withheld only for a job that they can help, and never from a task that
    /// reclaim could take back.
    fn lending(&self) -> Option<String> {
        for report in self.cycle.jobs.iter() {
            let Some(holder) = holder(report) else { continue };
            let (job, holder) = (self.job_of(&report.key)?, self.job_of(holder)?);
            if let Some(limit) = self.exceeded_by_minimum(holder) {
                let key = &self.snapshot.jobs.key[holder];
                return Some(format!("something is withheld for {key}, which exceeds {limit}"));
            }
            let min = self.snapshot.jobs.min_available[job];
            // Single tasks of these cannot be reclaimed, or not all of them.
            let jobs = &self.snapshot.jobs;
            let queue = self.snapshot.jobs.queue[job];
            let keeps = queue.is_some_and(|at| !self.snapshot.queues.min_runtime(at).is_zero())
                || min > 1 && jobs.counts[job].ready() < min
                || jobs.leaves_whole[job]
                || jobs.composites[job].is_some()
                || self.has_reservation(&report.key)
                || self.any_waiting(job, |task| self.is_never_evicted(task));
            if self.has_action("reclaim")
                && self.has_plugin("gang")
                && !keeps
                && !self.any_waiting(holder, |task| self.snapshot.tasks.facts[task].never_preempts)
                && !self.is_below_share(job)
            {
                return Some(format!("{} waits, although reclaim could evict it", report.key));
            }
        }
        None
    }

    fn evicts_whole_gangs(&self) -> bool {
        self.conf.policy().evicts_whole_jobs()
    }

    fn has_action(&self, name: &str) -> bool {
        self.conf.action_names().contains(&name)
    }

    fn job_of(&self, key: &JobKey) -> Option<JobIdx> {
        let mut jobs = self.snapshot.jobs.key.iter();
        jobs.find(|(_, own)| *own == key).map(|(job, _)| job)
    }

    fn any_waiting(&self, job: JobIdx, is_it: impl Fn(TaskIdx) -> bool) -> bool {
        let mut tasks = self.snapshot.jobs.tasks[job].iter();
        tasks.any(|task| self.snapshot.is_waiting(task) && is_it(task))
    }

    /// Whether a budget that must not be violated forbids evicting the task. Pods that are being terminated use it up.
    fn is_never_evicted(&self, task: TaskIdx) -> bool {
        let is_required = self.conf.tiers.iter().flatten().any(|plugin| {
            let mut arguments = plugin.spec.arguments.iter();
            arguments.any(|spec| {
                let required = ArgumentValue::Text("require".into());
                spec.key == "pdb.mode" && plugin.arguments.get(spec) == required
            })
        });
        let facts = &self.snapshot.tasks.facts;
        let matches = |budget: &BudgetFacts, task: TaskIdx| {
            let facts = &facts[task];
            let selector = budget.selector.as_ref();
            budget.key.namespace == facts.key.namespace
                && selector.is_some_and(|selector| selector.matches(&facts.labels))
        };
        let is_used_up = |budget: &BudgetFacts| {
            let leaves = |task: &TaskIdx| {
                self.after.status(*task) == TaskStatus::Releasing && matches(budget, *task)
            };
            i64::from(budget.allowed) <= facts.ids().filter(leaves).count() as i64
        };
        let mut budgets = self.snapshot.budgets.iter();
        is_required && budgets.any(|budget| matches(budget, task) && is_used_up(budget))
    }

    /// Whether the queue of the job deserves more of something that its waiting tasks request.
    fn is_below_share(&self, job: JobIdx) -> bool {
        let Some(queue) = self.snapshot.jobs.queue[job] else { return false };
        let Some(shares) = &self.cycle.queues[queue.at()].closing else { return false };
        self.any_waiting(job, |task| {
            let mut amounts = self.snapshot.request(task).shared();
            amounts.any(|(dim, _)| shares.allocated[dim] < shares.deserved[dim])
        })
    }

    /// The limit that the smallest tasks of the job exceed that make up its minimum.
    fn exceeded_by_minimum(&self, job: JobIdx) -> Option<&'static str> {
        let cluster = self.snapshot;
        let queue = cluster.jobs.queue[job]?;
        let min = cluster.jobs.min_available[job]
            .saturating_sub(cluster.jobs.counts[job].of(TaskStatus::Succeeded));
        let counts = |task: &TaskIdx| {
            cluster.is_waiting(*task)
                || self.after.status(*task).is_held()
                || cluster.status(*task).is_held()
        };
        let tasks: Vec<TaskIdx> = cluster.jobs.tasks[job].iter().filter(counts).collect();
        let smallest = |dim| {
            let mut amounts: Vec<i64> =
                tasks.iter().map(|task| cluster.request(*task).get(dim)).collect();
            amounts.sort_unstable();
            amounts.iter().take(min as usize).sum::<i64>()
        };
        let total = self.total();
        let shares = self.cycle.queues[queue.at()].closing.as_ref()?;
        let mut capability = cluster.queues.capability[queue].iter();
        if cluster.dimensions.ids().any(|dim| smallest(dim) > total[dim]) {
            Some("the cluster")
        } else if capability.any(|(dim, limit)| smallest(*dim) > *limit) {
            Some("the capability of its queue")
        } else if cluster.dimensions.shared().any(|dim| smallest(dim) > shares.deserved[dim]) {
            Some("what its queue deserves")
        } else {
            None
        }
    }

    /// What there is of each resource. Every device counts: the class of random clusters selects all.
    fn total(&self) -> ResourceVector {
        let mut total = self.snapshot.nodes.allocatable.total();
        let slices = self.snapshot.devices.published.slices.values();
        let n_devices: usize = slices.map(|slice| slice.devices.len()).sum();
        for dim in self.snapshot.dimensions.of_devices() {
            total[dim] += 1000 * n_devices as i64;
        }
        total
    }

    /// No queue exceeds its capability.
    fn capabilities(&self) -> Option<String> {
        if !self.has_plugin("proportion") {
            return None;
        }
        for (queue, limits) in self.snapshot.queues.capability.iter() {
            for (dim, limit) in limits {
                let held = |cluster: &Cluster| -> i64 {
                    cluster
                        .tasks
                        .placement
                        .iter()
                        .filter(|(task, at)| {
                            at.status.is_held() && cluster.queue_of(*task) == Some(queue)
                        })
                        .map(|(task, _)| cluster.request(task).get(*dim))
                        .sum()
                };
                let (before, after) = (held(self.snapshot), held(&self.after));
                if after > *limit && after > before {
                    let name = &self.snapshot.queues.facts[queue].name;
                    return Some(format!(
                        "queue {name} holds {after} of {limit} in dimension {}",
                        dim.at()
                    ));
                }
            }
        }
        None
    }
}

/// The job for which resources are withheld from another one.
fn holder(report: &JobReport) -> Option<&JobKey> {
    let Why::NoPlace(why) = &**report.unplaced_because.as_ref()? else { return None };
    let Obstacle::Withheld { holder, .. } = &*why.obstacle else { return None };
    Some(&holder.as_ref()?.job)
}

/// Whether two reports have the same words.
fn says_as(one: &JobReport, other: &JobReport) -> bool {
    let pods = |report: &JobReport| {
        report.unplaced_because.as_ref().map(|why| (why.reason_of_pods(), why.words().to_owned()))
    };
    let evicted = |report: &JobReport| report.evicted.as_ref().map(ToString::to_string);
    one.unschedulable_in_words() == other.unschedulable_in_words()
        && pods(one) == pods(other)
        && evicted(one) == evicted(other)
}
