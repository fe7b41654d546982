//! What commands ask of a cluster. The crate has no client: the program that it is part of has one.

use std::{collections::BTreeSet, fmt, path::PathBuf};

use kube_batch_api::kind::Kind;
use kube_batch_model::group_version::GroupVersion;
use serde_json::Value;

/// A cluster, and what of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterTarget {
    /// The kubeconfig file; without one, those that kubectl would use.
    pub kubeconfig: Option<PathBuf>,
    /// The context; without one, the current context.
    pub context: Option<String>,
    /// The namespaces to read.
    pub namespaces: Namespaces,
}

/// The namespaces of which objects are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Namespaces {
    /// All. What the user may not read in all is read in that of the context.
    #[default]
    All,
    /// That of the context.
    OfContext,
    /// This one.
    Only(String),
}

/// What was read.
#[derive(Clone, Debug, Default)]
pub struct Lists {
    /// The answers of the API server: the name of the list, and its JSON.
    pub lists: Vec<(String, String)>,
    /// What could not be read.
    pub problems: Vec<ReadProblem>,
}

/// Why objects of a kind are missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadProblem {
    /// The kind.
    pub kind: Kind,
    /// The names of its lists.
    pub resource: String,
    /// What happened.
    pub why: Unread,
}

/// Why a list was not read, or not all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unread {
    /// The user may read it in one namespace only; with the answer of the API server.
    ElsewhereThan(String, String),
    /// The user may not read it; with the answer of the API server.
    Forbidden(String),
    /// The cluster does not have it.
    NotServed,
}

/// What problems mean for a simulation: one sentence about all that the user may not read, and one for each kind that the
/// cluster does not serve.
pub(crate) fn in_simulation(problems: &[ReadProblem]) -> Vec<String> {
    let is_denied = |problem: &&ReadProblem| problem.why != Unread::NotServed;
    let denied: Vec<&ReadProblem> = problems.iter().filter(is_denied).collect();
    let others = problems.iter().filter(|problem| !is_denied(problem));
    let others = others.map(ReadProblem::in_simulation);
    match &denied[..] {
        [] => others.collect(),
        [only] => [only.in_simulation()].into_iter().chain(others).collect(),
        all => [denied_in_simulation(all)].into_iter().chain(others).collect(),
    }
}

/// The kinds on which most depends, in this order: what follows from them is said.
const MOST_IMPORTANT: [Kind; 4] = [Kind::Node, Kind::Pod, Kind::Queue, Kind::PodGroup];

/// How many of the others are named.
const MAX_NAMED: usize = 3;

fn denied_in_simulation(denied: &[&ReadProblem]) -> String {
    let (partly, never): (Vec<&ReadProblem>, Vec<&ReadProblem>) =
        denied.iter().partition(|problem| matches!(problem.why, Unread::ElsewhereThan(..)));
    let mut parts = Vec::new();
    if !never.is_empty() {
        parts.push(format!("not read {}", named(&never)));
    }
    if let Some(Unread::ElsewhereThan(namespace, _)) = partly.first().map(|first| &first.why) {
        parts.push(format!("read {} only in namespace {namespace}", named(&partly)));
    }
    let important = MOST_IMPORTANT.iter().filter_map(|kind| {
        let problem = denied.iter().find(|problem| problem.kind == *kind)?;
        let elsewhere = if partly.contains(problem) { "elsewhere " } else { "" };
        Some(format!("{elsewhere}{}", kind.if_missing()))
    });
    let important: Vec<String> = important.collect();
    let so =
        if important.is_empty() { String::new() } else { format!(": {}", important.join("; ")) };
    format!("you may {}{so}", parts.join(", and "))
}

/// The kinds, the most important ones first.
fn named(problems: &[&ReadProblem]) -> String {
    let kinds: BTreeSet<Kind> = problems.iter().map(|problem| problem.kind).collect();
    let important = MOST_IMPORTANT.iter().filter(|kind| kinds.contains(kind));
    let n_important = important.clone().count();
    let others = kinds.iter().filter(|kind| !MOST_IMPORTANT.contains(kind)).take(MAX_NAMED);
    let names = important.chain(others).map(|kind| kind.plural()).collect::<Vec<_>>();
    match kinds.len().saturating_sub(n_important + MAX_NAMED) {
        0 => names.join(", "),
        n_more => format!("{} and {n_more} more kinds", names.join(", ")),
    }
}

impl ReadProblem {
    /// What follows for a simulation.
    fn in_simulation(&self) -> String {
        let Self { kind, resource, why } = self;
        let consequence = kind.if_missing();
        match why {
            Unread::ElsewhereThan(namespace, reason) => format!(
                "read {resource} only in namespace {namespace}; elsewhere {consequence}: {reason}"
            ),
            Unread::Forbidden(reason) => {
                format!("cannot read {resource}, so {consequence}: {reason}")
            }
            Unread::NotServed => format!("the cluster does not serve {resource}: {consequence}"),
        }
    }
}

impl fmt::Display for ReadProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, why, .. } = self;
        match why {
            Unread::ElsewhereThan(namespace, reason) => {
                write!(f, "read {resource} only in namespace {namespace}: {reason}")
            }
            Unread::Forbidden(reason) => write!(f, "cannot read {resource}: {reason}"),
            Unread::NotServed => write!(f, "the cluster does not serve {resource}"),
        }
    }
}

/// A queue in a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueRef {
    /// The API in which it is.
    pub version: GroupVersion,
    /// Its name.
    pub name: String,
}

/// Is called with what was read.
pub type Show<'a> = &'a mut dyn FnMut(Lists) -> anyhow::Result<()>;

/// Reads clusters, and changes queues.
pub trait ClusterAccess {
    /// Reads all objects of some kinds.
    ///
    /// # Errors
    ///
    /// If the kubeconfig cannot be used, or the API server cannot be reached or rejects the user.
    fn read(&self, target: &ClusterTarget, kinds: &[Kind]) -> anyhow::Result<Lists>;

    /// Reads them, and again after each change, until `show` fails.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read), and those of `show`.
    fn follow(&self, target: &ClusterTarget, kinds: &[Kind], show: Show<'_>) -> anyhow::Result<()>;

    /// Merges a patch into a queue.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read), and if the API server refuses the patch.
    fn patch_queue(
        &self,
        target: &ClusterTarget,
        queue: &QueueRef,
        patch: &Value,
    ) -> anyhow::Result<()>;
}
