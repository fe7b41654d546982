//! Node selector and required node affinity.
//!
//! If every term of the affinity lists node names, no other nodes are considered: Kubernetes' plugin
//! excludes them in its PreFilter, before any other filter runs, and with another message. So there
//! are two filters here, [`build_pre_filter`] and [`build`]. The names that the added affinity lists
//! exclude no node early.
//!
//! Source: Kubernetes 1.36, `plugins/nodeaffinity`.

use std::{collections::BTreeSet, sync::Arc};

use kube_batch_framework::plugin::{Dependencies, Dependency};
use kube_batch_model::{
    cluster::Cluster,
    column::{Column, NodeIdx},
    facts::class::PodTemplate,
    name::Name,
    reason::{Cause, Inadmissible, Unfit},
    selector::NodeTerm,
};

use super::{
    arguments::PredicatesArguments,
    filter::{Filter, Query},
};
use crate::{
    compiled::{CompiledCluster, Opening},
    constraint_classes::ConstraintClassIdx,
    node_terms::AnyOf,
};

/// The filter on listed node names.
#[derive(Debug)]
struct PreFilter {
    /// The only nodes to consider, ascending; `None` for all.
    only: Column<ConstraintClassIdx, Option<Vec<NodeIdx>>>,
    /// Whether the terms list names of which none is in every list.
    is_contradictory: Column<ConstraintClassIdx, bool>,
}

pub(super) fn build_pre_filter(opening: Opening<'_>, _: &PredicatesArguments) -> Box<dyn Filter> {
    Box::new(PreFilter {
        only: opening.to_place(|template| {
            listed_names(template).map(|names| nodes_of(opening.cluster, &names))
        }),
        is_contradictory: opening
            .to_place(|template| listed_names(template).is_some_and(|names| names.is_empty())),
    })
}

impl Filter for PreFilter {
    fn dependencies(&self, class: ConstraintClassIdx) -> Dependencies {
        Dependencies::NONE.with_if(Dependency::Class, self.only[class].is_some())
    }

    fn admit(&self, class: ConstraintClassIdx) -> Result<(), Inadmissible> {
        if self.is_contradictory[class] {
            let message = Name::from("pod affinity terms conflict");
            return Err(Inadmissible { cause: Cause::Rules, message });
        }
        Ok(())
    }

    fn check(&self, query: Query) -> Result<(), Unfit> {
        let only = self.only[query.class].as_ref();
        let is_cut = only.is_some_and(|only| only.binary_search(&query.node).is_err());
        if is_cut { Err(Unfit::CutByAffinity) } else { Ok(()) }
    }
}

/// The names that the required node affinity lists, if every term lists some: the union over all
/// terms of the names that every list of a term has.
fn listed_names(template: &PodTemplate) -> Option<BTreeSet<&Name>> {
    let terms = template.node_affinity.as_ref().filter(|terms| !terms.is_empty())?;
    terms.iter().map(names_of_term).try_fold(BTreeSet::new(), |mut all, names| {
        all.append(&mut names?);
        Some(all)
    })
}

fn names_of_term(term: &NodeTerm) -> Option<BTreeSet<&Name>> {
    let lists = term.listed_names().iter().map(|names| names.iter().collect::<BTreeSet<&Name>>());
    lists.reduce(|all, names| all.intersection(&names).copied().collect())
}

fn nodes_of(cluster: &Cluster, names: &BTreeSet<&Name>) -> Vec<NodeIdx> {
    let nodes = cluster.nodes.facts.iter().filter(|(_, facts)| names.contains(&facts.name));
    nodes.map(|(node, _)| node).collect()
}

/// The filter on labels and fields. The affinity that the configuration adds is asked first.
#[derive(Debug)]
struct NodeAffinity {
    compiled: Arc<CompiledCluster>,
    added: Option<AnyOf>,
}

pub(super) fn build(opening: Opening<'_>, arguments: &PredicatesArguments) -> Box<dyn Filter> {
    let added = arguments.added_affinity.as_ref();
    Box::new(NodeAffinity {
        compiled: Arc::clone(opening.compiled),
        added: added.map(|terms| opening.compiler().any_of(terms)),
    })
}

impl Filter for NodeAffinity {
    fn dependencies(&self, class: ConstraintClassIdx) -> Dependencies {
        let is_needed = self.added.is_some() || !self.compiled.required_nodes[class].is_empty();
        Dependencies::NONE.with_if(Dependency::Class, is_needed)
    }

    fn check(&self, query: Query) -> Result<(), Unfit> {
        if self.added.as_ref().is_some_and(|added| !added.passes(query.node)) {
            return Err(Unfit::EnforcedNodeAffinity);
        }
        let required = &self.compiled.required_nodes[query.class];
        if required.passes(query.node) { Ok(()) } else { Err(Unfit::NodeAffinity) }
    }
}
