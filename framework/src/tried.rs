//! What is remembered of a job that found no place.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kube_batch_model::{job_report::JobReport, name::JobKey};
use serde::{Deserialize, Serialize};

use crate::{failure::Failure, job_input::JobInput};

/// The last turns of a job, and when another one would have the same results.
#[derive(Clone, Debug)]
pub(crate) struct LastTry {
    pub(crate) tried: Arc<Tried>,
    pub(crate) holds: TryValidity,
}

/// How long a try holds: as long as the input of the job is the same, and one of these is true.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TryValidity {
    /// While the [`ClusterInput`](crate::cluster_input::ClusterInput) is the same, and no turn has led to something.
    pub(crate) with_cluster_input: bool,
    /// While none of its tasks fits on any node, for the same reasons: see `unfit.rs`.
    pub(crate) while_unfit: bool,
}

impl TryValidity {
    pub(crate) const fn ever(self) -> bool {
        self.with_cluster_input || self.while_unfit
    }
}

/// The results of the last turns of a job.
#[derive(Clone, Debug)]
pub(crate) struct Tried {
    pub(crate) key: JobKey,
    /// What of the job the results depended on.
    pub(crate) input: JobInput,
    /// The actions in which it had a turn in vain.
    pub(crate) actions: BTreeSet<&'static str>,
    /// The first action that counts as a try, see [`Session::record_turn`].
    ///
    /// [`Session::record_turn`]: crate::session::Session::record_turn
    pub(crate) tried_in: Option<&'static str>,
    pub(crate) found: Option<Found>,
    /// How many of its tasks had a place at the same time in each action.
    pub(crate) fitting: BTreeMap<&'static str, u32>,
    /// What was reported of it.
    pub(crate) report: Arc<JobReport>,
}

/// What a turn in vain has recorded.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) action: &'static str,
    pub(crate) failure: Arc<Failure>,
}
