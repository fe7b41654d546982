//! The story as an SVG drawing.

use super::{
    example::EXAMPLE,
    story::{Bar, N_COLUMNS, Story},
    theme::Theme,
};

// Sizes in pixels.

const LEFT: usize = 136;
const TOP: usize = 64;
const COLUMN: usize = 52;
const SLOT: usize = 17;
const NODE_GAP: usize = 10;
const LINE: usize = 20;
const SECTION_GAP: usize = 16;
const MARGIN: usize = 8;
/// Distance between a label and what it is a label of.
const LABEL_GAP: usize = 12;
/// Distance from the top of a line of text to its baseline.
const BASELINE: usize = 12;

/// An attribute of an element: name and value.
type Attribute<'a> = (&'a str, &'a str);

const END: Attribute<'_> = ("text-anchor", "end");
const MIDDLE: Attribute<'_> = ("text-anchor", "middle");
const BOLD: Attribute<'_> = ("font-weight", "bold");

/// Draws a story in the colours of a theme.
pub(super) fn draw(story: &Story, theme: &Theme) -> String {
    let mut drawing = Drawing::new(story, theme);
    drawing.open();
    drawing.legend();
    drawing.cycle_labels();
    drawing.nodes();
    drawing.bars();
    drawing.queue_table();
    drawing.events();
    drawing.close()
}

/// A drawing in progress, from top to bottom.
struct Drawing<'s> {
    story: &'s Story,
    theme: &'s Theme,
    /// Top of each node, of the table and of the events, in pixels.
    node_tops: Vec<usize>,
    table_top: usize,
    events_top: usize,
    svg: String,
}

impl<'s> Drawing<'s> {
    fn new(story: &'s Story, theme: &'s Theme) -> Self {
        let mut node_tops = Vec::new();
        let mut y = TOP;
        for node in &story.nodes {
            node_tops.push(y);
            y += node.n_slots * SLOT + NODE_GAP;
        }
        let table_top = y - NODE_GAP + SECTION_GAP;
        let n_rows = story.queues.len() + 1;
        let events_top = table_top + n_rows * LINE + SECTION_GAP;
        Self { story, theme, node_tops, table_top, events_top, svg: String::new() }
    }

