//! Resource amounts: lists by name outside a cycle, short integer vectors inside.
//!
//! CPU is counted in milli-cores, extended resources in milli-units, everything else in its own
//! unit (bytes, pods). Each snapshot interns the resource names of its objects as [`Dimensions`];
//! from then on an amount is an element of a vector, and no string is compared in a hot loop.
//!
//! A dimension that is missing on either side is 0. `request <= available` is compared exactly,
//! without tolerance.
// Parity: differs, see docs/parity.md#r1 and docs/parity.md#r2.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    ops,
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use crate::{
    column::{Column, Dim, Ordinal},
    name::Name,
    quantity::{Quantity, QuantityError},
};

/// Name of the CPU resource.
pub const CPU: &str = "cpu";
/// Name of the memory resource.
pub const MEMORY: &str = "memory";
/// Name of the pod-slot resource.
pub const PODS: &str = "pods";

/// The largest amount of one resource that one object may name: 2^50 (1 PiB of memory, a billion
/// devices). Guessed; so that 8 192 such amounts fit into a 64-bit sum.
pub const MAX_AMOUNT: i64 = 1 << 50;

/// What is idle where nothing is counted: on a node that does not advertise a resource that classes of
/// devices stand for. Larger than any sum of amounts on a node.
pub const UNLIMITED: i64 = 1 << 61;

/// The unit in which a resource is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Thousandths: CPU and extended resources.
    Milli,
    /// Bytes: memory, ephemeral storage, huge pages.
    Bytes,
    /// Whole things: pods, attachable volumes.
    Count,
}

impl Unit {
    /// The unit of a resource name.
    pub fn of(name: &str) -> Self {
        match name {
            MEMORY | "ephemeral-storage" | "storage" => Self::Bytes,
            PODS => Self::Count,
            _ if name.starts_with("hugepages-") => Self::Bytes,
            _ if name.starts_with("attachable-volumes-") => Self::Count,
            _ => Self::Milli,
        }
    }

    /// A quantity in this unit, rounded up.
    pub fn amount(self, quantity: Quantity) -> i64 {
        match self {
            Self::Milli => quantity.milli(),
            Self::Bytes | Self::Count => quantity.units(),
        }
    }

    /// An amount in this unit in cores, bytes or whole things.
    pub fn as_f64(self, amount: i64) -> f64 {
        match self {
            Self::Milli => amount as f64 / 1e3,
            Self::Bytes | Self::Count => amount as f64,
        }
    }

    /// How an amount in this unit is written as a Kubernetes quantity.
    pub fn display(self, amount: i64) -> String {
        match self {
            Self::Milli if amount % 1000 == 0 => (amount / 1000).to_string(),
            Self::Milli => format!("{amount}m"),
            Self::Count => amount.to_string(),
            Self::Bytes => {
                let suffixes = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
                let mut value = amount;
                let mut power = 0;
                while value != 0 && value % 1024 == 0 && power + 1 < suffixes.len() {
                    value /= 1024;
                    power += 1;
                }
                format!("{value}{}", suffixes[power])
            }
        }
    }
}

/// Amounts by the name of the resource, in the units of [`Unit`].
pub type AmountsByName = BTreeMap<Name, i64>;

/// Amounts as Kubernetes quantities.
pub fn quantities<'a>(
    amounts: impl IntoIterator<Item = (&'a Name, &'a i64)>,
) -> BTreeMap<String, String> {
    let quantity =
        |(name, amount): (&Name, &i64)| (name.to_string(), Unit::of(name).display(*amount));
    amounts.into_iter().map(quantity).collect()
}

/// Whether this is the name of an extended resource, such as `nvidia.com/gpu`: one with a domain that
/// is not Kubernetes' own.
pub fn is_extended_resource(name: &str) -> bool {
    name.contains('/') && !name.contains("kubernetes.io/")
}

