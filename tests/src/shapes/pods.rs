//! The pods of shapes.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{
        Affinity, PodAffinity, PodAffinityTerm, PodAntiAffinity, PodSpec, TopologySpreadConstraint,
        WeightedPodAffinityTerm,
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};

use super::devices::ClaimKind;

#[derive(Clone)]
pub(super) struct PodKind {
    pub(super) cpu: String,
    pub(super) memory: String,
    pub(super) gpus: u32,
    pub(super) tolerates: bool,
    pub(super) label: Option<(&'static str, String)>,
    pub(super) rule: Option<PodRule>,
    pub(super) claim: Option<ClaimKind>,
    /// Whether it names a PodGroup.
    pub(super) is_in_group: bool,
}

impl Default for PodKind {
    fn default() -> Self {
        let (cpu, memory) = ("1".to_owned(), "2Gi".to_owned());
        Self {
            cpu,
            memory,
            gpus: 0,
            tolerates: false,
            label: None,
            rule: None,
            claim: None,
            is_in_group: true,
        }
    }
}

/// A rule of pods about pods with the same label.
#[derive(Clone, Copy)]
pub(super) struct PodRule {
    pub(super) term: PodTerm,
    /// Whether the rule is only a preference.
    is_preferred: bool,
}

#[derive(Clone, Copy)]
pub(super) enum PodTerm {
    /// In one zone.
    ZoneAffinity,
    /// Each on a node of its own.
    HostAntiAffinity,
    /// Over all zones, with a skew of 5 at most.
    ZoneSpread,
}

/// The label of pods with rules.
pub(super) const RULE_LABEL: &str = "color";
pub(super) const RULE_VALUE: &str = "blue";

impl PodRule {
    pub(super) fn of(kind: &str) -> Option<Self> {
        let (kind, is_preferred) = match kind.strip_prefix("PREF-") {
            Some(kind) => (kind, true),
            None => (kind, false),
        };
        let term = match kind {
            "AFF-ZONE" => PodTerm::ZoneAffinity,
            "AFF-HOST" => PodTerm::HostAntiAffinity,
            "SPREAD" => PodTerm::ZoneSpread,
            _ => return None,
        };
        Some(Self { term, is_preferred })
    }

    /// The numbers of pods that run and that wait. For 5 000 nodes they are those of kube-scheduler's own
    /// benchmark.
    pub(super) const fn n_pods(self, nodes: usize) -> (usize, usize) {
        match self.term {
            PodTerm::ZoneAffinity | PodTerm::ZoneSpread => (nodes, nodes),
            PodTerm::HostAntiAffinity => (nodes / 5, nodes / 5 * 2),
        }
    }

    pub(super) fn apply(self, spec: &mut PodSpec) {
        let selector = LabelSelector {
            match_labels: Some(BTreeMap::from([(RULE_LABEL.to_owned(), RULE_VALUE.to_owned())])),
            ..Default::default()
        };
        let topology_key = match self.term {
            PodTerm::ZoneAffinity | PodTerm::ZoneSpread => "topology.kubernetes.io/zone",
            PodTerm::HostAntiAffinity => "kubernetes.io/hostname",
        };
        if let PodTerm::ZoneSpread = self.term {
            let when = if self.is_preferred { "ScheduleAnyway" } else { "DoNotSchedule" };
            spec.topology_spread_constraints = Some(vec![TopologySpreadConstraint {
                label_selector: Some(selector),
                max_skew: 5,
                topology_key: topology_key.to_owned(),
                when_unsatisfiable: when.to_owned(),
                ..Default::default()
            }]);
            return;
        }
        let term = PodAffinityTerm {
            label_selector: Some(selector),
            topology_key: topology_key.to_owned(),
            ..Default::default()
        };
        let weighted = WeightedPodAffinityTerm { pod_affinity_term: term.clone(), weight: 1 };
        let (required, preferred) =
            if self.is_preferred { (None, Some(vec![weighted])) } else { (Some(vec![term]), None) };
        let mut affinity = Affinity::default();
        if let PodTerm::HostAntiAffinity = self.term {
            affinity.pod_anti_affinity = Some(PodAntiAffinity {
                required_during_scheduling_ignored_during_execution: required,
                preferred_during_scheduling_ignored_during_execution: preferred,
            });
        } else {
            affinity.pod_affinity = Some(PodAffinity {
                required_during_scheduling_ignored_during_execution: required,
                preferred_during_scheduling_ignored_during_execution: preferred,
            });
        }
        spec.affinity = Some(affinity);
    }
}
