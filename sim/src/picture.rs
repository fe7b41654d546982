//! The picture of a simulation: for each queue, what its jobs hold of a resource over time, what it deserves and what waits.

use std::{collections::BTreeMap, fmt::Write, sync::Arc};

use jiff::Timestamp;
use kube_batch_model::{
    name::Name,
    people,
    resource::{AmountsByName, Unit},
};

use crate::usage::{QueuePoint, UseOverTime};

/// Points: the width of the part over time, the margins, and the height of all lanes together and of one at least.
const WIDTH: f64 = 760.0;
const LEFT: f64 = 150.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 46.0;
const BOTTOM: f64 = 34.0;
const HEIGHT: f64 = 320.0;
const LEAST: f64 = 44.0;
const GAP: f64 = 16.0;

/// Jobs of a queue have areas of their own up to this number.
const MAX_JOBS: usize = 8;

/// At most this many queues have a lane.
const MAX_LANES: usize = 24;

/// At most this many times are marked.
const MAX_TICKS: i64 = 10;

/// Seconds between marked times.
const STEPS: [i64; 20] = [
    1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400,
    172_800, 604_800,
];

/// Light and dark, so that areas beside each other differ on any background.
const STYLE: &str = "\
text { font: 13px sans-serif; fill: #24292f }
.small { font-size: 11px; fill: #57606a }
.job { font-size: 11px; fill: #fff }
.name { font-weight: bold }
.page { fill: #fff; stroke: #d0d7de }
.line { stroke: #d0d7de }
.waits { fill: #bf8700; fill-opacity: .3 }
.deserved { fill: none; stroke: #24292f; stroke-width: 1.5; stroke-dasharray: 5 3 }
.j0 { fill: #0969da } .j1 { fill: #1a7f37 } .j2 { fill: #8250df } .j3 { fill: #bc4c00 }
.j4 { fill: #0550ae } .j5 { fill: #116329 } .j6 { fill: #6639ba } .j7 { fill: #953800 }
@media (prefers-color-scheme: dark) {
text { fill: #d0d7de } .small { fill: #8c959f } .page { fill: #0d1117; stroke: #30363d }
.line { stroke: #30363d } .deserved { stroke: #d0d7de } .job { fill: #fff }
}";

/// What a queue has over time.
struct Lane {
    name: Name,
    /// The largest amount that it shows.
    most: i64,
    /// From the bottom up; a number for each point.
    areas: Vec<(Arc<str>, Vec<i64>)>,
    deserved: Vec<i64>,
    waiting: Vec<i64>,
}

/// Draws what queues have of a resource. `total` is how much of it there is.
pub fn draw(usage: &UseOverTime, resource: &str, total: i64) -> String {
    let lanes = lanes(usage, resource, total);
    let (start, end) = match (usage.points.first(), usage.end()) {
        (Some(first), Some(end)) => (first.at, end),
        _ => (Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH),
    };
    let seconds = end.duration_since(start).as_secs().max(1);
    let sum: f64 = lanes.iter().map(|lane| lane.most as f64).sum();
    let height_of = |lane: &Lane| (lane.most as f64 / sum.max(1.0) * HEIGHT).max(LEAST);
    let all: f64 = lanes.iter().map(|lane| height_of(lane) + GAP).sum();
    let (width, height) = (LEFT + WIDTH + RIGHT, TOP + all + BOTTOM);
    let unit = people::plural(resource);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height:.0}\" width=\"{width}\" \
         height=\"{height:.0}\" role=\"img\">\n<title>{unit} that the jobs of each queue hold over time</title>\n\
         <style>\n{STYLE}\n</style>\n\
         <rect class=\"page\" x=\".5\" y=\".5\" width=\"{:.1}\" height=\"{:.1}\" rx=\"6\"/>\n",
        width - 1.0,
        height - 1.0,
        unit = escaped(&unit),
    );
    legend(&mut svg, &unit);
    let times: Vec<f64> = {
        let at = usage.points.iter().map(|point| point.at).chain(usage.end());
        at.map(|at| x_of(at.duration_since(start).as_secs(), seconds)).collect()
    };
    let bottom = TOP + all - GAP;
    ticks(&mut svg, seconds, bottom);
    let mut y = TOP;
    for lane in &lanes {
        let height = height_of(lane);
        draw_lane(&mut svg, lane, resource, &times, (y, height));
        y += height + GAP;
    }
    svg.push_str("</svg>\n");
    svg
}

fn x_of(second: i64, seconds: i64) -> f64 {
    LEFT + second as f64 / seconds as f64 * WIDTH
}

fn lanes(usage: &UseOverTime, resource: &str, total: i64) -> Vec<Lane> {
    let mut names: Vec<&Name> = Vec::new();
    for queue in usage.points.iter().flat_map(|point| &point.queues) {
        if !names.contains(&&queue.queue) {
            names.push(&queue.queue);
        }
    }
    let lanes = names.into_iter().map(|name| lane(usage, name, resource, total));
    lanes.filter(|lane| lane.most > 0).take(MAX_LANES).collect()
}

fn lane(usage: &UseOverTime, name: &Name, resource: &str, total: i64) -> Lane {
    let of = |amounts: &AmountsByName| amounts.get(resource).copied().unwrap_or(0);
    let own = usage.points.iter().map(|point| point.queues.iter().find(|own| own.queue == *name));
    let own: Vec<Option<&QueuePoint>> = own.collect();
    let series = |amount: &dyn Fn(&QueuePoint) -> i64| -> Vec<i64> {
        own.iter().map(|point| point.map_or(0, amount)).collect()
    };
    let held = series(&|point| of(&point.held));
    let mut jobs: BTreeMap<&Arc<str>, usize> = BTreeMap::new();
    for (job, _) in own.iter().flatten().flat_map(|point| &point.jobs) {
        let n_known = jobs.len();
        jobs.entry(job).or_insert(n_known);
    }
    let mut order: Vec<(&Arc<str>, usize)> = jobs.into_iter().collect();
    order.sort_by_key(|(_, first)| *first);
    let of_job = |job: &Arc<str>| {
        series(&|point| point.jobs.iter().filter(|(own, _)| own == job).map(|(_, a)| of(a)).sum())
    };
    let mut areas: Vec<(Arc<str>, Vec<i64>)> =
        order.iter().map(|(job, _)| (Arc::clone(job), of_job(job))).collect();
    let of_others = |at: usize| held[at] - areas.iter().map(|(_, own)| own[at]).sum::<i64>();
    let others: Vec<i64> = (0..held.len()).map(of_others).collect();
    if areas.len() > MAX_JOBS || others.iter().any(|amount| *amount < 0) {
        areas = vec![(Arc::from(""), held.clone())];
    } else if others.iter().any(|amount| *amount > 0) {
        // Of pods that have a place and wait for others to leave.
        areas.push((Arc::from(""), others));
    }
    let deserved = series(&|point| of(&point.deserved));
    let waiting = series(&|point| of(&point.waiting));
    let with_waiting = held.iter().zip(&waiting).map(|(held, waiting)| (held + waiting).min(total));
    let most = held.iter().copied().chain(deserved.iter().copied()).chain(with_waiting).max();
    Lane { name: name.clone(), most: most.unwrap_or(0), areas, deserved, waiting }
}

fn draw_lane(
    svg: &mut String,
    lane: &Lane,
    resource: &str,
    times: &[f64],
    (top, height): (f64, f64),
) {
    let bottom = top + height;
    let y_of = |amount: i64| bottom - (amount.min(lane.most)) as f64 / lane.most as f64 * height;
    text(svg, (10.0, top + 14.0), "name", &shortened(&lane.name));
    text(
        svg,
        (10.0, top + 29.0),
        "small",
        &format!("up to {}", people::named(resource, lane.most)),
    );
    line(svg, bottom);
    let n_points = lane.deserved.len();
    let mut floor = vec![0; n_points];
    for (at, (job, amounts)) in lane.areas.iter().enumerate() {
        let roof: Vec<i64> = floor.iter().zip(amounts).map(|(floor, own)| floor + own).collect();
        area(svg, &format!("j{}", at % MAX_JOBS), times, (&floor, &roof), &y_of);
        label(svg, job, times, (&floor, &roof), &y_of);
        floor = roof;
    }
    let roof: Vec<i64> = floor.iter().zip(&lane.waiting).map(|(held, own)| held + own).collect();
    area(svg, "waits", times, (&floor, &roof), &y_of);
    let mut path = String::new();
    for at in 0..n_points {
        let y = y_of(lane.deserved[at]);
        let _ = write!(
            path,
            "{}{:.1} {y:.1}H{:.1}",
            if at == 0 { "M" } else { "L" },
            times[at],
            times[at + 1]
        );
    }
    let _ = writeln!(svg, "<path class=\"deserved\" d=\"{path}\"/>");
}

/// The area between two step lines, in pieces without gaps.
fn area(
    svg: &mut String,
    class: &str,
    times: &[f64],
    (floor, roof): (&[i64], &[i64]),
    y_of: &dyn Fn(i64) -> f64,
) {
    let mut path = String::new();
    for (first, end) in pieces(floor, roof) {
        let _ = write!(path, "M{:.1} {:.1}", times[first], y_of(roof[first]));
        for at in first..end {
            let _ = write!(path, "V{:.1}H{:.1}", y_of(roof[at]), times[at + 1]);
        }
        for at in (first..end).rev() {
            let _ = write!(path, "V{:.1}H{:.1}", y_of(floor[at]), times[at]);
        }
        path.push('Z');
    }
    if !path.is_empty() {
        let _ = writeln!(svg, "<path class=\"{class}\" d=\"{path}\"/>");
    }
}

/// Where the roof is above the floor: the first point, and the one after the last.
fn pieces(floor: &[i64], roof: &[i64]) -> Vec<(usize, usize)> {
    let mut pieces: Vec<(usize, usize)> = Vec::new();
    for at in (0..floor.len()).filter(|at| roof[*at] > floor[*at]) {
        match pieces.last_mut() {
            Some((_, end)) if *end == at => *end = at + 1,
            _ => pieces.push((at, at + 1)),
        }
    }
    pieces
}

/// The name of a job in its area, where it has room.
fn label(
    svg: &mut String,
    job: &str,
    times: &[f64],
    (floor, roof): (&[i64], &[i64]),
    y_of: &dyn Fn(i64) -> f64,
) {
    let room = |(first, end): &(usize, usize)| times[*end] - times[*first];
    let widest = pieces(floor, roof).into_iter().max_by(|l, r| room(l).total_cmp(&room(r)));
    let Some((first, end)) = widest.filter(|_| !job.is_empty()) else { return };
    // The lowest part that all of it has.
    let low = (first..end).map(|at| floor[at]).max().unwrap_or(0);
    let high = (first..end).map(|at| roof[at]).min().unwrap_or(0);
    let height = y_of(low) - y_of(high);
    let name = shortened(job);
    if height >= 12.0 && room(&(first, end)) >= 7.0 * name.chars().count() as f64 + 8.0 {
        text(svg, (times[first] + 5.0, (y_of(low) + y_of(high)) / 2.0 + 4.0), "job", &name);
    }
}

fn legend(svg: &mut String, unit: &str) {
    text(svg, (10.0, 24.0), "", unit);
    let mut x = LEFT;
    for (class, words) in [("j0", "held by jobs"), ("waits", "requested by jobs that wait")] {
        let _ = writeln!(
            svg,
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"14\" width=\"14\" height=\"12\"/>"
        );
        text(svg, (x + 20.0, 24.0), "small", words);
        x += 40.0 + 6.2 * words.len() as f64;
    }
    let _ = writeln!(svg, "<path class=\"deserved\" d=\"M{x:.1} 20h26\"/>");
    text(svg, (x + 32.0, 24.0), "small", "deserved by the queue");
}

fn ticks(svg: &mut String, seconds: i64, bottom: f64) {
    let step = STEPS.into_iter().find(|step| seconds / step <= MAX_TICKS);
    let step = step.unwrap_or_else(|| (seconds / MAX_TICKS).max(1));
    let mut at = 0;
    while at <= seconds {
        let x = x_of(at, seconds);
        let _ = writeln!(svg, "<path class=\"line\" d=\"M{x:.1} {TOP}V{bottom:.1}\"/>");
        let _ = writeln!(
            svg,
            "<text class=\"small\" text-anchor=\"middle\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>",
            bottom + 18.0,
            time(at)
        );
        at += step;
    }
}

/// A time with two units at most: `1h30m`.
fn time(seconds: i64) -> String {
    let units = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];
    let mut rest = seconds;
    let mut shown = String::new();
    for (unit, size) in units {
        if rest >= size {
            let _ = write!(shown, "{}{unit}", rest / size);
            rest %= size;
        }
    }
    if shown.is_empty() { "0".to_owned() } else { shown }
}

fn line(svg: &mut String, y: f64) {
    let _ = writeln!(svg, "<path class=\"line\" d=\"M{LEFT} {y:.1}h{WIDTH}\"/>");
}

fn text(svg: &mut String, (x, y): (f64, f64), class: &str, words: &str) {
    let words = escaped(words);
    let _ = writeln!(svg, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{words}</text>");
}

/// At most 19 letters.
fn shortened(name: &str) -> String {
    match name.chars().count() {
        0..20 => name.to_owned(),
        _ => name.chars().take(18).chain(['…']).collect(),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The resource of which the queues request most of what there is; devices of equal ones.
pub fn main_resource(usage: &UseOverTime, total: &AmountsByName) -> Option<Name> {
    let mut most: BTreeMap<&Name, i64> = BTreeMap::new();
    for point in &usage.points {
        let mut sums: BTreeMap<&Name, i64> = BTreeMap::new();
        for queue in &point.queues {
            for (name, amount) in queue.held.iter().chain(&queue.waiting) {
                let sum = sums.entry(name).or_default();
                *sum = sum.saturating_add(*amount);
            }
        }
        for (name, sum) in sums {
            let known = most.entry(name).or_default();
            *known = sum.max(*known);
        }
    }
    let part = |name: &Name, amount: i64| {
        amount as f64 / total.get(name).copied().unwrap_or(0).max(1) as f64
    };
    let counted = most.into_iter().filter(|(name, amount)| *amount > 0 && ***name != *"pods");
    let devices = |name: &Name| name.contains('/') || Unit::of(name) == Unit::Count;
    let best = counted.max_by(|(l, l_amount), (r, r_amount)| {
        let parts = part(l, *l_amount).total_cmp(&part(r, *r_amount));
        parts.then_with(|| devices(l).cmp(&devices(r))).then_with(|| r.cmp(l))
    });
    best.map(|(name, _)| name.clone())
}