/// Whether nodes can have a resource of this name. Other names are those that quotas count: objects, as in
/// `count/pods` and `services`, and sums over pods, as in `requests.cpu` and `limits.nvidia.com/gpu`.
///
/// Source: the names that the quota evaluators of Kubernetes 1.37 compute, in `pkg/quota/v1/evaluator/core`.
pub fn is_node_resource(name: &str) -> bool {
    const PREFIXES: [&str; 3] = ["count/", "requests.", "limits."];
    const OF_CLASSES: [&str; 2] =
        [".storageclass.storage.k8s.io/", ".deviceclass.resource.k8s.io/"];
    match name {
        CPU | MEMORY | PODS | "ephemeral-storage" => true,
        _ if name.starts_with("hugepages-") || name.starts_with("attachable-volumes-") => true,
        _ => {
            let is_of_quota = PREFIXES.iter().any(|prefix| name.starts_with(prefix))
                || OF_CLASSES.iter().any(|part| name.contains(part));
            name.contains('/') && !is_of_quota
        }
    }
}

/// Why a resource list cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AmountError {
    /// The quantity does not parse.
    #[error("cannot parse {name} amount")]
    Quantity {
        /// The resource.
        name: String,
        /// What is wrong with its quantity.
        #[source]
        source: QuantityError,
    },
    /// The quantity is below zero.
    #[error("{name} amount \"{text}\" is negative")]
    Negative {
        /// The resource.
        name: String,
        /// The quantity as written.
        text: String,
    },
    /// The quantity is larger than [`MAX_AMOUNT`].
    #[error("{name} amount \"{text}\" is larger than {}", Unit::of(name).display(MAX_AMOUNT))]
    TooLarge {
        /// The resource.
        name: String,
        /// The quantity as written.
        text: String,
    },
}

/// Amounts by resource name, sorted by name, each name once; zero amounts are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<Name, i64>", into = "BTreeMap<Name, i64>")]
pub struct ResourceList(Vec<(Name, i64)>);

impl ResourceList {
    /// Reads the map of a Kubernetes object.
    ///
    /// # Errors
    ///
    /// [`AmountError`] for the first amount that does not parse, is negative or too large: refuse
    /// the object and name the field.
    pub fn from_map(map: &BTreeMap<&str, &str>) -> Result<Self, AmountError> {
        let list = Self::of_pod(map)?;
        let too_large = |(name, amount): &(Name, i64)| {
            (*amount > MAX_AMOUNT).then(|| AmountError::TooLarge {
                name: name.to_string(),
                text: map[name.as_str()].to_owned(),
            })
        };
        list.0.iter().find_map(too_large).map_or(Ok(list), Err)
    }

    /// Reads a map in which an amount may mean "no limit": one that is larger than [`MAX_AMOUNT`] is cut there,
    /// which is more than any cluster has.
    ///
    /// # Errors
    ///
    /// [`AmountError`] for the first amount that does not parse or is negative: refuse the object and name
    /// the field.
    pub fn of_limits(map: &BTreeMap<&str, &str>) -> Result<Self, AmountError> {
        let mut list = Self::of_pod(map)?;
        list.0.iter_mut().for_each(|(_, amount)| *amount = (*amount).min(MAX_AMOUNT));
        Ok(list)
    }

    /// Reads a map in which an amount may be of any size and other names may stand than those of node
    /// resources, which are left out; a larger amount than [`MAX_AMOUNT`] is cut there.
    ///
    /// # Errors
    ///
    /// [`AmountError`] for the first amount that does not parse or is negative: refuse the object and name
    /// the field.
    pub fn of_node_resources(map: &BTreeMap<&str, &str>) -> Result<Self, AmountError> {
        let counted = map.iter().filter(|(name, _)| is_node_resource(name));
        Self::of_limits(&counted.map(|(name, text)| (*name, *text)).collect())
    }

    /// Reads the map of a pod, in which an amount may be of any size: an amount that does not fit into
    /// 64 bits is the largest that does.
    ///
    /// # Errors
    ///
    /// [`AmountError`] for the first amount that does not parse or is negative.
    pub fn of_pod(map: &BTreeMap<&str, &str>) -> Result<Self, AmountError> {
        let amount =
            |(name, text): (&&str, &&str)| Ok((Name::from(*name), parse_amount(name, text)?));
        Ok(Self(map.iter().map(amount).collect::<Result<_, _>>()?))
    }

    /// The amount of a resource, 0 if it is not named.
    pub fn get(&self, name: &str) -> i64 {
        self.position(name).map_or(0, |at| self.0[at].1)
    }

    /// Whether the resource is named, even with an amount of 0.
    pub fn names(&self, name: &str) -> bool {
        self.position(name).is_ok()
    }

