//! The whole run of the most wanted items: when no call, one, or several used an item, and how many
//! waited.

use std::fmt::Write as _;
use std::time::Duration;

use super::axis::{Axis, LEFT, LENGTH};
use super::load::{Load, loads, max_waiting};
use super::svg::{Anchor, Svg};
use super::{MARGIN, drawn_calls, heading};
use crate::ledger::Call;
use crate::report::{Report, short};

/// This many items are drawn.
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
pub(super) fn draw(svg: &mut Svg, reports: &[Report], y: f64) -> f64 {
    svg.text("title", Anchor::Start, MARGIN, y, "The whole run");
    for (class, x, text) in [
        ("queue", LEFT, "how many wait"),
        ("one", 340.0, "one call uses the item"),
        ("several", 530.0, "several use it at the same time"),
        ("zoom", 780.0, "drawn above"),
    ] {
        svg.rect(class, x, y - 10.0, 12.0, 12.0);
        svg.text("", Anchor::Start, x + 17.0, y, text);
    }
    let axis = Axis::new(reports.iter().map(|report| report.time));
    let rows = |report: &Report| report.items.len().min(ITEMS) as f64 * ROW;
    let heights = reports.iter().map(|report| HEAD + rows(report) + GAP);
    let bottom = y + 6.0 + heights.sum::<f64>();
    axis.draw(svg, y + 16.0 + HEAD, bottom, "the first order");

    let all = reports.iter().flat_map(|report| {
        let items = report.items.iter().take(ITEMS);
        items.map(|(_, calls)| max_waiting(&loads(calls, report.locked)))
    });
    let longest_queue = all.max().unwrap_or_default().max(1);
    let mut y = y + 16.0;
    for report in reports {
        heading(
            svg,
            report,
            report.lost_updates > 0,
            &summary(report),
            y + 14.0,
        );
        y += HEAD;
        let start = start(report);
        if let Some(last) = drawn_calls(report).iter().map(|call| call.ended).max() {
            let width = axis.x(last - start) - LEFT;
            svg.rect("zoom", LEFT - 1.0, y - 1.0, width + 2.0, QUEUE + BAR + 3.0);
        }
        for (item, calls) in report.items.iter().take(ITEMS) {
            let loads = loads(calls, report.locked);
            let name = format!("item {item}");
            svg.text("soft", Anchor::End, LEFT - 14.0, y + QUEUE + BAR, &name);
            lane(svg, &pixels(axis, &loads, start), longest_queue, y + QUEUE);
            let end = calls
                .iter()
                .map(|call| call.ended)
                .max()
                .unwrap_or_default();
            let x = axis.x(end - start) + 7.0;
            svg.text(
                "soft",
                Anchor::Start,
                x,
                y + QUEUE + BAR,
                &words(calls, &loads),
            );
            y += ROW;
        }
        y += GAP;
    }
    bottom + 18.0
}

/// When the first order was given to a worker.
fn start(report: &Report) -> Duration {
    let calls = report.items.iter().flat_map(|(_, calls)| calls);
    calls.map(|call| call.called).min().unwrap_or_default()
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
    let lost = calls.iter().filter(|call| call.is_lost).count();
    match (lost, max_waiting(loads)) {
        (0, 0) => format!("{} calls", calls.len()),
        (0, longest) => format!("{} calls, queue of {longest}", calls.len()),
        (lost, _) => format!("{} calls, {lost} lost", calls.len()),
    }
}

/// Draws the queue of an item on top of the line at `y`, and its use below the line.
fn lane(svg: &mut Svg, pixels: &[Pixel], longest_queue: usize, y: f64) {
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
        if pixels[0].working > 0 {
            let class = if pixels[0].working > 1 {
                "several"
            } else {
                "one"
            };
            svg.rect(class, x, y + 1.0, width, BAR);
        }
        x += width;
    }
}

/// The maximum of each load within a pixel.
#[derive(Clone, Copy, Default)]
struct Pixel {
    waiting: usize,
    working: usize,
}

fn pixels(axis: Axis, loads: &[Load], start: Duration) -> Vec<Pixel> {
    let index = |time: Duration| ((axis.x(time - start) - LEFT) / PIXEL) as usize;
    let mut pixels = vec![Pixel::default(); PIXELS];
    for load in loads {
        let until = index(load.until).min(PIXELS - 1);
        for pixel in &mut pixels[index(load.from).min(until)..=until] {
            pixel.waiting = pixel.waiting.max(load.waiting);
            pixel.working = pixel.working.max(load.working);
        }
    }
    pixels
}
