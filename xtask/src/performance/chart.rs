//! Charts of the cost of a cycle, both axes logarithmic.

use kube_batch_tests::{
    figures::{self, Figures},
    shapes::kinds::{BY_NODES, BY_PODS, parse},
};

use super::baseline::{Baseline, Time, baseline};
use crate::picture::Theme;

// Sizes in pixels.

const WIDTH: f64 = 720.0;
const LEFT: f64 = 92.0;
const RIGHT: f64 = 40.0;
const TOP: f64 = 20.0;
/// The height of a factor of ten.
const DECADE: f64 = 36.0;
/// What is below the plot: the numbers of the horizontal axis and its name.
const BOTTOM: f64 = 52.0;
/// Half the height of a digit.
const HALF_DIGIT: f64 = 4.5;
const RADIUS: f64 = 4.0;

/// A chart: what each cycle takes, by a number in the name of its shape.
pub(super) struct Chart {
    /// The name of the file.
    pub(super) name: &'static str,
    title: &'static str,
    axis: &'static str,
    series: Vec<Series>,
}

struct Series {
    label: &'static str,
    points: Vec<Point>,
}

struct Point {
    number: f64,
    ms: f64,
    is_estimated: bool,
}

/// The charts of `docs/performance.md`.
pub(super) fn charts(figures: &[Figures]) -> [Chart; 2] {
    // v0.5.0 was measured with one gang of 1 000, not with ten of 100.
    let by_pods: Vec<&str> = BY_PODS.into_iter().chain(["FILL-1000-1000-1000"]).collect();
    [
        Chart {
            name: "cycle-by-nodes",
            title: "Time to place 10 000 pods in gangs of 100, by number of nodes",
            axis: "nodes",
            series: series(figures, &BY_NODES, 0),
        },
        Chart {
            name: "cycle-by-pods",
            title: "Time to place pods in gangs on 1 000 nodes, by number of pods",
            axis: "pods",
            series: series(figures, &by_pods, 1),
        },
    ]
}

/// The series of a chart, from the cheapest. The number at `position` in the name of a shape is on the
/// horizontal axis.
fn series(figures: &[Figures], shapes: &[&str], position: usize) -> Vec<Series> {
    let own = figures.iter().filter(|figures| shapes.contains(&figures.shape.as_str()));
    let own = own.map(|figures| Point {
        number: number(&figures.shape, position),
        ms: figures.snapshot_ms + figures.cycle_min_ms,
        is_estimated: false,
    });
    let theirs = |time: fn(&Baseline) -> Option<Time>| -> Vec<Point> {
        let point = |shape: &&str| {
            let Time { seconds, is_estimated } = baseline(shape).and_then(time)?;
            Some(Point { number: number(shape, position), ms: seconds * 1e3, is_estimated })
        };
        shapes.iter().filter_map(point).collect()
    };
    let all = [
        ("kube-batch, this version", own.collect()),
        ("v0.5.0 without its listing of pods", theirs(|baseline| baseline.without_listing)),
        ("v0.5.0", theirs(|baseline| baseline.stock)),
    ];
    let sorted = |(label, mut points): (_, Vec<Point>)| {
        points.sort_by(|l, r| l.number.total_cmp(&r.number));
        Series { label, points }
    };
    all.into_iter().map(sorted).collect()
}

fn number(shape: &str, position: usize) -> f64 {
    parse(shape).map_or(f64::NAN, |(_, numbers)| numbers[position] as f64)
}

impl Chart {
    pub(super) fn draw(&self, theme: &Theme) -> String {
        let plot = Plot::around(self.series.iter().flat_map(|series| &series.points));
        let height = plot.bottom() + BOTTOM;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
             width=\"{WIDTH}\" height=\"{height}\" \
             font-family=\"system-ui, 'DejaVu Sans', sans-serif\" font-size=\"13\" fill=\"{}\">\n\
             <!-- Generated from {} by `cargo xtask codegen`; do not edit. -->\n\
             <title>{}</title>\n",
            theme.text,
            figures::PATH,
            self.title
        );
        plot.draw_axes(&mut svg, theme, self.axis);
        for (series, colour) in self.series.iter().zip(theme.jobs) {
            plot.draw_series(&mut svg, series, colour, theme.on_job);
        }
        svg.push_str("</svg>\n");
        svg
    }
}

/// The scales: powers of ten around all points.
struct Plot {
    numbers: (i32, i32),
    ms: (i32, i32),
}

