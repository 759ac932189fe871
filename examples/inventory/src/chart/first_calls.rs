//! The first calls for the most wanted item, a row each, with one axis for both runs.

use super::axis::{Axis, LEFT};
use super::load::loads;
use super::svg::{Svg, color};
use super::{drawn_calls, end, heading, lost, start};
use crate::ledger::{Call, End};
use crate::report::{Report, short};

const HEAD: f64 = 26.0;
const ROW: f64 = 17.0;
const BAR: f64 = 12.0;
const GAP: f64 = 14.0;

/// Draws from `y` downwards, and returns where it ends.
pub(super) fn draw(svg: &mut Svg, reports: &[Report], mut y: f64) -> f64 {
    let calls = || reports.iter().map(drawn_calls);
    let axis = Axis::new(calls().map(|calls| end(calls) - start(calls)));
    let height = |calls: &[Call]| HEAD + calls.len() as f64 * ROW + GAP;
    let bottom = y + calls().map(height).sum::<f64>() - GAP;
    axis.draw(svg, y + HEAD, bottom, "the first call");
    for report in reports {
        let calls = drawn_calls(report);
        let axis = axis.starting_at(start(calls));
        let (lost, text) = summary(calls);
        heading(svg, y + 14.0, report.locked, lost, &text);
        y += HEAD;
        overlaps(svg, axis, calls, y);
        for call in calls {
            row(svg, axis, call, y + ROW / 2.0);
            y += ROW;
        }
        y += GAP;
    }
    bottom + 18.0
}

fn summary(calls: &[Call]) -> (usize, String) {
    let most = loads(calls).iter().map(|load| load.working).max();
    let mut text = match most {
        Some(most @ 2..) => format!("up to {most} calls use the item at the same time"),
        _ => "one call at a time uses the item, the others wait".into(),
    };
    let lost = lost(calls);
    text += &match lost {
        0 => "; no update is lost".into(),
        lost => format!("; {lost} of these {} updates are lost", calls.len()),
    };
    let is_failed = |call: &&Call| matches!(call.end, End::Stale | End::Stopped);
    let failed = calls.iter().filter(is_failed).count();
    if failed > 0 {
        text += &format!("; rejected or stopped: {failed}");
    }
    (lost, text)
}

/// Marks the time in which more than one call uses the item.
fn overlaps(svg: &mut Svg, axis: Axis, calls: &[Call], y: f64) {
    let height = calls.len() as f64 * ROW;
    for loads in loads(calls).chunk_by(|a, b| (a.working > 1) == (b.working > 1)) {
        if loads[0].working > 1 {
            let from = axis.x(loads[0].from);
            let until = axis.x(loads[loads.len() - 1].until);
            svg.rect("overlap", from, y, until - from, height);
        }
    }
}

fn row(svg: &mut Svg, axis: Axis, call: &Call, y: f64) {
    let name = format!("order {}, worker {}", call.order.id, call.worker);
    let [called, began, ended] = [call.called, call.began, call.ended].map(|time| axis.x(time));
    let (waited, used) = (call.began - call.called, call.ended - call.began);
    let (waited, used) = (short(waited), short(used));
    svg.begin_group(&format!(
        "{name}: waited {waited}, used the item for {used}"
    ));
    svg.text("soft end", LEFT - 14.0, y + 4.0, &name);
    let (mark, class, text) = match call.end {
        End::Wrote { read, left } => match call.is_lost {
            true => ("lost", "bad", format!("{read} → {left} lost")),
            false => ("", "", format!("{read} → {left}")),
        },
        End::Nothing => ("", "", "wrote nothing".into()),
        End::Stale => ("failed", "", "rejected by the fence".into()),
        End::Stopped => ("failed", "", "stopped".into()),
    };
    let color = color(call.worker);
    let wait = format!("wait {color}");
    svg.rect(&wait, called, y - 1.5, began - called, 3.0);
    let bar = format!("{color} {mark}");
    svg.rect(&bar, began, y - BAR / 2.0, ended - began, BAR);
    svg.text(class, ended + 7.0, y + 4.0, &text);
    svg.end_group();
}
