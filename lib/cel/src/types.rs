//! Static types, as cel-go's checker knows them.

use std::{fmt, sync::Arc};

/// The type of an expression.
///
/// It has no `PartialEq`: what a type mentions twice is shared, so that a short expression has a type
/// that takes exponentially long to go through. [`Unifier`](crate::unify::Unifier) counts its steps.
#[derive(Clone, Debug)]
pub(crate) enum Type {
    /// Known only when evaluated; agrees with every type.
    Dyn,
    /// A variable of the checker, by number.
    Param(u32),
    Null,
    Bool,
    Int,
    UInt,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    /// The type of a type.
    Meta(Arc<Type>),
    List(Arc<Type>),
    Map(Arc<(Type, Type)>),
    Optional(Arc<Type>),
    Opaque(Opaque),
    /// The variable `device`.
    Device,
}

/// A type that has functions, but neither fields nor operators other than equality.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opaque {
    Quantity,
    Semver,
    Url,
    Ip,
    Cidr,
    Format,
}

impl Opaque {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Quantity => "kubernetes.Quantity",
            Self::Semver => "kubernetes.Semver",
            Self::Url => "kubernetes.URL",
            Self::Ip => "net.IP",
            Self::Cidr => "net.CIDR",
            Self::Format => "kubernetes.NamedFormat",
        }
    }
}

impl Type {
    pub(crate) fn list(element: Self) -> Self {
        Self::List(Arc::new(element))
    }

    pub(crate) fn map(key: Self, value: Self) -> Self {
        Self::Map(Arc::new((key, value)))
    }

    pub(crate) fn optional(value: Self) -> Self {
        Self::Optional(Arc::new(value))
    }

    pub(crate) fn type_of(inner: Self) -> Self {
        Self::Meta(Arc::new(inner))
    }

    /// The type of `device.<name>`.
    pub(crate) fn device_field(name: &str) -> Option<Self> {
        let domains = |value| Self::map(Self::String, Self::map(Self::String, value));
        Some(match name {
            "driver" => Self::String,
            "allowMultipleAllocations" => Self::Bool,
            "attributes" => domains(Self::Dyn),
            "capacity" => domains(Self::Opaque(Opaque::Quantity)),
            _ => return None,
        })
    }

    /// The type that a name such as `int` or `net.IP` denotes in an expression.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "bool" => Self::Bool,
            "int" => Self::Int,
            "uint" => Self::UInt,
            "double" => Self::Double,
            "string" => Self::String,
            "bytes" => Self::Bytes,
            "null_type" => Self::Null,
            "list" => Self::list(Self::Dyn),
            "map" => Self::map(Self::Dyn, Self::Dyn),
            "type" => Self::type_of(Self::Dyn),
            "google.protobuf.Duration" => Self::Duration,
            "google.protobuf.Timestamp" => Self::Timestamp,
            "optional_type" => Self::optional(Self::Dyn),
            "net.IP" => Self::Opaque(Opaque::Ip),
            "net.CIDR" => Self::Opaque(Opaque::Cidr),
            _ => return None,
        })
    }

    /// The name without parameters, which is what `type()` compares.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Dyn | Self::Param(_) => "dyn",
            Self::Null => "null_type",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::UInt => "uint",
            Self::Double => "double",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Duration => "google.protobuf.Duration",
            Self::Timestamp => "google.protobuf.Timestamp",
            Self::Meta(_) => "type",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Optional(_) => "optional_type",
            Self::Opaque(opaque) => opaque.name(),
            Self::Device => "kubernetes.DRADevice",
        }
    }
}

/// The longest text of a type.
const MAX_TEXT: usize = 256;

impl fmt::Display for Type {
    /// The type as cel-go writes it, cut after a few hundred bytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        self.write(&mut text);
        if text.len() > MAX_TEXT {
            return write!(f, "{}…", &text[..text.floor_char_boundary(MAX_TEXT)]);
        }
        f.write_str(&text)
    }
}

impl Type {
    /// Appends the text of the type, or enough of it.
    fn write(&self, out: &mut String) {
        if out.len() > MAX_TEXT {
            return;
        }
        match self {
            Self::Meta(inner) | Self::List(inner) | Self::Optional(inner) => {
                out.push_str(self.name());
                out.push('(');
                inner.write(out);
                out.push(')');
            }
            Self::Map(pair) => {
                out.push_str("map(");
                pair.0.write(out);
                out.push_str(", ");
                pair.1.write(out);
                out.push(')');
            }
            other => out.push_str(other.name()),
        }
    }
}
