//! What is remembered, written down and read back.
//!
//! A try is written without the facts that it depended on: only a try that holds in the snapshot of the next cycle is
//! ever used again, and that snapshot has the same facts.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kube_batch_model::{
    cluster::Cluster,
    column::JobIdx,
    job_report::JobReport,
    name::{JobKey, Name},
    pairs,
    why::GangEviction,
};
use serde::{Deserialize, Serialize};

use super::Memory;
use crate::{
    cluster_input::ClusterInput,
    credit::Credit,
    failure::Failure,
    headroom::HeadroomMemory,
    job_input::{CurrentInput, JobInput},
    last_reports::LastReports,
    reservations::ReservationMemory,
    tried::{Found, LastTry, Tried, TryValidity},
};

/// A [`Memory`] that is written down.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WrittenMemory {
    budget: u64,
    recalls: bool,
    rounds: Vec<InQueue<BTreeSet<JobKey>>>,
    /// What of the cluster the tries depended on; `None` if there are none.
    state: Option<ClusterInput>,
    tries: Vec<WrittenTry>,
    #[serde(with = "pairs")]
    evicted: BTreeMap<JobKey, GangEviction>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    with_batch: BTreeSet<JobKey>,
    #[serde(with = "pairs")]
    headroom: HeadroomMemory,
    reservations: ReservationMemory,
    credits: Vec<InQueue<Credit>>,
}

/// An action of what is remembered is not one of the configuration.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("action {0} is not configured")]
pub struct UnknownAction(String);

/// What is remembered of a queue in an action.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct InQueue<T> {
    action: String,
    queue: Name,
    value: T,
}

impl<T: Clone> InQueue<T> {
    fn all(of: &BTreeMap<(&'static str, Name), T>) -> Vec<Self> {
        let one = |((action, queue), value): (&(&'static str, Name), &T)| Self {
            action: (*action).to_owned(),
            queue: queue.clone(),
            value: value.clone(),
        };
        of.iter().map(one).collect()
    }

    fn read_all(
        all: Vec<Self>,
        actions: &[&'static str],
    ) -> Result<BTreeMap<(&'static str, Name), T>, UnknownAction> {
        let one = |Self { action, queue, value }| Ok(((known(actions, &action)?, queue), value));
        all.into_iter().map(one).collect()
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenTry {
    key: JobKey,
    actions: BTreeSet<String>,
    tried_in: Option<String>,
    found: Option<WrittenFailure>,
    fitting: BTreeMap<String, u32>,
    report: JobReport,
    #[serde(default = "with_cluster_input")]
    holds: TryValidity,
}

/// How long tries held before there was another way.
fn with_cluster_input() -> TryValidity {
    TryValidity { with_cluster_input: true, while_unfit: false }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct WrittenFailure {
    action: String,
    failure: Failure,
}

impl Memory {
    /// What is remembered, to be written down before a cycle that begins with this snapshot.
    pub fn written(&self, cluster: &Cluster) -> WrittenMemory {
        let Self {
            budget,
            recalls,
            // The core sets it before each cycle.
            generation: _,
            rounds,
            input,
            tries,
            evicted,
            with_batch,
            headroom,
            reservations,
            credits,
            // Without them, all reports are made again, and are equal.
            reports: _,
        } = self;
        let rows = rows(cluster);
        let may_hold = |last: &&LastTry| {
            let job = rows.get(&last.tried.key);
            job.is_some_and(|job| last.tried.input == CurrentInput { cluster, job: *job })
        };
        let tries: Vec<&LastTry> = tries.iter().filter(may_hold).collect();
        WrittenMemory {
            budget: *budget,
            recalls: *recalls,
            rounds: InQueue::all(rounds),
            state: input.clone().filter(|_| !tries.is_empty()),
            tries: tries.into_iter().map(WrittenTry::of).collect(),
            evicted: evicted.clone(),
            with_batch: with_batch.clone(),
            headroom: headroom.clone(),
            reservations: reservations.clone(),
            credits: InQueue::all(credits),
        }
    }
}

impl WrittenMemory {
    /// What was remembered, for a cycle that begins with this snapshot and has these actions.
    ///
    /// # Errors
    ///
    /// [`UnknownAction`] if something was remembered of another action.
    pub fn read(
        self,
        cluster: &Cluster,
        actions: &[&'static str],
    ) -> Result<Memory, UnknownAction> {
        let Self {
            budget,
            recalls,
            rounds,
            state,
            tries,
            evicted,
            with_batch,
            headroom,
            reservations,
            credits,
        } = self;
        let rows = rows(cluster);
        let tried = |written: WrittenTry| {
            let job = *rows.get(&written.key)?;
            Some(written.read(CurrentInput { cluster, job }.into(), actions))
        };
        Ok(Memory {
            budget,
            recalls,
            generation: None,
            rounds: InQueue::read_all(rounds, actions)?,
            input: state,
            tries: tries.into_iter().filter_map(tried).collect::<Result<_, _>>()?,
            evicted,
            with_batch,
            headroom,
            reservations,
            credits: InQueue::read_all(credits, actions)?,
            reports: LastReports::default(),
        })
    }
}

impl WrittenTry {
    fn of(LastTry { tried, holds }: &LastTry) -> Self {
        let Tried { key, input: _, actions, tried_in, found, fitting, report } = &**tried;
        let found = found.as_ref().map(|Found { action, failure }| WrittenFailure {
            action: (*action).to_owned(),
            failure: Failure::clone(failure),
        });
        Self {
            key: key.clone(),
            actions: actions.iter().map(ToString::to_string).collect(),
            tried_in: tried_in.map(str::to_owned),
            found,
            fitting: fitting.iter().map(|(action, n)| ((*action).to_owned(), *n)).collect(),
            report: JobReport::clone(report),
            holds: *holds,
        }
    }

    fn read(self, input: JobInput, actions: &[&'static str]) -> Result<LastTry, UnknownAction> {
        let Self { key, actions: had_turn, tried_in, found, fitting, mut report, holds } = self;
        let known = |action: &str| known(actions, action);
        input.share_group(&mut report);
        let found = found.map(|WrittenFailure { action, failure }| {
            Ok(Found { action: known(&action)?, failure: Arc::new(failure) })
        });
        let fitting = fitting.iter().map(|(action, n_tasks)| Ok((known(action)?, *n_tasks)));
        let tried = Tried {
            key,
            input,
            actions: had_turn.iter().map(|action| known(action)).collect::<Result<_, _>>()?,
            tried_in: tried_in.as_deref().map(known).transpose()?,
            found: found.transpose()?,
            fitting: fitting.collect::<Result<_, _>>()?,
            report: Arc::new(report),
        };
        Ok(LastTry { tried: Arc::new(tried), holds })
    }
}

fn rows(cluster: &Cluster) -> BTreeMap<&JobKey, JobIdx> {
    cluster.jobs.key.iter().map(|(job, key)| (key, job)).collect()
}

/// The name of a configured action.
fn known(actions: &[&'static str], action: &str) -> Result<&'static str, UnknownAction> {
    let found = actions.iter().find(|own| **own == action);
    found.copied().ok_or_else(|| UnknownAction(action.to_owned()))
}
