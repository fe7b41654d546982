//! Typed rows and the columns they index.
//!
//! In a snapshot, objects are identified by dense row numbers. A [`Column`] can only be indexed by
//! the row type it is declared with, so a task can never be looked up among nodes. Rows are valid for
//! one snapshot: no row is added or removed while a cycle runs, the next snapshot may have others, and
//! decisions refer to objects by name.

use std::{fmt, marker::PhantomData, ops};

/// A dense row number: `0..n` of one table of one snapshot.
pub trait Ordinal: Copy + Ord {
    /// The row at a position.
    ///
    /// # Panics
    ///
    /// If the table has 2^32 rows or more.
    fn new(at: usize) -> Self;

    /// The position of the row.
    fn at(self) -> usize;
}

/// Defines row types, each with its documentation and visibility.
///
/// ```
/// use kube_batch_model::column::Ordinal;
///
/// kube_batch_model::row_type! {
///     /// Row of a volume.
///     pub VolumeIdx,
/// }
/// assert_eq!(VolumeIdx::new(3).at(), 3);
/// ```
#[macro_export]
macro_rules! row_type {
    ($($(#[$doc:meta])* $vis:vis $name:ident),* $(,)?) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $vis struct $name(u32);

        impl $crate::column::Ordinal for $name {
            fn new(at: usize) -> Self {
                Self(u32::try_from(at).expect("a table has fewer than 2^32 rows"))
            }
            fn at(self) -> usize {
                self.0 as usize
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}#{}", stringify!($name), self.0)
            }
        }
    )* };
}

row_type! {
    /// Row of a node; rows are in node-name order.
    pub NodeIdx,
    /// Row of a queue; rows are in order of creation time, then name.
    pub QueueIdx,
    /// Row of a job; rows are in order of creation time, then namespace and name.
    pub JobIdx,
    /// Row of a task; the tasks of a job are adjacent, in order of creation time, then name.
    pub TaskIdx,
    /// Row of a class of tasks that are equal to every predicate and score.
    pub ClassIdx,
    /// Row of a constraint class: the classes of tasks that differ only in what they request.
    pub ConstraintClassIdx,
    /// Row of a selector over pods, as inter-pod terms and spread constraints use them.
    pub MatcherIdx,
    /// Row of a composite PodGroup; rows are in the order of their first jobs, inner ones first.
    pub CompositeIdx,
    /// Row of a domain of one topology level; rows are in the order of their names.
    pub DomainIdx,
    /// A resource dimension; see [`crate::resource::Dimensions`].
    pub Dim,
}

impl Dim {
    /// Milli-CPU.
    pub const CPU: Self = Self(0);
    /// Bytes of memory.
    pub const MEMORY: Self = Self(1);
    /// Pod slots.
    pub const PODS: Self = Self(2);
}

/// A `Vec` that only `I` may index.
pub struct Column<I, T> {
    rows: Vec<T>,
    index: PhantomData<fn(I)>,
}

impl<I: Ordinal, T> Column<I, T> {
    /// A column without rows.
    pub const fn new() -> Self {
        Self { rows: Vec::new(), index: PhantomData }
    }

    /// A column of `n_rows` equal values.
    pub fn filled(value: T, n_rows: usize) -> Self
    where
        T: Clone,
    {
        Self { rows: vec![value; n_rows], index: PhantomData }
    }

    /// Adds a row at the end and returns its number.
    pub fn push(&mut self, value: T) -> I {
        self.rows.push(value);
        I::new(self.rows.len() - 1)
    }

    /// All row numbers, ascending.
    pub fn ids(
        &self,
    ) -> impl DoubleEndedIterator<Item = I> + ExactSizeIterator + Clone + use<I, T> {
        (0..self.rows.len()).map(I::new)
    }

    /// Row numbers with their values, ascending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (I, &T)> + ExactSizeIterator {
        self.rows.iter().enumerate().map(|(at, value)| (I::new(at), value))
    }

    /// The values in row order.
    pub fn values(&self) -> std::slice::Iter<'_, T> {
        self.rows.iter()
    }

    /// The values in row order, to change.
    pub fn values_mut(&mut self) -> std::slice::IterMut<'_, T> {
        self.rows.iter_mut()
    }

    /// The value of a row, if the row exists.
    pub fn get(&self, row: I) -> Option<&T> {
        self.rows.get(row.at())
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Removes the rows from `at` on, and returns their values.
    pub fn split_off(&mut self, at: I) -> Vec<T> {
        self.rows.split_off(at.at())
    }

    /// Sets every row to the same value.
    pub fn fill(&mut self, value: T)
    where
        T: Clone,
    {
        self.rows.fill(value);
    }
}

impl<I: Ordinal, T> FromIterator<T> for Column<I, T> {
    fn from_iter<A: IntoIterator<Item = T>>(values: A) -> Self {
        Self { rows: values.into_iter().collect(), index: PhantomData }
    }
}

impl<I: Ordinal, T> Extend<T> for Column<I, T> {
    fn extend<A: IntoIterator<Item = T>>(&mut self, values: A) {
        self.rows.extend(values);
    }
}

impl<I: Ordinal, T> ops::Index<I> for Column<I, T> {
    type Output = T;

    fn index(&self, row: I) -> &T {
        &self.rows[row.at()]
    }
}

impl<I: Ordinal, T> ops::IndexMut<I> for Column<I, T> {
    fn index_mut(&mut self, row: I) -> &mut T {
        &mut self.rows[row.at()]
    }
}

impl<I, T: Clone> Clone for Column<I, T> {
    fn clone(&self) -> Self {
        Self { rows: self.rows.clone(), index: PhantomData }
    }
}

impl<I, T> Default for Column<I, T> {
    fn default() -> Self {
        Self { rows: Vec::new(), index: PhantomData }
    }
}

impl<I, T: PartialEq> PartialEq for Column<I, T> {
    fn eq(&self, other: &Self) -> bool {
        self.rows == other.rows
    }
}

impl<I, T: Eq> Eq for Column<I, T> {}

impl<I, T: fmt::Debug> fmt::Debug for Column<I, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rows.fmt(f)
    }
}
