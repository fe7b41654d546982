//! Converts located values to types that implement `Deserialize`.
//!
//! An error names the innermost field and its position. The path is built only for an error; while
//! reading it is a chain of borrowed steps on the stack.

use std::fmt;

use serde::{
    de::{
        DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error as _, Expected,
        IntoDeserializer, MapAccess, SeqAccess, Unexpected, VariantAccess, Visitor,
        value::StrDeserializer,
    },
    forward_to_deserialize_any,
};

use crate::{
    path::{push_index, push_key},
    problem::{Problem, Problems, suggest},
    scalar::boolean_word,
    value::{Entry, Located, Value},
};

impl Located<'_> {
    /// Reads the value as a `T`; the paths of problems start with `path`.
    ///
    /// # Errors
    ///
    /// [`Problem`] at the first field of the wrong type.
    pub fn typed<T: DeserializeOwned>(&self, path: &str) -> Result<T, Problem> {
        let rules = Rules { passed_over: &[], unknown: None };
        self.typed_by(&Route::Root(path), &rules)
    }

    /// Reads the value as a `T`, and records in `problems` every field that the type does not have.
    ///
    /// # Errors
    ///
    /// [`Problem`] at the first field of the wrong type.
    pub fn typed_strict<T: DeserializeOwned>(
        &self,
        path: &str,
        problems: &Problems,
    ) -> Result<T, Problem> {
        let rules = Rules { passed_over: &[], unknown: Some(problems) };
        self.typed_by(&Route::Root(path), &rules)
    }

    /// Reads the value as a `T`, except for the keys `passed_over`, and records in `unknown` every
    /// field that the type does not have.
    ///
    /// # Errors
    ///
    /// [`Problem`] at the first field of the wrong type.
    pub fn typed_except<T: DeserializeOwned>(
        &self,
        passed_over: &[&str],
        unknown: &Problems,
    ) -> Result<T, Problem> {
        let rules = Rules { passed_over, unknown: Some(unknown) };
        self.typed_by(&Route::Root(""), &rules)
    }

    fn typed_by<T: DeserializeOwned>(
        &self,
        route: &Route<'_>,
        rules: &Rules<'_>,
    ) -> Result<T, Problem> {
        let typed = Typed { node: self, route, rules };
        T::deserialize(typed).map_err(|error| match error.at(self, route).0 {
            Fault::Placed(problem) => *problem,
            Fault::Message(message) => self.problem(route.to_string(), message),
            Fault::Expected(expected) => self.problem(route.to_string(), expected),
            Fault::Missing(field) => self.problem(field, "is missing"),
        })
    }
}

struct Rules<'r> {
    passed_over: &'r [&'r str],
    unknown: Option<&'r Problems>,
}

/// The path from the root to a value.
enum Route<'p> {
    Root(&'p str),
    Key(&'p Route<'p>, &'p str),
    Index(&'p Route<'p>, usize),
}

impl Route<'_> {
    fn write(&self, path: &mut String) {
        match self {
            Self::Root(prefix) => path.push_str(prefix),
            Self::Key(parent, key) => {
                parent.write(path);
                push_key(path, key);
            }
            Self::Index(parent, index) => {
                parent.write(path);
                push_index(path, *index);
            }
        }
    }

    const fn is_root(&self) -> bool {
        matches!(self, Self::Root(_))
    }
}

impl fmt::Display for Route<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut path = String::new();
        self.write(&mut path);
        f.write_str(&path)
    }
}

#[derive(Clone, Copy)]
struct Typed<'n, 'p> {
    node: &'n Located<'n>,
    route: &'p Route<'p>,
    rules: &'p Rules<'p>,
}

impl<'n> Typed<'n, '_> {
    fn visit_entries<V: Visitor<'n>>(
        self,
        entries: &'n [Entry<'n>],
        fields: Option<&'static [&'static str]>,
        visitor: V,
    ) -> Result<V::Value, Error> {
        let Self { route, rules, .. } = self;
        visitor.visit_map(Entries { left: entries.iter(), value: None, fields, route, rules })
    }
}

