//! Reservation: jobs that have waited long get room kept for them, until it is enough to start.
//!
//! The plugin says after what time, how much, and for how long such a job is not reclaimed then; the framework chooses
//! the nodes. Without the plugin, a large job may wait indefinitely behind smaller ones: whenever a pod ends, one that is
//! just as large starts in its place.
//!
//! Slurm's `sched/backfill` and the sticky workloads of Kueue are for the same; kube-batch v0.5.0 has nothing like it.
// Parity: new, see docs/parity.md#a12.

use std::time::Duration;

use kube_batch_framework::{
    arguments::{ArgumentKind, ArgumentSpec},
    plugin::{
        Dependencies, OrderScope, Plugin, ReservationTerms, Settings, VictimQuestion, VictimScope,
    },
    spec::PluginSpec,
};
use kube_batch_model::{
    cluster::Cluster,
    column::{ClassIdx, TaskIdx},
};

/// The plugin `reservation`.
#[derive(Debug)]
pub struct ReservationPlugin {
    terms: ReservationTerms,
}

const AFTER: ArgumentSpec = ArgumentSpec {
    key: "reservation.after",
    kind: ArgumentKind::Duration { default: Duration::from_secs(300) },
    about: "how long a job waits before room is kept for it",
};

const MAX_PERCENT: ArgumentSpec = ArgumentSpec {
    key: "reservation.maxPercent",
    kind: ArgumentKind::Integer { default: 50, range: (0, 100) },
    about: "percentage of the cluster that is kept for all such jobs together; for the first, whatever it needs is kept",
};

const PATIENCE: ArgumentSpec = ArgumentSpec {
    key: "reservation.patience",
    kind: ArgumentKind::Duration { default: Duration::from_secs(3_600) },
    about: "how long room is kept while nothing becomes free; twice as long the next time",
};

const PROTECTION: ArgumentSpec = ArgumentSpec {
    key: "reservation.protection",
    kind: ArgumentKind::Duration { default: Duration::from_secs(3_600) },
    about: "how long a job that started above the share of its queue is not reclaimed, if it declares no run time",
};

const MAX_PROTECTION: ArgumentSpec = ArgumentSpec {
    key: "reservation.maxProtection",
    kind: ArgumentKind::Duration { default: Duration::from_secs(86_400) },
    about: "how long it is not reclaimed at most, whatever run time it declares; 0 for no limit",
};

/// How a configuration names the plugin.
pub const SPEC: PluginSpec = PluginSpec {
    name: "reservation",
    about: "jobs that have waited long get room kept for them until they can start",
    arguments: &[AFTER, MAX_PERCENT, MAX_PROTECTION, PATIENCE, PROTECTION],
    metadata_prefixes: &[],
    new: |arguments| {
        let longest = arguments.duration(&MAX_PROTECTION);
        let percent = arguments.integer(&MAX_PERCENT);
        Box::new(ReservationPlugin {
            terms: ReservationTerms {
                after: arguments.duration(&AFTER),
                patience: arguments.duration(&PATIENCE),
                max_percent: u32::try_from(percent).unwrap_or_default(),
                protection: arguments.duration(&PROTECTION),
                max_protection: if longest.is_zero() { Duration::MAX } else { longest },
            },
        })
    },
};

impl Plugin for ReservationPlugin {
    fn name(&self) -> &'static str {
        "reservation"
    }

    fn settings(&self) -> Settings {
        Settings { reservation_terms: Some(self.terms), ..Settings::default() }
    }

    fn order_scope(&self) -> OrderScope {
        OrderScope::Own
    }

    fn dependencies(&self, _: &Cluster, _: ClassIdx) -> Dependencies {
        Dependencies::NONE
    }

    fn victim_scope(&self, _: &Cluster, _: TaskIdx, _: VictimQuestion) -> VictimScope {
        VictimScope::NONE
    }
}
