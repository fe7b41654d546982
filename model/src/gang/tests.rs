//! The tree compared with the definition: a forest of plain values, where every answer is found by trying.

use std::sync::Arc;

use jiff::Timestamp;
use proptest::prelude::*;

use super::{
    Members, Sense,
    complete::CompleteGroups,
    evicted::Evicted,
    tree::{Completeness, Gang, GangTree},
};
use crate::{
    cluster::{Cluster, CountsFor, TaskRange},
    column::{ClassIdx, CompositeIdx, JobIdx, Ordinal, TaskIdx},
    facts::{
        composite::CompositeFacts,
        group::{GroupFacts, RoleFacts},
    },
    group_version::GroupVersion,
    name::ObjectKey,
    resource::{Dimensions, Ledger, ResourceList},
    status::{Placement, TaskStatus},
};

/// Composite PodGroups and jobs, as they are declared.
#[derive(Clone, Debug)]
struct Forest {
    composites: Vec<Composite>,
    jobs: Vec<Job>,
}

#[derive(Clone, Debug)]
struct Composite {
    min: u32,
    /// One of those before it.
    parent: Option<usize>,
    leaves_whole: bool,
}

#[derive(Clone, Debug)]
struct Job {
    min: u32,
    parent: Option<usize>,
    /// The minimum of each role.
    roles: Vec<u32>,
    tasks: Vec<Task>,
}

#[derive(Clone, Copy, Debug)]
struct Task {
    status: TaskStatus,
    role: Option<usize>,
}

/// A composite PodGroup or a job, by position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    Composite(usize),
    Job(usize),
}

impl Job {
    /// Whether it is complete if tasks with these roles count.
    fn is_complete(&self, counting: &[Option<usize>]) -> bool {
        let n_of = |role| counting.iter().filter(|own| **own == Some(role)).count();
        counting.len() >= self.min as usize
            && self.roles.iter().enumerate().all(|(role, min)| n_of(role) >= *min as usize)
    }

    /// The roles of the tasks that count.
    fn counting(&self, counts: impl Fn(usize, TaskStatus) -> bool) -> Vec<Option<usize>> {
        let tasks = self.tasks.iter().enumerate().filter(|(at, task)| counts(*at, task.status));
        tasks.map(|(_, task)| task.role).collect()
    }

    /// The least number of tasks that can be added to complete it.
    fn n_missing(&self, counting: &[Option<usize>]) -> u32 {
        let mut tried = vec![counting.to_vec()];
        for n_added in 0.. {
            if tried.iter().any(|counting| self.is_complete(counting)) {
                return n_added;
            }
            let roles = || (0..self.roles.len()).map(Some).chain([None]);
            let more = |counting: &Vec<_>| {
                let counting = counting.clone();
                roles().map(move |role| [&counting[..], &[role]].concat())
            };
            tried = tried.iter().flat_map(more).collect();
        }
        unreachable!("some number of tasks suffices")
    }
}

impl Forest {
    fn parent(&self, node: Node) -> Option<usize> {
        match node {
            Node::Composite(at) => self.composites[at].parent,
            Node::Job(at) => self.jobs[at].parent,
        }
    }

    /// The children of a composite PodGroup below which there is a job: others do not exist for the scheduler.
    fn children(&self, composite: usize) -> Vec<Node> {
        let composites = (0..self.composites.len()).map(Node::Composite);
        let all = composites.chain((0..self.jobs.len()).map(Node::Job));
        let own = all.filter(|node| self.parent(*node) == Some(composite));
        own.filter(|node| !self.jobs_of(*node).is_empty()).collect()
    }

    fn jobs_of(&self, node: Node) -> Vec<usize> {
        match node {
            Node::Job(at) => vec![at],
            Node::Composite(_) => {
                let is_below = |job: &usize| self.path(*job).contains(&node);
                (0..self.jobs.len()).filter(is_below).collect()
            }
        }
    }

    /// A job and all above it.
    fn path(&self, job: usize) -> Vec<Node> {
        let above = |node: &Node| self.parent(*node).map(Node::Composite);
        std::iter::successors(Some(Node::Job(job)), above).collect()
    }

    /// Whether a node is complete as these jobs are, if one node is not, whatever is below it.
    fn is_complete(&self, node: Node, ready: &[bool], except: Option<Node>) -> bool {
        match node {
            node if Some(node) == except => false,
            Node::Job(at) => ready[at],
            Node::Composite(at) => {
                let children = self.children(at).into_iter();
                let complete = children.filter(|child| self.is_complete(*child, ready, except));
                complete.count() >= self.composites[at].min as usize
            }
        }
    }

