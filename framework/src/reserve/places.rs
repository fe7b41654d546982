//! Where a reservation is: the nodes on which a job can start soonest.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use kube_batch_model::{
    column::{ClassIdx, Dim, JobIdx, NodeIdx, QueueIdx, TaskIdx},
    facts::run_time::RunTime,
    resource::{Request, ResourceVector, UNLIMITED},
    status::TaskStatus,
};

use super::candidates::Candidate;
use crate::{
    plugin::ReservationTerms,
    reservations::{Reservation, later},
    session::Session,
    topology::JobTopology,
};

/// How many pairs of a node and a class are compared in a cycle. Each queue has a part of them, and what others left; a
/// job that needs more gets no reservation. Guessed: some 10 ms.
const MAX_STEPS: usize = 200_000;

/// When a task can start on a node, and how much has to become free until then: the smallest is the best. `None` is a
/// time that is not known. Of what has to become free the dimension counts of which it is most, in millionths of what
/// the node has.
type Wait = (Reverse<Option<Reverse<Timestamp>>>, i64);

/// The wait for room that is free.
const NO_WAIT: Wait = (Reverse(Some(Reverse(Timestamp::MIN))), 0);

/// What a node has left, and what becomes free there.
#[derive(Clone, Debug)]
struct Room {
    /// What is neither held nor nominated, less what was given to earlier tasks.
    left: ResourceVector,
    allocatable: ResourceVector,
    /// The tasks that leave, the first one first; those whose time is not known come last.
    leaving: Vec<(Option<Timestamp>, TaskIdx)>,
    /// Whether a task has it alone.
    is_taken: bool,
}

/// The places of a job.
#[derive(Debug, Default)]
struct Places {
    amounts: BTreeMap<NodeIdx, ResourceVector>,
    last: Option<Wait>,
    /// The sum of what has to become free.
    total: i64,
}

impl Places {
    fn sum(&self, n_dimensions: usize) -> ResourceVector {
        let mut sum = ResourceVector::zero(n_dimensions);
        self.amounts.values().for_each(|amounts| sum.add(amounts, 1));
        sum
    }
}

/// The reservations of all queues are looked for in turn: how many steps the next may take. Otherwise the jobs of one
/// queue would keep reservations from those of all others.
#[derive(Debug)]
pub(super) struct Steps {
    n_left: usize,
    n_queues: usize,
}

impl Steps {
    pub(super) const fn new(n_queues: usize) -> Self {
        Self { n_left: MAX_STEPS, n_queues }
    }

    /// Runs the search of the next queue with its part.
    pub(super) fn share<T>(
        &mut self,
        session: &mut Session,
        search: impl FnOnce(&mut Session) -> T,
    ) -> T {
        let part = self.n_left / self.n_queues.max(1);
        session.reservations.steps_left = part;
        let found = search(session);
        self.n_left -= part - session.reservations.steps_left;
        self.n_queues = self.n_queues.saturating_sub(1);
        found
    }
}

impl Session {
    /// A reservation for the first job that could start.
    pub(super) fn reservation_for(
        &mut self,
        candidate: Candidate,
        terms: ReservationTerms,
    ) -> Option<Reservation> {
        let Candidate { queue, jobs } = candidate;
        for (job, since) in jobs {
            if self.is_nominated_to_start(job) {
                return Some(Reservation {
                    job,
                    since,
                    start: None,
                    is_above_share: self.plugins().exceeds_deserved(queue, job, None),
                    total: ResourceVector::zero(self.cluster.dimensions.len()),
                    amounts: Arc::default(),
                    is_lifted: false,
                });
            }
            let n_tasks = self.plugins().tasks_missing(job) as usize;
            let tasks: Vec<TaskIdx> = self.waiting_tasks(job).into_iter().take(n_tasks).collect();
            if tasks.len() < n_tasks
                || self.exceeds_capability(queue, &tasks)
                || self.takes_what_is_kept(queue, &tasks)
            {
                continue;
            }
            let Some(places) = self.places_of(job, tasks.clone()) else { continue };
            if !self.is_within_percent(&places, terms) {
                return None;
            }
            let (Reverse(start), _) = places.last.unwrap_or(NO_WAIT);
            let start = start.map(|Reverse(start)| start.max(self.now));
            // Where all of it is free, something else keeps the job from starting.
            let is_known = start.is_some_and(|start| start > self.now);
            if !is_known && !self.is_waited_for(job, places.total, terms) {
                continue;
            }
            let is_above_share = self.exceeds_share(queue, &tasks);
            return Some(Reservation {
                job,
                since,
                start,
                is_above_share,
                total: places.sum(self.cluster.dimensions.len()),
                amounts: Arc::new(places.amounts),
                is_lifted: false,
            });
        }
        None
    }

    /// Whether the tasks do not fit into a capability of the path of their queue, even if nothing else of it ran.
    fn exceeds_capability(&self, queue: QueueIdx, tasks: &[TaskIdx]) -> bool {
        let job = tasks.first().and_then(|task| self.cluster.tasks.job[*task]);
        let queues = &self.cluster.queues;
        let mut limits = queues.tree.path(queue).flat_map(|queue| &queues.capability[queue]);
        limits.any(|(dim, limit)| {
            let held = job.map_or(0, |job| self.cluster.jobs.held[job][*dim]);
            held.saturating_add(self.requested(tasks, *dim)) > *limit
        })
    }

