//! PodGroups and queues of any API, as the API server sends them.

use std::borrow::Cow;

use k8s_openapi::{
    ClusterResourceScope, NamespaceResourceScope, apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::core::Resource;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use kube_batch_model::{facts::FactError, group_version::GroupVersion};

/// A PodGroup or queue of any API.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RawObject {
    /// The metadata.
    pub metadata: ObjectMeta,
    /// The spec; its type depends on the API.
    pub spec: Value,
    /// The status, if it has one.
    pub status: Option<Value>,
}

impl RawObject {
    /// An object without status.
    ///
    /// # Panics
    ///
    /// If the spec is not JSON.
    pub fn new(metadata: &ObjectMeta, spec: &impl Serialize) -> Self {
        let spec = serde_json::to_value(spec).expect("a spec is JSON");
        Self { metadata: metadata.clone(), spec, status: None }
    }

    /// Its spec as a type; the default if it has none.
    ///
    /// # Errors
    ///
    /// [`FactError`] if it cannot be read: skip the object.
    pub fn spec<T: DeserializeOwned + Default>(&self, kind: &str) -> Result<T, FactError> {
        self.part(kind, "spec", &self.spec)
    }

    /// Its status as a type; the default if it has none.
    ///
    /// # Errors
    ///
    /// [`FactError`] if it cannot be read: skip the object.
    pub fn status<T: DeserializeOwned + Default>(&self, kind: &str) -> Result<T, FactError> {
        self.part(kind, "status", self.status.as_ref().unwrap_or(&Value::Null))
    }

    fn part<T: DeserializeOwned + Default>(
        &self,
        kind: &str,
        name: &str,
        value: &Value,
    ) -> Result<T, FactError> {
        if value.is_null() {
            return Ok(T::default());
        }
        serde_path_to_error::deserialize(value).map_err(|error| {
            let meta = &self.metadata;
            let name_of = |text: &Option<String>| text.clone().unwrap_or_default();
            let object = match meta.namespace.as_deref() {
                None | Some("") => format!("{kind} {}", name_of(&meta.name)),
                Some(namespace) => format!("{kind} {namespace}/{}", name_of(&meta.name)),
            };
            let path = error.path().to_string();
            let field = if path == "." { name.to_owned() } else { format!("{name}.{path}") };
            FactError::new(object, field, error.into_inner().to_string())
        })
    }
}

macro_rules! object {
    ($(#[$doc:meta])* $type:ident, $kind:literal, $scope:ident, $plural:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $type<const VERSION: u8>(pub RawObject);

        impl<const VERSION: u8> $type<VERSION> {
            /// Its API version.
            pub const VERSION: GroupVersion = GroupVersion::ALL[VERSION as usize];
        }

        impl<const VERSION: u8> Resource for $type<VERSION> {
            type DynamicType = ();
            type Scope = $scope;

            fn kind((): &()) -> Cow<'_, str> {
                $kind.into()
            }
            fn group((): &()) -> Cow<'_, str> {
                Self::VERSION.group().into()
            }
            fn version((): &()) -> Cow<'_, str> {
                Self::VERSION.version().into()
            }
            fn plural((): &()) -> Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &ObjectMeta {
                &self.0.metadata
            }
            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.0.metadata
            }
        }
    };
}

object!(
    /// A PodGroup of the API version with this number, see [`GroupVersion::ALL`].
    GroupOf,
    "PodGroup",
    NamespaceResourceScope,
    "podgroups"
);
object!(
    /// A queue of the API version with this number, see [`GroupVersion::ALL`].
    QueueOf,
    "Queue",
    ClusterResourceScope,
    "queues"
);
