//! The credit of queues for large turns: see [`crate::large_turns`].

use std::collections::{BTreeMap, BTreeSet};

use kube_batch_model::{
    column::{JobIdx, QueueIdx},
    name::{JobKey, Name},
};
use serde::{Deserialize, Serialize};

/// An action, and a queue.
pub(crate) type TurnPlace = (&'static str, QueueIdx);

/// The credit that is remembered from one cycle to the next, by action and queue.
pub(crate) type Credits = BTreeMap<(&'static str, Name), Credit>;

/// The credit of a queue in an action.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Credit {
    /// In evaluations of a node, see [`crate::memory`].
    pub(crate) work: u64,
    /// The jobs that had a large turn in vain while others waited for theirs.
    pub(crate) had_turn: BTreeSet<JobKey>,
}

/// The large turns of a cycle.
#[derive(Clone, Debug, Default)]
pub(crate) struct LargeTurns {
    /// The job that gets one, in all runs of the cycle.
    pub(crate) given: BTreeMap<TurnPlace, JobIdx>,
    pub(crate) put_off: BTreeMap<TurnPlace, BTreeSet<JobIdx>>,
}

impl LargeTurns {
    /// Whether large turns were put off to the next cycle.
    pub(crate) fn are_put_off(&self) -> bool {
        !self.put_off.is_empty()
    }

    /// Whether a large turn of a job was put off.
    pub(crate) fn is_put_off(&self, job: JobIdx) -> bool {
        self.put_off.values().any(|jobs| jobs.contains(&job))
    }

    /// For the next run of the cycle: a queue has no second large turn in it.
    pub(crate) fn of_earlier_run(self) -> Self {
        Self { put_off: BTreeMap::new(), ..self }
    }
}