    fn open(&mut self) {
        let text = self.theme.text;
        let width = column_left(N_COLUMNS) + MARGIN;
        let height = self.events_top + self.story.events.len() * LINE + MARGIN;
        self.line(&format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\" \
             font-family=\"system-ui, 'DejaVu Sans', sans-serif\" font-size=\"13\" fill=\"{text}\">"
        ));
        self.line(&format!(
            "<!-- Generated from {EXAMPLE} by `cargo xtask codegen`; do not edit. -->"
        ));
        self.line("<title>Pods on four nodes over thirteen scheduling cycles</title>");
    }

    fn legend(&mut self) {
        let mut left = LEFT;
        for (job, colour) in self.story.jobs.iter().zip(self.theme.jobs) {
            let name = format!("{}, queue {}", job.name, job.queue);
            self.filled(&Rect::new(left, MARGIN, 14, 14), colour);
            self.text(left + 20, MARGIN + BASELINE, &[], &name);
            // A letter is about 7 pixels wide.
            left += 36 + name.len() * 7;
        }
        let symbol = Rect::new(left, MARGIN, 14, 14).border();
        self.outlined(&symbol, self.theme.faint);
        self.text(left + 20, MARGIN + BASELINE, &[], "nominated");
    }

    /// Labels the columns; those in which something happened are bold.
    fn cycle_labels(&mut self) {
        let Theme { text, faint, .. } = self.theme;
        let y = TOP - 10;
        self.label(y, &[("fill", faint)], "after cycle");
        for column in 0..N_COLUMNS {
            let happened = self.story.events.iter().any(|(cycle, _)| *cycle == column);
            let (weight, colour) = if happened { ("bold", text) } else { ("normal", faint) };
            let attributes = [MIDDLE, ("font-weight", weight), ("fill", colour)];
            let label = if column == 0 { "start".to_owned() } else { column.to_string() };
            self.text(column_middle(column), y, &attributes, &label);
        }
    }

    fn nodes(&mut self) {
        for (index, node) in self.story.nodes.iter().enumerate() {
            let top = self.node_tops[index];
            self.label(top + node.n_slots * SLOT / 2 + 5, &[], &node.name);
            for slot in 0..node.n_slots {
                let lane = Rect::new(LEFT, top + slot * SLOT, N_COLUMNS * COLUMN, SLOT - 2);
                self.filled(&lane, self.theme.lane);
            }
        }
    }

    fn bars(&mut self) {
        for bar in &self.story.bars {
            self.bar(bar);
        }
    }

    fn bar(&mut self, bar: &Bar) {
        let left = column_left(bar.from) + 1;
        let top = self.node_tops[bar.place.node] + bar.slot * SLOT;
        let rect = Rect::new(left, top, (bar.to - bar.from) * COLUMN - 2, SLOT - 2);
        let Theme { jobs, on_job, .. } = self.theme;
        let colour = jobs[bar.job % jobs.len()];
        if bar.place.nominated {
            self.outlined(&rect.border(), colour);
            return;
        }
        self.filled(&rect, colour);
        let attributes = [("font-size", "11"), ("fill", *on_job)];
        self.text(left + 6, top + BASELINE, &attributes, &self.story.jobs[bar.job].name);
    }

    /// Draws how many pods of each queue run, and how many wait, in each column. Each pod of the
    /// example requests one CPU.
    fn queue_table(&mut self) {
        let story = self.story;
        let queues = story.queues.iter().map(|(name, counts)| (format!("CPUs, {name}"), counts));
        let waiting = ("pods waiting".to_owned(), &story.waiting);
        for (row, (label, counts)) in queues.chain([waiting]).enumerate() {
            let y = self.table_top + row * LINE + BASELINE;
            self.label(y, &[], &label);
            for (column, count) in counts.iter().enumerate() {
                self.text(column_middle(column), y, &[MIDDLE], &count.to_string());
            }
        }
    }

    fn events(&mut self) {
        for (row, (cycle, sentence)) in self.story.events.iter().enumerate() {
            let y = self.events_top + row * LINE + BASELINE;
            self.label(y, &[BOLD], &format!("cycle {cycle}"));
            self.text(LEFT, y, &[], sentence);
        }
    }

    fn close(mut self) -> String {
        self.line("</svg>");
        self.svg
    }

    /// Writes a text to the left of the columns, with its baseline at `y`.
    fn label(&mut self, y: usize, attributes: &[Attribute<'_>], text: &str) {
        self.text(LEFT - LABEL_GAP, y, &[&[END], attributes].concat(), text);
    }

    /// Writes a text at `x`, with its baseline at `y`.
    fn text(&mut self, x: usize, y: usize, attributes: &[Attribute<'_>], text: &str) {
        let attributes = join(attributes);
        self.line(&format!("<text x=\"{x}\" y=\"{y}\"{attributes}>{text}</text>"));
    }

    fn filled(&mut self, rect: &Rect, colour: &str) {
        self.rect(rect, &[("fill", colour)]);
    }

    fn outlined(&mut self, rect: &Rect, colour: &str) {
        let attributes = [("fill", "none"), ("stroke", colour), ("stroke-dasharray", "3 2")];
        self.rect(rect, &attributes);
    }

    fn rect(&mut self, rect: &Rect, attributes: &[Attribute<'_>]) {
        let Rect { x, y, width, height } = rect;
        let attributes = join(attributes);
        self.line(&format!(
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"3\"{attributes}/>"
        ));
    }

    fn line(&mut self, text: &str) {
        self.svg.push_str(text);
        self.svg.push('\n');
    }
}

/// A rectangle, in pixels.
struct Rect {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

impl Rect {
    fn new(x: usize, y: usize, width: usize, height: usize) -> Self {
        let [x, y, width, height] = [x, y, width, height].map(|pixels| pixels as f64);
        Self { x, y, width, height }
    }

    /// The middle of a border that is one pixel wide, inside of the rectangle.
    fn border(&self) -> Self {
        let Self { x, y, width, height } = self;
        Self { x: x + 0.5, y: y + 0.5, width: width - 1.0, height: height - 1.0 }
    }
}

/// The attributes as in an element, each after a blank.
fn join(attributes: &[Attribute<'_>]) -> String {
    attributes.iter().map(|(name, value)| format!(" {name}=\"{value}\"")).collect()
}

const fn column_left(column: usize) -> usize {
    LEFT + column * COLUMN
}

const fn column_middle(column: usize) -> usize {
    column_left(column) + COLUMN / 2
}