    /// Sets an amount.
    pub fn set(&mut self, name: &str, amount: i64) {
        match self.position(name) {
            Ok(at) => self.0[at].1 = amount,
            Err(at) => self.0.insert(at, (Name::from(name), amount)),
        }
    }

    /// Adds every amount of `other`.
    pub fn add(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            self.set(name, self.get(name).saturating_add(*amount));
        }
    }

    /// Takes the larger of each amount.
    pub fn max(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            self.set(name, self.get(name).max(*amount));
        }
    }

    /// Names and amounts in name order.
    pub fn iter(&self) -> impl Iterator<Item = (&Name, i64)> {
        self.0.iter().map(|(name, amount)| (name, *amount))
    }

    /// Whether nothing is named.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn position(&self, name: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(own, _)| (**own).cmp(name))
    }
}

impl TryFrom<BTreeMap<Name, i64>> for ResourceList {
    type Error = AmountError;

    /// Amounts in the units of [`Unit`]. The sum of a pod's containers may exceed [`MAX_AMOUNT`].
    fn try_from(amounts: BTreeMap<Name, i64>) -> Result<Self, AmountError> {
        match amounts.iter().find(|(_, amount)| **amount < 0) {
            Some((name, amount)) => {
                Err(AmountError::Negative { name: name.to_string(), text: amount.to_string() })
            }
            None => Ok(Self(amounts.into_iter().collect())),
        }
    }
}

impl From<ResourceList> for BTreeMap<Name, i64> {
    fn from(list: ResourceList) -> Self {
        list.0.into_iter().collect()
    }
}

fn parse_amount(name: &str, text: &str) -> Result<i64, AmountError> {
    let quantity: Quantity =
        text.parse().map_err(|source| AmountError::Quantity { name: name.to_owned(), source })?;
    if quantity.is_negative() {
        return Err(AmountError::Negative { name: name.to_owned(), text: text.to_owned() });
    }
    Ok(Unit::of(name).amount(quantity))
}

/// The resource names of one snapshot, interned.
///
/// CPU, memory and pods come first and are always there; the others follow in name order, so that
/// the same objects give the same rows whatever the order they came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dimensions {
    names: Column<Dim, Name>,
    by_name: BTreeMap<Name, Dim>,
    /// Whether classes of devices stand for each.
    is_of_devices: Column<Dim, bool>,
    /// Those that queues do not share, because they share the physical devices.
    unshared: BTreeSet<Dim>,
    /// Those in which physical devices are counted.
    physical: BTreeSet<Dim>,
}

impl Dimensions {
    /// Interns [`Dim::CPU`], [`Dim::MEMORY`], [`Dim::PODS`] and `names`.
    pub fn new(names: impl IntoIterator<Item = Name>) -> Self {
        Self::with_devices(names, &BTreeSet::new())
    }

    /// Interns what [`new`](Self::new) does, and the resources that classes of devices stand for. A node that does not
    /// advertise one of these does not count it: devices decide.
    pub fn with_devices(
        names: impl IntoIterator<Item = Name>,
        of_devices: &BTreeSet<Name>,
    ) -> Self {
        let mut others: Vec<Name> = names.into_iter().chain(of_devices.iter().cloned()).collect();
        others.sort_unstable();
        others.dedup();
        others.retain(|name| !matches!(&**name, CPU | MEMORY | PODS));
        let names: Column<Dim, Name> =
            [CPU, MEMORY, PODS].into_iter().map(Name::from).chain(others).collect();
        let by_name = names.iter().map(|(dim, name)| (name.clone(), dim)).collect();
        let is_of_devices = names.values().map(|name| of_devices.contains(name)).collect();
        Self { names, by_name, is_of_devices, unshared: BTreeSet::new(), physical: BTreeSet::new() }
    }

