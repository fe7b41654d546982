//! The schema of the chart's values, from `values.yaml`: types and defaults from the values,
//! descriptions from the comments above them.
//!
//! Helm checks values against it, so that a misspelt or misplaced value is an error.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use serde_json::{Map, Value, json};

/// What the default of a value does not show, by its path. An object that is listed here is a value
/// as a whole, not a section of values.
fn constraints() -> BTreeMap<&'static str, Value> {
    let labels = || json!({"type": "object", "additionalProperties": {"type": "string"}});
    let names = || json!({"type": "array", "items": {"type": "string", "minLength": 1}});
    let peers = || json!({"type": "array", "items": {"type": "object", "minProperties": 1}});
    let port = json!({"type": "integer", "minimum": 1, "maximum": 65535});
    let named = json!({
        "type": "object", "required": ["name"], "additionalProperties": false,
        "properties": {"name": {"type": "string"}},
    });
    BTreeMap::from([
        ("extraArgs", json!({"type": "array", "items": {"type": "string", "pattern": "^-"}})),
        ("flowControl.nominalConcurrencyShares", json!({"type": "integer", "minimum": 1})),
        ("image.pullPolicy", json!({"enum": ["Always", "IfNotPresent", "Never"]})),
        ("imagePullSecrets", json!({"type": "array", "items": named})),
        ("monitoring.dashboard.labels", labels()),
        ("monitoring.prometheusRule.labels", labels()),
        ("monitoring.serviceMonitor.labels", labels()),
        ("networkPolicy.apiServer.ports", json!({"type": "array", "items": port, "minItems": 1})),
        ("networkPolicy.apiServer.to", peers()),
        ("networkPolicy.metricsFrom", peers()),
        ("nodeSelector", labels()),
        ("queueViewers.groups", names()),
        ("queueViewers.users", names()),
        ("replicaCount", json!({"type": "integer", "minimum": 0})),
        ("resources", json!({"type": "object"})),
        ("tolerations", json!({"type": "array", "items": {"type": "object"}})),
    ])
}

/// The schema of `values.yaml`, and the path of each value.
pub(crate) struct Values {
    pub(crate) schema: Value,
    pub(crate) paths: Vec<String>,
}

impl Values {
    pub(crate) fn read(text: &str) -> anyhow::Result<Self> {
        let values: Value = serde_saphyr::from_str(text).context("parse values.yaml")?;
        let mut reader =
            Reader { comments: comments(text), constraints: constraints(), paths: Vec::new() };
        let mut root = reader.schema("", &values)?;
        let unknown: Vec<&str> = reader.constraints.into_keys().collect();
        ensure!(unknown.is_empty(), "values.yaml has no {}", unknown.join(", "));
        root.insert("$schema".to_owned(), json!("http://json-schema.org/draft-07/schema#"));
        root.insert("title".to_owned(), json!("Values of the chart kube-batch"));
        // Helm sets it in a chart that another chart depends on.
        root["properties"]["global"] = json!({"type": "object"});
        Ok(Self { schema: Value::Object(root), paths: reader.paths })
    }
}

struct Reader {
    comments: BTreeMap<String, String>,
    /// Those that were not used yet.
    constraints: BTreeMap<&'static str, Value>,
    paths: Vec<String>,
}

