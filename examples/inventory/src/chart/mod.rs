//! Both runs as a picture: the first calls for the most wanted item one by one, and the whole run.

mod axis;
mod first_calls;
mod load;
mod svg;
#[cfg(test)]
mod tests;
mod whole_run;

use self::axis::LEFT;
use self::svg::{Anchor, Svg};
use crate::ledger::Call;
use crate::report::{Report, title};

const MARGIN: f64 = 20.0;

/// This many calls of each run are drawn one by one.
const FIRST_CALLS: usize = 12;

/// Draws the reports. `setting` describes the run in words.
pub(crate) fn draw(setting: &str, reports: &[Report]) -> String {
    let mut svg = Svg::default();
    let (item, _) = reports[0].items[0];
    let title = format!("Calls for item {item}, without and with lock");
    svg.text("title", Anchor::Start, MARGIN, 34.0, &title);
    let lines = [
        format!("{setting}. An order reads the stock of its item, works for 1 to 3 ms,"),
        format!(
            "and writes back what is left. The first {} calls for item {item}, which most orders are for:",
            drawn_calls(&reports[0]).len()
        ),
    ];
    for (line, y) in lines.iter().zip([56.0, 73.0]) {
        svg.text("soft", Anchor::Start, MARGIN, y, line);
    }
    for (class, x, height, text) in [
        ("wait w1", MARGIN, 3.0, "waits for the lock"),
        (
            "w1",
            195.0,
            12.0,
            "uses the item; stock that it read → wrote",
        ),
        (
            "w1 lost",
            530.0,
            12.0,
            "overwritten unread: its update is lost",
        ),
    ] {
        svg.rect(class, x, 94.0 - height / 2.0, 22.0, height);
        svg.text("", Anchor::Start, x + 29.0, 98.0, text);
    }
    let y = first_calls::draw(&mut svg, reports, 128.0);
    let y = whole_run::draw(&mut svg, reports, y + 40.0);
    svg.finish(y + 16.0, &title, &lines.join(" "))
}

/// The calls for the most wanted item that are drawn one by one.
fn drawn_calls(report: &Report) -> &[Call] {
    let calls = report.items.first().map_or(&[][..], |(_, calls)| calls);
    &calls[..calls.len().min(FIRST_CALLS)]
}

/// The name of a run, and a sentence on it.
fn heading(svg: &mut Svg, report: &Report, is_bad: bool, text: &str, y: f64) {
    svg.text("head", Anchor::Start, MARGIN, y, title(report.locked));
    let class = if is_bad { "bad" } else { "" };
    svg.text(class, Anchor::Start, LEFT, y, text);
}
