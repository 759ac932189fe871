//! What happened over time, as SVG: phases, faults, acquisitions, losses, waits.
//!
//! Colors are told apart in light and in dark, and by those who see few; the page's own scheme decides.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::check::{Bar, Header, Timeline};
use crate::history::Phase;

const WIDTH: f64 = 1200.0;
const LEFT: f64 = 170.0;
const RIGHT: f64 = 24.0;
const ROW: f64 = 18.0;
const PLOT: f64 = 130.0;
const GAP: f64 = 44.0;
/// Marks beyond this many of one lane would not be told apart.
const MOST_MARKS: usize = 1_500;

const STYLE: &str = "\
text{font:12px system-ui,sans-serif;fill:var(--ink)}\
.title{font-size:16px;font-weight:600}.head{font-weight:600}.small{font-size:11px;fill:var(--soft)}\
.grid{stroke:var(--grid);stroke-width:1}.back{fill:var(--back)}\
.warm_up,.liveness,.done{fill:var(--calm)}.chaos{fill:var(--chaos)}.heal{fill:var(--heal)}\
.lossless{fill:var(--blue)}.lossy{fill:var(--red)}.bars{fill:var(--blue)}.loss{stroke:var(--red)}\
.p50{stroke:var(--blue)}.p99{stroke:var(--orange)}.line{fill:none;stroke-width:1.6}\
.k50{fill:var(--blue)}.k99{fill:var(--orange)}\
svg{--ink:#1b1f24;--soft:#57606a;--grid:#d8dee4;--back:#fff;--calm:#cfe8d5;--chaos:#f7d4c9;--heal:#fbeec2;\
--blue:#2f6fb5;--red:#c4314b;--orange:#c96a00}\
@media(prefers-color-scheme:dark){svg{--ink:#e6edf3;--soft:#9aa5b1;--grid:#30363d;--back:#0d1117;\
--calm:#1d3a29;--chaos:#4a2620;--heal:#463c16;--blue:#6cb0f5;--red:#ff7b8f;--orange:#f5a94d}}";

/// The chart of a run.
pub(crate) fn chart(header: &Header, timeline: &Timeline) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = Canvas {
        out: &mut out,
        seconds: timeline.seconds.max(1.0),
    }
    .draw(header, timeline);
    out
}

struct Canvas<'a> {
    out: &'a mut String,
    seconds: f64,
}

