//! Classes of devices.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{OpaqueConfig, request::Selector};
use crate::{facts::fact::Fact, name::Name};

/// Prefix of the resource name that every class has.
const IMPLICIT_RESOURCE_PREFIX: &str = "deviceclass.resource.kubernetes.io/";

/// The fields of a DeviceClass that the scheduler uses.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DeviceClassFacts {
    /// Its name.
    pub name: Name,
    /// When it was created.
    pub created: Timestamp,
    /// What its devices have in common: all must hold.
    pub selectors: Vec<Selector>,
    /// Configuration of all its devices; `None` for a kind that is not known.
    pub config: Vec<Option<OpaqueConfig>>,
    /// The extended resource whose requests its devices satisfy.
    pub extended_resource: Option<Name>,
}

impl Fact for DeviceClassFacts {}

impl DeviceClassFacts {
    /// Whether requests for the resource can be met by devices of the class.
    pub fn stands_for(&self, resource: &str) -> bool {
        self.extended_resource.as_deref() == Some(resource)
            || class_of_implicit_resource(resource) == Some(&*self.name)
    }
}

/// The resource name that stands for a class without being named by it.
pub fn implicit_resource(class: &str) -> Name {
    Name::from(format!("{IMPLICIT_RESOURCE_PREFIX}{class}"))
}

/// The class that a resource name with the common prefix names.
pub fn class_of_implicit_resource(resource: &str) -> Option<&str> {
    resource.strip_prefix(IMPLICIT_RESOURCE_PREFIX)
}