    /// Number of dimensions.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Always false: three dimensions always exist.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// All dimensions, in row order.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = Dim> + use<> {
        self.names.ids()
    }

    /// The dimensions that shares consider: all but pod slots, and devices that are counted as parts of physical ones.
    // Parity: pods count for fit but not for shares, see docs/parity.md#r4.
    pub fn shared(&self) -> impl Iterator<Item = Dim> + '_ {
        self.ids().filter(|dim| *dim != Dim::PODS && !self.unshared.contains(dim))
    }

    /// Whether physical devices are counted in a dimension. What a task requests of it is an upper bound, until its
    /// claims are allocated.
    pub fn is_physical(&self, dim: Dim) -> bool {
        self.physical.contains(&dim)
    }

    /// Sets the dimensions in which physical devices are counted, and those that queues do not share because of that.
    pub(crate) fn count_physical(&mut self, physical: BTreeSet<Dim>, unshared: BTreeSet<Dim>) {
        self.physical = physical;
        self.unshared = unshared;
    }

    /// Whether a node with this allocatable amount counts a resource: otherwise devices decide.
    pub fn is_counted(&self, dim: Dim, allocatable: i64) -> bool {
        allocatable != 0 || !self.is_of_devices[dim]
    }

    /// What is idle on an empty node with these allocatable amounts.
    pub fn idle(&self, allocatable: &[i64]) -> ResourceVector {
        let idle = |dim: Dim| match self.is_counted(dim, allocatable[dim]) {
            true => allocatable[dim],
            false => UNLIMITED,
        };
        self.ids().map(idle).collect()
    }

    /// Whether a class of devices stands for a dimension.
    pub fn is_of_devices(&self, dim: Dim) -> bool {
        self.is_of_devices[dim]
    }

    /// The dimensions that classes of devices stand for.
    pub fn of_devices(&self) -> impl Iterator<Item = Dim> + '_ {
        self.ids().filter(|dim| self.is_of_devices[*dim])
    }

    /// The resource name of a dimension.
    pub fn name(&self, dim: Dim) -> &Name {
        &self.names[dim]
    }

    /// The dimension of a resource name, if any object of the snapshot names it.
    pub fn get(&self, name: &str) -> Option<Dim> {
        self.by_name.get(name).copied()
    }

    /// A list as a vector; names that are not interned are dropped.
    pub fn vector(&self, list: &ResourceList) -> ResourceVector {
        let mut vector = ResourceVector::zero(self.len());
        for (name, amount) in list.iter() {
            if let Some(dim) = self.get(name) {
                vector[dim] = amount;
            }
        }
        vector
    }

    /// The positive amounts of a list, by dimension, and the resources that are not interned.
    pub fn request(&self, list: &ResourceList) -> Request {
        let (mut amounts, mut unknown) = (Vec::new(), Vec::new());
        for (name, amount) in list.iter().filter(|(_, amount)| *amount > 0) {
            match self.get(name) {
                Some(dim) => amounts.push((dim, amount)),
                None => unknown.push(name.clone()),
            }
        }
        amounts.sort_unstable();
        Request::new(amounts, unknown)
    }

    /// Amounts by name, without those that are 0.
    pub fn by_name(&self, amounts: &[i64]) -> AmountsByName {
        let counted = self.ids().filter(|dim| amounts[*dim] != 0);
        counted.map(|dim| (self.name(dim).clone(), amounts[dim])).collect()
    }

    /// Amounts as Kubernetes quantities by name, without those that are 0.
    pub fn display(&self, amounts: &[i64]) -> BTreeMap<String, String> {
        quantities(self.by_name(amounts).iter())
    }
}

/// One amount for each dimension, in the units of [`Unit`].
///
/// A row of a [`Ledger`] has the same content, borrowed: both are indexed by [`Dim`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceVector(Vec<i64>);

impl ResourceVector {
    /// All zero.
    pub fn zero(n_dimensions: usize) -> Self {
        Self(vec![0; n_dimensions])
    }

    /// Adds other amounts, `sign` times.
    ///
    /// Sums wrap: amounts are bounded by [`MAX_AMOUNT`], and a wrapped sum is still taken back
    /// exactly.
    pub fn add(&mut self, other: &[i64], sign: i64) {
        for (own, other) in self.0.iter_mut().zip(other) {
            *own = own.wrapping_add(other.wrapping_mul(sign));
        }
    }
}

impl FromIterator<i64> for ResourceVector {
    fn from_iter<T: IntoIterator<Item = i64>>(amounts: T) -> Self {
        Self(amounts.into_iter().collect())
    }
}

impl ops::Deref for ResourceVector {
    type Target = [i64];

    fn deref(&self) -> &[i64] {
        &self.0
    }
}

impl ops::DerefMut for ResourceVector {
    fn deref_mut(&mut self) -> &mut [i64] {
        &mut self.0
    }
}

impl ops::Index<Dim> for ResourceVector {
    type Output = i64;

