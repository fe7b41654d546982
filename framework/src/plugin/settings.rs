//! What the configuration of a plugin decides by itself, whatever the cluster is like.

use std::time::Duration;

use kube_batch_model::{name::Name, resource::is_extended_resource};

/// What the configuration of a plugin decides by itself. The framework reads it once in a cycle and
/// applies it.
///
/// The default is a plugin that decides nothing of this.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The resources that do not count, neither for nodes nor for shares. Those of all plugins count.
    pub ignored_resources: IgnoredResources,
    /// How long after the end of its grace period a task that is being terminated still counts as about to leave.
    /// The first plugin that sets it counts.
    pub termination_timeout: Option<Duration>,
    /// How long a job may run with fewer tasks than its minimum before they are evicted; `None` for any time. Applies
    /// while the extension point `enableJobReady` of the plugin is enabled. The shortest time of all plugins counts.
    pub staleness_grace_period: Option<Duration>,
    /// Which jobs may be evicted with all their tasks where one alone may not be. The most permissive plugin counts.
    pub whole_jobs: WholeJobs,
    /// The largest ratio of what is evicted to what the waiting jobs of the queue that gets it can use; `None` for no
    /// limit. The smallest of all plugins counts.
    // Parity: new, see docs/parity.md#p15-loss-in-proportion.
    pub max_loss: Option<u32>,
    /// When jobs that wait get reservations; `None` if they get none. The first plugin that sets it counts.
    // Parity: new, see docs/parity.md#a12.
    pub reservation_terms: Option<ReservationTerms>,
    /// Whether a PodGroup without pods is admitted only while its `minResources` fit also into what is idle or being
    /// released, as by the action `enqueue` of Volcano. One plugin that says so suffices.
    // Parity: see docs/parity.md#k2.
    pub enqueues_strictly: bool,
    /// Whether a job that is not ready is reported as unschedulable. One plugin that says so suffices.
    pub reports_unready_jobs: bool,
    /// Whether conditions and events name jobs and pods of other namespaces than their own. One plugin that says so
    /// suffices.
    // Parity: new, see docs/parity.md#e10.
    pub shows_other_namespaces: bool,
}

/// Extended resources that do not count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IgnoredResources {
    /// Their names, such as `example.com/gpu`.
    pub names: Vec<Name>,
    /// The part before the slash, such as `example.com`, of all those of a group.
    pub groups: Vec<Name>,
}

impl IgnoredResources {
    /// Whether a resource is among them. Only extended resources can be.
    pub fn has(&self, resource: &str) -> bool {
        let Some((group, _)) = resource.split_once('/') else { return false };
        let has = |names: &[Name], name: &str| names.iter().any(|own| **own == *name);
        (has(&self.names, resource) || has(&self.groups, group)) && is_extended_resource(resource)
    }

    /// Adds those of another plugin.
    pub(crate) fn extend(&mut self, other: Self) {
        self.names.extend(other.names);
        self.groups.extend(other.groups);
    }
}

/// Which jobs may be evicted with all their tasks where one alone may not be.
// Parity: new, see docs/parity.md#p10.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WholeJobs {
    /// None.
    #[default]
    None,
    /// Those whose PodGroup says that its pods are victims only together.
    Marked,
    /// All that plugins permit.
    All,
}

/// When a job that waits gets a reservation, and what follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservationTerms {
    /// After it has waited for this time.
    pub after: Duration,
    /// For how long room is kept while nothing becomes free and the time is not known.
    pub patience: Duration,
    /// How much of each resource of the cluster all reservations but the first may hold, in percent.
    pub max_percent: u32,
    /// For how long a job that started from a reservation above the share of its queue is not reclaimed, if it does not
    /// say how long it runs.
    pub protection: Duration,
    /// For how long at most, whatever it says.
    pub max_protection: Duration,
}