impl Canvas<'_> {
    fn x(&self, second: f64) -> f64 {
        LEFT + second.clamp(0.0, self.seconds) / self.seconds * (WIDTH - LEFT - RIGHT)
    }

    fn draw(&mut self, header: &Header, timeline: &Timeline) -> std::fmt::Result {
        let mut lanes: BTreeMap<&str, Vec<&Bar>> = BTreeMap::new();
        for bar in &timeline.faults {
            lanes.entry(&bar.what).or_default().push(bar);
        }
        let faults_at = 96.0;
        let faults_end = faults_at + lanes.len().max(1) as f64 * ROW;
        let held_at = faults_end + GAP;
        let losses_at = held_at + PLOT + GAP;
        let waits_at = losses_at + ROW + GAP;
        let bottom = waits_at + PLOT;
        let height = bottom + 40.0;
        write!(
            self.out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
             width=\"{WIDTH}\" height=\"{height}\" role=\"img\"><style>{STYLE}</style>\
             <rect class=\"back\" width=\"{WIDTH}\" height=\"{height}\"/>"
        )?;
        let sabotage = header
            .sabotage
            .as_deref()
            .map_or_else(String::new, |name| format!(", sabotaged: {name}"));
        let title = format!(
            "distlock under torture: {} s, seed {}, profile {}, {} workers{sabotage}",
            header.seconds, header.seed, header.profile, header.workers
        );
        self.text(16.0, 26.0, "title", &title)?;
        let versions = format!(
            "redis {}, commit {}; {} faults",
            header.redis_version,
            header.commit,
            timeline.faults.len()
        );
        self.text(16.0, 44.0, "small", &versions)?;

        self.phases(timeline, 54.0, bottom)?;
        self.time_axis(faults_at, bottom)?;

        self.text(16.0, faults_at - 8.0, "head", "faults")?;
        self.legend(
            LEFT,
            faults_at - 8.0,
            "lossless",
            "the server keeps its locks",
        )?;
        self.legend(LEFT + 190.0, faults_at - 8.0, "lossy", "it may lose them")?;
        for (i, (kind, bars)) in lanes.iter().enumerate() {
            self.lane(kind, bars, faults_at + i as f64 * ROW)?;
        }
        self.holders(timeline, held_at)?;
        self.losses(timeline, losses_at)?;
        self.waits(timeline, waits_at)?;
        self.out.write_str("</svg>\n")
    }

    fn text(&mut self, x: f64, y: f64, class: &str, text: &str) -> std::fmt::Result {
        let text = escaped(text);
        write!(
            self.out,
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>"
        )
    }

    fn text_before(&mut self, x: f64, y: f64, text: &str) -> std::fmt::Result {
        let text = escaped(text);
        write!(
            self.out,
            "<text class=\"small\" text-anchor=\"end\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>"
        )
    }

    fn rect(&mut self, class: &str, x: f64, y: f64, width: f64, height: f64) -> std::fmt::Result {
        write!(
            self.out,
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>"
        )
    }

    fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) -> std::fmt::Result {
        write!(
            self.out,
            "<line class=\"{class}\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"/>",
            from.0, from.1, to.0, to.1
        )
    }

    fn legend(&mut self, x: f64, y: f64, class: &str, text: &str) -> std::fmt::Result {
        self.rect(class, x, y - 9.0, 10.0, 10.0)?;
        self.text(x + 15.0, y, "small", text)
    }

    fn phases(&mut self, timeline: &Timeline, y: f64, bottom: f64) -> std::fmt::Result {
        for (i, (from, phase)) in timeline.phases.iter().enumerate() {
            let until = timeline
                .phases
                .get(i + 1)
                .map_or(self.seconds, |(at, _)| *at);
            let (class, name) = match phase {
                Phase::WarmUp => ("warm_up", "warm-up"),
                Phase::Chaos => ("chaos", "chaos"),
                Phase::Heal => ("heal", "heal"),
                Phase::Liveness => ("liveness", "liveness"),
                Phase::Done => ("done", "done"),
            };
            let (left, right) = (self.x(*from), self.x(until));
            self.rect(class, left, y, right - left, 20.0)?;
            self.line("grid", (left, y), (left, bottom))?;
            if right - left > 7.0 * name.len() as f64 {
                self.text(left + 4.0, y + 14.0, "small", name)?;
            }
        }
        self.text(16.0, y + 14.0, "head", "phase")
    }

    fn time_axis(&mut self, top: f64, bottom: f64) -> std::fmt::Result {
        let step = nice(self.seconds / 12.0);
        let mut at = 0.0;
        while at <= self.seconds {
            let x = self.x(at);
            self.line("grid", (x, top), (x, bottom))?;
            self.text(x - 4.0, bottom + 16.0, "small", &format!("{at}"))?;
            at += step;
        }
        self.text(LEFT, bottom + 32.0, "small", "seconds since the beginning")
    }

    fn lane(&mut self, kind: &str, bars: &[&Bar], y: f64) -> std::fmt::Result {
        let label = format!("{kind} ({})", bars.len());
        self.text_before(LEFT - 8.0, y + 12.0, &label)?;
        for bar in bars.iter().take(MOST_MARKS) {
            let class = if bar.lossless { "lossless" } else { "lossy" };
            let (left, right) = (self.x(bar.from), self.x(bar.until));
            self.rect(class, left, y + 2.0, (right - left).max(1.5), ROW - 5.0)?;
        }
        Ok(())
    }

    /// A scale from zero to at least `highest`; returns its top value.
    fn value_axis(&mut self, y: f64, highest: f64) -> Result<f64, std::fmt::Error> {
        let step = nice(highest.max(1.0) / 4.0);
        let top = (highest.max(1.0) / step).ceil() * step;
        let mut value = 0.0;
        while value <= top {
            let at = y + PLOT * (1.0 - value / top);
            self.line("grid", (LEFT, at), (WIDTH - RIGHT, at))?;
            self.text_before(LEFT - 8.0, at + 4.0, &format!("{value}"))?;
            value += step;
        }
        Ok(top)
    }

    fn holders(&mut self, timeline: &Timeline, y: f64) -> std::fmt::Result {
        self.text(16.0, y - 10.0, "head", "holders: acquisitions per second")?;
        let highest = timeline.each.iter().map(|s| s.acquired).max().unwrap_or(0);
        let top = self.value_axis(y, f64::from(highest))?;
        for (second, each) in timeline.each.iter().enumerate() {
            let height = f64::from(each.acquired) / top * PLOT;
            let left = self.x(second as f64);
            let width = (self.x(second as f64 + 1.0) - left - 1.0).max(0.6);
            if each.acquired > 0 {
                self.rect("bars", left, y + PLOT - height, width, height)?;
            }
        }
        Ok(())
    }

    fn losses(&mut self, timeline: &Timeline, y: f64) -> std::fmt::Result {
        let count = timeline.losses.len();
        self.text(16.0, y - 10.0, "head", &format!("leases lost: {count}"))?;
        let mut last = f64::MIN;
        let mut marks = String::new();
        for second in &timeline.losses {
            let x = self.x(*second);
            // Nearer ones cannot be seen apart.
            if x - last >= 0.5 {
                write!(marks, "M{x:.1} {y:.1}v{:.1}", ROW - 4.0)?;
                last = x;
            }
        }
        write!(self.out, "<path class=\"loss\" d=\"{marks}\"/>")
    }

    fn waits(&mut self, timeline: &Timeline, y: f64) -> std::fmt::Result {
        let title = "waits of those acquired, ms (log)";
        self.text(16.0, y - 10.0, "head", title)?;
        self.legend(LEFT + 90.0, y - 10.0, "k50", "p50")?;
        self.legend(LEFT + 145.0, y - 10.0, "k99", "p99")?;
        let highest = timeline.each.iter().map(|s| s.wait_p99).fold(1.0, f64::max);
        // Decades from 0.1 ms up.
        let decades = highest.log10().ceil() + 1.0;
        let height = |wait: f64| PLOT * (1.0 - ((wait.max(0.1).log10() + 1.0) / decades).min(1.0));
        for decade in 0..=decades as i32 {
            let value = 10f64.powi(decade - 1);
            let at = y + height(value);
            self.line("grid", (LEFT, at), (WIDTH - RIGHT, at))?;
            self.text_before(LEFT - 8.0, at + 4.0, &format!("{value}"))?;
        }
        for (class, value) in [("p50", 0), ("p99", 1)] {
            let mut path = String::new();
            let mut drawing = false;
            for (second, each) in timeline.each.iter().enumerate() {
                if each.acquired == 0 {
                    drawing = false;
                    continue;
                }
                let wait = [each.wait_p50, each.wait_p99][value];
                let (x, at) = (self.x(second as f64 + 0.5), y + height(wait));
                write!(path, "{}{x:.1} {at:.1}", if drawing { 'L' } else { 'M' })?;
                drawing = true;
            }
            write!(self.out, "<path class=\"line {class}\" d=\"{path}\"/>")?;
        }
        Ok(())
    }
}

