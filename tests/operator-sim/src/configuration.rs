//! The configuration files of the replicas.

/// What the file of a replica holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Configuration {
    /// The configuration that is shipped.
    #[default]
    Shipped,
    /// A part of it, which is valid too.
    WithoutEvictions,
    /// Text that is no configuration.
    Invalid,
    /// Nothing: the file is not there.
    Missing,
}

impl Configuration {
    /// The text of the file, in half of the episodes without reservations, or why it cannot be read.
    pub(crate) fn text(self, reserves: bool) -> Result<String, String> {
        match self {
            Self::Shipped => Ok(shipped(reserves).to_owned()),
            Self::WithoutEvictions => {
                let actions = "actions: reclaim, allocate, backfill, preempt";
                Ok(shipped(reserves).replace(actions, "actions: allocate, backfill"))
            }
            Self::Invalid => Ok(shipped(reserves).replace("name: drf", "name: dfr")),
            Self::Missing => Err("it is not there".to_owned()),
        }
    }

    /// Whether a process can start with it.
    pub(crate) const fn is_valid(self) -> bool {
        matches!(self, Self::Shipped | Self::WithoutEvictions)
    }
}

fn shipped(reserves: bool) -> &'static str {
    let shipped = include_str!("../../../examples/scheduler.yaml");
    let (others, _) = shipped.split_once("  - name: reservation").expect("it is the last plugin");
    if reserves { shipped } else { others }
}

#[cfg(test)]
mod tests {
    use kube_batch::Registry;
    use kube_batch_scheduler::conf;

    use super::*;

    #[test]
    fn each_text_is_what_its_name_says() {
        let registry = Registry::builtin();
        let all = [
            Configuration::Shipped,
            Configuration::WithoutEvictions,
            Configuration::Invalid,
            Configuration::Missing,
        ];
        for (configuration, reserves) in all.into_iter().flat_map(|c| [(c, true), (c, false)]) {
            let text = configuration.text(reserves);
            let is_valid = text.as_ref().is_ok_and(|text| conf::parse(text, &registry).is_ok());
            assert_eq!(is_valid, configuration.is_valid(), "{configuration:?}");
            let differs = text != Configuration::Shipped.text(reserves);
            assert_eq!(differs, configuration != Configuration::Shipped);
        }
    }
}
