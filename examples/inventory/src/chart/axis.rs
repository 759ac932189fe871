//! The horizontal axis: time.

use std::time::Duration;

use super::svg::Svg;

/// The left end of the axis. Names are to the left of it.
pub(super) const LEFT: f64 = 206.0;

/// The length of the axis. To the right of it is room for words.
pub(super) const LENGTH: f64 = 572.0;

#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    start: Duration,
    span: Duration,
}

impl Axis {
    /// Creates an axis for the longest of these spans.
    pub(super) fn new(spans: impl Iterator<Item = Duration>) -> Self {
        let span = spans.max().unwrap_or_default();
        Axis {
            start: Duration::ZERO,
            span: span.max(Duration::from_millis(1)),
        }
    }

    /// Returns the same axis with this time at its left end.
    pub(super) fn starting_at(self, start: Duration) -> Self {
        Axis { start, ..self }
    }

    pub(super) fn x(self, time: Duration) -> f64 {
        let time = (time - self.start).as_secs_f64();
        LEFT + LENGTH * (time / self.span.as_secs_f64()).min(1.0)
    }

    /// Draws a line at each round time, and the times below `bottom`.
    pub(super) fn draw(self, svg: &mut Svg, top: f64, bottom: f64, start: &str) {
        let is_short = self.span < Duration::from_millis(500);
        let (unit, name) = if is_short { (1e-3, "ms") } else { (1.0, "s") };
        let span = self.span.as_secs_f64() / unit;
        let step = round_step(span / 8.0);
        let decimals = usize::from(step < 1.0);
        let mut number = 0.0;
        while number <= span {
            let x = LEFT + LENGTH * number / span;
            svg.path("grid", &format!("M{x:.1} {top:.1}V{bottom:.1}"));
            svg.text(
                "soft middle",
                x,
                bottom + 15.0,
                &format!("{number:.decimals$}"),
            );
            number += step;
        }
        let label = format!("{name} since {start}");
        svg.text("soft end", LEFT - 18.0, bottom + 15.0, &label);
    }
}

/// Returns 1, 2 or 5 times a power of ten, at least `step` and at least a tenth.
fn round_step(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor()).max(0.1);
    let steps = [1.0, 2.0, 5.0].map(|factor| factor * power);
    let round = steps.into_iter().find(|round| *round >= step);
    round.unwrap_or(10.0 * power)
}