impl Reader {
    fn schema(&mut self, path: &str, value: &Value) -> anyhow::Result<Map<String, Value>> {
        let mut schema = Map::new();
        let comment = self.comments.get(path);
        if let Some(comment) = comment {
            schema.insert("description".to_owned(), json!(comment));
        }
        let constraint = self.constraints.remove(path);
        match value {
            Value::Object(fields) if constraint.is_none() => {
                let mut properties = Map::new();
                for (name, value) in fields {
                    let path =
                        if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    properties.insert(name.clone(), self.schema(&path, value)?.into());
                }
                schema.insert("type".to_owned(), json!("object"));
                schema.insert("additionalProperties".to_owned(), json!(false));
                schema.insert("properties".to_owned(), properties.into());
            }
            _ => {
                ensure!(comment.is_some(), "values.yaml: {path} needs a comment above it");
                let type_ = match value {
                    Value::String(_) => "string",
                    Value::Bool(_) => "boolean",
                    Value::Number(_) => "integer",
                    Value::Array(_) | Value::Object(_) => "",
                    Value::Null => anyhow::bail!("values.yaml: {path} needs a default"),
                };
                match constraint {
                    Some(Value::Object(constraint)) => schema.extend(constraint),
                    _ => {
                        ensure!(!type_.is_empty(), "xtask/src/values.rs has no items for {path}");
                        schema.insert("type".to_owned(), json!(type_));
                    }
                }
                schema.insert("default".to_owned(), value.clone());
                self.paths.push(path.to_owned());
            }
        }
        Ok(schema)
    }
}

/// The comment directly above each key, by the key's path.
fn comments(text: &str) -> BTreeMap<String, String> {
    let mut comments = BTreeMap::new();
    let mut above: Vec<&str> = Vec::new();
    let mut parents: Vec<(usize, &str)> = Vec::new();
    let mut text_block: Option<usize> = None;
    for line in text.lines() {
        let trimmed = line.trim_start();
        let indentation = line.len() - trimmed.len();
        if text_block.is_some_and(|outer| trimmed.is_empty() || indentation > outer) {
            continue;
        }
        text_block = None;
        if let Some(comment) = trimmed.strip_prefix('#') {
            above.push(comment.trim());
            continue;
        }
        let Some((key, value)) = trimmed.split_once(':').filter(|(key, _)| !key.contains(' '))
        else {
            above.clear();
            continue;
        };
        parents.retain(|(outer, _)| *outer < indentation);
        parents.push((indentation, key));
        if !above.is_empty() {
            let path: Vec<&str> = parents.iter().map(|(_, key)| *key).collect();
            comments.insert(path.join("."), above.join(" "));
        }
        text_block = value.trim().starts_with('|').then_some(indentation);
        above.clear();
    }
    comments
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUES: &str = "\
# No comment of a value.

# How many.
replicaCount: 2

image:
  # When to pull:
  # at the start.
  pullPolicy: Always

# The file.
conf: |
  # not: a comment of a value
  actions: allocate
";

    #[test]
    fn comments_belong_to_the_key_below() {
        let comments = comments(VALUES);
        let expected = [
            ("conf", "The file."),
            ("image.pullPolicy", "When to pull: at the start."),
            ("replicaCount", "How many."),
        ];
        let found: Vec<(&str, &str)> = comments.iter().map(|(p, c)| (&**p, &**c)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn every_value_is_described_and_typed() {
        let mut reader =
            Reader { comments: comments(VALUES), constraints: constraints(), paths: Vec::new() };
        let values: Value = serde_saphyr::from_str(VALUES).expect("YAML");
        let schema = Value::Object(reader.schema("", &values).expect("a schema"));
        assert_eq!(schema["additionalProperties"], false);
        let image = &schema["properties"]["image"];
        assert_eq!(image["additionalProperties"], false);
        assert_eq!(image["properties"]["pullPolicy"]["enum"][2], "Never");
        let count = &schema["properties"]["replicaCount"];
        let expected = json!({
            "description": "How many.", "type": "integer", "minimum": 0, "default": 2,
        });
        assert_eq!(*count, expected);
        assert_eq!(reader.paths, ["conf", "image.pullPolicy", "replicaCount"]);

        for (text, problem) in [
            ("replicaCount: 2", "values.yaml: replicaCount needs a comment above it"),
            ("# Some.\nx: []", "xtask/src/values.rs has no items for x"),
            ("# Some.\nx:", "values.yaml: x needs a default"),
        ] {
            let error = Values::read(text).err().expect(text);
            assert_eq!(error.to_string(), problem);
        }
    }
}