    /// The fewest tasks that complete as many children as are needed, or as there are.
    fn n_missing(&self, node: Node, of_jobs: &[u64]) -> u64 {
        let at = match node {
            Node::Job(at) => return of_jobs[at],
            Node::Composite(at) => at,
        };
        let children = self.children(at);
        let n_needed = children.len().min(self.composites[at].min as usize);
        let sets = (0_u32..1 << children.len()).filter(|set| set.count_ones() as usize == n_needed);
        let missing = |set: u32| {
            let chosen = (0..children.len()).filter(|child| set & (1 << child) != 0);
            chosen.map(|child| self.n_missing(children[child], of_jobs)).sum()
        };
        sets.map(missing).min().unwrap_or(0)
    }

    /// What a job leaves with.
    fn leaves_with(&self, job: usize, ready: &[bool]) -> Node {
        let path = self.path(job);
        // A node is spared by the one above it if that stays as it is without it.
        let is_spared = |pair: &[Node]| {
            let is_complete = |except| self.is_complete(pair[1], ready, except);
            is_complete(None) == is_complete(Some(pair[0]))
        };
        let first = path.windows(2).position(is_spared).unwrap_or(path.len() - 1);
        let leaves_whole = |node: &Node| match node {
            Node::Composite(at) => self.composites[*at].leaves_whole,
            Node::Job(_) => false,
        };
        let last = path.iter().rposition(leaves_whole).unwrap_or(0);
        path[first.max(last)]
    }

    fn facts(&self, composite: usize) -> Arc<CompositeFacts> {
        let Composite { min, leaves_whole, .. } = self.composites[composite];
        Arc::new(CompositeFacts {
            key: ObjectKey::new("ns", composite.to_string()),
            min_groups: min,
            queue: None,
            priority: 0,
            never_preempts: None,
            leaves_whole,
            topology: None,
            parent: None,
        })
    }

    fn cluster(&self) -> Cluster {
        let dimensions = Dimensions::new([]);
        let mut cluster = Cluster {
            nodes: Default::default(),
            queues: Default::default(),
            jobs: Default::default(),
            tasks: Default::default(),
            classes: Default::default(),
            matchers: Default::default(),
            storage: Default::default(),
            devices: Default::default(),
            device_totals: Default::default(),
            terminating: Default::default(),
            budgets: Default::default(),
            dimensions,
        };
        cluster.classes.request.push(cluster.dimensions.request(&ResourceList::default()));
        cluster.classes.counts.push(Default::default());
        let width = cluster.dimensions.len();
        cluster.jobs.held = Ledger::zero(width, self.jobs.len());
        cluster.jobs.waiting = Ledger::zero(width, self.jobs.len());
        for (at, job) in self.jobs.iter().enumerate() {
            push_job(&mut cluster, job);
            let above = self.path(at).into_iter().filter_map(|node| match node {
                Node::Composite(at) => Some(self.facts(at)),
                Node::Job(_) => None,
            });
            let above: Vec<_> = above.collect();
            cluster.jobs.composites.push((!above.is_empty()).then(|| above.into()));
        }
        cluster
    }

    /// Whether each job is ready if tasks count of which this says so, by job, position and status.
    fn ready(&self, counts: impl Fn(usize, usize, TaskStatus) -> bool) -> Vec<bool> {
        let jobs = self.jobs.iter().enumerate();
        jobs.map(|(at, job)| {
            job.is_complete(&job.counting(|task, status| counts(at, task, status)))
        })
        .collect()
    }
}

fn push_job(cluster: &mut Cluster, job: &Job) {
    let first = cluster.tasks.job.len();
    let row = cluster.jobs.min_available.push(job.min);
    let roles = job.roles.iter().enumerate();
    let roles = roles.map(|(role, min)| RoleFacts { name: role.to_string().into(), min: *min });
    let group = group(job.min, roles.collect());
    cluster.jobs.role_counts.push(vec![Default::default(); group.roles.len()]);
    cluster.jobs.group.push(Some(Arc::new(group)));
    cluster.jobs.counts.push(Default::default());
    cluster.jobs.queue.push(None);
    cluster.jobs.tasks.push(TaskRange::new(first..first + job.tasks.len()));
    for Task { status, role } in &job.tasks {
        let tasks = &mut cluster.tasks;
        tasks.job.push(Some(row));
        tasks.role.push(role.map(|role| role as u16));
        tasks.class.push(ClassIdx::new(0));
        tasks.counts_for.push(CountsFor::QueueOfJob);
        tasks.ours.push(true);
        tasks.gated.push(false);
        let task = tasks.placement.push(Placement { status: *status, node: None });
        cluster.book(task);
    }
}

