#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// Nano-units in one unit.
const NANO: i128 = 1_000_000_000;

/// The largest amount a quantity can hold, in units: `i64::MAX`, as in apimachinery, which also
/// caps instead of failing.
const MAX_UNITS: i128 = i64::MAX as i128;

/// An exact amount, in nano-units.
///
/// ```
/// use kube_batch_quantity::Quantity;
///
/// let memory: Quantity = "1.5Gi".parse()?;
/// assert_eq!(memory.units(), 1_610_612_736);
/// let cpu: Quantity = "0.1".parse()?;
/// assert_eq!(cpu.milli(), 100);
/// # Ok::<(), kube_batch_quantity::QuantityError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quantity {
    nano: i128,
}

/// Why a text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Nothing but blanks.
    #[error("quantity is empty")]
    Empty,
    /// The part before the suffix is no decimal number.
    #[error("\"{0}\" is not a quantity: it must start with a number")]
    NotANumber(String),
    /// The part after the number is none of the known suffixes.
    #[error("\"{text}\" is not a quantity: unknown suffix \"{suffix}\"")]
    UnknownSuffix {
        /// The whole text.
        text: String,
        /// The part that was not understood.
        suffix: String,
    },
}

impl Quantity {
    /// A whole number of units.
    pub const fn from_units(units: i64) -> Self {
        Self { nano: units as i128 * NANO }
    }

    /// The amount in thousandths of a unit, rounded up.
    pub fn milli(self) -> i64 {
        clamp(div_ceil(self.nano, NANO / 1000))
    }

    /// The amount in units, rounded up.
    pub fn units(self) -> i64 {
        clamp(div_ceil(self.nano, NANO))
    }

    /// The amount in billionths of a unit, exactly.
    pub const fn nano(self) -> i128 {
        self.nano
    }

    /// The quantity of a number of billionths of a unit, capped like any quantity.
    pub fn from_nano(nano: i128) -> Self {
        Self { nano: nano.clamp(-MAX_UNITS * NANO, MAX_UNITS * NANO) }
    }

    /// The shortest form with a binary suffix, such as `80Gi`, if there is one; otherwise as [`fmt::Display`]
    /// writes it.
    pub fn to_binary_string(self) -> String {
        let units = self.nano / NANO;
        let fits =
            |power: u32| self.nano % NANO == 0 && units != 0 && units % (1 << (10 * power)) == 0;
        let suffixes = [(6, "Ei"), (5, "Pi"), (4, "Ti"), (3, "Gi"), (2, "Mi"), (1, "Ki")];
        match suffixes.into_iter().find(|(power, _)| fits(*power)) {
            Some((power, suffix)) => format!("{}{suffix}", units >> (10 * power)),
            None => self.to_string(),
        }
    }

    /// The amount in units, if it is a whole number of them that fits.
    pub fn whole_units(self) -> Option<i64> {
        if self.nano % NANO != 0 {
            return None;
        }
        i64::try_from(self.nano / NANO).ok()
    }

    /// The amount in units, as the nearest float.
    #[expect(clippy::cast_precision_loss, reason = "it is approximate")]
    pub fn approximate(self) -> f64 {
        let whole = (self.nano / NANO) as f64;
        whole + (self.nano % NANO) as f64 / NANO as f64
    }

    /// The sum. Unlike a parsed quantity it may exceed `i64::MAX` units.
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self { nano: self.nano.saturating_add(other.nano) }
    }

    /// The difference, likewise.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self { nano: self.nano.saturating_sub(other.nano) }
    }

    /// Whether the amount is below zero.
    pub const fn is_negative(self) -> bool {
        self.nano < 0
    }
}

fn clamp(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

fn div_ceil(value: i128, by: i128) -> i128 {
    value.div_euclid(by) + i128::from(value.rem_euclid(by) != 0)
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Empty);
        }
        let not_a_number = || QuantityError::NotANumber(text.to_owned());
        let (negative, unsigned) = match text.as_bytes()[0] {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let number_len = unsigned
            .bytes()
            .position(|b| !b.is_ascii_digit() && b != b'.')
            .unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(number_len);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(not_a_number());
        }
        let scale = Scale::parse(suffix).ok_or_else(|| QuantityError::UnknownSuffix {
            text: text.to_owned(),
            suffix: suffix.to_owned(),
        })?;
        let nano = scale.nano(whole, fraction);
        Ok(Self { nano: if negative { -nano } else { nano } })
    }
}

