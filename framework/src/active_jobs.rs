//! Which jobs a cycle looks at one by one: see `session/active.rs`.

use std::collections::BTreeMap;

use kube_batch_model::{
    column::{Column, JobIdx},
    resource::Share,
};

/// The jobs that are looked at one by one.
#[derive(Debug)]
pub(crate) struct ActiveJobs {
    /// Ascending.
    pub(crate) rows: Vec<JobIdx>,
    pub(crate) is_active: Column<JobIdx, bool>,
    /// What those were like that became active since the cycle began, before they were moved.
    pub(crate) late: BTreeMap<JobIdx, AtOpening>,
}

/// What a job was like when the cycle began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtOpening {
    pub(crate) share: Option<Share>,
    pub(crate) had_started: bool,
}

impl ActiveJobs {
    pub(crate) fn new(rows: Vec<JobIdx>, n_jobs: usize) -> Self {
        let mut is_active = Column::filled(false, n_jobs);
        rows.iter().for_each(|job| is_active[*job] = true);
        Self { rows, is_active, late: BTreeMap::new() }
    }
}
