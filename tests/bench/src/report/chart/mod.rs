//! Charts as SVG, on a light ground, readable where they are small.

use std::fmt::Write;

mod bars;
mod lines;

pub(crate) use bars::{Panel, bars};
pub(crate) use lines::{Series, lines};

const STYLE: &str = "\
text{font:13px system-ui,sans-serif;fill:#1b1f24}.title{font-size:16px;font-weight:600}\
.head{font-weight:600}.soft{fill:#57606a}.back{fill:#fff}.grid{stroke:#d8dee4}\
.line{fill:none;stroke-width:2}.dashed{stroke-dasharray:6 4}";
/// Told apart by those who see few colors, too.
const COLORS: [&str; 4] = ["#2f6fb5", "#c96a00", "#5b8c5a", "#8e5ba6"];

/// A drawing, and what its file is called.
#[derive(Clone, Debug)]
pub(crate) struct Chart {
    pub(crate) name: &'static str,
    pub(crate) svg: String,
}

/// What is drawn on. Numbers are written with one digit behind the point.
struct Canvas(String);

impl Canvas {
    fn new(width: f64, height: f64, title: &str) -> Self {
        let mut canvas = Canvas(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\" role=\"img\"><style>{STYLE}</style>\
             <rect class=\"back\" width=\"{width}\" height=\"{height}\"/>"
        ));
        canvas.text("title", (20.0, 28.0), "start", title);
        canvas
    }

    fn text(&mut self, class: &str, (x, y): (f64, f64), anchor: &str, text: &str) {
        let text = escaped(text);
        self.add(format_args!(
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"
        ));
    }

    fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        self.add(format_args!(
            "<line class=\"grid\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        ));
    }

    fn rect(&mut self, color: &str, (x, y): (f64, f64), width: f64, height: f64) {
        self.add(format_args!(
            "<rect fill=\"{color}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>"
        ));
    }

    fn add(&mut self, what: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.0.write_fmt(what);
    }

    fn finish(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }
}

/// The marks of an axis from zero to at least `highest`: round numbers, the last one at its end.
fn marks(highest: f64) -> Vec<f64> {
    let highest = if highest.is_finite() && highest > 0.0 {
        highest
    } else {
        1.0
    };
    let power = 10f64.powf((highest / 5.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .map(|factor| factor * power)
        .into_iter()
        .find(|step| step * 5.0 >= highest)
        .unwrap_or(highest);
    // At most five and one.
    let count = (highest / step).ceil() as u32;
    (0..=count).map(|mark| f64::from(mark) * step).collect()
}

fn number(value: f64) -> String {
    match value.abs() {
        value if value >= 100.0 || value.fract() == 0.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each element is closed in its turn, and there is nothing that SVG does not know.
    fn assert_well_formed(svg: &str) {
        let mut open = Vec::new();
        for tag in svg.split('<').skip(1) {
            let (tag, text) = tag.split_once('>').expect("a tag ends");
            assert!(!text.contains('>'), "{text}");
            assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
            let name = tag.split_whitespace().next().expect("a tag has a name");
            if let Some(name) = name.strip_prefix('/') {
                assert_eq!(open.pop(), Some(name));
            } else if !tag.ends_with('/') {
                open.push(name);
            }
        }
        assert!(open.is_empty(), "{open:?}");
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn charts_are_well_formed() {
        let points = vec![(2.0, 81.5), (16.0, 116.0), (1_000.0, 79.0)];
        let series = |name: &str, dashed| Series {
            name: name.into(),
            points: points.clone(),
            dashed,
        };
        let all = [series("pinned & <ours>", false), series("PING", true)];
        let svg = lines("hand-off", ["waiters", "us"], &all);
        assert_well_formed(&svg);
        assert!(svg.contains("pinned &amp; &lt;ours&gt;") && svg.contains(">1000<"));
        let panel = Panel {
            name: "per second".into(),
            bars: vec![("ours".into(), 305.0), ("<theirs>".into(), 0.4)],
        };
        assert_well_formed(&bars("sparse", &[panel.clone(), panel]));
    }

    #[test]
    fn charts_of_nothing_are_well_formed() {
        assert_well_formed(&lines("nothing", ["", ""], &[]));
        let panel = Panel {
            name: "nothing".into(),
            bars: vec![("ours".into(), f64::NAN)],
        };
        assert_well_formed(&bars("nothing", &[panel]));
    }

    #[test]
    fn marks_are_round_and_reach_the_highest() {
        assert_eq!(marks(116.0), [0.0, 50.0, 100.0, 150.0]);
        assert_eq!(marks(0.0).last(), Some(&1.0));
        for highest in [0.07, 3.0, 305.0, 9_999.0] {
            let marks = marks(highest);
            assert!(marks.len() <= 6 && *marks.last().unwrap() >= highest);
        }
    }
}