/// What a suffix multiplies by.
enum Scale {
    /// A power of 1024.
    Binary(u32),
    /// A power of ten.
    Decimal(i32),
}

impl Scale {
    fn parse(suffix: &str) -> Option<Self> {
        Some(match suffix {
            "Ki" => Self::Binary(1),
            "Mi" => Self::Binary(2),
            "Gi" => Self::Binary(3),
            "Ti" => Self::Binary(4),
            "Pi" => Self::Binary(5),
            "Ei" => Self::Binary(6),
            "n" => Self::Decimal(-9),
            "u" => Self::Decimal(-6),
            "m" => Self::Decimal(-3),
            "" => Self::Decimal(0),
            "k" => Self::Decimal(3),
            "M" => Self::Decimal(6),
            "G" => Self::Decimal(9),
            "T" => Self::Decimal(12),
            "P" => Self::Decimal(15),
            "E" => Self::Decimal(18),
            other => {
                let exponent = other.strip_prefix(['e', 'E'])?;
                // An exponent that is too large for any amount has the same effect as the bound.
                let digits = exponent.trim_start_matches(['+', '-']);
                if digits.is_empty()
                    || exponent.len() - digits.len() > 1
                    || !digits.bytes().all(|b| b.is_ascii_digit())
                {
                    return None;
                }
                let size = digits.parse::<i32>().unwrap_or(1000).min(1000);
                Self::Decimal(if exponent.starts_with('-') { -size } else { size })
            }
        })
    }

