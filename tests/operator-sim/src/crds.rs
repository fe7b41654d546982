//! A CustomResourceDefinition that is deleted and made again: all objects of the kind vanish, the API answers 404, and
//! later it is served again, empty. Users create most of their objects again.

use std::mem;

use serde_json::{Value, json};

use crate::{
    outages::{Effect, Requests, Verb},
    server::{GROUPS, Key, Kind},
    world::{Chore, World},
};

/// Deletes the definition of a kind.
pub(crate) fn delete(world: &mut World, kind: Kind) {
    if world.server.is_absent(kind) {
        return;
    }
    let keys: Vec<Key> = world.server.all(kind).map(|(key, _)| key.clone()).collect();
    let objects = keys.into_iter().filter_map(|key| {
        let object = world.server.remove(kind, &key)?;
        Some((key, object))
    });
    let objects: Vec<(Key, Value)> = objects.collect();
    world.log(&format!(
        "{} is not served any more, {} objects are gone",
        kind.plural,
        objects.len()
    ));
    world.unserved.insert(kind, objects);
    world.server.stop_serving(kind);
}

/// Makes the definition again. Returns what the server answers as long as it has only just learnt of it.
pub(crate) fn create(world: &mut World, kind: Kind) -> Option<(Requests, Effect)> {
    let objects = world.unserved.remove(&kind)?;
    world.log(&format!("{} is served again", kind.plural));
    world.server.serve_again(kind);
    for (key, object) in objects {
        // Without its queues nothing runs. One group in eight is forgotten.
        if kind != GROUPS || world.rng.u32(0..8) > 0 {
            let object = Box::new(as_applied(object));
            world.later(100, 10_000, Chore::Apply { kind, key, object });
        }
    }
    let effect = Effect::Rejects { code: 429, retry_after: Some(1) };
    Some((Requests { kind, verb: Verb::Read }, effect))
}

/// What a user applies to get an object like this one.
fn as_applied(mut object: Value) -> Value {
    let annotations = object["metadata"]["annotations"].take();
    let annotations = if annotations.is_object() { annotations } else { json!({}) };
    json!({"metadata": {"annotations": annotations}, "spec": mem::take(&mut object["spec"])})
}
