//! What the rules of `predicates` and `nodeorder` read of the cluster and no placement changes.
//!
//! Both plugins need the same tables: which constraint classes there are, the sets of taints, node
//! labels as numbers, and which nodes a pod's node selector and affinity match. The session computes
//! them once ([`kube_batch_framework::session_cache`]), and both plugins hold the same copy.

use std::sync::{Arc, OnceLock};

use kube_batch_framework::session_cache::FromCluster;
use kube_batch_model::{
    cluster::Cluster, column::Column, devices::DeviceDemand, facts::class::PodTemplate,
    matcher_set::MatcherSet,
};

use crate::{
    constraint_classes::{ConstraintClassIdx, ConstraintClasses},
    matched_classes::MatchedClasses,
    node_labels::NodeLabels,
    node_terms::{Compiler, RequiredNodes},
    taints::TaintSets,
    term_classes::TermClasses,
    volume_claims::{ClaimsOfClasses, claims_of_classes},
};

/// The tables of one session.
#[derive(Debug, Default)]
pub(crate) struct CompiledCluster {
    pub(crate) classes: ConstraintClasses,
    pub(crate) taints: TaintSets,
    labels: NodeLabels,
    /// Computed when a rule about other pods first needs it.
    term_classes: OnceLock<TermClasses>,
    /// Computed when a rule about other pods first needs it.
    matched_classes: OnceLock<MatchedClasses>,
    /// Computed when a rule about volumes first needs it.
    claims: OnceLock<ClaimsOfClasses>,
    /// Node selector and required node affinity; empty for constraint classes without tasks to
    /// place.
    pub(crate) required_nodes: Column<ConstraintClassIdx, RequiredNodes>,
}

impl FromCluster for CompiledCluster {
    fn from_cluster(cluster: &Cluster) -> Self {
        let classes = ConstraintClasses::new(cluster);
        let labels = NodeLabels::default();
        let compiler = Compiler::new(cluster, &labels);
        let mut required_nodes = Column::filled(RequiredNodes::default(), classes.len());
        for row in classes.to_place() {
            required_nodes[row] = compiler.required_nodes(classes.template(cluster, row));
        }
        Self {
            classes,
            taints: TaintSets::new(cluster),
            labels,
            term_classes: OnceLock::new(),
            matched_classes: OnceLock::new(),
            claims: OnceLock::new(),
            required_nodes,
        }
    }
}

impl CompiledCluster {
    /// Node labels as numbers.
    pub(crate) const fn labels(&self) -> &NodeLabels {
        &self.labels
    }
}

/// What a rule is built from when a session opens.
#[derive(Clone, Copy)]
pub(crate) struct Opening<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) compiled: &'a Arc<CompiledCluster>,
}

impl<'a> Opening<'a> {
    pub(crate) fn compiler(self) -> Compiler<'a> {
        Compiler::new(self.cluster, &self.compiled.labels)
    }

    pub(crate) fn classes(self) -> &'a ConstraintClasses {
        &self.compiled.classes
    }

    /// A column with one value for each constraint class.
    pub(crate) fn by_class<T: Clone>(self, value: T) -> Column<ConstraintClassIdx, T> {
        Column::filled(value, self.classes().len())
    }

    /// The template that the tasks of a constraint class share.
    pub(crate) fn template(self, row: ConstraintClassIdx) -> &'a PodTemplate {
        self.classes().template(self.cluster, row)
    }

    /// What the tasks of a constraint class need of devices.
    pub(crate) fn devices(self, row: ConstraintClassIdx) -> &'a DeviceDemand {
        self.classes().devices(self.cluster, row)
    }

    /// The selectors that match the tasks of a constraint class.
    pub(crate) fn matched_by(self, row: ConstraintClassIdx) -> &'a MatcherSet {
        self.classes().matched_by(self.cluster, row)
    }

    /// The constraint classes, joined where no rule about other pods tells them apart.
    pub(crate) fn term_classes(self) -> &'a TermClasses {
        let new = || TermClasses::new(self.cluster, self.classes());
        self.compiled.term_classes.get_or_init(new)
    }

    /// Which term classes each selector matches.
    pub(crate) fn matched_classes(self) -> &'a MatchedClasses {
        let new = || MatchedClasses::new(self.cluster, self.classes(), self.term_classes());
        self.compiled.matched_classes.get_or_init(new)
    }

    /// The claims for volumes of each constraint class with tasks to place, or why no node is eligible.
    pub(crate) fn claims(self) -> &'a ClaimsOfClasses {
        let new = || claims_of_classes(self.cluster, self.classes());
        self.compiled.claims.get_or_init(new)
    }

    /// A column with a value for each constraint class with tasks to place, and the default for the
    /// others.
    pub(crate) fn to_place<T: Clone + Default>(
        self,
        value: impl Fn(&PodTemplate) -> T,
    ) -> Column<ConstraintClassIdx, T> {
        let mut column = self.by_class(T::default());
        for row in self.classes().to_place() {
            column[row] = value(self.template(row));
        }
        column
    }
}
