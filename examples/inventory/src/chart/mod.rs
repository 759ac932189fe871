//! Both runs as a picture: the first calls for the most wanted item one by one, and the whole run.

mod axis;
mod first_calls;
mod load;
mod svg;
#[cfg(test)]
mod tests;
mod whole_run;

use std::time::Duration;

use self::axis::LEFT;
use self::svg::Svg;
use crate::ledger::Call;
use crate::report::{Report, title};

const MARGIN: f64 = 20.0;

/// Number of calls of each run that are drawn one by one.
const FIRST_CALLS: usize = 12;

/// Draws the reports. `setting` describes the run in words.
pub(crate) fn draw(setting: &str, reports: &[Report]) -> String {
    let mut svg = Svg::default();
    let (item, _) = reports[0].items[0];
    let count = drawn_calls(&reports[0]).len();
    let title = format!("Calls for item {item}, without and with lock");
    let lines = [
        format!("{setting}. An order reads the stock of its item, works for 1 to 3 ms,"),
        format!(
            "and writes back what is left. The first {count} calls for item {item}, which most \
             orders are for:"
        ),
    ];
    svg.text("title", MARGIN, 34.0, &title);
    svg.text("soft", MARGIN, 56.0, &lines[0]);
    svg.text("soft", MARGIN, 73.0, &lines[1]);
    for (x, class, height, text) in [
        (MARGIN, "wait w0", 3.0, "waits for the lock"),
        (
            195.0,
            "w0",
            12.0,
            "uses the item; stock that it read → wrote",
        ),
        (
            530.0,
            "w0 lost",
            12.0,
            "its update is lost: the final stock does not include it",
        ),
    ] {
        svg.rect(class, x, 94.0 - height / 2.0, 22.0, height);
        svg.text("", x + 29.0, 98.0, text);
    }
    let y = first_calls::draw(&mut svg, reports, 128.0);
    let y = whole_run::draw(&mut svg, reports, y + 40.0);
    svg.finish(y + 16.0, &title, &lines.join(" "))
}

/// Returns the calls for the most wanted item that are drawn one by one.
fn drawn_calls(report: &Report) -> &[Call] {
    let (_, calls) = &report.items[0];
    &calls[..calls.len().min(FIRST_CALLS)]
}

fn start(calls: &[Call]) -> Duration {
    let called = calls.iter().map(|call| call.called);
    called.min().unwrap_or_default()
}

fn end(calls: &[Call]) -> Duration {
    let ended = calls.iter().map(|call| call.ended);
    ended.max().unwrap_or_default()
}

fn lost(calls: &[Call]) -> usize {
    calls.iter().filter(|call| call.is_lost).count()
}

/// Draws the name of a run and a sentence about it.
fn heading(svg: &mut Svg, y: f64, locked: bool, lost: usize, text: &str) {
    svg.text("head", MARGIN, y, title(locked));
    svg.text(if lost > 0 { "bad" } else { "" }, LEFT, y, text);
}
