//! A configuration, written in the format in which it is read.

use kube_batch_framework::{
    arguments::{ArgumentKind, ArgumentSpec, ArgumentValue, Arguments},
    policy::ExtensionPoint,
};
use serde::{Serialize, Serializer, ser::SerializeMap as _};

use super::{Conf, PluginConf};

impl Serialize for Conf {
    /// As a configuration file: with each argument that is set, and each extension point that is off.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("actions", &self.action_names().join(", "))?;
        map.serialize_entry(
            "tiers",
            &self.tiers.iter().map(|tier| Tier(tier)).collect::<Vec<_>>(),
        )?;
        map.end()
    }
}

struct Tier<'a>(&'a [PluginConf]);

impl Serialize for Tier<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map([("plugins", self.0)])
    }
}

impl Serialize for PluginConf {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { spec, extension_points, arguments } = self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("name", spec.name)?;
        for point in ExtensionPoint::ALL.into_iter().filter(|point| !extension_points.has(*point)) {
            map.serialize_entry(point.key(), &false)?;
        }
        map.serialize_entry("arguments", &SetArguments { specs: spec.arguments, arguments })?;
        map.end()
    }
}

struct SetArguments<'a> {
    specs: &'a [ArgumentSpec],
    arguments: &'a Arguments,
}

impl Serialize for SetArguments<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for spec in self.specs.iter().filter(|spec| self.arguments.has(spec)) {
            match (spec.kind, self.arguments.get(spec)) {
                (ArgumentKind::WeightedNames { .. }, ArgumentValue::Weights(weights)) => {
                    let names: Vec<&String> = weights.iter().map(|(name, _)| name).collect();
                    map.serialize_entry(spec.key, &names)?;
                    for (name, weight) in &weights {
                        map.serialize_entry(&format!("{}.{name}", spec.key), weight)?;
                    }
                }
                (_, value) => map.serialize_entry(spec.key, &Written(&value))?,
            }
        }
        map.end()
    }
}

struct Written<'a>(&'a ArgumentValue);

impl Serialize for Written<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            ArgumentValue::Bool(value) => value.serialize(serializer),
            ArgumentValue::Integer(value) => value.serialize(serializer),
            ArgumentValue::Number(value) => value.serialize(serializer),
            ArgumentValue::Text(text) => text.serialize(serializer),
            ArgumentValue::Duration(_) => serializer.collect_str(self.0),
            ArgumentValue::List(items) => items.serialize(serializer),
            // In the order in which they are written.
            ArgumentValue::Weights(weights) => {
                serializer.collect_map(weights.iter().map(|(name, weight)| (name, weight)))
            }
            ArgumentValue::NodeAffinity(affinity) => affinity.serialize(serializer),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kube_batch_framework::arguments::{AffinityPart, ListItems};
    use kube_batch_model::selector::node_affinity::NodeAffinity;
    use serde_json::json;

    use super::*;
    use crate::{conf::parse, registry::Registry};

    /// Values of an argument that are not its default.
    fn values(kind: ArgumentKind) -> Vec<ArgumentValue> {
        let item = |items| match items {
            ListItems::Texts => "a text",
            ListItems::LabelKeys => "topology.kubernetes.io/zone",
            ListItems::ExtendedResources | ListItems::OtherResources => "example.com/gpu",
            ListItems::ResourceGroups => "example.com",
        };
        let affinity = |part: AffinityPart| {
            let term = json!({"matchExpressions": [{"key": "k", "operator": "Exists"}]});
            let affinity = match part {
                AffinityPart::Required => json!({part.field(): {"nodeSelectorTerms": [term]}}),
                AffinityPart::Preferred => {
                    json!({part.field(): [{"weight": 1, "preference": term}]})
                }
            };
            serde_json::from_value::<NodeAffinity>(affinity).expect("valid")
        };
        match kind {
            ArgumentKind::Bool { default } => vec![ArgumentValue::Bool(!default)],
            ArgumentKind::Integer { range: (least, most), .. } => {
                [least, most].map(ArgumentValue::Integer).into()
            }
            ArgumentKind::Number { range: (least, most), .. } => {
                [least, (least + most) / 3.0, most].map(ArgumentValue::Number).into()
            }
            ArgumentKind::Text { .. } => {
                ["a: \"b\"", "true", "1"].map(|text| ArgumentValue::Text(text.to_owned())).into()
            }
            ArgumentKind::Choice { choices } => {
                choices.iter().map(|text| ArgumentValue::Text((*text).to_owned())).collect()
            }
            ArgumentKind::Duration { .. } => [0, 1, 1_500_000, 90_000_000, 86_400_000_000_000]
                .map(|micros| ArgumentValue::Duration(Duration::from_micros(micros)))
                .into(),
            ArgumentKind::List { items, .. } => {
                vec![ArgumentValue::List(vec![item(items).to_owned(), item(items).to_owned()])]
            }
            ArgumentKind::Weights { range: (_, most), .. } => {
                let weights = [("memory".to_owned(), most), ("cpu".to_owned(), 1)];
                vec![ArgumentValue::Weights(weights.into())]
            }
            ArgumentKind::WeightedNames { items, range: (_, most), .. } => {
                let weights = [(item(items).to_owned(), most), ("a.com/gpu".to_owned(), 1)];
                vec![ArgumentValue::Weights(weights.into())]
            }
            ArgumentKind::NodeAffinity { part } => {
                vec![ArgumentValue::NodeAffinity(Box::new(affinity(part)))]
            }
        }
    }

    fn read_back(conf: &Conf) -> Conf {
        let written = serde_json::to_string(conf).expect("a configuration can be written");
        let read = parse(&written, &Registry::builtin());
        let read = read.unwrap_or_else(|problems| panic!("{written}: {problems:?}"));
        assert!(read.warnings.is_empty(), "{written}: {:?}", read.warnings);
        read.conf
    }

    #[test]
    fn every_argument_is_read_back() {
        let registry = Registry::builtin();
        let mut n_values = 0;
        for spec in registry.plugins() {
            for argument in spec.arguments {
                for value in values(argument.kind) {
                    let mut plugin = PluginConf::new(*spec);
                    plugin.arguments.set(argument, value.clone());
                    let conf = Conf { actions: Vec::new(), tiers: vec![vec![plugin]] };
                    let conf = Conf { actions: registry.actions().to_vec(), ..conf };
                    let read = read_back(&conf);
                    assert_eq!(read.tiers[0][0].arguments.get(argument), value, "{}", argument.key);
                    assert_eq!(read.tiers[0][0].arguments, conf.tiers[0][0].arguments);
                    assert_eq!(read.action_names(), conf.action_names());
                    n_values += 1;
                }
            }
        }
        assert!(n_values > 50, "{n_values}");
    }

    #[test]
    fn tiers_and_extension_points_are_read_back() {
        let mut conf = Conf::default();
        for (at, point) in ExtensionPoint::ALL.into_iter().enumerate() {
            let plugin = &mut conf.tiers[at % 2][at % 3 % 2];
            plugin.extension_points = plugin.extension_points.without(point);
        }
        let read = read_back(&conf);
        let shown = |conf: &Conf| -> Vec<Vec<_>> {
            let plugin = |own: &PluginConf| {
                ExtensionPoint::ALL.into_iter().fold(own.spec.name.to_owned(), |text, point| {
                    format!("{text} {}", own.extension_points.has(point))
                })
            };
            conf.tiers.iter().map(|tier| tier.iter().map(plugin).collect()).collect()
        };
        assert_eq!(shown(&read), shown(&conf));
    }
}
