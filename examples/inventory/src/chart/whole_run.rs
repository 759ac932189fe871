//! The whole run of the most wanted items: when nobody, one, or several had an item, and how many waited.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::time::Duration;

use super::canvas::{Align, Canvas};
use super::{Axis, LEFT, MARGIN, PLOT, first_calls, width_of, words_after};
use crate::call::Call;
use crate::history::crowds;
use crate::report::{Casualty, Report, count, short, title};

/// How many items are drawn.
const ITEMS: usize = 4;

const LANE: f64 = 26.0;
const QUEUE: f64 = 13.0;
const HELD: f64 = 8.0;
const HEAD: f64 = 24.0;

/// What shorter stretches of time are drawn as.
const PIXEL: f64 = 2.0;
const PIXELS: usize = (PLOT / PIXEL) as usize;

/// The most of what was there within a pixel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Pixel {
    waiting: usize,
    working: usize,
}

/// Draws from `y` downwards, and tells where it ended.
pub(super) fn draw(canvas: &mut Canvas, reports: &[Report], items: &[u32], y: f64) -> f64 {
    let items = &items[..items.len().min(ITEMS)];
    canvas.text("title", Align::Left, MARGIN, y, "The whole run");
    let mut x = LEFT;
    for (class, text) in [
        ("queue", "how many wait"),
        ("one", "one call has the item"),
        ("several", "several have it at the same time"),
        ("zoom", "drawn above"),
    ] {
        canvas.rect(class, x, y - 10.0, 12.0, 12.0);
        canvas.text("", Align::Left, x + 17.0, y, text);
        x += width_of(text) + 38.0;
    }

    let axis = Axis::new(reports.iter().filter_map(|report| {
        let (from, until) = report.history.span()?;
        Some(until - from)
    }));
    let height = HEAD + items.len() as f64 * LANE + 10.0;
    let bottom = y + 6.0 + reports.len() as f64 * height;
    axis.draw(canvas, y + 16.0 + HEAD, bottom, "the first order");

    let longest = reports.iter().flat_map(|report| {
        let calls = items.iter().map(|item| report.history.calls(*item));
        calls.filter_map(longest_queue)
    });
    let longest = longest.max().unwrap_or(0).max(1);
    let mut y = y + 16.0;
    for report in reports {
        canvas.begin(&format!("{}, whole run", title(report.locked)));
        heading(canvas, report, y);
        y += HEAD;
        for (place, item) in items.iter().enumerate() {
            lane(canvas, axis, report, *item, longest, y);
            if place == 0 {
                zoomed(canvas, axis, report, first_calls::first(report, *item), y);
            }
            y += LANE;
        }
        canvas.end();
        y += 10.0;
    }
    bottom + 18.0
}

fn longest_queue(calls: &[Call]) -> Option<usize> {
    crowds(calls).iter().map(|crowd| crowd.waiting).max()
}

fn heading(canvas: &mut Canvas, report: &Report, y: f64) {
    canvas.text("head", Align::Left, MARGIN, y + 14.0, title(report.locked));
    let damage = &report.damage;
    let mut text = match report.orders {
        1 => format!("the order in {}: ", short(report.time)),
        orders => format!("all {orders} orders in {}: ", short(report.time)),
    };
    // A String takes everything.
    let (class, _) = match damage.lost_updates {
        0 => ("", write!(text, "no update is lost")),
        lost => (
            "bad",
            write!(
                text,
                "{lost} of {} updates are lost, oversold items: {}",
                report.fulfilled, damage.oversold
            ),
        ),
    };
    if let Some(Casualty { pid, delay, .. }) = report.casualties.first() {
        let _ = write!(
            text,
            "; process {pid} died, others had its items {} later",
            short(*delay)
        );
    }
    canvas.text(class, Align::Left, LEFT, y + 14.0, &text);
}

fn lane(canvas: &mut Canvas, axis: Axis, report: &Report, item: u32, longest: usize, y: f64) {
    let calls = report.history.calls(item);
    let name = format!("item {item}");
    canvas.text("soft", Align::Right, LEFT - 14.0, y + QUEUE + HELD, &name);
    let pixels = pixels(axis, report, calls);
    canvas.path("queue", &queue(&pixels, longest, y + QUEUE));
    let mut from = 0;
    for stretch in pixels.chunk_by(|a, b| a.working.min(2) == b.working.min(2)) {
        let x = LEFT + from as f64 * PIXEL;
        let width = stretch.len() as f64 * PIXEL;
        match stretch[0].working {
            0 => {}
            1 => canvas.rect("one", x, y + QUEUE + 1.0, width, HELD),
            _ => canvas.rect("several", x, y + QUEUE + 1.0, width, HELD),
        }
        from += stretch.len();
    }
    // A call that was repeated is of one order.
    let orders: HashSet<u64> = calls.iter().map(|call| call.order.id).collect();
    let mut text = count(orders.len(), "order");
    let _ = match (report.history.lost_of(calls), longest_queue(calls)) {
        (0, Some(longest @ 1..)) => write!(text, ", queue of {longest}"),
        (0, _) => Ok(()),
        (lost, _) => write!(text, ", {lost} lost"),
    };
    let last = calls.iter().map(|call| call.ended).max();
    let (first, _) = report.history.span().unwrap_or_default();
    let end = axis.x(last.unwrap_or_default().saturating_sub(first));
    words_after(canvas, "soft", end, y + QUEUE + HELD, &text);
}

/// Frames what is drawn call by call.
fn zoomed(canvas: &mut Canvas, axis: Axis, report: &Report, drawn: &[Call], y: f64) {
    let from = drawn.iter().map(|call| call.called).min();
    let until = drawn.iter().map(|call| call.ended).max();
    let (Some(from), Some(until), Some((first, _))) = (from, until, report.history.span()) else {
        return;
    };
    let (from, until) = (axis.x(from - first), axis.x(until - first));
    canvas.rect(
        "zoom",
        from - 1.0,
        y - 1.0,
        until - from + 2.0,
        QUEUE + HELD + 3.0,
    );
}

fn pixels(axis: Axis, report: &Report, calls: &[Call]) -> Vec<Pixel> {
    let (first, _) = report.history.span().unwrap_or_default();
    let place = |time: Duration| ((axis.x(time - first) - LEFT) / PIXEL) as usize;
    let mut pixels = vec![Pixel::default(); PIXELS];
    for crowd in crowds(calls) {
        let from = place(crowd.from).min(PIXELS - 1);
        let until = place(crowd.until).min(PIXELS - 1);
        for pixel in &mut pixels[from..=until] {
            pixel.waiting = pixel.waiting.max(crowd.waiting);
            pixel.working = pixel.working.max(crowd.working);
        }
    }
    pixels
}

/// The outline of a queue that stands on `bottom`.
fn queue(pixels: &[Pixel], longest: usize, bottom: f64) -> String {
    let mut path = format!("M{LEFT} {bottom:.1}");
    let mut from = 0;
    for stretch in pixels.chunk_by(|a, b| a.waiting == b.waiting) {
        from += stretch.len();
        let top = bottom - QUEUE * stretch[0].waiting as f64 / longest as f64;
        let right = LEFT + from as f64 * PIXEL;
        let _ = write!(path, "V{top:.1}H{right:.0}");
    }
    path + &format!("V{bottom:.1}Z")
}
