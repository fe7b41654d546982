//! Prefer nodes that have the images of a pod.
//!
//! The raw score adds up `size * nodes that have it / all nodes`, rounded down, over the images of
//! the pod that the node has. A sum up to 23 MiB scores 0, and 1000 MiB for each container or more
//! scores 100.
//!
//! Source: Kubernetes 1.36, `plugins/imagelocality`. Where nodes report different sizes of an image,
//! each counts its own.

use std::collections::BTreeMap;

use kube_batch_framework::plugin::{Dependency, Scale};
use kube_batch_model::{
    cluster::Cluster,
    column::{ClassIdx, Column, NodeIdx},
    name::Name,
};

use super::{arguments::NodeOrderArguments, score::Score};
use crate::{compiled::Opening, constraint_classes::ConstraintClassIdx};

kube_batch_model::row_type! {
    /// Row of an image that some pod uses.
    pub(crate) Image,
}

const MIB: i64 = 1 << 20;
/// The sum that scores 0.
const MIN_BYTES: i64 = 23 * MIB;
/// The sum that scores 100, for each container.
const MAX_BYTES: i64 = 1000 * MIB;

#[derive(Debug)]
struct ImageLocality {
    images: Column<ConstraintClassIdx, Images>,
    /// The part of each image that counts on each node that has it, in bytes; ascending by image.
    counted_bytes: Column<NodeIdx, Vec<(Image, i64)>>,
}

/// The images of a pod.
#[derive(Clone, Debug, Default)]
struct Images {
    /// One entry for each container or volume that uses it. Without images that no node has.
    images: Vec<Image>,
    /// The sum that scores 100.
    max_bytes: i64,
}

pub(super) fn build(opening: Opening<'_>, _: &NodeOrderArguments) -> Box<dyn Score> {
    let cluster = opening.cluster;
    let mut rows = BTreeMap::<&Name, Image>::new();
    let mut n_nodes = Column::<Image, usize>::new();
    let mut images = opening.by_class(Images::default());
    for class in opening.classes().to_place() {
        let template = opening.template(class);
        let own = template.images.iter();
        let own = own.map(|name| *rows.entry(name).or_insert_with(|| n_nodes.push(0)));
        let n_containers = i64::try_from(template.n_containers).unwrap_or(i64::MAX);
        images[class] =
            Images { images: own.collect(), max_bytes: MAX_BYTES.saturating_mul(n_containers) };
    }
    let mut counted_bytes = bytes_on_nodes(cluster, &rows);
    for (image, _) in counted_bytes.values().flatten() {
        n_nodes[*image] += 1;
    }
    let n_all = cluster.nodes.facts.len() as f64;
    for (image, bytes) in counted_bytes.values_mut().flatten() {
        let spread = n_nodes[*image] as f64 / n_all;
        *bytes = (*bytes as f64 * spread) as i64;
    }
    for own in images.values_mut() {
        own.images.retain(|image| n_nodes[*image] > 0);
    }
    Box::new(ImageLocality { images, counted_bytes })
}

/// The size of each image on each node that has it, ascending by image.
fn bytes_on_nodes(
    cluster: &Cluster,
    rows: &BTreeMap<&Name, Image>,
) -> Column<NodeIdx, Vec<(Image, i64)>> {
    let nodes = cluster.nodes.facts.values();
    let images = nodes.map(|facts| {
        let known = facts.images.iter();
        let mut images: Vec<(Image, i64)> =
            known.filter_map(|(name, bytes)| Some((*rows.get(name)?, *bytes))).collect();
        images.sort_unstable();
        images.dedup_by_key(|(image, _)| *image);
        images
    });
    images.collect()
}

impl Score for ImageLocality {
    fn dependency(&self) -> Dependency {
        Dependency::Class
    }

    fn scale(&self) -> Scale {
        Scale::AsIs
    }

    fn applies(&self, cluster: &Cluster, class: ClassIdx) -> bool {
        !self.images[cluster.classes.constraint_class[class]].images.is_empty()
    }

    fn score(&self, cluster: &Cluster, class: ClassIdx, node: NodeIdx) -> i64 {
        let (own, on_node) =
            (&self.images[cluster.classes.constraint_class[class]], &self.counted_bytes[node]);
        let counted = |image: &Image| {
            let at = on_node.binary_search_by_key(image, |(image, _)| *image).ok()?;
            Some(on_node[at].1)
        };
        let sum = own.images.iter().filter_map(counted).fold(0, i64::saturating_add);
        if own.max_bytes <= MIN_BYTES {
            return 0;
        }
        let above_min = sum.clamp(MIN_BYTES, own.max_bytes) - MIN_BYTES;
        // In 128 bits, since a sum of bytes times 100 may not fit into 64.
        let score = 100 * i128::from(above_min) / i128::from(own.max_bytes - MIN_BYTES);
        i64::try_from(score).unwrap_or(100)
    }
}
