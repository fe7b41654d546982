//! What is remembered of a job that found no place.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kube_batch_model::{job_report::JobReport, name::JobKey};

use crate::{failure::Failure, job_input::JobInput};

/// The results of the last turns of a job.
#[derive(Clone, Debug)]
pub(crate) struct Tried {
    pub(crate) key: JobKey,
    /// What the results depended on.
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
