//! The terms of inter-pod affinity and anti-affinity, as a pod has them.

use k8s_openapi::api::core::v1::{Affinity, PodAffinityTerm, WeightedPodAffinityTerm};

/// A term, and where it is in the affinity of its pod.
#[derive(Clone, Copy, Debug)]
pub struct AffinityTerm<'a> {
    /// The term.
    pub term: &'a PodAffinityTerm,
    /// Its weight, if it is preferred; `None` if it is required.
    pub weight: Option<i32>,
    /// Whether it is a term of anti-affinity.
    pub is_anti: bool,
    /// Its position in its list.
    at: usize,
}

impl AffinityTerm<'_> {
    /// The path of the entry of its list, below `spec.affinity`.
    pub fn entry_path(&self) -> String {
        let field = if self.is_anti { "podAntiAffinity" } else { "podAffinity" };
        let list = match self.weight {
            None => "requiredDuringSchedulingIgnoredDuringExecution",
            Some(_) => "preferredDuringSchedulingIgnoredDuringExecution",
        };
        format!("{field}.{list}[{}]", self.at)
    }

    /// The path of the term itself, below `spec.affinity`.
    pub fn path(&self) -> String {
        let entry = self.entry_path();
        if self.weight.is_some() { format!("{entry}.podAffinityTerm") } else { entry }
    }
}

/// All terms, in the order in which Kubernetes reads them: required before preferred, and in each list
/// affinity before anti-affinity.
pub fn affinity_terms(affinity: &Affinity) -> impl Iterator<Item = AffinityTerm<'_>> {
    let affine = affinity.pod_affinity.as_ref();
    let anti = affinity.pod_anti_affinity.as_ref();
    let required = [
        (
            false,
            affine.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref()),
        ),
        (true, anti.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref())),
    ];
    let preferred = [
        (
            false,
            affine.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_ref()),
        ),
        (true, anti.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_ref())),
    ];
    let required = required.into_iter().flat_map(|(is_anti, terms)| {
        let terms = terms.into_iter().flatten().enumerate();
        terms.map(move |(at, term)| AffinityTerm { term, weight: None, is_anti, at })
    });
    let preferred = preferred.into_iter().flat_map(|(is_anti, terms)| {
        let terms = terms.into_iter().flatten().enumerate();
        terms.map(move |(at, preferred)| {
            let WeightedPodAffinityTerm { pod_affinity_term: term, weight } = preferred;
            AffinityTerm { term, weight: Some(*weight), is_anti, at }
        })
    });
    required.chain(preferred)
}