fn group(min_member: u32, roles: Vec<RoleFacts>) -> GroupFacts {
    GroupFacts {
        key: ObjectKey::new("ns", "g"),
        uid: "g".into(),
        version: GroupVersion::Volcano,
        created: Timestamp::UNIX_EPOCH,
        min_member,
        queue: None,
        priority_class: None,
        priority: None,
        never_preempts: None,
        leaves_whole: false,
        roles,
        topology: None,
        min_resources: ResourceList::default(),
        claims: Vec::new(),
        parent: None,
        metadata: Arc::default(),
        resource_version: None,
        status: Default::default(),
    }
}

fn job(n_composites: usize) -> impl Strategy<Value = Job> {
    let status = prop::sample::select(TaskStatus::ALL.to_vec());
    let task = (status, prop::option::of(0_usize..2));
    let tasks = prop::collection::vec(task, 0..6);
    let roles = prop::collection::vec(0_u32..3, 0..3);
    let parent = prop::option::weighted(0.8, 0..n_composites);
    (0_u32..5, parent, roles, tasks).prop_map(|(min, parent, roles, tasks)| {
        let known = |role: &usize| *role < roles.len();
        let task = |(status, role): (_, Option<usize>)| Task { status, role: role.filter(known) };
        let tasks = tasks.into_iter().map(task).collect();
        Job { min, parent, roles, tasks }
    })
}

fn forest() -> impl Strategy<Value = Forest> {
    let composite = (1_u32..4, any::<prop::sample::Index>(), any::<bool>(), 0..5);
    let composites = prop::collection::vec(composite, 1..5);
    composites.prop_flat_map(|composites| {
        let jobs = prop::collection::vec(job(composites.len()), 0..6);
        let composites = composites.into_iter().enumerate();
        let composites: Vec<Composite> = composites
            .map(|(at, (min, parent, is_part, whole))| {
                let parent = (at > 0 && is_part).then(|| parent.index(at.max(1)));
                Composite { min, parent, leaves_whole: whole == 0 }
            })
            .collect();
        jobs.prop_map(move |jobs| Forest { composites: composites.clone(), jobs })
    })
}

/// The composite PodGroup of a row, by position.
fn position(gangs: &GangTree, row: CompositeIdx) -> usize {
    gangs.get(row).facts.key.name.parse().expect("its name is its position")
}

fn node(gangs: &GangTree, gang: Gang) -> Node {
    match gang {
        Gang::Job(job) => Node::Job(job.at()),
        Gang::Composite(row) => Node::Composite(position(gangs, row)),
    }
}

fn rows(n: usize) -> impl Iterator<Item = JobIdx> {
    (0..n).map(JobIdx::new)
}

