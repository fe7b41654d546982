//! All objects of a control plane, and how they are put back.
//!
//! Objects are read and written in etcd, past the API server: its watches report such changes as they report those of
//! another API server of the same cluster. So no kind is overlooked, and nothing waits for finalizers or for the
//! deletion of a namespace. Objects stay as etcd has them: this knows nothing of their fields.

use std::{
    collections::BTreeMap,
    mem, thread,
    time::{Duration, Instant},
};

use super::ControlPlane;
use crate::{
    error::{Error, Result},
    etcd::{Change, Entry, Etcd},
};

/// Events end by themselves after an hour, so none is remembered.
const EVENTS: &str = "/registry/events/";

/// The lease of the API server, which it renews.
const OWN_LEASE: &str = "/registry/leases/kube-system/apiserver-";

/// What decides which requests the API server admits. It looks for changes of policies once a second.
const ADMISSION: [&str; 6] = [
    "/registry/mutatingadmissionpolicies/",
    "/registry/mutatingadmissionpolicybindings/",
    "/registry/mutatingwebhookconfigurations/",
    "/registry/validatingadmissionpolicies/",
    "/registry/validatingadmissionpolicybindings/",
    "/registry/validatingwebhookconfigurations/",
];

/// What decides which kinds the API server serves.
const DEFINITIONS: [&str; 2] =
    ["/registry/apiextensions.k8s.io/", "/registry/apiregistration.k8s.io/"];

/// How long nothing may change before all objects are remembered: controllers follow those that were just created.
const SETTLED_AT_FIRST: Duration = Duration::from_secs(1);

/// How long nothing may change before objects count as restored: controllers may still be writing.
const SETTLED: Duration = Duration::from_millis(300);

/// Maximum time until nothing changes any more. It usually takes half a second.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Time between two looks at all entries. A look takes a few milliseconds.
const PAUSE: Duration = Duration::from_millis(50);

/// All objects of a control plane, except for events.
#[derive(Clone, Debug)]
pub struct Snapshot {
    entries: BTreeMap<String, Entry>,
    /// The kinds that the API server serves, as `kubectl` prints them.
    kinds: String,
}

impl ControlPlane {
    /// Remembers all objects, after controllers have stopped changing them.
    ///
    /// # Errors
    ///
    /// [`Error::Restore`] if they do not stop; [`Error::Io`] if etcd does not respond; [`Error::Kubectl`] if the API
    /// server does not.
    pub fn snapshot(&self) -> Result<Snapshot> {
        let mut entries = BTreeMap::new();
        wait_until_settled(SETTLED_AT_FIRST, || {
            let mut now = self.etcd().entries()?;
            now.retain(|key, _| !is_one_of(key, &[EVENTS, OWN_LEASE]));
            let before = mem::replace(&mut entries, now);
            Ok((before != entries).then(|| "objects change".to_owned()))
        })?;
        Ok(Snapshot { entries, kinds: self.kinds()? })
    }

    /// Deletes all objects that are not in the snapshot, puts back those that were changed or deleted, and waits until
    /// controllers no longer change any.
    ///
    /// # Errors
    ///
    /// [`Error::Restore`] if objects keep changing, or if the API server may still apply what was deleted;
    /// [`Error::Io`] if etcd does not respond; [`Error::Kubectl`] if the API server does not. The control plane is of
    /// no use then.
    pub fn restore(&self, snapshot: &mut Snapshot) -> Result<()> {
        let mut are_kinds_known = true;
        wait_until_settled(SETTLED, || {
            let changes = snapshot.changes(&self.etcd())?;
            if let Some(key) = changes.keys().find(|key| snapshot.is_final(key)) {
                return Err(Error::Restore(format!(
                    "the API server may follow a change of {key} late"
                )));
            }
            are_kinds_known &= !changes.keys().any(|key| is_one_of(key, &DEFINITIONS));
            self.etcd().change(&in_order(&changes))?;
            if let Some(key) = changes.keys().next() {
                return Ok(Some(format!("{key} changes")));
            }
            if !are_kinds_known {
                are_kinds_known = self.kinds()? == snapshot.kinds;
            }
            Ok((!are_kinds_known).then(|| "the API server serves other kinds".to_owned()))
        })
    }

    fn etcd(&self) -> Etcd {
        Etcd::new(self.ports.etcd)
    }

    fn kinds(&self) -> Result<String> {
        self.kubectl(["api-resources", "--output=name", "--sort-by=name", "--cached=false"])
    }
}

impl Snapshot {
    /// Whether no plane is used again after this entry has changed: the API server shows nowhere which policies it
    /// applies, and the kinds of a definition that was put back are served for another moment as they were before.
    fn is_final(&self, key: &str) -> bool {
        is_one_of(key, &ADMISSION) || is_one_of(key, &DEFINITIONS) && self.entries.contains_key(key)
    }

    /// What has to be changed to have the same objects again. If an object has another revision and equal content,
    /// the snapshot takes over the revision.
    fn changes(&mut self, etcd: &Etcd) -> Result<BTreeMap<String, Change>> {
        let mut now = etcd.revisions()?;
        now.retain(|key, _| !key.starts_with(OWN_LEASE));
        let mut changes = BTreeMap::new();
        let mut changed = Vec::new();
        for (key, entry) in &self.entries {
            match now.remove(key) {
                None => {
                    changes.insert(key.clone(), Change::Put(entry.value.clone()));
                }
                Some(revision) if revision != entry.revision => changed.push(key.clone()),
                Some(_) => {}
            }
        }
        changes.extend(now.into_keys().map(|key| (key, Change::Delete)));
        for (key, found) in etcd.get(changed.iter().map(String::as_str))? {
            let entry = self.entries.get_mut(&key).expect("only keys of the snapshot are read");
            if found.value == entry.value {
                entry.revision = found.revision;
            } else if found.revision.created == entry.revision.created {
                changes.insert(key, Change::Put(entry.value.clone()));
            } else {
                // Another object of this name, perhaps of a controller that would create it again if it were deleted.
                changes.insert(key, Change::Replace(entry.value.clone()));
            }
        }
        Ok(changes)
    }
}

fn is_one_of(key: &str, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| key.starts_with(prefix))
}

/// Namespaces first: nothing can be created in them then. Pods last: controllers replace those whose owner exists.
fn in_order(changes: &BTreeMap<String, Change>) -> Vec<(&str, &Change)> {
    let mut ordered: Vec<_> = changes.iter().map(|(key, change)| (key.as_str(), change)).collect();
    ordered.sort_by_key(|(key, _)| {
        (!key.starts_with("/registry/namespaces/"), key.starts_with("/registry/pods/"))
    });
    ordered
}

/// Waits until `look` has found nothing that changes for `period`; it returns what changes.
fn wait_until_settled(
    period: Duration,
    mut look: impl FnMut() -> Result<Option<String>>,
) -> Result<()> {
    let deadline = Instant::now() + TIMEOUT;
    let mut settled_since = None;
    loop {
        match look()? {
            Some(change) if Instant::now() > deadline => return Err(Error::Restore(change)),
            Some(_) => settled_since = None,
            None => {
                let since: &mut Instant = settled_since.get_or_insert_with(Instant::now);
                if since.elapsed() >= period {
                    return Ok(());
                }
            }
        }
        thread::sleep(PAUSE);
    }
}
