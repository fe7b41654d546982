//! Objects of Kubernetes as facts, for tests.

use std::fmt::Debug;

use kube_batch_api::{
    dialect::{self, RawObject},
    read,
};
use kube_batch_model::{
    facts::{FactError, pod::Interner},
    group_version::GroupVersion,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::store::{Change, Store, Stored};

impl Store {
    fn put_object<K: DeserializeOwned, F: Stored + Debug>(
        &mut self,
        object: Value,
        read: impl Fn(&K, &mut Interner) -> Result<F, FactError>,
    ) -> Change {
        let object = serde_json::from_value(object).expect("an object");
        let facts = read(&object, self.interner_mut()).expect("facts");
        self.put(facts)
    }

    pub(crate) fn put_pod(&mut self, pod: Value) -> Change {
        self.put_object(pod, read::pod)
    }

    pub(crate) fn put_node(&mut self, node: Value) -> Change {
        self.put_object(node, |node, _| read::node(node))
    }

    pub(crate) fn put_resource_claim(&mut self, claim: Value) -> Change {
        self.put_object(claim, |claim, _| read::resource_claim(claim))
    }

    pub(crate) fn put_group(&mut self, version: GroupVersion, group: Value) -> Change {
        self.put_object(group, |group: &RawObject, interner| {
            dialect::of(version).read_group(group, interner.prefixes())
        })
    }

    pub(crate) fn put_queue(&mut self, version: GroupVersion, queue: Value) -> Change {
        self.put_object(queue, |queue: &RawObject, _| dialect::of(version).read_queue(queue))
    }
}
