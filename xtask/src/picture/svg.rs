//! The story as an SVG drawing.

use super::{
    example::EXAMPLE,
    story::{N_CYCLES, Story},
};

/// Sizes in pixels.
const LEFT: usize = 136;
const TOP: usize = 64;
const COLUMN: usize = 52;
const SLOT: usize = 17;
const NODE_GAP: usize = 10;
const LINE: usize = 20;

/// Colours of one appearance.
pub(super) struct Theme {
    pub(super) name: &'static str,
    pub(super) text: &'static str,
    pub(super) faint: &'static str,
    pub(super) lane: &'static str,
    /// One for each job, in order of appearance. From Okabe and Ito's palette, which people with
    /// impaired colour vision can tell apart; darker or lighter for contrast with the text on them.
    pub(super) jobs: [&'static str; 4],
    pub(super) on_job: &'static str,
}

pub(super) fn draw(story: &Story, theme: &Theme) -> String {
    let Theme { text, faint, lane, jobs, on_job, .. } = theme;
    let x = |column: usize| LEFT + column * COLUMN;
    let mut tops = Vec::new();
    let mut y = TOP;
    for (_, slots) in &story.nodes {
        tops.push(y);
        y += slots * SLOT + NODE_GAP;
    }
    let bottom = y - NODE_GAP;
    let rows = story.queues.len() + 1;
    let height = bottom + 16 + rows * LINE + 16 + story.events.len() * LINE + 8;
    let width = x(N_CYCLES) + 8;
    let mut svg = String::new();
    let mut line = |text: String| {
        svg.push_str(&text);
        svg.push('\n');
    };
    line(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" font-family=\"system-ui, 'DejaVu Sans', sans-serif\" \
         font-size=\"13\" fill=\"{text}\">"
    ));
    line(format!("<!-- Generated from {EXAMPLE} by `cargo xtask codegen`; do not edit. -->"));
    line("<title>Pods on four nodes over fourteen scheduling cycles</title>".to_owned());
    // Legend.
    let mut at = LEFT;
    for ((job, queue), colour) in story.jobs.iter().zip(jobs) {
        let name = format!("{job}, queue {queue}");
        line(format!(
            "<rect x=\"{at}\" y=\"8\" width=\"14\" height=\"14\" rx=\"3\" fill=\"{colour}\"/>"
        ));
        line(format!("<text x=\"{}\" y=\"20\">{name}</text>", at + 20));
        at += 36 + name.len() * 7;
    }
    line(format!(
        "<rect x=\"{at}\" y=\"8.5\" width=\"13\" height=\"13\" rx=\"3\" fill=\"none\" stroke=\"{faint}\" \
         stroke-dasharray=\"3 2\"/>"
    ));
    line(format!("<text x=\"{}\" y=\"20\">reserved</text>", at + 20));
    // Cycles.
    line(format!(
        "<text x=\"{}\" y=\"{}\" text-anchor=\"end\" fill=\"{faint}\">after cycle</text>",
        LEFT - 12,
        TOP - 10
    ));
    for column in 0..N_CYCLES {
        let happened = story.events.iter().any(|(cycle, _)| *cycle == column);
        let (weight, colour) = if happened { ("bold", text) } else { ("normal", faint) };
        let label = if column == 0 { "start".to_owned() } else { column.to_string() };
        line(format!(
            "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\" font-weight=\"{weight}\" \
             fill=\"{colour}\">{label}</text>",
            x(column) + COLUMN / 2,
            TOP - 10
        ));
    }
    // Nodes.
    for ((name, slots), top) in story.nodes.iter().zip(&tops) {
        line(format!(
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{name}</text>",
            LEFT - 12,
            top + slots * SLOT / 2 + 5
        ));
        for slot in 0..*slots {
            line(format!(
                "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"3\" fill=\"{lane}\"/>",
                x(0),
                top + slot * SLOT,
                N_CYCLES * COLUMN,
                SLOT - 2
            ));
        }
    }
    for bar in &story.bars {
        let (left, top) = (x(bar.from) + 1, tops[bar.node] + bar.slot * SLOT);
        let (width, height) = ((bar.to - bar.from) * COLUMN - 2, SLOT - 2);
        let colour = jobs[bar.job % jobs.len()];
        if bar.reserved {
            line(format!(
                "<rect x=\"{left}.5\" y=\"{top}.5\" width=\"{}\" height=\"{}\" rx=\"3\" fill=\"none\" \
                 stroke=\"{colour}\" stroke-dasharray=\"3 2\"/>",
                width - 1,
                height - 1
            ));
            continue;
        }
        line(format!(
            "<rect x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\" rx=\"3\" \
             fill=\"{colour}\"/>"
        ));
        line(format!(
            "<text x=\"{}\" y=\"{}\" font-size=\"11\" fill=\"{on_job}\">{}</text>",
            left + 6,
            top + 12,
            story.jobs[bar.job].0
        ));
    }
    // Numbers.
    let mut y = bottom + 16 + 12;
    let waiting = ("pods waiting".to_owned(), &story.waiting);
    let queues = story.queues.iter().map(|(name, counts)| (format!("CPUs, {name}"), counts));
    for (label, counts) in queues.chain([waiting]) {
        line(format!("<text x=\"{}\" y=\"{y}\" text-anchor=\"end\">{label}</text>", LEFT - 12));
        for (column, count) in counts.iter().enumerate() {
            line(format!(
                "<text x=\"{}\" y=\"{y}\" text-anchor=\"middle\">{count}</text>",
                x(column) + COLUMN / 2
            ));
        }
        y += LINE;
    }
    y += 16;
    for (cycle, sentence) in &story.events {
        line(format!(
            "<text x=\"{}\" y=\"{y}\" text-anchor=\"end\" font-weight=\"bold\">cycle {cycle}</text>",
            LEFT - 12
        ));
        line(format!("<text x=\"{LEFT}\" y=\"{y}\">{sentence}</text>"));
        y += LINE;
    }
    line("</svg>".to_owned());
    svg
}
