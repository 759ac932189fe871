//! Rectangles and words as SVG.

use std::fmt::{Display, Write as _};

/// A picture as wide as a page of documentation.
pub(super) const WIDTH: f64 = 960.0;

/// Bars have the colors of so many workers before they repeat. None of them is red, which is for what went wrong.
pub(super) const COLORS: usize = 6;

/// Colors that are told apart in light, in dark, and by those who see few. No variables: not every viewer knows them.
const STYLE: &str = "\
text{font-family:system-ui,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;font-size:12px;fill:#1b1f24}\
.title{font-size:19px;font-weight:600}.head{font-size:14px;font-weight:600}.soft{fill:#57606a}\
.bad{fill:#c4314b;font-weight:600}.back{fill:#fff}.grid{stroke:#d8dee4}\
.many{fill:#fbe3e7}.w0{fill:#3f7fc6}.w1{fill:#dd9a1f}.w2{fill:#2a9d7c}.w3{fill:#8d68c8}.w4{fill:#7b8894}.w5{fill:#7a9a2b}\
.wait{fill-opacity:.45}.lost{stroke:#c4314b;stroke-width:2}.refused{fill-opacity:.25;stroke:#57606a;stroke-dasharray:3 2}\
.queue{fill:#c5cdd6}.one{fill:#66717e}.several{fill:#d6455f}.zoom{fill:none;stroke:#1b1f24}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.soft{fill:#9aa5b1}.bad{fill:#ff8296}.back{fill:#0d1117}\
.grid{stroke:#30363d}.many{fill:#43202a}.w0{fill:#5c9fea}.w1{fill:#e9ae45}.w2{fill:#3fbd98}.w3{fill:#ab8be4}\
.w4{fill:#98a5b3}.w5{fill:#9bbd48}.lost{stroke:#ff6b81}.refused{stroke:#9aa5b1}.queue{fill:#3d4651}.one{fill:#93a1b0}.several{fill:#f0607a}\
.zoom{stroke:#e6edf3}}";

/// Where a text stands beside its point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Align {
    Left,
    Middle,
    Right,
}

/// A picture that grows downwards.
#[derive(Debug, Default)]
pub(super) struct Canvas {
    body: String,
}

impl Canvas {
    /// The whole file.
    pub(super) fn finish(self, height: f64, title: &str, summary: &str) -> String {
        let (title, summary, body) = (escaped(title), escaped(summary), self.body);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" width=\"{WIDTH}\" \
             height=\"{height:.0}\" role=\"img\">\n<title>{title}</title>\n<desc>{summary}</desc>\n\
             <style>{STYLE}</style>\n\
             <rect class=\"back\" width=\"{WIDTH}\" height=\"{height:.0}\" rx=\"6\"/>\n{body}</svg>\n"
        )
    }

    /// Begins a group, which is found by its name, up to [`Canvas::end`].
    pub(super) fn begin(&mut self, name: &str) {
        self.push(format_args!("<g id=\"{}\">\n", escaped(name)));
    }

    /// Begins a group that explains itself to whoever points at it, up to [`Canvas::end`].
    pub(super) fn begin_explained(&mut self, explanation: &str) {
        self.push(format_args!("<g><title>{}</title>", escaped(explanation)));
    }

    pub(super) fn end(&mut self) {
        self.push(format_args!("</g>\n"));
    }

    pub(super) fn text(&mut self, class: &str, align: Align, x: f64, y: f64, text: &str) {
        let anchor = match align {
            Align::Left => "",
            Align::Middle => " text-anchor=\"middle\"",
            Align::Right => " text-anchor=\"end\"",
        };
        let text = escaped(text);
        self.push(format_args!(
            "<text class=\"{class}\"{anchor} x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>\n"
        ));
    }

    pub(super) fn rect(&mut self, class: &str, x: f64, y: f64, width: f64, height: f64) {
        self.push(format_args!(
            "<rect class=\"{class}\" x=\"{x:.2}\" y=\"{y:.1}\" width=\"{width:.2}\" height=\"{height:.1}\"/>\n"
        ));
    }

    pub(super) fn line(&mut self, class: &str, x: f64, y: f64, height: f64) {
        self.push(format_args!(
            "<path class=\"{class}\" d=\"M{x:.1} {y:.1}v{height:.1}\"/>\n"
        ));
    }

    pub(super) fn path(&mut self, class: &str, path: &str) {
        self.push(format_args!("<path class=\"{class}\" d=\"{path}\"/>\n"));
    }

    fn push(&mut self, what: impl Display) {
        // A String takes everything.
        let _ = write!(self.body, "{what}");
    }
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}

/// 1, 2 or 5 times a power of ten, at least `step`.
pub(super) fn nice(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter();
    let factor = factor.map(|factor| factor * power);
    factor
        .into_iter()
        .find(|nice| *nice >= step)
        .unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_means_something_in_xml_is_escaped() {
        let mut canvas = Canvas::default();
        canvas.begin("a\"b");
        canvas.text("soft", Align::Right, 1.0, 2.0, "<item_id> & more");
        canvas.end();
        let svg = canvas.finish(10.0, "a < b", "c > d");
        let xml = roxmltree::Document::parse(&svg).unwrap();
        let texts: Vec<_> = xml.descendants().filter_map(|node| node.text()).collect();
        for text in ["a < b", "c > d", "<item_id> & more"] {
            assert!(texts.contains(&text), "{texts:?}");
        }
    }

    #[test]
    fn steps_are_round() {
        for (step, rounded) in [
            (0.03, 0.05),
            (0.3, 0.5),
            (1.2, 2.0),
            (4.9, 5.0),
            (50.1, 100.0),
        ] {
            assert!(
                (nice(step) - rounded).abs() < 1e-9,
                "{step}: {}",
                nice(step)
            );
        }
    }
}
