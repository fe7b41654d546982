//! The difference of two values, as a JSON merge patch (RFC 7386).

use serde_json::{Map, Value};

/// The patch that makes `new` of `old`; `None` if they are equal.
pub(crate) fn merge(old: &Value, new: &Value) -> Option<Value> {
    if old == new {
        return None;
    }
    let (Value::Object(old), Value::Object(new)) = (old, new) else { return Some(new.clone()) };
    let mut patch = Map::new();
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    for (key, value) in new {
        let difference = match old.get(key) {
            Some(known) => merge(known, value),
            None => Some(value.clone()),
        };
        patch.extend(difference.map(|difference| (key.clone(), difference)));
    }
    Some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_differs_is_sent() {
        let old = json!({"phase": "Pending", "running": 3, "conditions": [1], "allocated": {"cpu": "1", "gpu": "1"}});
        let new = json!({"phase": "Running", "conditions": [1], "allocated": {"cpu": "2"}});
        assert_eq!(
            merge(&old, &new),
            Some(
                json!({"phase": "Running", "running": null, "allocated": {"cpu": "2", "gpu": null}})
            )
        );
        assert_eq!(merge(&new, &new), None);
        assert_eq!(merge(&json!({}), &new), Some(new));
    }
}