impl<'n> Deserializer<'n> for Typed<'n, '_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error> {
        let Self { route, rules, .. } = self;
        match &self.node.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(value), _) => visitor.visit_i64(value),
                (None, Some(value)) => visitor.visit_u64(value),
                (None, None) => visitor.visit_f64(number.as_f64()),
            },
            Value::String(text) => visitor.visit_str(text),
            Value::Sequence(items) => {
                visitor.visit_seq(Items { left: items.iter().enumerate(), route, rules })
            }
            Value::Mapping(entries) => self.visit_entries(entries, None, visitor),
        }
    }

    fn deserialize_bool<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.node.as_str().and_then(boolean_word) {
            Some(value) => visitor.visit_bool(value),
            None => self.deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.node.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'n>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        match &self.node.value {
            // A quantity must not be converted to floating point.
            Value::Number(number) if name == "Quantity" => visitor.visit_str(&number.decimal()),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Sequence(_)
            | Value::Mapping(_) => visitor.visit_newtype_struct(self),
        }
    }

    fn deserialize_struct<V: Visitor<'n>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.node.as_mapping() {
            Some(entries) => self.visit_entries(entries, Some(fields), visitor),
            // serde's derive would take a sequence for a struct.
            None => Err(Error(Fault::Expected("a mapping".to_owned()))),
        }
    }

    fn deserialize_enum<V: Visitor<'n>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match &self.node.value {
            Value::String(text) => visitor.visit_enum((&**text).into_deserializer()),
            Value::Mapping(entries) if entries.len() == 1 => {
                visitor.visit_enum(Variant { entry: &entries[0], outer: self })
            }
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::Sequence(_)
            | Value::Mapping(_) => Err(Error(Fault::Expected("a name".to_owned()))),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        <V: Visitor<'n>>
        i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map identifier
    }
}

struct Entries<'n, 'p> {
    left: std::slice::Iter<'n, Entry<'n>>,
    value: Option<&'n Entry<'n>>,
    /// What the type has, if it is a struct.
    fields: Option<&'static [&'static str]>,
    route: &'p Route<'p>,
    rules: &'p Rules<'p>,
}

impl<'n> Entries<'n, '_> {
    fn record_unknown(&self, entry: &Entry<'n>) {
        let (Some(fields), Some(unknown)) = (self.fields, self.rules.unknown) else { return };
        let key = &*entry.key.text;
        if fields.contains(&key) {
            return;
        }
        let message = match suggest(key, fields.iter().copied()) {
            Some(meant) => format!("unknown field, did you mean {meant}"),
            None => "unknown field".to_owned(),
        };
        let path = Route::Key(self.route, key).to_string();
        unknown.add(Problem { line: entry.key.line, column: entry.key.column, path, message });
    }
}

impl<'n> MapAccess<'n> for Entries<'n, '_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'n>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        for entry in self.left.by_ref() {
            let key = &*entry.key.text;
            if self.route.is_root() && self.rules.passed_over.contains(&key) {
                continue;
            }
            self.record_unknown(entry);
            self.value = Some(entry);
            let deserializer: StrDeserializer<'_, Error> = key.into_deserializer();
            return seed.deserialize(deserializer).map(Some);
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'n>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let Some(entry) = self.value.take() else {
            return Err(Error::custom("a value was read before its key"));
        };
        let route = Route::Key(self.route, &entry.key.text);
        let typed = Typed { node: &entry.value, route: &route, rules: self.rules };
        seed.deserialize(typed).map_err(|error| error.at(&entry.value, &route))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left.len())
    }
}

struct Items<'n, 'p> {
    left: std::iter::Enumerate<std::slice::Iter<'n, Located<'n>>>,
    route: &'p Route<'p>,
    rules: &'p Rules<'p>,
}

impl<'n> SeqAccess<'n> for Items<'n, '_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'n>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        let Some((index, node)) = self.left.next() else { return Ok(None) };
        let route = Route::Index(self.route, index);
        let typed = Typed { node, route: &route, rules: self.rules };
        seed.deserialize(typed).map(Some).map_err(|error| error.at(node, &route))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left.len())
    }
}

/// A variant with content: `name: content`.
struct Variant<'n, 'p> {
    entry: &'n Entry<'n>,
    outer: Typed<'n, 'p>,
}

impl<'n, 'p> EnumAccess<'n> for Variant<'n, 'p> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'n>>(self, seed: V) -> Result<(V::Value, Self), Error> {
        let name: StrDeserializer<'_, Error> = (&*self.entry.key.text).into_deserializer();
        Ok((seed.deserialize(name)?, self))
    }
}