    fn index(&self, dim: Dim) -> &i64 {
        &self.0[dim.at()]
    }
}

impl ops::IndexMut<Dim> for ResourceVector {
    fn index_mut(&mut self, dim: Dim) -> &mut i64 {
        &mut self.0[dim.at()]
    }
}

/// The amounts of one row of a [`Ledger`].
impl ops::Index<Dim> for [i64] {
    type Output = i64;

    fn index(&self, dim: Dim) -> &i64 {
        &self[dim.at()]
    }
}

impl ops::IndexMut<Dim> for [i64] {
    fn index_mut(&mut self, dim: Dim) -> &mut i64 {
        &mut self[dim.at()]
    }
}

/// What a task requests.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// Positive amounts by dimension, ascending.
    amounts: Arc<[(Dim, i64)]>,
    /// Resources without a dimension, in name order; `None` if there are none.
    unknown: Option<Arc<[Name]>>,
    /// The dimensions among them that shares do not consider, besides pod slots; `None` if there are none.
    unshared: Option<Arc<[Dim]>>,
}

impl Request {
    fn new(amounts: Vec<(Dim, i64)>, unknown: Vec<Name>) -> Self {
        let unknown = (!unknown.is_empty()).then(|| unknown.into());
        Self { amounts: amounts.into(), unknown, unshared: None }
    }

    /// The request plus `more`, which ascends by dimension; shares ignore the dimensions in `unshared`.
    #[must_use]
    pub(crate) fn with(&self, more: &[(Dim, i64)], unshared: &BTreeSet<Dim>) -> Self {
        let mut amounts: Vec<(Dim, i64)> = self.amounts.iter().chain(more).copied().collect();
        amounts.sort_unstable();
        let unshared: Vec<Dim> =
            amounts.iter().map(|(dim, _)| *dim).filter(|dim| unshared.contains(dim)).collect();
        let unshared = (!unshared.is_empty()).then(|| unshared.into());
        Self { amounts: amounts.into(), unknown: self.unknown.clone(), unshared }
    }

    /// The positive amounts.
    pub fn amounts(&self) -> &[(Dim, i64)] {
        &self.amounts
    }

    /// The resources of which it requests a positive amount and which have no dimension: no node has
    /// them, so it fits nowhere. In name order.
    // Parity: see docs/parity.md#r7.
    pub fn unknown(&self) -> &[Name] {
        self.unknown.as_deref().unwrap_or_default()
    }

    /// The amount of one dimension.
    pub fn get(&self, dim: Dim) -> i64 {
        self.amounts.iter().find(|(own, _)| *own == dim).map_or(0, |(_, amount)| *amount)
    }

    /// The amounts that shares consider: all but pod slots, and devices that are counted as parts of physical ones.
    pub fn shared(&self) -> impl Iterator<Item = (Dim, i64)> + '_ {
        let unshared = self.unshared.as_deref().unwrap_or_default();
        let amounts = self.amounts.iter().copied();
        amounts.filter(|(dim, _)| *dim != Dim::PODS && !unshared.contains(dim))
    }

    /// Whether nothing but pod slots is requested.
    pub fn is_best_effort(&self) -> bool {
        self.shared().next().is_none() && self.unknown.is_none()
    }

    /// The request without some dimensions, and without the resources that have none and that
    /// `ignores` picks.
    #[must_use]
    pub fn without(&self, dims: &[Dim], ignores: impl Fn(&str) -> bool) -> Self {
        let amounts = self.amounts.iter().copied().filter(|(dim, _)| !dims.contains(dim));
        let unknown = self.unknown().iter().filter(|name| !ignores(name)).cloned();
        let unshared = self.unshared.clone();
        Self { unshared, ..Self::new(amounts.collect(), unknown.collect()) }
    }

    /// Whether every amount is available.
    pub fn fits_in(&self, available: &[i64]) -> bool {
        self.unknown.is_none()
            && self.amounts.iter().all(|(dim, amount)| *amount <= available[*dim])
    }

    /// How often the request fits into what is available; [`u64::MAX`] if it is empty.
    pub fn times_in(&self, available: &[i64]) -> u64 {
        if self.unknown.is_some() {
            return 0;
        }
        let positive = self.amounts.iter().filter(|(_, amount)| *amount > 0);
        let times = positive
            .map(|(dim, amount)| available[*dim].max(0).unsigned_abs() / amount.unsigned_abs());
        times.min().unwrap_or(u64::MAX)
    }

    /// Adds the request to the amounts of a row, `sign` times; see [`ResourceVector::add`].
    pub fn charge(&self, amounts: &mut [i64], sign: i64) {
        for (dim, amount) in self.amounts.iter() {
            let own = &mut amounts[*dim];
            *own = own.wrapping_add(amount.wrapping_mul(sign));
        }
    }
}

