//! What a plugin answers about nodes.

use std::sync::Arc;

use kube_batch_model::{
    cluster::Capacity,
    column::{ClassIdx, NodeIdx},
};

use super::dependency::Dependency;

/// The nodes of each of some domains, ascending.
pub type NodesByDomain = Arc<[Vec<NodeIdx>]>;

/// Whether a task may be placed on a node: what [`Plugin::predicate`](super::Plugin::predicate) is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeQuery {
    /// The class of the task.
    pub class: ClassIdx,
    /// The node.
    pub node: NodeIdx,
    /// The predicates that are to answer: those with this dependency.
    pub dependency: Dependency,
    /// Which tasks on the node and which resources count. A predicate of [`Dependency::Class`] ignores it.
    pub capacity: Capacity,
    /// Whether the node lacks resources for the task. Only a refusal before [`Unfit::TooManyPods`](
    /// kube_batch_model::reason::Unfit::TooManyPods) is reported then, so a plugin may leave out predicates with later refusals.
    pub lacks_resources: bool,
}

impl NodeQuery {
    /// A query about a node whose resources are not known to be too small.
    pub const fn new(
        class: ClassIdx,
        node: NodeIdx,
        dependency: Dependency,
        capacity: Capacity,
    ) -> Self {
        Self { class, node, dependency, capacity, lacks_resources: false }
    }
}

/// One score that a plugin computes for a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScoreTerm {
    /// Identifies the term; passed to [`Plugin::score`](super::Plugin::score) as `term`.
    pub id: u8,
    /// The factor of the normalised score. A negative weight reverses the preference.
    pub weight: i64,
    /// What the raw score depends on.
    pub dependency: Dependency,
    /// How the raw scores are normalised.
    pub scale: Scale,
}

/// How the raw scores of the candidate nodes are normalised to 0 to 100. Divisions round down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// The raw score is the score: the plugin returns 0 to 100.
    AsIs,
    /// `100 * raw / largest`; all 0 if the largest is 0. Raw scores must not be negative.
    UpToLargest,
    /// `100 - 100 * raw / largest`; all 100 if the largest is 0. Raw scores must not be negative.
    DownFromLargest,
    /// `100 * ((raw - least) / (largest - least))`, computed with floats as Kubernetes does; all 0 if
    /// the least is the largest. Raw scores may be negative.
    FromLeast,
    /// The plugin computes the scores of all candidates at once, in [`Plugin::scores`](super::Plugin::scores), each 0 to
    /// 100.
    Joint,
}

impl Scale {
    /// The normalised score for `raw`, among the raw scores of all candidate nodes.
    pub fn apply(self, raw: i64, among: Extremes) -> i64 {
        let Extremes { least, largest } = among;
        match self {
            Self::AsIs | Self::Joint => raw,
            Self::UpToLargest if largest == 0 => 0,
            Self::UpToLargest => 100 * raw / largest,
            Self::DownFromLargest if largest == 0 => 100,
            Self::DownFromLargest => 100 - 100 * raw / largest,
            Self::FromLeast if largest == least => 0,
            Self::FromLeast => (100.0 * ((raw - least) as f64 / (largest - least) as f64)) as i64,
        }
    }
}

/// The least and the largest of some raw scores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extremes {
    /// The least; 0 of no scores.
    pub least: i64,
    /// The largest; 0 of no scores.
    pub largest: i64,
}

impl Extremes {
    /// The extremes of these raw scores.
    pub fn of(scores: impl Iterator<Item = i64> + Clone) -> Self {
        Self { least: scores.clone().min().unwrap_or(0), largest: scores.max().unwrap_or(0) }
    }
}
