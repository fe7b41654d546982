//! A scheduler without a cluster: what it keeps from one cycle to the next, and how it runs a cycle.
//!
//! What is known of the cluster, facts and decisions in flight, is not part of it: watches change that between cycles,
//! or a simulation does. Everything else that a cycle depends on is in [`Core`] or in [`CycleInput`], so equal values
//! of both have equal outcomes.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use kube_batch_cache::{
    assumed::Assumed,
    durations::Durations,
    live::LiveSnapshot,
    snapshot::{Snapshot, SnapshotOptions, take_snapshot},
    store::Store,
};
use kube_batch_framework::{
    candidates::Search,
    cycle::{Action, run_cycle},
    memory::Memory,
    milestone::Milestone,
    policy::{ConfiguredPlugin, Policy},
    report::Cycle,
};
use kube_batch_model::{cluster::Cluster, decision::Decision, problem::Ignored};

use crate::{
    conf::{Conf, PluginConf, policy},
    writes::{Remark, StatusWrite, remarks, status_writes},
};

/// The number of objects up to which debug builds check every cycle; a check takes longer than a cycle.
const CHECKED_ALWAYS: usize = 1_000;
/// Of larger clusters, debug builds check one cycle in this many.
const CHECKED: u64 = 16;

/// What a scheduler keeps from one cycle to the next.
#[derive(Debug)]
pub struct Core {
    pub(crate) conf: Arc<Conf>,
    pub(crate) options: SnapshotOptions,
    pub(crate) search: Search,
    pub(crate) durations: Durations,
    pub(crate) memory: Memory,
    /// The last snapshot, which follows what changes. Without it, the next one is made from scratch: only classes that no
    /// task has any more are missing.
    pub(crate) live: LiveSnapshot,
}

/// What a cycle depends on besides its [`Core`].
#[derive(Debug)]
pub struct CycleInput<'a> {
    /// The facts.
    pub store: &'a mut Store,
    /// The decisions in flight.
    pub assumed: &'a mut Assumed,
    /// The time of day.
    pub now: Timestamp,
    /// The time since a fixed moment, which setting a clock does not change.
    pub elapsed: Duration,
}

