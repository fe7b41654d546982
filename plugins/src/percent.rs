//! Percentages of resource amounts, rounded down.
//!
//! A score adds such percentages up. Floats are used where they give the same result as integers:
//! they divide several times faster, and vector instructions divide several at once.

use kube_batch_model::cluster::EXACT_IN_FLOATS;

/// The largest score.
pub(crate) const MAX_SCORE: i64 = 100;

/// `100 * part / whole`, rounded towards 0.
pub(crate) fn percent(part: i64, whole: i64) -> i64 {
    if 0 <= part && part <= whole && whole <= EXACT_IN_FLOATS {
        ((MAX_SCORE * part) as f64 / whole as f64) as i64
    } else {
        MAX_SCORE * part / whole
    }
}

/// Rounds a number of at most 2^51 that is not negative down. Unlike a conversion, this is a vector
/// instruction on every x86-64 processor.
pub(crate) fn floor(number: f64) -> f64 {
    /// From here on, floats are integers.
    const INTEGERS: f64 = (1_u64 << 52) as f64;
    let nearest = (number + INTEGERS) - INTEGERS;
    if nearest > number { nearest - 1.0 } else { nearest }
}

#[cfg(test)]
mod tests {
    use super::{EXACT_IN_FLOATS, MAX_SCORE, floor, percent};
    use proptest::prelude::*;

    fn amount() -> impl Strategy<Value = i64> {
        prop_oneof![1_i64..200, (EXACT_IN_FLOATS - 200)..=EXACT_IN_FLOATS, 1..=EXACT_IN_FLOATS]
    }

    proptest! {
        #[test]
        fn percentages_are_those_of_integers(whole in amount(), part in amount(), hundredths in 0_i64..=100) {
            // The largest part below or at a whole percentage is where rounding could go wrong.
            let edge = i128::from(whole) * i128::from(hundredths) / 100;
            let edge = i64::try_from(edge).expect("at most the whole");
            for part in [part.min(whole), edge, edge.saturating_sub(1).max(0), (edge + 1).min(whole)] {
                prop_assert_eq!(percent(part, whole), MAX_SCORE * part / whole);
                let in_floats = floor(MAX_SCORE as f64 * part as f64 / whole as f64);
                prop_assert_eq!(in_floats as i64, MAX_SCORE * part / whole);
            }
        }

        #[test]
        fn numbers_are_rounded_down(number in 0.0..1e6_f64, digits in 0_u64..4) {
            for number in [number, number.round(), f64::from_bits(number.round().to_bits() + digits)] {
                prop_assert_eq!(floor(number).to_bits(), number.floor().to_bits());
            }
        }
    }
}
