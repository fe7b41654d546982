//! Resolves the levels that a PodGroup names.

use std::sync::Arc;

use kube_batch_model::{
    facts::{
        composite::CompositeFacts,
        topology::{TopologyFacts, TopologyLevel},
    },
    name::Name,
};

/// The label of single nodes: a tier of Volcano is above it.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// A level: the nodes with equal values of these labels are a domain.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LevelPath {
    /// The broadest first; at least one.
    keys: Vec<Name>,
    /// How many of the first keys belong to the level that the job requires.
    n_required: usize,
}

impl LevelPath {
    /// The labels whose values make a domain, the broadest first.
    pub(super) fn keys(&self) -> &[Name] {
        &self.keys
    }

    /// The label of the level.
    pub(super) fn key(&self) -> &Name {
        self.keys.last().expect("there is at least one")
    }

    /// The labels that a node must have to be in a domain: that of the level, and that of the level which is
    /// required. A node without one of the others is in a domain of the nodes without it.
    pub(super) fn needed(&self) -> impl Iterator<Item = &Name> {
        let required = self.n_required.checked_sub(1).map(|at| &self.keys[at]);
        required.filter(|key| *key != self.key()).into_iter().chain([self.key()])
    }
}

/// The levels that a job may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Resolved {
    /// The narrowest first; a domain of one level is inside one domain of the next.
    pub(super) levels: Vec<LevelPath>,
    /// Whether all tasks must be in one domain of the last level.
    pub(super) is_required: bool,
}

impl Resolved {
    /// The level of which all tasks must be in one domain.
    pub(super) fn required(&self) -> Option<&LevelPath> {
        self.levels.last().filter(|_| self.is_required)
    }
}

/// A tier that the configuration does not declare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoTier {
    pub(super) tier: u32,
    pub(super) n_tiers: usize,
}

/// The levels that a job means.
///
/// # Errors
///
/// [`NoTier`] if it requires one that is not declared. A level that is only preferred is then ignored.
pub(super) fn resolve(
    facts: &TopologyFacts,
    of_composites: &[Name],
    declared: &[Name],
) -> Result<Resolved, NoTier> {
    let own = facts.required.as_ref().map(|level| path(level, declared)).transpose()?;
    let is_required = own.is_some() || !of_composites.is_empty();
    let required = joined(of_composites, own.as_deref().unwrap_or_default());
    let preferred = facts.preferred.as_ref().and_then(|level| path(level, declared).ok());
    let required_keys = required.as_slice();
    let mut levels: Vec<LevelPath> = Vec::new();
    let mut add = |own: &[Name]| {
        let path = LevelPath { keys: joined(required_keys, own), n_required: required_keys.len() };
        if !path.keys.is_empty() && !levels.contains(&path) {
            levels.push(path);
        }
    };
    let preferred = preferred.unwrap_or_default();
    for n_keys in (1..=preferred.len()).rev() {
        add(&preferred[..n_keys]);
    }
    add(&[]);
    Ok(Resolved { levels, is_required })
}

/// The labels of the domains of composite PodGroups: those that a composite PodGroup requires, with those that
/// the ones above it do. `above` are these, the innermost first.
pub(super) fn of_composites(above: &[Arc<CompositeFacts>], declared: &[Name]) -> Vec<Name> {
    above.iter().rev().fold(Vec::new(), |keys, composite| {
        let required = composite.topology.as_ref().and_then(|facts| facts.required.as_ref());
        let own = required.and_then(|level| path(level, declared).ok());
        joined(&keys, &own.unwrap_or_default())
    })
}

impl LevelPath {
    /// The level of these labels, which is required.
    pub(super) const fn required(keys: Vec<Name>) -> Self {
        Self { n_required: keys.len(), keys }
    }
}

/// Labels, and those of others that are not among them.
fn joined(keys: &[Name], others: &[Name]) -> Vec<Name> {
    let further = others.iter().filter(|key| !keys.contains(*key));
    keys.iter().chain(further).cloned().collect()
}

/// The labels of a level, the broadest first.
fn path(level: &TopologyLevel, declared: &[Name]) -> Result<Vec<Name>, NoTier> {
    match level {
        TopologyLevel::Label(key) => Ok(match declared.iter().position(|own| own == key) {
            Some(at) => declared[..=at].to_vec(),
            None => vec![key.clone()],
        }),
        TopologyLevel::Tier(tier) => {
            let above_nodes = declared.iter().filter(|key| key.as_str() != HOSTNAME);
            let tiers: Vec<Name> = above_nodes.cloned().collect();
            let at = tiers.len().checked_sub(*tier as usize).filter(|_| *tier > 0);
            let at = at.ok_or(NoTier { tier: *tier, n_tiers: tiers.len() })?;
            Ok(tiers[..=at].to_vec())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The keys of each level, joined.
    fn levels(required: &str, preferred: &str, declared: &[&str]) -> (Vec<String>, bool) {
        let level = |text: &str| match text.parse() {
            _ if text.is_empty() => None,
            Ok(tier) => Some(TopologyLevel::Tier(tier)),
            Err(_) => Some(TopologyLevel::Label(Name::from(text))),
        };
        let facts = TopologyFacts { required: level(required), preferred: level(preferred) };
        let declared: Vec<Name> = declared.iter().copied().map(Name::from).collect();
        let Ok(Resolved { levels, is_required }) = resolve(&facts, &[], &declared) else {
            return (Vec::new(), true);
        };
        let joined = levels
            .iter()
            .map(|path| path.keys().iter().map(Name::as_str).collect::<Vec<_>>().join("/"));
        (joined.collect(), is_required)
    }

    fn row<const N: usize>(levels: [&str; N], is_required: bool) -> (Vec<String>, bool) {
        (levels.map(str::to_owned).to_vec(), is_required)
    }

    const DECLARED: [&str; 4] = ["zone", "block", "rack", HOSTNAME];

    #[test]
    fn levels_are_the_narrowest_first() {
        assert_eq!(levels("rack", "", &DECLARED), row(["zone/block/rack"], true));
        assert_eq!(
            levels("", "rack", &DECLARED),
            row(["zone/block/rack", "zone/block", "zone"], false)
        );
        assert_eq!(
            levels("block", "rack", &DECLARED),
            row(["zone/block/rack", "zone/block"], true)
        );
        assert_eq!(levels("rack", "zone", &DECLARED), row(["zone/block/rack"], true));
        assert_eq!(levels("", "", &DECLARED), row([], false));
    }

    #[test]
    fn a_label_that_is_not_declared_is_a_level_by_itself() {
        assert_eq!(levels("rack", "", &[]), row(["rack"], true));
        assert_eq!(levels("", "rack", &["zone"]), row(["rack"], false));
        assert_eq!(levels("block", "rack", &[]), row(["block/rack", "block"], true));
        assert_eq!(
            levels("pool", "rack", &["zone", "rack"]),
            row(["pool/zone/rack", "pool/zone", "pool"], true)
        );
    }

    #[test]
    fn tiers_are_counted_from_single_nodes() {
        assert_eq!(levels("1", "1", &DECLARED), row(["zone/block/rack"], true));
        assert_eq!(levels("2", "1", &DECLARED), row(["zone/block/rack", "zone/block"], true));
        assert_eq!(levels("1", "", &["zone"]), row(["zone"], true));
        assert_eq!(levels("4", "1", &DECLARED), row([], true), "there is no such tier");
        assert_eq!(levels("0", "1", &DECLARED), row([], true), "there is no such tier");
        assert_eq!(levels("", "1", &[]), row([], false), "what is preferred is ignored");
    }
}