    /// Whether the tasks do not fit beside what is guaranteed to other queues, even if nothing else ran.
    // Parity: see docs/parity.md#q4.
    fn takes_what_is_kept(&self, queue: QueueIdx, tasks: &[TaskIdx]) -> bool {
        if self.guarantees.is_empty() {
            return false;
        }
        let job = tasks.first().and_then(|task| self.cluster.tasks.job[*task]);
        self.cluster.dimensions.shared().any(|dim| {
            let held = job.map_or(0, |job| self.cluster.jobs.held[job][dim]);
            let amount = held.saturating_add(self.requested(tasks, dim));
            self.requested(tasks, dim) > 0
                && !self.guarantees.fits_alone(&self.cluster, queue, dim, amount)
        })
    }

    /// Whether the queue holds more than it deserves with these tasks, of something that they request.
    pub(super) fn exceeds_share(&self, queue: QueueIdx, tasks: &[TaskIdx]) -> bool {
        self.cluster.dimensions.shared().any(|dim| {
            let requested = self.requested(tasks, dim);
            let above = self.plugins().excess(queue, dim);
            requested > 0 && above.is_some_and(|above| above.saturating_add(requested) > 0)
        })
    }

    pub(super) fn requested(&self, tasks: &[TaskIdx], dim: Dim) -> i64 {
        let amounts = tasks.iter().map(|task| self.cluster.request(*task).get(dim));
        amounts.fold(0, i64::saturating_add)
    }

    /// Whether all reservations together stay within their part of the cluster. The first may be as large as its job.
    fn is_within_percent(&self, places: &Places, terms: ReservationTerms) -> bool {
        if self.reservations.list.is_empty() {
            return true;
        }
        let mut sum = places.sum(self.cluster.dimensions.len());
        self.reservations.list.iter().for_each(|own| sum.add(&own.total, 1));
        let total = self.cluster.total();
        self.cluster.dimensions.shared().all(|dim| {
            i128::from(sum[dim]) * 100 <= i128::from(total[dim]) * i128::from(terms.max_percent)
        })
    }

    /// The nodes on which the tasks can start soonest; `None` if they do not fit even without all pods of kube-batch.
    fn places_of(&mut self, job: JobIdx, tasks: Vec<TaskIdx>) -> Option<Places> {
        let mut largest_first = tasks.clone();
        let total = self.cluster.total();
        largest_first.sort_by_cached_key(|task| Reverse(self.largest_part(*task, &total)));
        let mut orders = vec![tasks];
        if orders[0] != largest_first {
            orders.push(largest_first);
        }
        let domains = self.domains_for(job, orders[0][0]);
        let mut best: Option<Places> = None;
        for nodes in domains {
            let found = orders.iter().find_map(|tasks| self.places_among(&nodes, tasks));
            let is_better = |found: &Places| {
                best.as_ref().is_none_or(|best| (found.last, found.total) < (best.last, best.total))
            };
            best = found.filter(is_better).or(best);
        }
        best
    }

    /// The largest part of the cluster that a task requests of a resource, in millionths.
    fn largest_part(&self, task: TaskIdx, total: &ResourceVector) -> i64 {
        let amounts = self.cluster.request(task).shared();
        amounts.map(|(dim, amount)| millionths(amount, total[dim])).max().unwrap_or(0)
    }

    /// The sets of nodes of which the job must use one.
    fn domains_for(&mut self, job: JobIdx, first: TaskIdx) -> Vec<Vec<NodeIdx>> {
        let topology = self.plugins().topology(job);
        if let Some(domains) = topology.and_then(JobTopology::required_domains) {
            return domains.iter().map(|own| own.level.nodes(own.domain).to_vec()).collect();
        }
        let class = self.cluster.tasks.class[first];
        let domains = self.plugins().domains_to_choose(class);
        match &*domains {
            [] => vec![self.cluster.nodes.facts.ids().collect()],
            domains => domains.to_vec(),
        }
    }

    /// Places for the tasks on some nodes, each where it can start soonest.
    fn places_among(&mut self, nodes: &[NodeIdx], tasks: &[TaskIdx]) -> Option<Places> {
        let mut places = Places::default();
        let mut rooms: BTreeMap<NodeIdx, Room> = BTreeMap::new();
        let classes: Vec<ClassIdx> =
            tasks.iter().map(|task| self.cluster.tasks.class[*task]).collect();
        for of_class in classes.chunk_by(ClassIdx::eq) {
            let class = of_class[0];
            let left = self.reservations.steps_left.checked_sub(nodes.len() + of_class.len());
            self.reservations.steps_left =
                left.filter(|_| self.plugins().class_admitted(class).is_ok())?;
            let mut waits: BTreeSet<(Wait, NodeIdx)> = BTreeSet::new();
            for node in nodes {
                if !self.search().is_eligible(class, *node) {
                    continue;
                }
                if !rooms.contains_key(node) {
                    rooms.insert(*node, self.room_on(*node));
                }
                waits.extend(self.wait_for(class, &rooms[node]).map(|wait| (wait, *node)));
            }
            for _ in of_class {
                let (wait, node) = waits.pop_first()?;
                let room = rooms.get_mut(&node)?;
                let amounts = self.amounts_to_keep(class, room);
                room.left.add(&amounts, -1);
                room.is_taken |= self.needs_whole_node(class);
                let width = self.cluster.dimensions.len();
                let sum = places.amounts.entry(node).or_insert_with(|| ResourceVector::zero(width));
                sum.add(&amounts, 1);
                places.last = places.last.max(Some(wait));
                places.total = places.total.saturating_add(wait.1);
                waits.extend(self.wait_for(class, &rooms[&node]).map(|wait| (wait, node)));
            }
        }
        Some(places)
    }

