//! Images that are there already.
//!
//! Over the images of a pod that the node has: `size * nodes that have it / all nodes`, rounded
//! down. The sum counts from 23 MiB, worth 0, to 1000 MiB for each container, worth 100.
//!
//! Source: Kubernetes 1.36, `plugins/imagelocality`. Where nodes disagree on the size of
//! an image, each counts its own.

use std::collections::BTreeMap;

use kube_batch_api::{
    cluster::Cluster,
    column::{Column, NodeIdx},
    name::Name,
};

use crate::{
    constraint_classes::{ConstraintClassIdx, ConstraintClasses},
    rows::row_type,
};

row_type! {
    /// Row of an image that some pod asks for.
    Image,
}

const MIB: i64 = 1 << 20;
/// The sum that is worth nothing.
const LEAST_BYTES: i64 = 23 * MIB;
/// The sum that is worth everything, for each container.
const MOST_BYTES: i64 = 1000 * MIB;

/// Which node has which image.
#[derive(Debug, Default)]
pub(super) struct Images {
    wanted: Column<ConstraintClassIdx, Wanted>,
    /// What each image is worth on each node that has it, in bytes; ascending by image.
    worth: Column<NodeIdx, Vec<(Image, i64)>>,
}

/// The images of a pod.
#[derive(Clone, Debug, Default)]
struct Wanted {
    /// One entry for each container or volume that names it. Empty if no node has any.
    images: Vec<Image>,
    most_bytes: i64,
}

impl Images {
    pub(super) fn new(cluster: &Cluster, classes: &ConstraintClasses) -> Self {
        let mut rows = BTreeMap::<&Name, Image>::new();
        let mut n_nodes = Column::<Image, usize>::new();
        let mut wanted = Column::filled(Wanted::default(), classes.len());
        for constraint_class in classes.to_place() {
            let template = classes.template(cluster, constraint_class);
            let images = template.images.iter();
            let n_containers = i64::try_from(template.n_containers).unwrap_or(i64::MAX);
            wanted[constraint_class] = Wanted {
                images: images
                    .map(|name| *rows.entry(name).or_insert_with(|| n_nodes.push(0)))
                    .collect(),
                most_bytes: MOST_BYTES.saturating_mul(n_containers),
            };
        }
        let found = cluster.nodes.facts.values().map(|facts| {
            let mut images: Vec<(Image, i64)> = facts
                .images
                .iter()
                .filter_map(|(name, bytes)| Some((*rows.get(name)?, *bytes)))
                .collect();
            images.sort_unstable();
            images.dedup_by_key(|(image, _)| *image);
            images
        });
        let mut worth: Column<NodeIdx, Vec<(Image, i64)>> = found.collect();
        for (image, _) in worth.values().flatten() {
            n_nodes[*image] += 1;
        }
        let n_all = cluster.nodes.facts.len() as f64;
        for (image, bytes) in worth.values_mut().flatten() {
            let spread = n_nodes[*image] as f64 / n_all;
            *bytes = (*bytes as f64 * spread) as i64;
        }
        for constraint_class in classes.to_place() {
            wanted[constraint_class].images.retain(|image| n_nodes[*image] > 0);
        }
        Self { wanted, worth }
    }

    /// Whether some node has an image of the constraint class.
    pub(super) fn concern(&self, constraint_class: ConstraintClassIdx) -> bool {
        self.wanted.get(constraint_class).is_some_and(|wanted| !wanted.images.is_empty())
    }

    pub(super) fn score(&self, constraint_class: ConstraintClassIdx, node: NodeIdx) -> i64 {
        let (wanted, there) = (&self.wanted[constraint_class], &self.worth[node]);
        let worth = |image: &Image| {
            let at = there.binary_search_by_key(image, |(image, _)| *image).ok()?;
            Some(there[at].1)
        };
        let sum = wanted.images.iter().filter_map(worth).fold(0, i64::saturating_add);
        if wanted.most_bytes <= LEAST_BYTES {
            return 0;
        }
        let counted = sum.clamp(LEAST_BYTES, wanted.most_bytes) - LEAST_BYTES;
        // In 128 bits, since a sum of bytes times 100 may not fit into 64.
        let score = 100 * i128::from(counted) / i128::from(wanted.most_bytes - LEAST_BYTES);
        i64::try_from(score).unwrap_or(100)
    }
}
