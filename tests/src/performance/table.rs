//! The table of the shapes in docs/performance.md.

use super::baseline::{Baseline, Time, baseline};
use crate::{
    figures::Figures,
    shapes::kinds::{documented, parse},
};
use anyhow::{Context, ensure};

/// The lines around the table.
const START: &str =
    "<!-- Generated from tests/figures/cycles.jsonl by `cargo xtask codegen`. -->\n";
const END: &str = "<!-- End of what is generated. -->\n";

/// The document with a table of the documented shapes in place of the one it has.
pub(super) fn replace(document: &str, figures: &[Figures]) -> anyhow::Result<String> {
    let (before, rest) = document.split_once(START).context("the table has no start")?;
    let (_, after) = rest.split_once(END).context("the table has no end")?;
    Ok(format!("{before}{START}\n{}\n{END}{after}", table(figures)?))
}

fn table(figures: &[Figures]) -> anyhow::Result<String> {
    let mut table = "\
        | shape | cluster | snapshot ms | cycle ms | next ms | MB | v0.5.0 | without its listing | v0.5.0 MB |\n\
        |---|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    let mut described = Vec::new();
    for shape in documented() {
        let of_shape = figures.iter().find(|figures| figures.shape == shape);
        let figures = of_shape.with_context(|| format!("{shape} was not measured"))?;
        let (kind, _) = parse(shape).with_context(|| format!("{shape} is no shape"))?;
        // Each kind is described where it comes first.
        let about = if described.contains(&kind.name) { "" } else { kind.about };
        described.push(kind.name);
        table.push_str(&row(figures, about));
    }
    ensure!(!table.contains("NaN"), "a figure is not a number");
    Ok(table)
}

fn row(figures: &Figures, about: &str) -> String {
    let Figures { shape, snapshot_ms, cycle_min_ms, first_ms, next_ms, peak_mb, .. } = figures;
    let first = first_ms.map(|first| format!(", at first {}", ms(first))).unwrap_or_default();
    let [stock, without_listing, mb] = baseline(shape).map(cells).unwrap_or_default();
    let cells = [
        format!("`{shape}`"),
        about.to_owned(),
        ms(*snapshot_ms),
        ms(*cycle_min_ms) + &first,
        ms(*next_ms),
        format!("{peak_mb:.0}"),
        stock,
        without_listing,
        mb,
    ];
    let cells: Vec<String> =
        cells.iter().map(|cell| format!("{cell} |").trim_start().to_owned()).collect();
    format!("| {}\n", cells.join(" "))
}

fn cells(baseline: &Baseline) -> [String; 3] {
    let Baseline { stock, without_listing, peak_mb, .. } = baseline;
    [
        stock.map(time).unwrap_or_default(),
        without_listing.map(time).unwrap_or_default(),
        peak_mb.to_string(),
    ]
}

fn ms(ms: f64) -> String {
    if ms < 10.0 { format!("{ms:.1}") } else { format!("{ms:.0}") }
}

fn time(time: Time) -> String {
    let about = if time.is_estimated { "about " } else { "" };
    let seconds = time.seconds;
    match seconds {
        3600.0.. => format!("{about}{} h", short(seconds / 3600.0)),
        1.0.. => format!("{about}{} s", short(seconds)),
        _ => format!("{about}{} ms", short(seconds * 1e3)),
    }
}

/// A number with two or three digits that count.
fn short(number: f64) -> String {
    if number < 10.0 { format!("{number:.1}") } else { format!("{number:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures() -> Vec<Figures> {
        let of = |shape: &str| Figures {
            shape: shape.to_owned(),
            snapshot_ms: 4.21,
            cycle_min_ms: 57.4,
            first_ms: None,
            cycle_median_ms: 60.0,
            next_ms: 0.31,
            binds: 1,
            evictions: 0,
            nominations: 0,
            peak_mb: 15.7,
        };
        documented().map(of).collect()
    }

    #[test]
    fn the_table_replaces_what_was_between_the_marks() {
        let document = format!("before\n{START}old\n{END}after\n");
        let replaced = replace(&document, &figures()).expect("the document has the marks");
        assert!(replaced.starts_with("before\n") && replaced.ends_with("after\n"), "{replaced}");
        assert!(!replaced.contains("old"), "{replaced}");
        let row = "| `FILL-1000-10000-100` | empty nodes, and gangs that fit | 4.2 | 57 | 0.3 | 16 | about 28 h | 83 s | 121 |\n";
        assert!(replaced.contains(row), "{replaced}");
        assert_eq!(replace(&replaced, &figures()).expect("the marks are still there"), replaced);
    }

    #[test]
    fn a_shape_that_was_not_measured_is_an_error() {
        let document = format!("{START}{END}");
        let error = replace(&document, &figures()[1..]).expect_err("a shape is missing");
        assert_eq!(error.to_string(), "FILL-1000-10000-100 was not measured");
    }
}
