//! What in a pod tells why the gang that it should be in lacks pods.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_batch_model::{
    facts::pod_hints::{MetadataPlace, MisplacedGroup, PodHints},
    group_version::Join,
    membership::GROUP_ANNOTATION,
    name::{Name, is_dns_subdomain},
};

/// Where users write the name of a PodGroup by mistake.
const MISPLACED: [(MetadataPlace, &str, Join); 3] = [
    (MetadataPlace::Label, GROUP_ANNOTATION, Join::Annotation),
    (MetadataPlace::Label, "scheduling.volcano.sh/group-name", Join::Annotation),
    (MetadataPlace::Annotation, "scheduling.x-k8s.io/pod-group", Join::Label),
];

/// With this annotation, the webhook of JobSet rejects all pods of a Job but the first until that has a node.
const EXCLUSIVE_JOBSET: &str = "alpha.jobset.sigs.k8s.io/exclusive-topology";

/// With this one beside it, it does not.
const NODE_SELECTOR_JOBSET: &str = "alpha.jobset.sigs.k8s.io/node-selector";

/// With this annotation, LeaderWorkerSet creates the workers of a group once its leader has a node.
const EXCLUSIVE_LWS: &str = "leaderworkerset.sigs.k8s.io/exclusive-topology";

/// Reads them; `None` if there are none. `has_group`: whether the pod names a PodGroup.
pub(super) fn pod_hints(meta: &ObjectMeta, has_group: bool) -> Option<PodHints> {
    let misplaced_group = if has_group { None } else { misplaced_group(meta) };
    let found = PodHints { misplaced_group, exclusive_topology: exclusive_topology(meta) };
    (found != PodHints::default()).then_some(found)
}

fn misplaced_group(meta: &ObjectMeta) -> Option<MisplacedGroup> {
    MISPLACED.iter().find_map(|(place, key, join)| {
        let map = match place {
            MetadataPlace::Label => meta.labels.as_ref(),
            MetadataPlace::Annotation => meta.annotations.as_ref(),
        };
        let name = map?.get(*key).filter(|name| is_dns_subdomain(name))?;
        let (name, key) = (Name::from(name.as_str()), Name::from(*key));
        Some(MisplacedGroup { join: *join, name, place: *place, key })
    })
}

fn exclusive_topology(meta: &ObjectMeta) -> Option<Name> {
    let annotations = meta.annotations.as_ref()?;
    let has = |key: &str| annotations.contains_key(key);
    let key = match () {
        () if has(EXCLUSIVE_JOBSET) && !has(NODE_SELECTOR_JOBSET) => EXCLUSIVE_JOBSET,
        () if has(EXCLUSIVE_LWS) => EXCLUSIVE_LWS,
        () => return None,
    };
    Some(Name::from(key))
}
