//! Which node is best for a class of tasks.
//!
//! There are two searches behind one interface. [`Search::Naive`] calls every plugin for every node,
//! every time: it is the definition. [`Search::Index`] caches answers by what they depend on, and
//! evaluates them again only where something has changed. Both find the same node, which a property
//! test over random clusters asserts.
//!
//! A node where the task fits now is preferred to one where it must wait for resources that are
//! being released. Among nodes of one kind the highest score wins, and of equal scores the lowest
//! node name.

mod domain_fits;
mod explain;
mod index;
mod inputs;
mod kept;
mod node_search;
mod placeable;
mod rules;

pub(crate) use self::{inputs::Inputs, kept::Candidates};
pub use self::{
    kept::{Choice, Search},
    node_search::NodeSearch,
    placeable::Room,
};