/// A resource vector for each `I`, in one allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledger<I> {
    width: usize,
    amounts: Vec<i64>,
    rows: Column<I, ()>,
}

impl<I: Ordinal> Ledger<I> {
    /// `n_rows` rows of zeros.
    pub fn zero(n_dimensions: usize, n_rows: usize) -> Self {
        Self {
            width: n_dimensions,
            amounts: vec![0; n_dimensions * n_rows],
            rows: Column::filled((), n_rows),
        }
    }

    /// Number of amounts of a row.
    pub const fn width(&self) -> usize {
        self.width
    }

    /// All row numbers, ascending.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = I> + ExactSizeIterator + use<I> {
        self.rows.ids()
    }

    /// Adds a row of zeros at the end.
    pub fn push_zero(&mut self) {
        self.amounts.resize(self.amounts.len() + self.width, 0);
        self.rows.push(());
    }

    /// Adds a row at the end.
    pub fn push(&mut self, amounts: &[i64]) {
        debug_assert_eq!(amounts.len(), self.width, "an amount for each dimension");
        self.amounts.extend_from_slice(amounts);
        self.rows.push(());
    }

    /// Adds `times` one row to another; sums wrap, as those of [`Request::charge`] do.
    pub fn add_row(&mut self, from: I, to: I, times: i64) {
        let [from, to] = [from, to].map(|row| row.at() * self.width);
        for at in 0..self.width {
            let amount = self.amounts[from + at].wrapping_mul(times);
            self.amounts[to + at] = self.amounts[to + at].wrapping_add(amount);
        }
    }

    /// Removes the rows from `at` on, and returns them as a ledger of their own.
    pub fn split_off(&mut self, at: I) -> Self {
        let amounts = self.amounts.split_off(at.at() * self.width);
        let rows = self.rows.split_off(at).into_iter().collect();
        Self { width: self.width, amounts, rows }
    }

    /// The sum over all rows.
    pub fn total(&self) -> ResourceVector {
        let mut total = ResourceVector::zero(self.width);
        for row in self.ids() {
            total.add(&self[row], 1);
        }
        total
    }
}

impl<I: Ordinal> Default for Ledger<I> {
    fn default() -> Self {
        Self::zero(0, 0)
    }
}

impl<I: Ordinal> ops::Index<I> for Ledger<I> {
    type Output = [i64];

    fn index(&self, row: I) -> &[i64] {
        &self.amounts[row.at() * self.width..][..self.width]
    }
}

impl<I: Ordinal> ops::IndexMut<I> for Ledger<I> {
    fn index_mut(&mut self, row: I) -> &mut [i64] {
        &mut self.amounts[row.at() * self.width..][..self.width]
    }
}

/// A fraction, compared exactly.
///
/// 0 of 0 is nothing; something of 0 is the whole (1), as upstream's `helpers.Share`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Share {
    part: i64,
    whole: i64,
}

impl Share {
    /// Nothing.
    pub const ZERO: Self = Self { part: 0, whole: 1 };
    /// The whole.
    pub const ONE: Self = Self { part: 1, whole: 1 };

    /// `part / whole`; negative amounts count as 0.
    pub fn of(part: i64, whole: i64) -> Self {
        match (part > 0, whole > 0) {
            (false, _) => Self::ZERO,
            (true, false) => Self::ONE,
            (true, true) => Self { part, whole },
        }
    }

    /// The share as a float, for display and metrics; never compared.
    pub fn as_f64(self) -> f64 {
        self.part as f64 / self.whole as f64
    }
}

