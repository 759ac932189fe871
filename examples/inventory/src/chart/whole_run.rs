//! The whole run of the most wanted items: when no call, one, or several used an item, and how many
//! waited.

use std::fmt::Write as _;

use super::axis::{Axis, LEFT, LENGTH};
use super::load::{Load, loads, max_waiting};
use super::svg::Svg;
use super::{MARGIN, drawn_calls, end, heading, lost};
use crate::ledger::Call;
use crate::report::{Report, short};

/// Number of items that are drawn.
const ITEMS: usize = 4;

const HEAD: f64 = 24.0;
const ROW: f64 = 26.0;
const QUEUE: f64 = 13.0;
const BAR: f64 = 8.0;
const GAP: f64 = 10.0;

/// The width of a shorter stretch of time.
const PIXEL: f64 = 2.0;
const PIXELS: usize = (LENGTH / PIXEL) as usize;

/// Draws from `y` downwards, and returns where it ends.
pub(super) fn draw(svg: &mut Svg, reports: &[Report], mut y: f64) -> f64 {
    svg.text("title", MARGIN, y, "The whole run");
    for (x, class, text) in [
        (LEFT, "queue", "how many wait"),
        (340.0, "one", "one call uses the item"),
        (530.0, "several", "several use it at the same time"),
        (780.0, "zoom", "drawn above"),
    ] {
        svg.rect(class, x, y - 10.0, 12.0, 12.0);
        svg.text("", x + 17.0, y, text);
    }
    let axis = Axis::new(reports.iter().map(|report| report.time));
    let rows = |report: &Report| report.items.len().min(ITEMS) as f64 * ROW;
    let heights = reports.iter().map(|report| HEAD + rows(report) + GAP);
    let bottom = y + 6.0 + heights.sum::<f64>();
    y += 16.0;
    axis.draw(svg, y + HEAD, bottom, "the first order");
    let items = reports.iter().flat_map(|report| &report.items);
    let queues = items.map(|(_, calls)| max_waiting(&loads(calls)));
    let longest_queue = queues.max().unwrap_or(0).max(1);
    for report in reports {
        let axis = axis.starting_at(report.start);
        let text = summary(report);
        heading(svg, y + 14.0, report.locked, report.lost_updates, &text);
        y += HEAD;
        let zoom = axis.x(end(drawn_calls(report))) - LEFT;
        svg.rect("zoom", LEFT - 1.0, y - 1.0, zoom + 2.0, QUEUE + BAR + 3.0);
        for (item, calls) in report.items.iter().take(ITEMS) {
            let loads = loads(calls);
            draw_item(svg, &pixels(axis, &loads), longest_queue, y + QUEUE);
            let baseline = y + QUEUE + BAR;
            svg.text("soft end", LEFT - 14.0, baseline, &format!("item {item}"));
            let text = words(calls, &loads);
            svg.text("soft", axis.x(end(calls)) + 7.0, baseline, &text);
            y += ROW;
        }
        y += GAP;
    }
    bottom + 18.0
}

fn summary(report: &Report) -> String {
    let mut text = format!("all {} orders in {}: ", report.orders, short(report.time));
    text += &match report.lost_updates {
        0 => "no update is lost".into(),
        lost => format!(
            "{lost} of {} updates are lost, oversold items: {}",
            report.fulfilled, report.oversold
        ),
    };
    if let Some((kill, delay)) = report.kill {
        let (pid, delay) = (kill.pid, short(delay));
        text += &format!("; process {pid} was killed, the next holder had its lock {delay} later");
    }
    text
}

fn words(calls: &[Call], loads: &[Load]) -> String {
    match (lost(calls), max_waiting(loads)) {
        (0, 0) => format!("{} calls", calls.len()),
        (0, longest) => format!("{} calls, queue of {longest}", calls.len()),
        (lost, _) => format!("{} calls, {lost} lost", calls.len()),
    }
}

/// Draws the queue of an item on top of the line at `y`, and its use below the line.
fn draw_item(svg: &mut Svg, pixels: &[Pixel], longest_queue: isize, y: f64) {
    let mut outline = format!("M{LEFT} {y:.1}");
    let mut x = LEFT;
    for pixels in pixels.chunk_by(|a, b| a.waiting == b.waiting) {
        x += pixels.len() as f64 * PIXEL;
        let top = y - QUEUE * pixels[0].waiting as f64 / longest_queue as f64;
        // Writing to a String does not fail.
        let _ = write!(outline, "V{top:.1}H{x:.0}");
    }
    svg.path("queue", &format!("{outline}V{y:.1}Z"));

    let mut x = LEFT;
    for pixels in pixels.chunk_by(|a, b| a.working.min(2) == b.working.min(2)) {
        let width = pixels.len() as f64 * PIXEL;
        match pixels[0].working {
            0 => {}
            1 => svg.rect("one", x, y + 1.0, width, BAR),
            _ => svg.rect("several", x, y + 1.0, width, BAR),
        }
        x += width;
    }
}

/// The maximum of each load within a pixel.
#[derive(Clone, Copy, Default)]
struct Pixel {
    waiting: isize,
    working: isize,
}

fn pixels(axis: Axis, loads: &[Load]) -> Vec<Pixel> {
    let mut pixels = vec![Pixel::default(); PIXELS];
    for load in loads {
        let [from, until] = [load.from, load.until].map(|time| {
            let pixel = ((axis.x(time) - LEFT) / PIXEL) as usize;
            pixel.min(PIXELS - 1)
        });
        for pixel in &mut pixels[from..=until] {
            pixel.waiting = pixel.waiting.max(load.waiting);
            pixel.working = pixel.working.max(load.working);
        }
    }
    pixels
}
