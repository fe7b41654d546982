//! The variable `device` of a selector.

use std::{collections::BTreeMap, sync::Arc};

use kube_batch_quantity::Quantity;

/// Values by name.
pub(crate) type Names<T> = BTreeMap<Arc<str>, T>;
/// Values by domain and name.
pub(crate) type Domains<T> = BTreeMap<Arc<str>, Names<T>>;

/// A device as selectors see it.
///
/// ```
/// use kube_batch_cel::{Attribute, Device};
///
/// let device = Device::new(
///     "gpu.example.com",
///     false,
///     [("model", Attribute::from("a100")), ("std.example.org/numa", Attribute::Int(1))],
///     [],
/// );
/// assert_eq!(device.attribute("gpu.example.com", "model"), Some(&Attribute::from("a100")));
/// assert_eq!(device.attribute("std.example.org", "numa"), Some(&Attribute::Int(1)));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Device {
    pub(crate) driver: Arc<str>,
    pub(crate) allow_multiple_allocations: bool,
    pub(crate) attributes: Domains<Attribute>,
    pub(crate) capacity: Domains<Quantity>,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Attribute {
    /// `int`
    Int(i64),
    /// `bool`
    Bool(bool),
    /// `string`
    String(Arc<str>),
    /// `version`
    Version(Arc<semver::Version>),
    /// Several values; the feature gate for them is off in Kubernetes 1.37, but stored objects may have some.
    List(Vec<Self>),
}

impl Device {
    /// A device of `driver`. A name without domain is filed under the driver's name; `domain/name`
    /// is split at the first slash. Of several values with one name the last counts.
    pub fn new<'n>(
        driver: &str,
        allow_multiple_allocations: bool,
        attributes: impl IntoIterator<Item = (&'n str, Attribute)>,
        capacity: impl IntoIterator<Item = (&'n str, Quantity)>,
    ) -> Self {
        Self {
            driver: driver.into(),
            allow_multiple_allocations,
            attributes: by_domain(driver, attributes),
            capacity: by_domain(driver, capacity),
        }
    }

    /// The name of the driver.
    pub fn driver(&self) -> &str {
        &self.driver
    }

    /// Whether the device may be part of several allocations at once.
    pub const fn allow_multiple_allocations(&self) -> bool {
        self.allow_multiple_allocations
    }

    /// The value of an attribute.
    pub fn attribute(&self, domain: &str, name: &str) -> Option<&Attribute> {
        self.attributes.get(domain)?.get(name)
    }

    /// The amount of a capacity.
    pub fn capacity(&self, domain: &str, name: &str) -> Option<Quantity> {
        self.capacity.get(domain)?.get(name).copied()
    }
}

fn by_domain<'n, T>(driver: &str, values: impl IntoIterator<Item = (&'n str, T)>) -> Domains<T> {
    let mut domains = Domains::<T>::new();
    for (qualified, value) in values {
        let (domain, name) = qualified.split_once('/').unwrap_or((driver, qualified));
        if !domains.contains_key(domain) {
            domains.insert(domain.into(), Names::new());
        }
        if let Some(names) = domains.get_mut(domain) {
            names.insert(name.into(), value);
        }
    }
    domains
}

impl Attribute {
    /// A version; `None` if the text is none.
    pub fn version(text: &str) -> Option<Self> {
        semver::Version::parse(text).ok().map(Self::from)
    }
}

impl From<&str> for Attribute {
    fn from(text: &str) -> Self {
        Self::String(text.into())
    }
}

impl From<i64> for Attribute {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

impl From<bool> for Attribute {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<semver::Version> for Attribute {
    fn from(version: semver::Version) -> Self {
        Self::Version(Arc::new(version))
    }
}
