//! The catalog lists exactly the actions that exist.

use kube_batch_plugins::CATALOG;

#[test]
fn every_action_of_the_catalog_exists_and_no_other() {
    assert_eq!(CATALOG.actions, kube_batch_actions::NAMES);
    for name in CATALOG.actions {
        assert_eq!(kube_batch_actions::action(name).map(|action| action.name()), Some(*name));
    }
}