/// 1, 2 or 5 times a power of ten, at least `step`.
fn nice(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .find(|factor| factor * power >= step)
        .unwrap_or(10.0);
    (factor * power).max(1.0)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Second;

    fn timeline(seconds: usize, faults: usize) -> Timeline {
        let at = |i: usize, of: usize| i as f64 * seconds as f64 / of as f64;
        Timeline {
            seconds: seconds as f64,
            phases: vec![(0.0, Phase::WarmUp), (1.0, Phase::Chaos)],
            faults: (0..faults)
                .map(|i| Bar {
                    from: at(i, faults),
                    until: at(i, faults) + 0.2,
                    what: format!("<kind> {}", i % 20),
                    lossless: i % 3 > 0,
                })
                .collect(),
            losses: (0..5_000).map(|i| at(i, 5_000)).collect(),
            each: (0..seconds)
                .map(|i| Second {
                    acquired: i as u32,
                    wait_p50: 1.0,
                    wait_p99: i as f64,
                })
                .collect(),
        }
    }

    #[test]
    fn a_long_run_is_small_and_well_formed() {
        let svg = chart(&Header::default(), &timeline(600, 2_500));
        assert!(svg.len() < 300_000, "{} bytes", svg.len());
        assert!(!svg.contains("<kind>") && svg.contains("&lt;kind&gt; 3 (125)"));
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn an_empty_run_has_a_chart_too() {
        let svg = chart(&Header::default(), &Timeline::default());
        assert!(svg.ends_with("</svg>\n") && !svg.contains("NaN"));
    }

    #[test]
    fn steps_are_round() {
        for (step, rounded) in [(0.3, 1.0), (1.2, 2.0), (4.9, 5.0), (50.1, 100.0)] {
            assert_eq!(nice(step), rounded);
        }
    }
}
