//! Any text as a quantity: no panic, and what is read is written and read again the same.

#![no_main]

use kube_batch_model::quantity::Quantity;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(quantity) = text.parse::<Quantity>() else { return };
    assert_eq!(quantity.to_string().parse::<Quantity>(), Ok(quantity));
    // Both round up, and both are capped at the same end of the scale.
    let (units, milli) = (i128::from(quantity.units()), i128::from(quantity.milli()));
    if milli.abs() < i128::from(i64::MAX) {
        assert_eq!(units, milli.div_euclid(1000) + i128::from(milli.rem_euclid(1000) != 0));
    }
});