impl Plot {
    fn around<'a>(points: impl Iterator<Item = &'a Point> + Clone) -> Self {
        let range = |value: fn(&Point) -> f64| {
            let logs = points.clone().map(move |point| value(point).log10());
            let least = logs.clone().fold(f64::INFINITY, f64::min);
            let most = logs.fold(f64::NEG_INFINITY, f64::max);
            (least.floor() as i32, most.ceil() as i32)
        };
        Self { numbers: range(|point| point.number), ms: range(|point| point.ms) }
    }

    fn x(&self, number: f64) -> f64 {
        let (least, most) = self.numbers;
        let part = (number.log10() - f64::from(least)) / f64::from(most - least);
        LEFT + part * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, ms: f64) -> f64 {
        TOP + (f64::from(self.ms.1) - ms.log10()) * DECADE
    }

    fn bottom(&self) -> f64 {
        self.y(10_f64.powi(self.ms.0))
    }

    fn draw_axes(&self, svg: &mut String, theme: &Theme, axis: &str) {
        let (left, right, bottom) = (LEFT, WIDTH - RIGHT, self.bottom());
        for power in self.ms.0..=self.ms.1 {
            let y = self.y(10_f64.powi(power));
            line(svg, (left, y), (right, y), theme.lane);
            text(svg, (left - 10.0, y + HALF_DIGIT), "end", theme.faint, &time(power));
        }
        for power in self.numbers.0..=self.numbers.1 {
            let number = 10_f64.powi(power);
            let x = self.x(number);
            line(svg, (x, TOP), (x, bottom), theme.lane);
            text(svg, (x, bottom + 20.0), "middle", theme.faint, &grouped(number));
        }
        text(svg, (f64::midpoint(left, right), bottom + 42.0), "middle", theme.text, axis);
    }

    /// Draws the points of a series, a line through them, and its name above the last. What was estimated
    /// is hollow.
    fn draw_series(&self, svg: &mut String, series: &Series, colour: &str, hollow: &str) {
        let places: Vec<String> = series
            .points
            .iter()
            .map(|point| format!("{:.1},{:.1}", self.x(point.number), self.y(point.ms)))
            .collect();
        svg.push_str(&format!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\n",
            places.join(" ")
        ));
        for point in &series.points {
            let fill = if point.is_estimated { hollow } else { colour };
            svg.push_str(&format!(
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"{RADIUS}\" fill=\"{fill}\" stroke=\"{colour}\" \
                 stroke-width=\"2\"/>\n",
                self.x(point.number),
                self.y(point.ms)
            ));
        }
        if let Some(last) = series.points.last() {
            let place = (self.x(last.number) + RADIUS, self.y(last.ms) - 3.0 * RADIUS);
            text(svg, place, "end", colour, series.label);
        }
    }
}

type Place = (f64, f64);

fn line(svg: &mut String, (x1, y1): Place, (x2, y2): Place, colour: &str) {
    svg.push_str(&format!(
        "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{colour}\"/>\n"
    ));
}

fn text(svg: &mut String, (x, y): Place, anchor: &str, colour: &str, text: &str) {
    svg.push_str(&format!(
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{colour}\">{text}</text>\n"
    ));
}

/// A power of ten of milliseconds in words.
fn time(power: i32) -> String {
    match power {
        ..0 => format!("{} ms", 10_f64.powi(power)),
        0..3 => format!("{} ms", grouped(10_f64.powi(power))),
        3.. => format!("{} s", grouped(10_f64.powi(power - 3))),
    }
}

/// A whole number with a blank between thousands.
fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut grouped = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            grouped.push(' ');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_between_the_powers_of_ten_around_them() {
        let point = |number, ms| Point { number, ms, is_estimated: false };
        let points = [point(500.0, 10.0), point(30_000.0, 2e5)];
        let plot = Plot::around(points.iter());
        assert_eq!((plot.numbers, plot.ms), ((2, 5), (1, 6)));
        assert_eq!((plot.x(100.0), plot.x(100_000.0)), (LEFT, WIDTH - RIGHT));
        assert_eq!((plot.y(1e6), plot.y(1e5)), (TOP, TOP + DECADE));
    }

    #[test]
    fn powers_of_ten_have_units() {
        let times = [-1, 0, 2, 3, 6].map(time);
        assert_eq!(times, ["0.1 ms", "1 ms", "100 ms", "1 s", "1 000 s"]);
    }
}
