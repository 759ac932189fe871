//! What happened when, for the chart.

use crate::check::figures::lost;
use crate::check::loss::told;
use crate::check::run::{Run, SECOND};
use crate::check::spans::Span;
use crate::history::{Nanos, Phase};

/// Something that lasted, in seconds since the run's beginning.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bar {
    pub(crate) from: f64,
    pub(crate) until: f64,
    pub(crate) what: String,
    pub(crate) lossless: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Second {
    pub(crate) acquired: u32,
    /// Waits of the calls that were acquired then, in ms.
    pub(crate) wait_p50: f64,
    pub(crate) wait_p99: f64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Timeline {
    pub(crate) seconds: f64,
    pub(crate) phases: Vec<(f64, Phase)>,
    pub(crate) faults: Vec<Bar>,
    pub(crate) losses: Vec<f64>,
    /// One for each second.
    pub(crate) each: Vec<Second>,
}

pub(crate) fn timeline(run: &Run) -> Timeline {
    let Span { from, until } = run.span();
    let since = |at: Nanos| at.saturating_sub(from) as f64 / SECOND as f64;
    let mut waits: Vec<Vec<f64>> = vec![Vec::new(); since(until).ceil() as usize];
    let mut losses = Vec::new();
    for op in &run.ops {
        let Some((at, _)) = op.acquired else { continue };
        if let Some(second) = waits.get_mut(since(at) as usize) {
            second.push(op.waiting().length() as f64 / 1e6);
        }
        if lost(op).is_some() {
            losses.push(since(told(op).unwrap_or(op.whole().until)));
        }
    }
    losses.sort_by(f64::total_cmp);
    let each = waits
        .into_iter()
        .map(
            |waits| match u32::try_from(waits.len()).unwrap_or(u32::MAX) {
                0 => Second::default(),
                acquired => {
                    let spread = distlock_tests::Spread::of(waits);
                    Second {
                        acquired,
                        wait_p50: spread.percentile(50.0),
                        wait_p99: spread.percentile(99.0),
                    }
                }
            },
        )
        .collect();
    Timeline {
        seconds: since(until),
        phases: run
            .phases
            .iter()
            .map(|&(at, phase)| (since(at), phase))
            .collect(),
        faults: run
            .faults
            .list
            .iter()
            .map(|fault| Bar {
                from: since(fault.span.from),
                until: since(fault.span.until),
                what: fault.kind.clone(),
                lossless: fault.lossless,
            })
            .collect(),
        losses,
        each,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::testing::{History, Story};

    #[test]
    fn each_second_has_its_own() {
        let mut history = History::default();
        history
            .call(Story::new(1, 1, "k", 0).held(10, 20, 1))
            .call(Story::new(1, 2, "k", 1000).held(1030, 1040, 2))
            .call(
                Story::new(1, 3, "k", 1000)
                    .acquired(1500, 3, 990)
                    .lost(2400),
            );
        history.fault(500, 700, "link_drop", Some(1), true);
        history.phase(3000, Phase::Done);
        let timeline = timeline(&history.build().0);
        assert_eq!(timeline.seconds, 3.0);
        let acquired: Vec<u32> = timeline.each.iter().map(|s| s.acquired).collect();
        assert_eq!(acquired, [1, 2, 0]);
        assert_eq!(
            (timeline.each[1].wait_p50, timeline.each[1].wait_p99),
            (30.0, 500.0)
        );
        assert_eq!(timeline.losses, [2.4]);
        assert_eq!(
            (timeline.faults[0].from, timeline.faults[0].until),
            (0.5, 0.7)
        );
    }
}
