//! What happened, as a picture: the first calls for the most wanted item one by one, and below the whole run.

mod canvas;
mod first_calls;
#[cfg(test)]
mod tests;
mod whole_run;

use std::time::Duration;

use self::canvas::{Align, COLORS, Canvas, WIDTH, nice};
use crate::report::{Report, count, title};

/// Left of it stand names, right of it words.
const LEFT: f64 = 206.0;
const PLOT: f64 = 572.0;
const MARGIN: f64 = 20.0;

/// What was run, for the words around the picture.
#[derive(Debug)]
pub(crate) struct Setting {
    /// Such as `4 instances in this process`.
    pub(crate) place: String,
    /// What a worker is called: `instance` or `process`.
    pub(crate) worker: &'static str,
    /// How many orders a worker has in hand.
    pub(crate) tasks: usize,
    pub(crate) orders: usize,
    pub(crate) items: usize,
}

/// The chart of one or two runs of the same orders.
pub(crate) fn chart(setting: &Setting, reports: &[Report]) -> String {
    let mut canvas = Canvas::default();
    let items = reports.first().map(|report| report.history.most_wanted());
    let items = items.unwrap_or_default();
    let item = items.first().copied().unwrap_or_default();

    let runs: Vec<&str> = reports.iter().map(|report| title(report.locked)).collect();
    let runs = match runs[..] {
        [one] => one,
        _ => "without and with lock",
    };
    let title = format!("Who had item {item} when, {runs}");
    canvas.text("title", Align::Left, MARGIN, 34.0, &title);
    let summary = format!(
        "{} for {}; {}, {} at a time each. An order reads the stock of its item,",
        count(setting.orders, "order"),
        count(setting.items, "item"),
        setting.place,
        setting.tasks
    );
    canvas.text("soft", Align::Left, MARGIN, 56.0, &summary);
    let drawn = reports
        .iter()
        .map(|report| first_calls::first(report, item).len());
    let rest = format!(
        "thinks for 1 to 3 ms, and writes back what is left. The first {} for item {item}, which most orders are for:",
        count(drawn.max().unwrap_or_default(), "call")
    );
    canvas.text("soft", Align::Left, MARGIN, 73.0, &rest);
    legend(&mut canvas, 98.0);

    let mut y = first_calls::draw(&mut canvas, setting, reports, item, 128.0);
    y = whole_run::draw(&mut canvas, reports, &items, y + 40.0);
    canvas.finish(y + 16.0, &title, &format!("{summary} {rest}"))
}

/// What the marks of the rows mean.
fn legend(canvas: &mut Canvas, y: f64) {
    let mut x = MARGIN;
    for (class, height, text) in [
        ("wait w0", 3.0, "waits for the lock"),
        (
            "w0",
            12.0,
            "has the item; beside it the stock it read → wrote",
        ),
        ("w0 lost", 12.0, "overwritten unread: its update is lost"),
    ] {
        canvas.rect(class, x, y - 4.0 - height / 2.0, 22.0, height);
        canvas.text("", Align::Left, x + 29.0, y, text);
        x += 29.0 + width_of(text) + 16.0;
    }
}

/// Words after a bar that ends at `x`; they stay in the picture.
fn words_after(canvas: &mut Canvas, class: &str, x: f64, y: f64, text: &str) {
    let x = (x + 7.0).min(WIDTH - 8.0 - width_of(text));
    canvas.text(class, Align::Left, x, y, text);
}

/// The color of a worker.
fn color(worker: usize) -> String {
    format!("w{}", worker % COLORS)
}

/// How wide a text of the usual size is in the widest of the usual fonts.
fn width_of(text: &str) -> f64 {
    text.chars().count() as f64 * 7.2
}

/// A span of time on the horizontal axis.
#[derive(Clone, Copy, Debug)]
struct Axis {
    span: Duration,
}

impl Axis {
    fn new(spans: impl Iterator<Item = Duration>) -> Self {
        let span = spans.max().unwrap_or_default();
        Axis {
            span: span.max(Duration::from_micros(1)),
        }
    }

    /// Where a moment is, this long after the beginning.
    fn x(self, after: Duration) -> f64 {
        LEFT + PLOT * (after.as_secs_f64() / self.span.as_secs_f64()).min(1.0)
    }

    /// Lines at round times, and the times below them.
    fn draw(self, canvas: &mut Canvas, top: f64, bottom: f64, since: &str) {
        let seconds = self.span.as_secs_f64();
        let (unit, name) = if seconds < 0.5 {
            (1e-3, "ms")
        } else {
            (1.0, "s")
        };
        let step = nice(seconds / unit / 8.0);
        let decimals = if step < 1.0 { 1 } else { 0 };
        let mut number = 0.0;
        while number * unit <= seconds {
            let x = self.x(Duration::from_secs_f64(number * unit));
            canvas.line("grid", x, top, bottom - top);
            let label = format!("{number:.decimals$}");
            canvas.text("soft", Align::Middle, x, bottom + 15.0, &label);
            number += step;
        }
        let label = format!("{name} since {since}");
        canvas.text("soft", Align::Right, LEFT - 18.0, bottom + 15.0, &label);
    }
}
