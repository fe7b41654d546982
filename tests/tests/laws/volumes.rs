//! Model: which volumes the claims of a pod get on a node, compared with a search that looks at every volume for every
//! claim.
//!
//! `KUBE_BATCH_SEEDS=20000 cargo test -p kube-batch-tests --test laws volumes::` plays more clusters.

use k8s_openapi::api::{
    core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod},
    storage::v1::StorageClass,
};
use kube_batch_api::{dialect::RawObject, kind::ApplyObject as _};
use kube_batch_cache::{
    assumed::Assumed,
    snapshot::{SnapshotOptions, take_snapshot},
    store::Store,
};
use kube_batch_framework::candidates::Search;
use kube_batch_model::decision::{ClaimChoice, Decision};
use kube_batch_scheduler::conf::Conf;
use kube_batch_tests::{random_cluster::Rng, seeds::seeds};
use serde_json::{Value, json};

const ZONE: &str = "topology.kubernetes.io/zone";
const N_ZONES: u64 = 2;
const MODES: [&str; 2] = ["ReadWriteOnce", "ReadOnlyMany"];

#[derive(Clone, Debug)]
struct Volume {
    name: String,
    gib: u64,
    class: u64,
    modes: Vec<&'static str>,
    label: u64,
    /// `None` if it can be reached from every node.
    zone: Option<u64>,
    /// The claim that it is reserved for.
    claim: Option<u64>,
}

#[derive(Clone, Debug)]
struct Claim {
    name: String,
    gib: u64,
    class: u64,
    modes: Vec<&'static str>,
    label: Option<u64>,
}

/// A node in each zone, and one pod with all claims.
#[derive(Clone, Debug)]
struct Cluster {
    volumes: Vec<Volume>,
    claims: Vec<Claim>,
    /// Whether volumes of the first class are made where there are none.
    provisions: bool,
}

/// Each claim with its volume, or `None` if one is made for it.
type Choices = Vec<(String, Option<String>)>;

impl Cluster {
    fn random(rng: &mut Rng) -> Self {
        let modes = |rng: &mut Rng| match rng.below(4) {
            0 => vec![MODES[1]],
            1 => MODES.to_vec(),
            _ => vec![MODES[0]],
        };
        let (n_claims, n_volumes) = (1 + rng.below(5), rng.below(12));
        let volumes = (0..n_volumes).map(|n| Volume {
            name: format!("v{n:02}"),
            gib: 1 + rng.below(4),
            class: rng.below(2),
            modes: modes(rng),
            label: rng.below(2),
            zone: rng.percent(50).then(|| rng.below(N_ZONES)),
            claim: rng.percent(10).then(|| rng.below(n_claims)),
        });
        let volumes = volumes.collect();
        let claims = (0..n_claims).map(|n| Claim {
            name: format!("c{n}"),
            gib: 1 + rng.below(4),
            class: rng.below(2),
            modes: modes(rng),
            label: rng.percent(30).then(|| rng.below(2)),
        });
        let claims = claims.collect();
        Self { volumes, claims, provisions: rng.percent(30) }
    }

    /// The volume of each claim on the node of a zone, and `None` for one that is made; nothing if the pod does not fit.
    fn expected(&self, zone: u64) -> Option<Choices> {
        let mut claims: Vec<(u64, &Claim)> = (0..).zip(&self.claims).collect();
        claims.sort_by_key(|(_, claim)| claim.gib);
        let mut chosen: Vec<&str> = Vec::new();
        let mut choices = Vec::new();
        for (number, claim) in claims {
            let fits = |volume: &&Volume| volume.class == claim.class && volume.gib >= claim.gib;
            let is_near = |volume: &&Volume| volume.zone.is_none_or(|own| own == zone);
            let smallest = |volumes: Vec<&Volume>| -> Option<String> {
                let first =
                    volumes.into_iter().min_by_key(|volume| (volume.gib, volume.name.clone()));
                first.map(|volume| volume.name.clone())
            };
            let all = || self.volumes.iter().filter(fits);
            let reserved = smallest(all().filter(|v| v.claim == Some(number)).collect());
            let found = match &reserved {
                Some(name) => self.volumes.iter().find(|v| v.name == *name).filter(is_near),
                None => {
                    let free = all().filter(|volume| {
                        volume.claim.is_none()
                            && !chosen.contains(&&*volume.name)
                            && claim.modes.iter().all(|mode| volume.modes.contains(mode))
                            && claim.label.is_none_or(|label| volume.label == label)
                    });
                    let name = smallest(free.filter(is_near).collect());
                    self.volumes.iter().find(|volume| Some(&volume.name) == name.as_ref())
                }
            };
            if found.is_none() && !(self.provisions && claim.class == 0) {
                return None;
            }
            chosen.extend(found.map(|volume| &*volume.name));
            choices.push((claim.name.clone(), found.map(|volume| volume.name.clone())));
        }
        // The order of claims of one size is not a rule.
        choices.sort();
        Some(choices)
    }

