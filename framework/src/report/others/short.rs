//! What a job is short of, and for how many of these more is looked up.

use kube_batch_model::column::{ClassIdx, Dim};

/// For how many classes and resources nodes are compared, and claims counted.
pub(super) const MAX_COMPARED: usize = 16;

/// What one job is short of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Short {
    pub(super) class: ClassIdx,
    pub(super) dim: Dim,
}
