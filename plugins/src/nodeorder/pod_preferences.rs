//! Preferences between pods.
//!
//! A node gathers, over the domains it is in:
//!
//! - for each own preferred term, its weight for every pod there that matches it;
//! - for each pod there, the weight of every preferred term it carries that matches the new pod, and
//!   1 for every required affinity term that does.
//!
//! Anti-affinity counts negative. Then `100 * (sum - least) / (most - least)` over the candidates;
//! 0 for all if all are equal.
//!
//! Source: Kubernetes 1.36, `plugins/interpodaffinity/scoring.go`, with
//! `hardPodAffinityWeight` 1. Floats where Kubernetes has them, in its order.

use kube_batch_api::{
    column::{Column, NodeIdx},
    facts::class::{PodTerm, PodTerms},
};
use kube_batch_framework::plugin::Capacity;

use crate::{
    node_labels::NodeLabels,
    node_tests::Compiler,
    profiles::{Profile, Profiles},
    tally::{Delta, Tallies, TallyIdx},
};

/// What a required affinity term of a pod that is there is worth.
const HARD_WEIGHT: i64 = 1;

/// What profiles like to be near to.
#[derive(Debug, Default)]
pub(super) struct PodPreferences {
    tallies: Tallies,
    /// What each pod of a tally in the node's domain is worth.
    worth: Column<Profile, Vec<(TallyIdx, i64)>>,
}

impl PodPreferences {
    pub(super) fn new(compiler: &mut Compiler<'_>, profiles: &Profiles) -> Self {
        let cluster = compiler.cluster;
        let mut tallies = Tallies::new(profiles);
        let mut worth = Column::filled(Vec::new(), profiles.len());
        for profile in profiles.asked() {
            let terms = preferred(&profiles.template(cluster, profile).pod_terms);
            let own = terms.map(|(weight, term)| (tallies.matching_term(compiler, term), weight));
            worth[profile] = own.collect();
        }
        tallies.carry(compiler, profiles, |terms| {
            preferred(terms).chain(terms.required.iter().map(|term| (HARD_WEIGHT, term)))
        });
        for profile in profiles.asked() {
            worth[profile].extend(tallies.carried(cluster, profiles, profile));
        }
        tallies.connect(cluster, profiles);
        Self { tallies, worth }
    }

    /// Whether anything is worth something to the profile.
    pub(super) fn concerns(&self, profile: Profile) -> bool {
        !self.worth[profile].is_empty()
    }

    pub(super) fn score_all(
        &self,
        labels: &NodeLabels,
        profile: Profile,
        nodes: &[NodeIdx],
        scores: &mut [i64],
    ) {
        let gathered = |node: NodeIdx| {
            let terms = self.worth[profile].iter();
            let parts = terms.filter_map(|(tally, weight)| {
                let count = self.tallies.count(labels, *tally, node, Capacity::Idle)?;
                Some(weight * i64::from(count))
            });
            parts.sum::<i64>()
        };
        for (score, node) in scores.iter_mut().zip(nodes) {
            *score = gathered(*node);
        }
        let least = scores.iter().copied().min().unwrap_or(0);
        let most = scores.iter().copied().max().unwrap_or(0);
        for score in scores {
            let part = (*score - least) as f64 / (most - least) as f64;
            *score = if most == least { 0 } else { (100.0 * part) as i64 };
        }
    }

    /// A task of the profile came to a node or left it.
    pub(super) fn moved(
        &mut self,
        labels: &NodeLabels,
        profile: Profile,
        node: NodeIdx,
        delta: Delta,
    ) {
        self.tallies.moved(labels, profile, node, delta);
    }
}

/// Preferred terms with their weights; those of anti-affinity count negative.
fn preferred(terms: &PodTerms) -> impl Iterator<Item = (i64, &PodTerm)> {
    let likes = terms.preferred.iter().map(|(weight, term)| (*weight, term));
    likes.chain(terms.preferred_anti.iter().map(|(weight, term)| (-weight, term)))
}
