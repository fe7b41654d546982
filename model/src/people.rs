//! Amounts of resources as people write them: `48 GPUs`, `1.5Ti`, `2.25 cpu`, with three digits at most.
//!
//! Quantities in the specs and in most of the status of objects are exact; these are for tables and sentences.

use crate::resource::Unit;

const SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// An amount without the name of its resource: `1.5Ti`, `2.25`.
pub fn amount(resource: &str, amount: i64) -> String {
    let scale = Scale::of(resource, amount);
    format!("{}{}", scale.number(amount), scale.suffix())
}

/// A part of a whole, both in the unit of the larger one: `40/64Gi`, `12/16`.
pub fn part(resource: &str, part: i64, whole: i64) -> String {
    let scale = Scale::of(resource, part.max(whole));
    format!("{}/{}{}", scale.number(part), scale.number(whole), scale.suffix())
}

/// An amount with the name of its resource: `48 GPUs`, `1 GPU`, `2.25 cpu`, `1.5Ti memory`.
pub fn named(resource: &str, of: i64) -> String {
    with_name(resource, &amount(resource, of))
}

/// Amounts that are compared in one text: exact if two that differ would otherwise look the same.
pub fn compared<const N: usize>(resource: &str, amounts: [i64; N]) -> [String; N] {
    let shown = amounts.map(|of| amount(resource, of));
    let look_the_same = |(at, one): (usize, &String)| {
        let others = shown.iter().zip(&amounts).skip(at + 1);
        others.clone().any(|(other, of)| one == other && *of != amounts[at])
    };
    match shown.iter().enumerate().any(look_the_same) {
        true => amounts.map(|of| Unit::of(resource).display(of)),
        false => shown,
    }
}

/// A text of an amount, with the name of its resource: `48 GPUs`.
pub fn with_name(resource: &str, shown: &str) -> String {
    let name = short_name(resource);
    let ending = if is_counted(name) && shown != "1" { "s" } else { "" };
    format!("{shown} {name}{ending}")
}

/// The name of a resource of which there are several, or none: `GPUs`, `memory`.
pub fn plural(resource: &str) -> String {
    let name = short_name(resource);
    let ending = if is_counted(name) { "s" } else { "" };
    format!("{name}{ending}")
}

/// The name of a resource in sentences: `GPU` for those of all vendors.
pub fn short_name(resource: &str) -> &str {
    match resource.rsplit_once('/') {
        Some((_, "gpu")) => "GPU",
        _ => resource,
    }
}

fn is_counted(name: &str) -> bool {
    name.chars().all(|letter| letter.is_ascii_uppercase())
}

/// How the amounts of one text are written.
#[derive(Clone, Copy)]
struct Scale {
    /// What one is, in the unit of the resource.
    one: i128,
    power: usize,
}

impl Scale {
    fn of(resource: &str, largest: i64) -> Self {
        match Unit::of(resource) {
            Unit::Milli => Self { one: 1000, power: 0 },
            Unit::Count => Self { one: 1, power: 0 },
            Unit::Bytes => {
                let largest = i128::from(largest).abs();
                let fits = |power: &usize| 1_i128 << (10 * power) <= largest;
                let power = (1..SUFFIXES.len()).take_while(fits).last().unwrap_or(0);
                Self { one: 1 << (10 * power), power }
            }
        }
    }

    const fn suffix(self) -> &'static str {
        SUFFIXES[self.power]
    }

    /// With three digits, or as many as the whole part has; halves are rounded up.
    fn number(self, amount: i64) -> String {
        let (amount, sign) = (i128::from(amount).abs(), if amount < 0 { "-" } else { "" });
        let n_decimals = match amount / self.one {
            0..10 => 2,
            10..100 => 1,
            _ => 0,
        };
        let per_one = 10_i128.pow(n_decimals);
        let rounded = (amount * per_one * 2 + self.one) / (2 * self.one);
        let whole = rounded / per_one;
        let decimals = format!("{:0width$}", rounded % per_one, width = n_decimals as usize);
        let decimals = if n_decimals == 0 { "" } else { decimals.trim_end_matches('0') };
        let point = if decimals.is_empty() { "" } else { "." };
        format!("{sign}{whole}{point}{decimals}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GI: i64 = 1 << 30;

    #[test]
    fn amounts_have_three_digits() {
        for (resource, of, shown) in [
            ("cpu", 0, "0"),
            ("cpu", 250, "0.25"),
            ("cpu", 1_333, "1.33"),
            ("cpu", 65_454, "65.5"),
            ("cpu", 9_996, "10"),
            ("cpu", 655_540, "656"),
            ("cpu", 100_000_000, "100000"),
            ("cpu", -1_500, "-1.5"),
            ("nvidia.com/gpu", 48_000, "48"),
            ("pods", 110, "110"),
            ("memory", 0, "0"),
            ("memory", 1_000, "1000"),
            ("memory", 40 * GI, "40Gi"),
            ("memory", 1536 * GI, "1.5Ti"),
            ("memory", i64::MAX, "8Ei"),
        ] {
            assert_eq!(amount(resource, of), shown, "{of} {resource}");
        }
    }

    #[test]
    fn a_part_has_the_unit_of_the_whole() {
        assert_eq!(part("memory", 40 * GI, 64 * GI), "40/64Gi");
        assert_eq!(part("memory", 512 << 20, 2 * GI), "0.5/2Gi");
        assert_eq!(part("memory", 2 * GI, 0), "2/0Gi");
        assert_eq!(part("nvidia.com/gpu", 3_000, 4_000), "3/4");
    }

    #[test]
    fn amounts_that_differ_are_told_apart() {
        assert_eq!(compared("memory", [40 * GI, 64 * GI]), ["40Gi", "64Gi"]);
        assert_eq!(compared("memory", [40 * GI, 40 * GI]), ["40Gi", "40Gi"]);
        assert_eq!(compared("memory", [40 * GI, 40 * GI + 1024]), ["40Gi", "41943041Ki"]);
        assert_eq!(compared("cpu", [100_000_400, 100_000_000]), ["100000400m", "100000"]);
        assert_eq!(with_name("nvidia.com/gpu", "48"), "48 GPUs");
        assert_eq!(plural("nvidia.com/gpu"), "GPUs");
        assert_eq!(plural("memory"), "memory");
    }

    #[test]
    fn gpus_of_every_vendor_are_gpus() {
        assert_eq!(named("nvidia.com/gpu", 48_000), "48 GPUs");
        assert_eq!(named("amd.com/gpu", 1_000), "1 GPU");
        assert_eq!(named("cpu", 1_000), "1 cpu");
        assert_eq!(named("memory", 1536 * GI), "1.5Ti memory");
        assert_eq!(named("example.com/fpga", 2_000), "2 example.com/fpga");
    }
}
