//! The first calls for the most wanted item, a row each, with one axis for both runs.

use std::time::Duration;

use super::axis::{Axis, LEFT};
use super::load::{loads, max_working};
use super::svg::{Anchor, Svg, color};
use super::{drawn_calls, heading};
use crate::ledger::{Call, End};
use crate::report::{Report, short};

const HEAD: f64 = 26.0;
const ROW: f64 = 17.0;
const BAR: f64 = 12.0;
const GAP: f64 = 14.0;

/// Draws from `y` downwards, and returns where it ends.
pub(super) fn draw(svg: &mut Svg, reports: &[Report], y: f64) -> f64 {
    let axis = Axis::new(reports.iter().filter_map(|report| {
        let calls = drawn_calls(report);
        Some(calls.iter().map(|call| call.ended).max()? - start(calls))
    }));
    let heights = reports
        .iter()
        .map(|report| HEAD + drawn_calls(report).len() as f64 * ROW + GAP);
    let bottom = y + heights.sum::<f64>() - GAP;
    axis.draw(svg, y + HEAD, bottom, "the first call");
    let mut y = y;
    for report in reports {
        let calls = drawn_calls(report);
        let lost = calls.iter().filter(|call| call.is_lost).count();
        heading(
            svg,
            report,
            lost > 0,
            &summary(report, calls, lost),
            y + 14.0,
        );
        y += HEAD;
        overlaps(svg, axis, calls, y);
        for call in calls {
            row(svg, axis, report.locked, call, start(calls), y + ROW / 2.0);
            y += ROW;
        }
        y += GAP;
    }
    bottom + 18.0
}

fn start(calls: &[Call]) -> Duration {
    calls
        .iter()
        .map(|call| call.called)
        .min()
        .unwrap_or_default()
}

fn summary(report: &Report, calls: &[Call], lost: usize) -> String {
    let usage = match max_working(&loads(calls, report.locked)) {
        most @ 2.. => format!("up to {most} calls use the item at the same time"),
        _ => "one call at a time uses the item, the others wait".into(),
    };
    let loss = match lost {
        0 => "no update is lost".into(),
        lost => format!("{lost} of these {} updates are lost", calls.len()),
    };
    let is_failed = |call: &&Call| matches!(call.end, End::Stale | End::Stopped);
    match calls.iter().filter(is_failed).count() {
        0 => format!("{usage}; {loss}"),
        failed => format!("{usage}; {loss}; rejected or stopped: {failed}"),
    }
}

/// Marks the time in which more than one call uses the item.
fn overlaps(svg: &mut Svg, axis: Axis, calls: &[Call], y: f64) {
    for load in loads(calls, false) {
        if load.working > 1 {
            let [from, until] = [load.from, load.until].map(|time| axis.x(time - start(calls)));
            svg.rect("overlap", from, y, until - from, calls.len() as f64 * ROW);
        }
    }
}

fn row(svg: &mut Svg, axis: Axis, locked: bool, call: &Call, start: Duration, y: f64) {
    let name = format!("order {}, worker {}", call.order.id, call.worker);
    let [called, began, ended] =
        [call.called, call.began, call.ended].map(|time| axis.x(time - start));
    let (waited, used) = (call.began - call.called, call.ended - call.began);
    svg.begin_group(&format!(
        "{name}: waited {}, used the item for {}",
        short(waited),
        short(used)
    ));
    svg.text("soft", Anchor::End, LEFT - 14.0, y + 4.0, &name);
    let color = color(call.worker);
    if locked {
        svg.rect(
            &format!("wait {color}"),
            called,
            y - 1.5,
            began - called,
            3.0,
        );
    }
    let (mark, class, text) = match call.end {
        End::Wrote { read, left } if call.is_lost => {
            ("lost", "bad", format!("{read} → {left} lost"))
        }
        End::Wrote { read, left } => ("", "", format!("{read} → {left}")),
        End::Nothing => ("", "", "wrote nothing".into()),
        End::Stale => ("failed", "", "rejected by the fence".into()),
        End::Stopped => ("failed", "", "stopped".into()),
    };
    svg.rect(
        &format!("{color} {mark}"),
        began,
        y - BAR / 2.0,
        ended - began,
        BAR,
    );
    svg.text(class, Anchor::Start, ended + 7.0, y + 4.0, &text);
    svg.end_group();
}