impl<'n> VariantAccess<'n> for Variant<'n, '_> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        self.newtype_variant_seed(std::marker::PhantomData)
    }

    fn newtype_variant_seed<T: DeserializeSeed<'n>>(self, seed: T) -> Result<T::Value, Error> {
        let node = &self.entry.value;
        let route = Route::Key(self.outer.route, &self.entry.key.text);
        let typed = Typed { node, route: &route, rules: self.outer.rules };
        seed.deserialize(typed).map_err(|error| error.at(node, &route))
    }

    fn tuple_variant<V: Visitor<'n>>(self, _: usize, _: V) -> Result<V::Value, Error> {
        Err(Error::custom("variants with several values are not supported"))
    }

    fn struct_variant<V: Visitor<'n>>(
        self,
        _: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Error> {
        Err(Error::custom("variants with fields are not supported"))
    }
}

/// Why a value cannot be read as its type. Small, since every field returns one.
#[derive(Debug)]
struct Error(Fault);

#[derive(Debug)]
enum Fault {
    /// A problem with its position.
    Placed(Box<Problem>),
    Message(String),
    /// The value has the wrong type.
    Expected(String),
    /// A required field is missing.
    Missing(&'static str),
}

impl Error {
    /// The error with its position, unless it already has that of an inner value.
    fn at(self, node: &Located<'_>, route: &Route<'_>) -> Self {
        let mut path = route.to_string();
        let message = match self.0 {
            placed @ Fault::Placed(_) => return Self(placed),
            Fault::Message(message) => message,
            Fault::Missing(field) => {
                push_key(&mut path, field);
                "is missing".to_owned()
            }
            Fault::Expected(expected) => {
                let found = node.describe();
                let is_unquoted = matches!(node.value, Value::Bool(_) | Value::Number(_));
                if expected == "a string" && is_unquoted {
                    format!("expected a string, found {found}: put it in quotes")
                } else {
                    format!("expected {expected}, found {found}")
                }
            }
        };
        Self(Fault::Placed(Box::new(node.problem(path, message))))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Fault::Placed(problem) => problem.fmt(f),
            Fault::Message(message) => f.write_str(message),
            Fault::Expected(expected) => write!(f, "expected {expected}"),
            Fault::Missing(field) => write!(f, "{field} is missing"),
        }
    }
}

impl std::error::Error for Error {}

impl serde::de::Error for Error {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(Fault::Message(message.to_string()))
    }

    fn invalid_type(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self(Fault::Expected(in_words(&expected.to_string())))
    }

    fn invalid_value(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self(Fault::Expected(in_words(&expected.to_string())))
    }

    fn missing_field(field: &'static str) -> Self {
        Self(Fault::Missing(field))
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        let hint = suggest(variant, expected.iter().copied());
        let hint = hint.map(|meant| format!(", did you mean {meant}")).unwrap_or_default();
        Self::custom(format!("{variant:?} is not one of {}{hint}", expected.join(", ")))
    }
}

