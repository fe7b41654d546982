//! Row types of the tables of this crate; see [`kube_batch_model::column`].

kube_batch_model::row_type! {
    /// Row of a device. Rows are in order of driver, pool, generation, slice and position in the slice.
    pub DeviceIdx,
    /// Row of the slices of one generation of a pool, in order of driver, pool and generation.
    pub PoolIdx,
    /// Row of a counter of a pool.
    pub CounterIdx,
    /// Row of what requests with equal fields want.
    pub WantedIdx,
}