    /// `whole.fraction` times this scale in nano-units, rounded up and capped.
    fn nano(&self, whole: &str, fraction: &str) -> i128 {
        let fraction = fraction.trim_end_matches('0');
        let mut mantissa: i128 = 0;
        let mut exponent = -i32::try_from(fraction.len()).unwrap_or(i32::MAX);
        let digits = whole.bytes().chain(fraction.bytes()).map(|b| i128::from(b - b'0'));
        let mut inexact = false;
        for digit in digits {
            // Up to 2^100 the multiplications below do not overflow. The remaining digits are less
            // than one part in 10^30 of the value and only decide whether to round up.
            if mantissa < 1 << 100 {
                mantissa = mantissa * 10 + digit;
            } else {
                exponent += 1;
                inexact |= digit != 0;
            }
        }
        let (factor, exponent) = match self {
            Self::Binary(power) => (1_i128 << (10 * power), exponent + 9),
            Self::Decimal(power) => (1, exponent.saturating_add(power + 9)),
        };
        let cap = MAX_UNITS * NANO;
        // Divide before multiplying when the product could not be held.
        let mut value = mantissa;
        let mut left = exponent;
        if left >= 0 {
            value = value.checked_mul(factor).unwrap_or(cap).min(cap);
            while left > 0 && value < cap && value != 0 {
                value = value.saturating_mul(10).min(cap);
                left -= 1;
            }
            return value;
        }
        let mut scaled = value.checked_mul(factor);
        while scaled.is_none() && left < 0 {
            inexact |= value % 10 != 0;
            value /= 10;
            left += 1;
            scaled = value.checked_mul(factor);
        }
        let mut value = scaled.unwrap_or(cap);
        while left < 0 && value != 0 {
            inexact |= value % 10 != 0;
            value /= 10;
            left += 1;
        }
        (value + i128::from(inexact)).min(cap)
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'_, str>>::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

impl fmt::Display for Quantity {
    /// The shortest plain form: a number of units, or of milli-, micro- or nano-units.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (per_unit, suffix) in [(1, ""), (1_000, "m"), (1_000_000, "u")] {
            if self.nano % (NANO / per_unit) == 0 {
                return write!(f, "{}{suffix}", self.nano / (NANO / per_unit));
            }
        }
        write!(f, "{}n", self.nano)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn nano(text: &str) -> i128 {
        text.parse::<Quantity>().expect(text).nano
    }

    #[test]
    fn every_suffix_scales_exactly() {
        for (text, units) in [
            ("0", 0),
            ("7", 7),
            ("+7", 7),
            ("-7", -7),
            ("1k", 1_000),
            ("1M", 1_000_000),
            ("2Ki", 2_048),
            ("1.5Gi", 1_610_612_736),
            ("1Ei", 1 << 60),
            ("1E", 1_000_000_000_000_000_000),
            ("1e3", 1_000),
            ("1E3", 1_000),
            ("12e+2", 1_200),
            (".5e1", 5),
            ("5.", 5),
        ] {
            assert_eq!(nano(text), units * NANO, "{text}");
        }
        assert_eq!(nano("100m"), NANO / 10);
        assert_eq!(nano("1u"), 1_000);
        assert_eq!(nano("1n"), 1);
        assert_eq!(nano("0.000000001"), 1);
        assert_eq!(nano("1e-9"), 1);
    }

    #[test]
    fn what_is_finer_than_a_nano_unit_rounds_up() {
        assert_eq!(nano("0.5n"), 1);
        assert_eq!(nano("1.0000000001"), NANO + 1);
        assert_eq!(nano("1e-30"), 1);
        assert_eq!(nano("0.00000000000000000000000000000000000000000000000001"), 1);
    }

    #[test]
    fn what_is_too_large_is_capped() {
        for text in ["1e400", "99999999999999999999999999999999999999999999", "999999Ei"] {
            assert_eq!(text.parse::<Quantity>().expect(text).units(), i64::MAX, "{text}");
        }
        assert_eq!("0e999999999999".parse::<Quantity>().expect("zero").units(), 0);
    }

    #[test]
    fn amounts_round_up_to_the_unit_asked_for() {
        let quantity = |text: &str| text.parse::<Quantity>().expect(text);
        assert_eq!(quantity("1500u").milli(), 2);
        assert_eq!(quantity("1.1").units(), 2);
        assert_eq!(quantity("100m").units(), 1);
        assert_eq!(quantity("2").milli(), 2_000);
    }

    #[test]
    fn the_binary_form_is_exact() {
        for (text, binary) in [
            ("80Gi", "80Gi"),
            ("1536Mi", "1536Mi"),
            ("1024", "1Ki"),
            ("1000", "1000"),
            ("0", "0"),
            ("1.5Ki", "1536"),
            ("1500m", "1500m"),
            ("-2Mi", "-2Mi"),
        ] {
            let quantity: Quantity = text.parse().expect(text);
            assert_eq!(quantity.to_binary_string(), binary, "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "", " ", "x", "1x", "1KI", "1ki", "1Kib", "--1", "1.2.3", ".", "-", "e3", "1e",
            "1e+-3", "1 ", "0x1", "1_000", "١",
        ] {
            assert!(text.parse::<Quantity>().is_err(), "{text:?}");
        }
        assert_eq!(
            "1x".parse::<Quantity>().map_err(|e| e.to_string()),
            Err("\"1x\" is not a quantity: unknown suffix \"x\"".to_owned())
        );
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in "[-+0-9.eEKMGTPinumk]{0,60}") {
            let _ = text.parse::<Quantity>();
        }

        #[test]
        fn display_round_trips(units in any::<i32>(), thousandths in 0_i64..1000) {
            let quantity = Quantity { nano: i128::from(units) * NANO + i128::from(thousandths) * 1_000_000 };
            prop_assert_eq!(quantity.to_string().parse::<Quantity>(), Ok(quantity));
        }

        #[test]
        fn order_follows_the_numbers(left in 0_i64..1 << 40, right in 0_i64..1 << 40) {
            let parse = |n: i64| format!("{n}m").parse::<Quantity>().expect("a milli amount");
            prop_assert_eq!(parse(left).cmp(&parse(right)), left.cmp(&right));
        }
    }
}