    /// The zone of the node that the pod gets, and the volumes of its claims.
    fn decided(&self) -> Option<(u64, Choices)> {
        let store = self.store();
        let cluster = take_snapshot(&store, &Assumed::default(), &SnapshotOptions::default());
        let now = jiff::Timestamp::UNIX_EPOCH;
        let cycle = Conf::default().run_cycle(cluster.cluster, now, Search::Index, &mut |_| {});
        let bound = cycle.decisions.iter().find_map(|decision| match decision {
            Decision::Bind { claims, node, .. } => Some((claims, node)),
            _ => None,
        });
        let choice = |ClaimChoice { claim, volume, .. }: &ClaimChoice| {
            (claim.name.to_string(), volume.as_ref().map(ToString::to_string))
        };
        bound.map(|(claims, node)| {
            let mut choices: Choices = claims.iter().map(choice).collect();
            choices.sort();
            (node.parse().expect("nodes have the names of zones"), choices)
        })
    }

    fn store(&self) -> Store {
        fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
            serde_json::from_value(value).expect("an object")
        }
        let mut store = Store::default();
        let queue = json!({"weight": 1});
        let meta = object(json!({"name": "default"}));
        let version = kube_batch_model::group_version::GroupVersion::V1Alpha2;
        store.apply_queue(version, &RawObject::new(&meta, &queue)).expect("a queue");
        for zone in 0..N_ZONES {
            let node = json!({
                "metadata": {"name": zone.to_string(), "labels": {(ZONE): zone.to_string()}},
                "status": {"allocatable": {"cpu": "4", "pods": "10"}},
            });
            store.apply::<Node>(&object(node)).expect("a node");
        }
        for class in 0..2 {
            let makes = self.provisions && class == 0;
            let class = json!({
                "metadata": {"name": format!("class-{class}")},
                "provisioner": if makes { "example.com/disks" } else { "kubernetes.io/no-provisioner" },
                "volumeBindingMode": "WaitForFirstConsumer",
            });
            store.apply::<StorageClass>(&object(class)).expect("a class");
        }
        for volume in &self.volumes {
            let affinity = volume.zone.map(|zone| {
                let zone = json!({"key": ZONE, "operator": "In", "values": [zone.to_string()]});
                json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}})
            });
            let claim = volume.claim.map(|n| json!({"namespace": "ns", "name": format!("c{n}")}));
            let volume = json!({
                "metadata": {"name": volume.name, "labels": {"label": volume.label.to_string()}},
                "spec": {
                    "capacity": {"storage": format!("{}Gi", volume.gib)},
                    "accessModes": volume.modes, "storageClassName": format!("class-{}", volume.class),
                    "nodeAffinity": affinity, "claimRef": claim,
                },
                "status": {"phase": "Available"},
            });
            store.apply::<PersistentVolume>(&object(volume)).expect("a volume");
        }
        let mut volumes = Vec::new();
        for claim in &self.claims {
            volumes.push(json!({
                "name": claim.name, "persistentVolumeClaim": {"claimName": claim.name},
            }));
            let selector =
                claim.label.map(|label| json!({"matchLabels": {"label": label.to_string()}}));
            let claim = json!({
                "metadata": {"name": claim.name, "namespace": "ns", "uid": claim.name},
                "spec": {
                    "accessModes": claim.modes, "storageClassName": format!("class-{}", claim.class),
                    "selector": selector,
                    "resources": {"requests": {"storage": format!("{}Gi", claim.gib)}},
                },
            });
            store.apply::<PersistentVolumeClaim>(&object(claim)).expect("a claim");
        }
        let pod = json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "p"},
            "spec": {
                "schedulerName": "kube-batch", "volumes": volumes,
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
            },
        });
        store.apply::<Pod>(&object(pod)).expect("a pod");
        store
    }
}

#[test]
fn each_claim_gets_the_smallest_volume_that_is_left() {
    let (mut n_bound, mut n_shared) = (0, 0);
    let seeds = seeds(2_000);
    for seed in &seeds {
        let mut rng = Rng::new(*seed);
        let cluster = Cluster::random(&mut rng);
        match cluster.decided() {
            None => {
                let zones = (0..N_ZONES).filter(|zone| cluster.expected(*zone).is_some());
                assert_eq!(zones.count(), 0, "seed {seed}: {cluster:#?}");
            }
            Some((zone, choices)) => {
                let expected = cluster.expected(zone);
                assert_eq!(Some(&choices), expected.as_ref(), "seed {seed}: {cluster:#?}");
                n_bound += 1;
                n_shared += usize::from(choices.len() > 2);
            }
        }
    }
    if seeds.len() > 500 {
        assert!(n_bound > seeds.len() / 10 && n_shared > seeds.len() / 100, "{n_bound} {n_shared}");
    }
}
