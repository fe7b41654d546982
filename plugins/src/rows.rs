//! Row types of the tables that the plugins make for themselves; see [`kube_batch_api::column`].

macro_rules! row_type {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) struct $name(u32);

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

pub(crate) use row_type;