/// A point that a cycle has reached.
#[derive(Clone, Copy, Debug)]
pub enum CyclePoint<'a> {
    /// The snapshot is complete.
    Snapshot(&'a Cluster),
    /// These are all decisions of the cycle, in order, and the facts that it saw.
    Decided(&'a [Decision], &'a Store),
    /// The session has reached another milestone.
    Session(Milestone<'a>),
}

/// The result of a cycle.
#[derive(Debug)]
pub struct CycleResult {
    /// What it decided and reports.
    pub cycle: Cycle,
    /// The objects that could not take part.
    pub ignored: Vec<Ignored>,
}

/// What is to be written after a cycle, besides its decisions.
#[derive(Debug)]
pub struct Writes {
    /// The statuses and conditions that changed.
    pub statuses: Vec<StatusWrite>,
    /// What users should know besides, each with its event.
    pub remarks: Vec<Remark>,
}

impl Core {
    /// A scheduler before its first cycle.
    pub fn new(conf: Arc<Conf>, options: SnapshotOptions, search: Search) -> Self {
        Self {
            conf,
            options,
            search,
            durations: Durations::default(),
            memory: Memory::default(),
            live: LiveSnapshot::default(),
        }
    }

    /// This scheduler with another memory of earlier cycles.
    #[must_use]
    pub fn with_memory(self, memory: Memory) -> Self {
        Self { memory, ..self }
    }

    /// Replaces the configuration. The results of earlier cycles are forgotten: with another configuration they might
    /// have been others.
    pub fn set_conf(&mut self, conf: Arc<Conf>) {
        if !Arc::ptr_eq(&self.conf, &conf) {
            self.conf = conf;
            self.forget_cycles();
        }
    }

    /// Forgets the results of earlier cycles, as after one that panicked.
    pub fn forget_cycles(&mut self) {
        self.memory = Memory::default();
    }

    /// Forgets all that was observed: a new leader starts from what the API server has.
    pub fn forget(&mut self) {
        self.forget_cycles();
        self.durations = Durations::default();
    }

    /// Runs a cycle. `reached` is called for each point that it reaches and has no influence on the outcome.
    pub fn cycle(
        &mut self,
        input: CycleInput<'_>,
        reached: &mut dyn FnMut(CyclePoint<'_>),
    ) -> CycleResult {
        let CycleInput { store, assumed, now, elapsed } = input;
        let mut snapshot = self.live.refresh(store, assumed, &self.options);
        let is_checked = cfg!(debug_assertions) && is_checked(store, snapshot.generation);
        if is_checked {
            let from_scratch = take_snapshot(store, assumed, &self.options);
            let differences = snapshot.differences(&from_scratch);
            assert!(
                differences.is_empty(),
                "a snapshot that has followed what changed differs from one from scratch in {differences:?}"
            );
        }
        self.durations.observe(&mut snapshot, elapsed, now);
        self.memory.set_generation(snapshot.generation);
        let Snapshot { cluster, ignored, .. } = snapshot;
        reached(CyclePoint::Snapshot(&cluster));
        let before = is_checked.then(|| cluster.clone());
        let store = &*store;
        let reached = &mut |milestone: Milestone<'_>| {
            reached(if let Milestone::Decided(decisions) = milestone {
                CyclePoint::Decided(decisions, store)
            } else {
                CyclePoint::Session(milestone)
            });
        };
        let Self { conf, search, memory, .. } = self;
        let (cycle, cluster) = conf.run_next_cycle(cluster, now, *search, memory, reached);
        assert!(
            before.is_none_or(|before| before == cluster),
            "a cycle returns the cluster as it was"
        );
        self.live.keep(cluster);
        CycleResult { cycle, ignored }
    }
}

impl Conf {
    /// Runs one cycle with this configuration: see [`run_cycle`].
    pub fn run_cycle(
        &self,
        cluster: Cluster,
        now: Timestamp,
        search: Search,
        reached: &mut dyn FnMut(Milestone<'_>),
    ) -> Cycle {
        self.run_next_cycle(cluster, now, search, &mut Memory::none(), reached).0
    }

    /// Runs one cycle of several, with what is remembered from one to the next. Gives the cluster back as it
    /// was.
    pub fn run_next_cycle(
        &self,
        cluster: Cluster,
        now: Timestamp,
        search: Search,
        memory: &mut Memory,
        reached: &mut dyn FnMut(Milestone<'_>),
    ) -> (Cycle, Cluster) {
        let actions: Vec<Box<dyn Action>> = self.actions.iter().map(|spec| (spec.new)()).collect();
        run_cycle(cluster, now, &|| self.policy(), &actions, search, memory, reached)
    }

    /// The plugins of one cycle, in their tiers.
    pub fn policy(&self) -> Policy {
        let enabled = |conf: &PluginConf| ConfiguredPlugin {
            plugin: (conf.spec.new)(&conf.arguments),
            extension_points: conf.extension_points,
        };
        let tiers = self.tiers.iter().map(|tier| tier.iter().map(enabled).collect());
        policy(tiers.collect())
    }
}

impl CycleResult {
    /// What is to be written, with the store and the decisions in flight as the cycle saw them.
    pub fn writes(
        &self,
        store: &Store,
        assumed: &Assumed,
        cycle_id: &str,
        now: Timestamp,
    ) -> Writes {
        let Self { cycle, ignored } = self;
        Writes {
            statuses: status_writes(cycle, store, assumed, cycle_id, now),
            remarks: remarks(ignored, cycle, store),
        }
    }
}

/// Whether debug builds check a cycle: the snapshot that it started from, and the cluster that it returned. Of large
/// clusters only some, because that takes much longer than the cycle.
fn is_checked(store: &Store, generation: u64) -> bool {
    store.len() <= CHECKED_ALWAYS || generation.is_multiple_of(CHECKED)
}
