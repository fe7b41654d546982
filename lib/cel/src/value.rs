//! Values of expressions.

use std::{cmp::Ordering, collections::BTreeMap, net::IpAddr, sync::Arc};

use kube_batch_quantity::Quantity;

use crate::{
    device::{Attribute, Device, Domains, Names},
    error::EvaluationError,
    named_format::Format,
    types::{Opaque, Type},
    url::Url,
};

/// What an operator or a function returns.
pub(crate) type Outcome<'a> = Result<Value<'a>, EvaluationError>;

/// The entries of a map, in the order of their keys.
pub(crate) type Entries<'a> = BTreeMap<Key, Value<'a>>;

static NO_ATTRIBUTES: Names<Attribute> = BTreeMap::new();
static NO_CAPACITY: Names<Quantity> = BTreeMap::new();

/// A value. Cheap to clone: what is long is shared.
#[derive(Clone, Debug)]
pub(crate) enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    UInt(u64),
    Double(f64),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
    List(Arc<Vec<Value<'a>>>),
    Map(Arc<Entries<'a>>),
    /// Nanoseconds.
    Duration(i64),
    Timestamp(Moment),
    /// The name of a type.
    Type(&'static str),
    Optional(Option<Arc<Value<'a>>>),
    Quantity(Quantity),
    Semver(Arc<semver::Version>),
    Url(Arc<Url>),
    Ip(IpAddr),
    Cidr(Cidr),
    Format(&'static Format),
    /// The variable `device`.
    Device(&'a Device),
    /// `device.attributes`: a map in which an unknown domain is an empty map.
    Attributes(&'a Domains<Attribute>),
    /// `device.capacity`: the same for capacities.
    Capacity(&'a Domains<Quantity>),
    /// `device.attributes[domain]`
    AttributeNames(&'a Names<Attribute>),
    /// `device.capacity[domain]`
    CapacityNames(&'a Names<Quantity>),
}

/// An instant, and the offset of the text that it was read from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// Since 1970, rounded down.
    pub(crate) seconds: i64,
    /// From `seconds` on.
    pub(crate) nanoseconds: u32,
    /// East of UTC. Only the text form depends on it.
    pub(crate) offset_seconds: i32,
}

impl Moment {
    /// Nanoseconds since 1970.
    pub(crate) fn total(&self) -> i128 {
        i128::from(self.seconds) * 1_000_000_000 + i128::from(self.nanoseconds)
    }
}

/// A block of IP addresses, with the host bits that it was written with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cidr {
    pub(crate) address: IpAddr,
    pub(crate) prefix: u8,
}

/// The key of a map. Numbers of different types with the same value are the same key.
#[derive(Clone, Debug)]
pub(crate) enum Key {
    Bool(bool),
    Int(i64),
    UInt(u64),
    String(Arc<str>),
}

impl Key {
    fn rank(&self) -> (u8, i128, &str) {
        match self {
            Self::Bool(value) => (0, i128::from(*value), ""),
            Self::Int(number) => (1, i128::from(*number), ""),
            Self::UInt(number) => (1, i128::from(*number), ""),
            Self::String(text) => (2, 0, text),
        }
    }

    /// The key that a value is. Doubles find keys, if they are whole.
    pub(crate) fn of(value: &Value<'_>) -> Option<Self> {
        Some(match value {
            Value::Bool(value) => Self::Bool(*value),
            Value::Int(number) => Self::Int(*number),
            Value::UInt(number) => Self::UInt(*number),
            Value::Double(number) => Self::Int(whole(*number)?),
            Value::String(text) => Self::String(text.clone()),
            _ => return None,
        })
    }

    pub(crate) fn into_value<'a>(self) -> Value<'a> {
        match self {
            Self::Bool(value) => Value::Bool(value),
            Self::Int(number) => Value::Int(number),
            Self::UInt(number) => Value::UInt(number),
            Self::String(text) => Value::String(text),
        }
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.rank() == other.rank()
    }
}

impl Eq for Key {}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank().cmp(&other.rank())
    }
}

/// 2^63
pub(crate) const INT_BOUND: f64 = 9_223_372_036_854_775_808.0;

/// The integer that `number` is, if it is one.
#[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
pub(crate) fn whole(number: f64) -> Option<i64> {
    let is_in_range = (-INT_BOUND..INT_BOUND).contains(&number);
    (is_in_range && number.fract() == 0.0).then_some(number as i64)
}

impl<'a> Value<'a> {
    pub(crate) fn string(text: &str) -> Self {
        Self::String(text.into())
    }

    pub(crate) fn list(elements: Vec<Self>) -> Self {
        Self::List(Arc::new(elements))
    }

    pub(crate) fn strings(texts: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        Self::list(texts.into_iter().map(|text| Self::string(text.as_ref())).collect())
    }

    pub(crate) fn map(entries: Entries<'a>) -> Self {
        Self::Map(Arc::new(entries))
    }

    pub(crate) fn some(value: Self) -> Self {
        Self::Optional(Some(Arc::new(value)))
    }

    /// The name of the value's type, as `type()` returns it.
    pub(crate) const fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::UInt(_) => "uint",
            Self::Double(_) => "double",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::List(_) => "list",
            Self::Map(_)
            | Self::Device(_)
            | Self::Attributes(_)
            | Self::Capacity(_)
            | Self::AttributeNames(_)
            | Self::CapacityNames(_) => "map",
            Self::Duration(_) => Type::Duration.name(),
            Self::Timestamp(_) => Type::Timestamp.name(),
            Self::Type(_) => "type",
            Self::Optional(_) => "optional_type",
            Self::Quantity(_) => Opaque::Quantity.name(),
            Self::Semver(_) => Opaque::Semver.name(),
            Self::Url(_) => Opaque::Url.name(),
            Self::Ip(_) => Opaque::Ip.name(),
            Self::Cidr(_) => Opaque::Cidr.name(),
            Self::Format(_) => Opaque::Format.name(),
        }
    }

    /// Whether the value can be an argument for a parameter of this type. Of a list only the first
    /// element is looked at.
    pub(crate) fn is(&self, parameter: &Type) -> bool {
        match (parameter, self) {
            (Type::Dyn | Type::Param(_), _)
            | (Type::Null, Self::Null)
            | (Type::Bool, Self::Bool(_))
            | (Type::Int, Self::Int(_))
            | (Type::UInt, Self::UInt(_))
            | (Type::Double, Self::Double(_))
            | (Type::String, Self::String(_))
            | (Type::Bytes, Self::Bytes(_))
            | (Type::Duration, Self::Duration(_))
            | (Type::Timestamp, Self::Timestamp(_))
            | (Type::Meta(_), Self::Type(_))
            | (Type::Optional(_), Self::Optional(_)) => true,
            (Type::List(of), Self::List(elements)) => {
                elements.first().is_none_or(|element| element.is(of))
            }
            (Type::Map(_), value) => value.is_map(),
            (Type::Opaque(opaque), value) => value.type_name() == opaque.name(),
            _ => false,
        }
    }

    pub(crate) const fn is_map(&self) -> bool {
        matches!(
            self,
            Self::Map(_)
                | Self::Device(_)
                | Self::Attributes(_)
                | Self::Capacity(_)
                | Self::AttributeNames(_)
                | Self::CapacityNames(_)
        )
    }

    /// The bytes that are read when the value is read as a whole, apart from the elements and entries in it.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::String(text) => text.len(),
            Self::Bytes(bytes) => bytes.len(),
            Self::Url(url) => url.len(),
            Self::Semver(version) => version.pre.len() + version.build.len(),
            _ => 0,
        }
    }

    /// Bytes, elements or entries.
    pub(crate) fn len(&self) -> Option<usize> {
        Some(match self {
            Self::String(text) => text.len(),
            Self::Bytes(bytes) => bytes.len(),
            Self::List(elements) => elements.len(),
            Self::Map(entries) => entries.len(),
            Self::Device(_) => Device::FIELDS.len(),
            Self::Attributes(domains) => domains.len(),
            Self::Capacity(domains) => domains.len(),
            Self::AttributeNames(names) => names.len(),
            Self::CapacityNames(names) => names.len(),
            _ => return None,
        })
    }

    /// The entry with this key. In the maps of domains an unknown one is there, and empty.
    pub(crate) fn entry(&self, key: &Value<'_>) -> Option<Self> {
        match (self, key) {
            (Self::Map(entries), key) => entries.get(&Key::of(key)?).cloned(),
            (map, Value::String(name)) => map.field(name),
            _ => None,
        }
    }

    /// The entry whose key is this text.
    pub(crate) fn field(&self, name: &Arc<str>) -> Option<Self> {
        match self {
            Self::Map(entries) => entries.get(&Key::String(name.clone())).cloned(),
            Self::Device(device) => device.field(name),
            Self::Attributes(domains) => {
                Some(Self::AttributeNames(domains.get(&**name).unwrap_or(&NO_ATTRIBUTES)))
            }
            Self::Capacity(domains) => {
                Some(Self::CapacityNames(domains.get(&**name).unwrap_or(&NO_CAPACITY)))
            }
            Self::AttributeNames(names) => names.get(&**name).map(Self::of_attribute),
            Self::CapacityNames(names) => names.get(&**name).copied().map(Self::Quantity),
            _ => None,
        }
    }

    /// Whether a map has this key: unlike [`Self::entry`], unknown domains are missing.
    pub(crate) fn has_key(&self, key: &Value<'_>) -> bool {
        match (self, key) {
            (Self::Attributes(domains), Value::String(name)) => domains.contains_key(&**name),
            (Self::Capacity(domains), Value::String(name)) => domains.contains_key(&**name),
            (map, key) => map.entry(key).is_some(),
        }
    }

    /// The keys of a map, in their order.
    pub(crate) fn keys(&self) -> Box<dyn Iterator<Item = Key> + '_> {
        fn names<T>(names: &BTreeMap<Arc<str>, T>) -> Box<dyn Iterator<Item = Key> + '_> {
            Box::new(names.keys().cloned().map(Key::String))
        }
        match self {
            Self::Map(entries) => Box::new(entries.keys().cloned()),
            Self::Device(_) => {
                Box::new(Device::FIELDS.iter().map(|name| Key::String((*name).into())))
            }
            Self::Attributes(domains) => names(domains),
            Self::Capacity(domains) => names(domains),
            Self::AttributeNames(of_domain) => names(of_domain),
            Self::CapacityNames(of_domain) => names(of_domain),
            _ => Box::new(std::iter::empty()),
        }
    }

    fn of_attribute(attribute: &Attribute) -> Self {
        match attribute {
            Attribute::Int(number) => Self::Int(*number),
            Attribute::Bool(value) => Self::Bool(*value),
            Attribute::String(text) => Self::String(text.clone()),
            Attribute::Version(version) => Self::Semver(version.clone()),
            Attribute::List(values) => Self::list(values.iter().map(Self::of_attribute).collect()),
        }
    }
}

impl Device {
    /// The fields of the variable, in the order of their names.
    const FIELDS: [&'static str; 4] =
        ["allowMultipleAllocations", "attributes", "capacity", "driver"];

    fn field(&self, name: &str) -> Option<Value<'_>> {
        Some(match name {
            "driver" => Value::String(self.driver.clone()),
            "allowMultipleAllocations" => Value::Bool(self.allow_multiple_allocations),
            "attributes" => Value::Attributes(&self.attributes),
            "capacity" => Value::Capacity(&self.capacity),
            _ => return None,
        })
    }
}