    fn room_on(&self, node: NodeIdx) -> Room {
        let cluster = &self.cluster;
        let tasks = cluster.nodes.tasks[node].iter().copied();
        let mut leaving: Vec<(Option<Timestamp>, TaskIdx)> = tasks
            .filter(|task| cluster.tasks.placement[*task].node == Some(node))
            .filter(|task| {
                cluster.tasks.ours[*task] || cluster.status(*task) == TaskStatus::Releasing
            })
            .filter(|task| cluster.status(*task).charge().idle != 0)
            .filter(|task| cluster.status(*task) != TaskStatus::Stuck)
            .map(|task| (self.leaves_at(task), task))
            .collect();
        leaving.sort_unstable_by_key(|(end, task)| (end.is_none(), *end, *task));
        let (idle, pipelined) = (&cluster.nodes.idle[node], &cluster.nodes.pipelined[node]);
        let left = idle.iter().zip(pipelined).map(|(idle, less)| idle - less).collect();
        let allocatable = cluster.nodes.allocatable[node].iter().copied().collect();
        Room { left, allocatable, leaving, is_taken: false }
    }

    /// When a task on a node leaves it, as far as that is known.
    fn leaves_at(&self, task: TaskIdx) -> Option<Timestamp> {
        if self.cluster.status(task) == TaskStatus::Releasing {
            let left = self.cluster.terminating.get(&task).map(|terminating| terminating.left);
            return Some(later(self.now, left.unwrap_or_default()));
        }
        self.declared_end(task).filter(|end| *end > self.now)
    }

    /// When a task that runs ends at the latest, by what it says.
    pub(super) fn declared_end(&self, task: TaskIdx) -> Option<Timestamp> {
        let time = self.cluster.tasks.facts[task].run_time.as_ref().and_then(RunTime::duration)?;
        let runs = self.cluster.status(task).may_be_evicted();
        runs.then(|| later(self.cluster.tasks.start[task], time))
    }

    /// Whether a task of the class gets a node for itself: nodes keep amounts, but no ports, devices or distances
    /// to other pods.
    fn needs_whole_node(&self, class: ClassIdx) -> bool {
        let template = &self.cluster.classes.template[class];
        !template.host_ports.is_empty()
            || !template.pod_terms.required_anti.is_empty()
            || !self.cluster.classes.devices[class].is_empty()
    }

    /// What is kept for one more task of the class.
    fn amounts_to_keep(&self, class: ClassIdx, room: &Room) -> ResourceVector {
        let mut amounts = ResourceVector::zero(self.cluster.dimensions.len());
        for (dim, amount) in self.cluster.classes.request[class].amounts() {
            amounts[*dim] = *amount;
        }
        if self.needs_whole_node(class) {
            // Every pod takes one of these.
            amounts[Dim::PODS] = room.allocatable[Dim::PODS];
        }
        amounts
    }

    /// The wait for one more task of the class on a node; `None` if it never fits there.
    fn wait_for(&self, class: ClassIdx, room: &Room) -> Option<Wait> {
        let request = &self.cluster.classes.request[class];
        let is_alone = self.needs_whole_node(class);
        if room.is_taken || !request.unknown().is_empty() {
            return None;
        }
        let mut left = room.left.clone();
        let mut wait = NO_WAIT;
        let missing = missing(request, room);
        for (end, task) in &room.leaving {
            if !is_alone && request.fits_in(&left) {
                break;
            }
            for (dim, amount) in self.cluster.request(*task).amounts() {
                left[*dim] = left[*dim].saturating_add(*amount);
            }
            wait = (Reverse(end.map(Reverse)), missing);
        }
        request.fits_in(&left).then_some(wait)
    }
}

/// How much of a request is missing, in millionths of what the node has.
fn missing(request: &Request, room: &Room) -> i64 {
    let parts = request.amounts().iter().map(|(dim, amount)| {
        millionths(amount.saturating_sub(room.left[*dim]).max(0), room.allocatable[*dim])
    });
    parts.max().unwrap_or(0)
}

fn millionths(amount: i64, of: i64) -> i64 {
    let of = i128::from(of.clamp(1, UNLIMITED));
    i64::try_from(i128::from(amount) * 1_000_000 / of).unwrap_or(i64::MAX)
}