proptest! {
    #[test]
    fn jobs_are_missing_what_the_definition_says(forest in forest()) {
        let cluster = forest.cluster();
        let nothing = Evicted::default();
        for (at, job) in forest.jobs.iter().enumerate() {
            let row = JobIdx::new(at);
            for (sense, counts) in [
                (Sense::Valid, TaskStatus::is_valid as fn(TaskStatus) -> bool),
                (Sense::Ready, TaskStatus::is_ready),
                (Sense::Pipelined, |status| status.is_ready() || status == TaskStatus::Pipelined),
                (Sense::Without(&nothing), TaskStatus::is_ready),
                (Sense::Before(&nothing), TaskStatus::is_ready),
            ] {
                let counting = job.counting(|_, status| counts(status));
                prop_assert_eq!(cluster.n_missing(row, sense), job.n_missing(&counting));
                prop_assert_eq!(cluster.is_complete(row, sense), job.is_complete(&counting));
                let members = Members { n: counting.len() as u32, min: job.min };
                prop_assert_eq!(cluster.members(row, sense), members);
            }
        }
    }

    #[test]
    fn composites_are_complete_as_the_definition_says(forest in forest()) {
        let gangs = GangTree::of(&forest.cluster());
        let ready = forest.ready(|_, _, status| status.is_ready());
        let is_ready = |job: JobIdx| ready[job.at()];
        let of_jobs: Vec<u64> = (0..forest.jobs.len() as u64).map(|at| at * at % 5).collect();
        for row in gangs.ids() {
            let composite = node(&gangs, row.into());
            let is_complete = forest.is_complete(composite, &ready, None);
            prop_assert_eq!(is_ready.is_complete(&gangs, row.into()), is_complete);
            let mut jobs = gangs.jobs(row);
            prop_assert_eq!(gangs.first_job(row.into()), jobs.iter().min().copied());
            jobs.sort_unstable();
            let expected = forest.jobs_of(composite).into_iter().map(JobIdx::new);
            prop_assert_eq!(jobs, expected.collect::<Vec<_>>());
            let n_missing = gangs.n_missing(row.into(), &|job| of_jobs[job.at()]);
            prop_assert_eq!(n_missing, forest.n_missing(composite, &of_jobs));
        }
        for job in rows(forest.jobs.len()) {
            let whole = gangs.leaves_with(job, &is_ready);
            prop_assert_eq!(node(&gangs, whole), forest.leaves_with(job.at(), &ready));
        }
    }

    #[test]
    fn counters_follow_the_jobs(
        forest in forest(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 0..20),
    ) {
        let gangs = GangTree::of(&forest.cluster());
        let mut ready = forest.ready(|_, _, status| status.is_ready());
        let mut groups = CompleteGroups::new(&gangs, |job| ready[job.at()]);
        let parts: Vec<usize> =
            (0..forest.jobs.len()).filter(|at| forest.jobs[*at].parent.is_some()).collect();
        for (at, is_ready) in changes.iter().filter(|_| !parts.is_empty()) {
            let at = *at.get(&parts);
            ready[at] = *is_ready;
            groups.set_ready(&gangs, JobIdx::new(at), *is_ready);
            prop_assert_eq!(&groups, &CompleteGroups::new(&gangs, |job| ready[job.at()]));
        }
        let is_ready = |job: JobIdx| ready[job.at()];
        for row in gangs.ids() {
            prop_assert_eq!(groups.members(&gangs, row), is_ready.members(&gangs, row));
        }
        for at in parts {
            let is_incomplete = |node: &Node| !forest.is_complete(*node, &ready, None);
            let outermost = forest.path(at).into_iter().skip(1).rfind(is_incomplete);
            let found = groups.incomplete_above(&gangs, JobIdx::new(at));
            prop_assert_eq!(found.map(|row| node(&gangs, row.into())), outermost);
        }
    }

    #[test]
    fn evictions_leave_what_the_definition_says(
        forest in forest(),
        picks in prop::collection::vec(0_u8..4, 30),
    ) {
        let mut cluster = forest.cluster();
        let gangs = GangTree::of(&cluster);
        let start = |job: usize| cluster.jobs.tasks[JobIdx::new(job)].iter().next();
        let starts: Vec<usize> =
            (0..forest.jobs.len()).map(|job| start(job).map_or(0, Ordinal::at)).collect();
        // What was evicted, and what is to be.
        let leaves = |task: TaskIdx, pick| {
            picks[task.at()] == pick && cluster.status(task).may_be_evicted()
        };
        let picked = |pick| -> Vec<TaskIdx> {
            cluster.tasks.placement.ids().filter(|task| leaves(*task, pick)).collect()
        };
        let (earlier, victims) = (picked(0), picked(1));
        let mut before = Evicted::default();
        before.add(&cluster, earlier.iter().copied());
        let mut after = before.clone();
        after.add(&cluster, victims.iter().copied());
        let left = |gone: &[TaskIdx]| {
            forest.ready(|job, task, status| {
                status.is_ready() && !gone.contains(&TaskIdx::new(starts[job] + task))
            })
        };
        let (at_first, then, at_last) =
            (left(&[]), left(&earlier), left(&[&earlier[..], &victims[..]].concat()));
        let is_left = |evicted| {
            rows(forest.jobs.len())
                .map(|job| cluster.is_complete(job, Sense::Without(evicted)))
                .collect::<Vec<_>>()
        };
        prop_assert_eq!(&is_left(&before), &then);
        prop_assert_eq!(&is_left(&after), &at_last);
        for at in 0..forest.jobs.len() {
            let stays = |node: &Node| {
                !forest.is_complete(*node, &then, None)
                    || forest.is_complete(*node, &at_last, None)
                    || forest.jobs_of(*node).iter().all(|job| !at_last[*job])
            };
            let (then, at_last) = (|job: JobIdx| then[job.at()], |job: JobIdx| at_last[job.at()]);
            let stay = gangs.stay_complete(JobIdx::new(at), &then, &at_last);
            prop_assert_eq!(stay, forest.path(at).iter().skip(1).all(stays));
        }
        let evicted = [earlier, victims].concat();
        for task in &evicted {
            cluster.set_placement(*task, Placement { status: TaskStatus::Releasing, node: None });
        }
        for job in rows(forest.jobs.len()) {
            let was_complete = cluster.is_complete(job, Sense::Before(&after));
            prop_assert_eq!(was_complete, at_first[job.at()]);
            let own = evicted.iter().filter(|task| cluster.tasks.job[**task] == Some(job));
            prop_assert_eq!(after.of_job(job) as usize, own.count());
        }
    }
}
