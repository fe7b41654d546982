//! Row types of the tables of this crate; see [`kube_batch_api::column`].

macro_rules! row_type {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u32);

        impl kube_batch_api::column::Ordinal for $name {
            fn new(at: usize) -> Self {
                Self(u32::try_from(at).expect("a table has fewer than 2^32 rows"))
            }
            fn at(self) -> usize {
                self.0 as usize
            }
        }
    )* };
}

row_type! {
    /// Row of a device. Rows are in order of driver, pool, generation, slice and position in the slice.
    DeviceIdx,
    /// Row of the slices of one generation of a pool, in order of driver, pool and generation.
    PoolIdx,
    /// Row of a counter of a pool.
    CounterIdx,
    /// Row of what requests with equal fields want.
    WantedIdx,
}
