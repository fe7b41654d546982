//! Makes an object with every field that its type reads, by asking the type: it is deserialized from whatever it asks
//! for, and what it was given is the object.

use std::fmt;

use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess,
    SeqAccess, VariantAccess, Visitor, value::StrDeserializer,
};
use serde_json::{Map, Value, json};

/// The text of every field that takes one.
const TEXT: &str = "x";

/// The value of every field that takes a time.
pub(super) const TIME: &str = "2025-01-01T00:00:00Z";

/// A value of type `T`, as JSON. Lists have one item, and maps one entry, but for annotations, which have these keys.
pub(super) fn every_field<T: DeserializeOwned>(annotations: &[String]) -> Value {
    let mut value = Value::Null;
    let filler = Filler { value: &mut value, field: "", annotations };
    T::deserialize(filler).expect("every type takes what it asks for");
    value
}

struct Filler<'a> {
    /// Where to write what was given.
    value: &'a mut Value,
    /// The field of which it is the value; empty at the top.
    field: &'static str,
    annotations: &'a [String],
}

/// Never made: a type is given what it asks for.
#[derive(Debug)]
pub(super) struct Refused(String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Refused {}

impl serde::de::Error for Refused {
    fn custom<T: fmt::Display>(problem: T) -> Self {
        Self(problem.to_string())
    }
}

impl Filler<'_> {
    fn text<'de, V: Visitor<'de>>(self, text: &str, visitor: V) -> Result<V::Value, Refused> {
        // In our own types it is a time of another type than those of Kubernetes.
        let text = if self.field == "lastTransitionTime" { TIME } else { text };
        *self.value = json!(text);
        visitor.visit_str(text)
    }

    fn number<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        *self.value = json!(1);
        visitor.visit_u64(1)
    }
}

macro_rules! numbers {
    ($($method:ident)*) => { $(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
            self.number(visitor)
        }
    )* };
}

macro_rules! texts {
    ($($method:ident)*) => { $(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
            self.text(TEXT, visitor)
        }
    )* };
}

impl<'de> Deserializer<'de> for Filler<'_> {
    type Error = Refused;

    numbers! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
        deserialize_f32 deserialize_f64
    }

    texts! {
        deserialize_any deserialize_char deserialize_str deserialize_string deserialize_bytes
        deserialize_byte_buf deserialize_identifier deserialize_ignored_any
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        *self.value = json!(true);
        visitor.visit_bool(true)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_some(self)
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Refused> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Refused> {
        match name {
            "Time" | "MicroTime" => self.newtype(TIME, visitor),
            "Quantity" => self.newtype("1", visitor),
            _ => visitor.visit_newtype_struct(self),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        let mut items = Vec::new();
        let value = visitor.visit_seq(Items { items: &mut items, outer: &self })?;
        *self.value = Value::Array(items);
        Ok(value)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Refused> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, Refused> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        let keys = match self.field {
            "annotations" => self.annotations.to_vec(),
            _ => vec![TEXT.to_owned()],
        };
        let keys = keys.into_iter().map(|key| (key, "")).collect();
        self.entries(keys, visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refused> {
        // Of an object, they are what the API server says it is.
        let is_known =
            |field: &str| self.field.is_empty() && matches!(field, "apiVersion" | "kind");
        let fields = fields.iter().filter(|field| !is_known(field));
        self.entries(fields.map(|field| ((*field).to_owned(), *field)).collect(), visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refused> {
        let variant = variants[0];
        *self.value = json!(variant);
        visitor.visit_enum(Variant(variant))
    }
}

impl Filler<'_> {
    fn newtype<'de, V: Visitor<'de>>(self, text: &str, visitor: V) -> Result<V::Value, Refused> {
        *self.value = json!(text);
        visitor.visit_newtype_struct(text.into_deserializer())
    }

    /// Gives these keys, each with the field that it is.
    fn entries<'de, V: Visitor<'de>>(
        self,
        keys: Vec<(String, &'static str)>,
        visitor: V,
    ) -> Result<V::Value, Refused> {
        let mut entries = Map::new();
        let left = keys.into_iter();
        let access = Entries { entries: &mut entries, left, current: None, outer: &self };
        let value = visitor.visit_map(access)?;
        *self.value = Value::Object(entries);
        Ok(value)
    }
}

struct Items<'a, 'f> {
    items: &'a mut Vec<Value>,
    outer: &'a Filler<'f>,
}

impl<'de> SeqAccess<'de> for Items<'_, '_> {
    type Error = Refused;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Refused> {
        if !self.items.is_empty() {
            return Ok(None);
        }
        let mut value = Value::Null;
        let Filler { annotations, .. } = self.outer;
        let filler = Filler { value: &mut value, field: "[]", annotations };
        let item = seed.deserialize(filler)?;
        self.items.push(value);
        Ok(Some(item))
    }
}

struct Entries<'a, 'f> {
    entries: &'a mut Map<String, Value>,
    left: std::vec::IntoIter<(String, &'static str)>,
    current: Option<(String, &'static str)>,
    outer: &'a Filler<'f>,
}

impl<'de> MapAccess<'de> for Entries<'_, '_> {
    type Error = Refused;

    fn next_key_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Refused> {
        self.current = self.left.next();
        let Some((key, _)) = &self.current else { return Ok(None) };
        let key: StrDeserializer<'_, Refused> = key.as_str().into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Refused> {
        let (key, field) = self.current.take().expect("a key before its value");
        let mut value = Value::Null;
        let Filler { annotations, .. } = self.outer;
        let field = if field.is_empty() { "{}" } else { field };
        let read = seed.deserialize(Filler { value: &mut value, field, annotations })?;
        self.entries.insert(key, value);
        Ok(read)
    }
}

struct Variant(&'static str);

impl<'de> EnumAccess<'de> for Variant {
    type Error = Refused;
    type Variant = Self;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Self), Refused> {
        let name: StrDeserializer<'_, Refused> = self.0.into_deserializer();
        Ok((seed.deserialize(name)?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant {
    type Error = Refused;

    fn unit_variant(self) -> Result<(), Refused> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, _: T) -> Result<T::Value, Refused> {
        Err(Refused("the first variant has contents".to_owned()))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, Refused> {
        Err(Refused("the first variant has contents".to_owned()))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Refused> {
        Err(Refused("the first variant has contents".to_owned()))
    }
}
