//! The first calls for an item, a row each, on one axis for both runs.

use std::time::Duration;

use super::canvas::{Align, Canvas};
use super::{Axis, LEFT, MARGIN, Setting, color, words_after};
use crate::call::{Call, End};
use crate::history::crowds;
use crate::report::{Report, short, title};

/// How many calls are drawn of each run.
const MOST: usize = 12;

/// What of a name fits left of the bars, in characters.
const LONGEST: usize = 26;

const ROW: f64 = 17.0;
const BAR: f64 = 12.0;
const HEAD: f64 = 26.0;

/// Draws from `y` downwards, and tells where it ended.
pub(super) fn draw(
    canvas: &mut Canvas,
    setting: &Setting,
    reports: &[Report],
    item: u32,
    y: f64,
) -> f64 {
    let axis = Axis::new(reports.iter().filter_map(|report| {
        let calls = first(report, item);
        Some(calls.iter().map(|call| call.ended).max()? - since(calls))
    }));
    let heights = reports
        .iter()
        .map(|report| HEAD + first(report, item).len() as f64 * ROW + 14.0);
    let bottom = y + heights.sum::<f64>() - 14.0;
    axis.draw(canvas, y + HEAD, bottom, "the first call");

    let mut y = y;
    for report in reports {
        let calls = first(report, item);
        canvas.begin(&format!("{}, first calls", title(report.locked)));
        heading(canvas, report, calls, y);
        y += HEAD;
        at_the_same_time(canvas, axis, calls, y);
        for call in calls {
            row(canvas, axis, setting, report, call, since(calls), y);
            y += ROW;
        }
        canvas.end();
        y += 14.0;
    }
    bottom + 18.0
}

/// Those that are drawn.
pub(super) fn first(report: &Report, item: u32) -> &[Call] {
    let calls = report.history.calls(item);
    &calls[..calls.len().min(MOST)]
}

fn since(calls: &[Call]) -> Duration {
    let called = calls.iter().map(|call| call.called);
    called.min().unwrap_or_default()
}

fn heading(canvas: &mut Canvas, report: &Report, calls: &[Call], y: f64) {
    canvas.text("head", Align::Left, MARGIN, y + 14.0, title(report.locked));
    let most = crowds(calls).iter().map(|crowd| crowd.working).max();
    let many = match most {
        Some(most @ 2..) => format!("up to {most} calls have the item at the same time"),
        _ if calls.len() > 1 && calls.iter().any(Call::has_waited) => {
            "one call at a time has the item, the others wait".into()
        }
        _ => "one call at a time has the item".into(),
    };
    let writes = calls.iter().filter(|call| call.wrote().is_some()).count();
    let (class, lost) = match report.history.lost_of(calls) {
        0 => ("", "no update is lost".into()),
        lost => ("bad", format!("{lost} of these {writes} updates are lost")),
    };
    let mut text = format!("{many}; {lost}");
    let is_refused = |call: &&Call| matches!(call.end, End::Refused | End::Stopped);
    match calls.iter().filter(is_refused).count() {
        0 => {}
        refused => text += &format!("; refused or stopped: {refused}"),
    }
    canvas.text(class, Align::Left, LEFT, y + 14.0, &text);
}

/// Marks when more than one had it.
fn at_the_same_time(canvas: &mut Canvas, axis: Axis, calls: &[Call], y: f64) {
    let height = calls.len() as f64 * ROW;
    let crowds = crowds(calls);
    let together = crowds.chunk_by(|a, b| (a.working > 1) == (b.working > 1) && a.until == b.from);
    for stretch in together {
        if stretch[0].working > 1 {
            let from = axis.x(stretch[0].from - since(calls));
            let until = axis.x(stretch[stretch.len() - 1].until - since(calls));
            canvas.rect("many", from, y, until - from, height);
        }
    }
}

fn row(
    canvas: &mut Canvas,
    axis: Axis,
    setting: &Setting,
    report: &Report,
    call: &Call,
    since: Duration,
    y: f64,
) {
    let Call { order, worker, .. } = call;
    let name = format!("order {}, {} {}", order.id, setting.worker, worker + 1);
    let (waited, held) = (call.began - call.called, call.ended - call.began);
    let times = format!("{name}: waited {}, had it {}", short(waited), short(held));
    let [called, began, ended] =
        [call.called, call.began, call.ended].map(|time| axis.x(time - since));
    let (color, middle) = (color(*worker), y + ROW / 2.0);

    canvas.begin_explained(&times);
    canvas.text(
        "soft",
        Align::Right,
        LEFT - 14.0,
        middle + 4.0,
        &shortened(&name),
    );
    canvas.rect(
        &format!("wait {color}"),
        called,
        middle - 1.5,
        began - called,
        3.0,
    );
    let is_lost = report.history.is_lost(call);
    let mark = match call.end {
        _ if is_lost => " lost",
        End::Refused | End::Stopped => " refused",
        End::Wrote(_) | End::WroteNothing => "",
    };
    let class = format!("held {color}{mark}");
    canvas.rect(&class, began, middle - BAR / 2.0, ended - began, BAR);
    let read = call.read().map_or(0, |read| read.quantity);
    let change = match call.end {
        End::Wrote(wrote) => format!("{read} → {}", wrote.quantity),
        End::WroteNothing => "wrote nothing".into(),
        End::Refused => "refused: a later holder has written".into(),
        End::Stopped => "stopped: its lock was lost".into(),
    };
    let (class, change) = match is_lost {
        true => ("bad", format!("{change} lost")),
        false => ("", change),
    };
    words_after(canvas, class, ended, middle + 4.0, &change);
    canvas.end();
}

/// The end of a name tells more than its beginning.
fn shortened(name: &str) -> String {
    let excess = name.chars().count().saturating_sub(LONGEST);
    if excess == 0 {
        return name.into();
    }
    let end = name.chars().skip(excess + 1);
    format!("…{}", end.collect::<String>())
}
