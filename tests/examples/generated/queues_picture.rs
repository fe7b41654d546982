//! The picture of docs/queues.md: what each queue of an example holds of what it deserves.

use std::fmt::Write;

use anyhow::Context;
use kube_batch_model::resource::Unit;

use crate::simulated::simulated;

/// The steps of the example that are drawn, with their titles.
const STEPS: [(&str, &str); 2] = [
    ("5-fence.yaml", "By day: inference keeps what it borrowed"),
    ("6-sweeps.yaml", "By night: sweeps use what is left"),
];

const GPU: &str = "nvidia.com/gpu";

/// Cycles until nothing changes any more.
const CYCLES: usize = 5;

/// The generated file: path below the root, and content.
pub(super) fn file() -> anyhow::Result<(String, String)> {
    let mut steps = Vec::new();
    for (name, title) in STEPS {
        steps.push((title, bars(name).with_context(|| format!("simulate {name}"))?));
    }
    Ok(("docs/queues.svg".to_owned(), draw(&steps)))
}

/// What a queue has of GPUs.
struct Bar {
    name: String,
    depth: usize,
    is_parent: bool,
    held: f64,
    deserved: f64,
    promised: f64,
    guaranteed: f64,
}

/// The queues of a step after some cycles, from the top down.
fn bars(step: &str) -> anyhow::Result<Vec<Bar>> {
    let step = format!("queues/{step}");
    let mut simulation = simulated(&["queues/nodes.yaml", &step])?;
    for _ in 0..CYCLES {
        simulation.cycle(&mut |_| {});
    }
    let cycle = &simulation.last().context("no cycle has run")?.cycle;
    let number = |amount: i64| Unit::of(GPU).as_f64(amount);
    let mut bars = Vec::new();
    let mut next: Vec<(Option<&str>, usize)> = vec![(None, 0)];
    while let Some((parent, depth)) = next.pop() {
        let own = cycle.queues.iter().find(|own| Some(&*own.queue.name) == parent);
        if let Some(report) = own {
            let of = |amounts: &kube_batch_model::resource::AmountsByName| {
                number(amounts.iter().find(|(name, _)| &***name == GPU).map_or(0, |own| *own.1))
            };
            let guaranteed = of(&report.guaranteed);
            bars.push(Bar {
                name: report.queue.name.to_string(),
                depth: depth - 1,
                is_parent: cycle
                    .queues
                    .iter()
                    .any(|own| own.queue.parent.as_ref() == Some(&report.queue.name)),
                held: of(&report.allocated),
                deserved: of(&report.deserved),
                promised: number(report.queue.deserved.get(GPU)).max(guaranteed),
                guaranteed,
            });
        }
        let mut children: Vec<&str> = cycle
            .queues
            .iter()
            .filter(|own| own.queue.parent.as_deref() == parent)
            .map(|own| &*own.queue.name)
            .collect();
        children.sort_unstable_by(|l, r| r.cmp(l));
        next.extend(children.into_iter().map(|child| (Some(child), depth + 1)));
    }
    Ok(bars)
}

/// Points for one GPU, the width of names, and the heights of a row, of a title and of the legend.
const SCALE: f64 = 2.0;
const NAMES: f64 = 150.0;
const ROW: f64 = 30.0;
const TITLE: f64 = 44.0;
const LEGEND: f64 = 30.0;
/// The largest amount of a queue in the example.
const MOST: f64 = 260.0;

const STYLE: &str = "\
text { font: 13px sans-serif; fill: #24292f }
.title { font-weight: bold }
.small { font-size: 11px }
.page { fill: #fff }
.deserved { fill: #8c959f; fill-opacity: .28; stroke: #8c959f }
.held { fill: #2f81f7 }
.loan { fill: #d4731c }
.promised { fill: #1a7f37 }
.guaranteed { fill: #8250df }
.parent { font-weight: bold }
@media (prefers-color-scheme: dark) { text { fill: #d0d7de } .page { fill: #0d1117 } }";

fn draw(steps: &[(&str, Vec<Bar>)]) -> String {
    let width = NAMES + MOST * SCALE + 90.0;
    let rows: usize = steps.iter().map(|(_, bars)| bars.len()).sum();
    let height = TITLE * steps.len() as f64 + ROW * rows as f64 + LEGEND + 8.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" role=\"img\">\n\
         <title>GPUs that each queue holds and deserves, its quota and its guarantee</title>\n<style>\n{STYLE}\n</style>\n\
         <rect class=\"page\" width=\"{width}\" height=\"{height}\"/>\n"
    );
    legend(&mut svg, LEGEND - 8.0);
    let mut y = LEGEND;
    for (title, bars) in steps {
        y += TITLE;
        text(&mut svg, 8.0, y - 14.0, "title", title);
        for bar in bars {
            draw_bar(&mut svg, y, bar);
            y += ROW;
        }
    }
    svg.push_str("</svg>\n");
    svg
}

fn draw_bar(svg: &mut String, y: f64, bar: &Bar) {
    let class = if bar.is_parent { "parent" } else { "" };
    text(svg, 8.0 + 16.0 * bar.depth as f64, y + 17.0, class, &bar.name);
    rect(svg, "deserved", 0.0, bar.deserved, y + 2.0, 24.0);
    let own = bar.held.min(bar.deserved);
    rect(svg, "held", 0.0, own, y + 6.0, 11.0);
    rect(svg, "loan", own, bar.held - own, y + 6.0, 11.0);
    rect(svg, "promised", 0.0, bar.promised, y + 19.0, 4.0);
    rect(svg, "guaranteed", 0.0, bar.guaranteed, y + 19.0, 4.0);
    let end = bar.held.max(bar.deserved).max(bar.promised);
    let numbers = format!("{} / {}", number(bar.held), number(bar.deserved));
    text(svg, NAMES + end * SCALE + 8.0, y + 17.0, "small", &numbers);
}

/// An amount with three digits, as in the tables.
fn number(amount: f64) -> String {
    let is_whole = amount.fract() == 0.0 || amount >= 100.0;
    if is_whole { format!("{amount:.0}") } else { format!("{amount:.1}") }
}

fn legend(svg: &mut String, y: f64) {
    let mut x = 0.0;
    for (class, words) in [
        ("held", "held"),
        ("loan", "borrowed"),
        ("deserved", "deserved"),
        ("promised", "nominal quota"),
        ("guaranteed", "guarantee"),
    ] {
        rect(svg, class, x, 7.0, y - 10.0, 11.0);
        text(svg, NAMES + x * SCALE + 20.0, y, "small", words);
        x += 22.0 + words.len() as f64 * 3.2;
    }
    text(svg, 8.0, y, "small", "GPUs, held / deserved");
}

/// A part of a bar, in GPUs.
fn rect(svg: &mut String, class: &str, from: f64, amount: f64, y: f64, height: f64) {
    if amount > 0.0 {
        let (x, width) = (NAMES + from * SCALE, amount * SCALE);
        let _ = writeln!(
            svg,
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>"
        );
    }
}

fn text(svg: &mut String, x: f64, y: f64, class: &str, words: &str) {
    let _ = writeln!(svg, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{words}</text>");
}
