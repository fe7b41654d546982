//! Any bytes as a manifest: no panic, no hang, and every problem points into the text.
//!
//! Whatever serde_json reads as JSON has to come out the same here.

#![no_main]

use kube_batch_cache::{dump::Dump, snapshot::{SnapshotOptions, take_snapshot}};
use kube_batch_model::facts::FactError;
use kube_batch_manifest::{
    defaults,
    diagnostic::Diagnostic,
    object::Object,
    place::Place,
    reader::{Reader, Sink},
    render::{Paint, render},
};
use kube_batch_yaml::{Limits, Stream, parse};
use libfuzzer_sys::fuzz_target;
use serde_json::Value as Json;

struct Checked<'t> {
    n_lines: usize,
    /// Where to look for a field that facts could have refused.
    field: &'t str,
}

impl Sink for Checked<'_> {
    fn object(&mut self, mut object: Object, place: &Place<'_>) -> Result<(), FactError> {
        assert!(place.line() >= 1);
        let name = object.to_string();
        defaults::fill(&mut object, "2025-01-01T00:00:00Z".parse().expect("a time"));
        let meta = object.meta();
        assert!(meta.name.is_some() && meta.uid.is_some());
        Err(FactError::new(name, self.field, "\"1x\" is not a quantity"))
    }

    fn dump(&mut self, dump: Dump) {
        let _ = take_snapshot(&dump.store, &dump.assumed, &SnapshotOptions::default());
    }

    fn problem(&mut self, diagnostic: Diagnostic) {
        assert!(usize::try_from(diagnostic.line).expect("small") <= self.n_lines);
        assert!(!diagnostic.to_string().contains('\n'));
        assert!(!render(&diagnostic, Paint::Plain).is_empty());
    }
}

/// Equality but for the last digit of floating point, and the sign of zero.
fn is_same(ours: &Json, theirs: &Json) -> bool {
    match (ours, theirs) {
        (Json::Number(ours), Json::Number(theirs)) => {
            let (Some(ours), Some(theirs)) = (ours.as_f64(), theirs.as_f64()) else { return false };
            (ours - theirs).abs() <= theirs.abs() * 1e-15
        }
        (Json::Array(ours), Json::Array(theirs)) => {
            ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(a, b)| is_same(a, b))
        }
        (Json::Object(ours), Json::Object(theirs)) => {
            let mut both = ours.iter().zip(theirs);
            ours.len() == theirs.len() && both.all(|(a, b)| a.0 == b.0 && is_same(a.1, b.1))
        }
        _ => ours == theirs,
    }
}

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    // A carriage return alone ends a line too, and so does the end of the text.
    let n_lines = bytes.iter().filter(|byte| b"\n\r".contains(byte)).count() + 2;
    let field = text.lines().next().unwrap_or_default();
    Reader::new().read("fuzz", bytes, &mut Checked { n_lines, field });

    let limits = Limits { depth: 120, nodes: 10_000, copies: 1_000 };
    if let Ok(value) = parse(&text, &limits) {
        let _ = value.nearest(field);
        let _ = value.to_json();
    }
    let mut stream = Stream::json(&text, 1, &limits);
    let ours = stream.value().and_then(|value| stream.finish().map(|()| value));
    let is_plain = !text.starts_with("---") && !text.starts_with('\u{feff}');
    if let (Ok(theirs), true) = (serde_json::from_str::<Json>(&text), is_plain) {
        match ours {
            Ok(ours) => assert!(is_same(&ours.to_json(), &theirs), "{theirs}"),
            Err(problem) => {
                let refused = ["is there twice", "levels deep", "holds more than"];
                assert!(refused.iter().any(|why| problem.message.contains(why)), "{problem}");
            }
        }
    }
});