/// A description of the type that serde expects.
fn in_words(expected: &str) -> String {
    let words = match expected {
        "i8" => "an 8-bit integer",
        "i16" => "a 16-bit integer",
        "i32" => "a 32-bit integer",
        "i64" | "isize" => "a 64-bit integer",
        "u8" => "an integer from 0 to 255",
        "u16" => "an integer from 0 to 65535",
        "u32" => "an integer from 0 to 4294967295",
        "u64" | "usize" => "an integer that is not negative",
        "f32" | "f64" => "a number",
        "a map" => "a mapping",
        "unit" => "null",
        "Quantity" => "a quantity",
        "IntOrString" => "an integer or a string",
        // The name of a type, as k8s-openapi and serde's derive give it.
        _ if expected.starts_with("struct ") => "a mapping",
        _ if expected.starts_with(|c: char| c.is_ascii_uppercase()) => "a mapping",
        _ => expected,
    };
    words.to_owned()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Pod, PodSpec};
    use serde::Deserialize;

    use kube_batch_api::crd::v1alpha2::PodGroup;

    use super::*;
    use crate::{Limits, parse};

    fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
        let value = parse(text, &Limits::default()).map_err(|problem| problem.to_string())?;
        value.typed("").map_err(|problem| problem.to_string())
    }

    #[test]
    fn an_error_names_the_innermost_field_and_its_position() {
        for (text, expected) in [
            (
                "spec: {minMember: three}",
                "line 1, column 19: spec.minMember: expected a 32-bit integer, found \"three\"",
            ),
            (
                "spec:\n  minMember: 1.5",
                "line 2, column 14: spec.minMember: expected a 32-bit integer, found the number 1.5",
            ),
            (
                "spec: {minMember: 99999999999}",
                "line 1, column 19: spec.minMember: expected a 32-bit integer, found the number \
                 99999999999",
            ),
            (
                "spec: {queue: 7}",
                "line 1, column 15: spec.queue: expected a string, found the number 7: put it in \
                 quotes",
            ),
            (
                "metadata: {labels: {a: {b: c}}}",
                "line 1, column 24: metadata.labels.a: expected a string, found a mapping",
            ),
            ("spec: [1]", "line 1, column 7: spec: expected a mapping, found a sequence"),
            ("[]", "line 1, column 1: expected a mapping, found a sequence"),
            (
                "metadata: {creationTimestamp: yesterday}",
                "line 1, column 31: metadata.creationTimestamp: failed to parse four digit integer \
                 as year: invalid digit, expected 0-9 but got y",
            ),
        ] {
            assert_eq!(read::<PodGroup>(text).map(drop), Err(expected.to_owned()), "{text}");
        }
        let text =
            "spec:\n  containers:\n  - name: a\n  - name: b\n    ports:\n    - containerPort: x";
        let expected = "line 6, column 22: spec.containers[1].ports[0].containerPort: expected a \
                        32-bit integer, found \"x\"";
        assert_eq!(read::<Pod>(text).map(drop), Err(expected.to_owned()));
    }

    #[test]
    fn a_quantity_may_be_a_number() {
        let text =
            "containers: [{name: a, resources: {requests: {cpu: 0.10, memory: 1e3, x: 0x10}}}]";
        let spec: PodSpec = read(text).expect("a pod spec");
        let requests = spec.containers[0].resources.as_ref().and_then(|r| r.requests.as_ref());
        let amounts: Vec<&str> =
            requests.expect("requests").values().map(|quantity| &*quantity.0).collect();
        assert_eq!(amounts, ["0.10", "1e3", "16"]);
    }

    #[test]
    fn a_word_is_a_boolean_where_one_is_expected() {
        let spec: PodSpec =
            read("{containers: [], hostNetwork: yes, hostPID: off, hostname: n}").expect("a spec");
        assert_eq!((spec.host_network, spec.host_pid), (Some(true), Some(false)));
        assert_eq!(spec.hostname.as_deref(), Some("n"));
    }

    #[test]
    fn null_is_absent() {
        let group: PodGroup =
            read("metadata: {labels: null}\nspec: {minMember: ~, queue: }\nstatus: null")
                .expect("a group");
        assert_eq!(group, PodGroup::default());
    }

    #[test]
    fn unknown_fields_are_recorded() {
        let text = "kind: PodGroup\nkindd: x\nspec:\n  minMembers: 3\n  colour: red\n";
        let value = parse(text, &Limits::default()).expect("YAML");
        let unknown = Problems::default();
        let group: PodGroup = value.typed_except(&["kind"], &unknown).expect("a group");
        assert_eq!(group, PodGroup::default());
        let unknown: Vec<String> = unknown.into_sorted().iter().map(ToString::to_string).collect();
        assert_eq!(
            unknown,
            [
                "line 2, column 1: kindd: unknown field",
                "line 4, column 3: spec.minMembers: unknown field, did you mean minMember",
                "line 5, column 3: spec.colour: unknown field",
            ]
        );
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase")]
    enum Choice {
        None,
        Some(u32),
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Chosen {
        choice: Choice,
    }

    #[test]
    fn enums_are_names_or_names_with_content() {
        assert_eq!(read("choice: none"), Ok(Chosen { choice: Choice::None }));
        assert_eq!(read("choice: {some: 3}"), Ok(Chosen { choice: Choice::Some(3) }));
        for (text, expected) in [
            (
                "choice: nome",
                "line 1, column 9: choice: \"nome\" is not one of none, some, did you mean none",
            ),
            (
                "choice: {some: -3}",
                "line 1, column 16: choice.some: expected an integer from 0 to 4294967295, found \
                 the number -3",
            ),
            ("choice: 1", "line 1, column 9: choice: expected a name, found the number 1"),
            ("choise: 1", "line 1, column 1: choice: is missing"),
        ] {
            assert_eq!(read::<Chosen>(text), Err(expected.to_owned()), "{text}");
        }
    }
}