impl PartialEq for Share {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Share {}

impl PartialOrd for Share {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Share {
    fn cmp(&self, other: &Self) -> Ordering {
        let left = i128::from(self.part) * i128::from(other.whole);
        left.cmp(&(i128::from(other.part) * i128::from(self.whole)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(amounts: &[(&str, &str)]) -> ResourceList {
        ResourceList::from_map(&amounts.iter().copied().collect()).expect("amounts parse")
    }

    #[test]
    fn amounts_have_the_unit_of_their_name() {
        let list = list(&[
            ("cpu", "1500u"),
            ("memory", "1Ki"),
            ("nvidia.com/gpu", "2"),
            ("hugepages-2Mi", "4Mi"),
            ("pods", "110"),
        ]);
        assert_eq!(list.get("cpu"), 2);
        assert_eq!(list.get("memory"), 1024);
        assert_eq!(list.get("nvidia.com/gpu"), 2000);
        assert_eq!(list.get("hugepages-2Mi"), 4 << 20);
        assert_eq!(list.get("pods"), 110);
        assert_eq!(list.get("absent"), 0);
    }

    #[test]
    fn fit_is_exact_and_missing_is_zero() {
        let dimensions = Dimensions::new(["x/y".into(), "cpu".into()]);
        let available = dimensions.vector(&list(&[("cpu", "1"), ("memory", "1Gi")]));
        let fits =
            |amounts: &[(&str, &str)]| dimensions.request(&list(amounts)).fits_in(&available);
        assert!(fits(&[("cpu", "1"), ("memory", "1Gi"), ("x/y", "0")]));
        assert!(!fits(&[("cpu", "1001m")]));
        assert!(!fits(&[("x/y", "1m")]));
    }

    #[test]
    fn quotas_count_what_is_no_resource_of_nodes() {
        for name in [
            "cpu",
            "memory",
            "pods",
            "ephemeral-storage",
            "hugepages-2Mi",
            "nvidia.com/gpu",
            "kubernetes.io/batch-cpu",
            "deviceclass.resource.kubernetes.io/gpu",
        ] {
            assert!(is_node_resource(name), "{name}");
        }
        for name in [
            "count/pods",
            "count/jobs.batch",
            "requests.cpu",
            "requests.nvidia.com/gpu",
            "requests.storage",
            "requests.ephemeral-storage",
            "requests.hugepages-2Mi",
            "limits.memory",
            "limits.nvidia.com/gpu",
            "services",
            "services.loadbalancers",
            "persistentvolumeclaims",
            "gold.storageclass.storage.k8s.io/requests.storage",
            "gpu.deviceclass.resource.k8s.io/devices",
        ] {
            assert!(!is_node_resource(name), "{name}");
        }
    }

    #[test]
    fn a_limit_is_cut_at_the_largest_amount() {
        let of = |text: &str| {
            let map = BTreeMap::from([("memory", text)]);
            ResourceList::of_limits(&map).map(|list| list.get("memory"))
        };
        assert_eq!(of("1Ti"), Ok(1 << 40));
        for text in ["1Pi", "1125899906842625", "9007199254740992", "9999Ti", "1e30", "9999999Ei"] {
            assert_eq!(of(text), Ok(MAX_AMOUNT), "{text}");
        }
        assert!(of("-1").is_err() && of("1 Ti").is_err());
    }

    #[test]
    fn bad_amounts_name_the_resource() {
        let bad = |text: &str| {
            let map = BTreeMap::from([("cpu", text)]);
            ResourceList::from_map(&map).expect_err("bad amount").to_string()
        };
        assert_eq!(bad("1x"), "cannot parse cpu amount");
        assert_eq!(bad("-1"), "cpu amount \"-1\" is negative");
        assert_eq!(bad("1E"), "cpu amount \"1E\" is larger than 1125899906842624m");
    }

    #[test]
    fn shares_compare_exactly() {
        assert!(Share::of(1, 3) < Share::of(i64::MAX / 3 + 1, i64::MAX));
        assert_eq!(Share::of(2, 6), Share::of(1, 3));
        assert_eq!(Share::of(0, 0), Share::ZERO);
        assert_eq!(Share::of(5, 0), Share::ONE);
    }

    #[test]
    fn bytes_are_written_with_the_largest_exact_suffix() {
        assert_eq!(Unit::Bytes.display(128 << 30), "128Gi");
        assert_eq!(Unit::Bytes.display(1000), "1000");
        assert_eq!(Unit::Milli.display(1500), "1500m");
        assert_eq!(Unit::Milli.display(4000), "4");
    }
}
