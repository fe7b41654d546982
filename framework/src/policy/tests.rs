//! Tests of how the answers of several plugins are combined.

use super::*;
use crate::plugin::IgnoredResources;

/// Has settings, and provides what claims get.
#[derive(Default)]
struct Fake {
    settings: Settings,
    n_alternatives: usize,
}

impl Plugin for Fake {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn settings(&self) -> Settings {
        self.settings.clone()
    }

    fn provides(&self) -> Provided<'_> {
        Provided { claims: Some(self), ..Provided::default() }
    }
}

impl Claims for Fake {
    fn claim_choices(&self, _: &Cluster, _: TaskIdx) -> Vec<ClaimChoice> {
        Vec::new()
    }

    fn device_choices(&self, _: TaskIdx) -> Vec<DeviceChoice> {
        Vec::new()
    }

    fn must_wait(&self, _: TaskIdx) -> bool {
        false
    }

    fn n_alternatives(&self, _: &Cluster, _: ClassIdx) -> usize {
        self.n_alternatives
    }

    fn reason_text(&self, _: &Cluster, _: ClassIdx, _: Unfit) -> Option<String> {
        None
    }

    fn claims_to_deallocate(
        &self,
        _: &Cluster,
        _: &dyn Fn(JobIdx) -> bool,
    ) -> Vec<(TaskIdx, ObjectKey)> {
        Vec::new()
    }

    fn has_postponed(&self) -> bool {
        self.n_alternatives > 0
    }
}

fn policy(plugins: impl IntoIterator<Item = (Fake, ExtensionPoints)>) -> Policy {
    let tier = |(plugin, extension_points)| {
        vec![ConfiguredPlugin { plugin: Box::new(plugin), extension_points }]
    };
    Policy::new(plugins.into_iter().map(tier).collect())
}

fn combined(settings: [(Settings, ExtensionPoints); 2]) -> Settings {
    let fake = |(settings, points)| (Fake { settings, ..Fake::default() }, points);
    policy(settings.map(fake)).settings().clone()
}

#[test]
fn settings_of_several_plugins_are_combined_by_the_rule_of_each() {
    let seconds = |n| Some(Duration::from_secs(n));
    let ignored = |name: &str| IgnoredResources { names: vec![name.into()], groups: Vec::new() };
    let first = Settings {
        ignored_resources: ignored("example.com/a"),
        termination_timeout: seconds(9),
        staleness_grace_period: seconds(9),
        whole_jobs: WholeJobs::All,
        max_loss: None,
        enqueues_strictly: true,
        ..Settings::default()
    };
    let second = Settings {
        ignored_resources: ignored("example.com/b"),
        termination_timeout: seconds(5),
        staleness_grace_period: seconds(5),
        whole_jobs: WholeJobs::Marked,
        max_loss: Some(4),
        reports_unready_jobs: true,
        ..Settings::default()
    };
    let both = combined([first, second].map(|own| (own, ExtensionPoints::ALL)));
    let expected = Settings {
        ignored_resources: IgnoredResources {
            names: vec!["example.com/a".into(), "example.com/b".into()],
            groups: Vec::new(),
        },
        termination_timeout: seconds(9),
        staleness_grace_period: seconds(5),
        whole_jobs: WholeJobs::All,
        max_loss: Some(4),
        reservation_terms: None,
        enqueues_strictly: true,
        reports_unready_jobs: true,
        shows_other_namespaces: false,
    };
    assert_eq!(both, expected);
}

#[test]
fn only_the_time_of_stale_gangs_depends_on_an_extension_point() {
    let settings = Settings {
        staleness_grace_period: Some(Duration::from_secs(5)),
        max_loss: Some(4),
        ..Settings::default()
    };
    let disabled = ExtensionPoints::ALL.without(ExtensionPoint::JobReady);
    let both = combined([(settings, disabled), (Settings::default(), ExtensionPoints::ALL)]);
    assert_eq!((both.staleness_grace_period, both.max_loss), (None, Some(4)));
}

#[test]
fn the_first_instance_that_is_not_disabled_provides_what_claims_get() {
    let fake = |n_alternatives| Fake { n_alternatives, ..Fake::default() };
    let disabled = ExtensionPoints::ALL.without(ExtensionPoint::Predicate);
    let provider = |plugins: [(Fake, ExtensionPoints); 2]| {
        let policy = policy(plugins);
        let at = policy.providers[Provision::Claims as usize].expect("both provide it");
        (at.tier, policy.enabled_claims().is_some(), policy.has_postponed())
    };
    let (all, none) = (ExtensionPoints::ALL, disabled);
    assert_eq!(provider([(fake(1), all), (fake(0), all)]), (0, true, true));
    assert_eq!(provider([(fake(1), none), (fake(0), all)]), (1, true, false));
    // Work that is postponed counts, whether or not predicates are disabled.
    assert_eq!(provider([(fake(1), none), (fake(0), none)]), (0, false, true));
}
