//! Shapes and text as SVG.

use std::fmt::{Display, Write as _};

pub(super) const WIDTH: f64 = 960.0;

/// Number of worker colors, after which they repeat. None is red, which marks errors.
const COLORS: u16 = 6;

/// Colors that are distinct in light and dark mode, and to color-blind readers. They are not
/// variables, because some viewers do not support these.
const STYLE: &str = "\
text{font-family:system-ui,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;font-size:12px;fill:#1b1f24}\
.title{font-size:19px;font-weight:600}.head{font-size:14px;font-weight:600}.soft{fill:#57606a}\
.end{text-anchor:end}.middle{text-anchor:middle}.bad{fill:#c4314b;font-weight:600}.back{fill:#fff}.grid{stroke:#d8dee4}.overlap{fill:#fbe3e7}\
.w0{fill:#3f7fc6}.w1{fill:#dd9a1f}.w2{fill:#2a9d7c}.w3{fill:#8d68c8}.w4{fill:#7b8894}.w5{fill:#7a9a2b}\
.wait{fill-opacity:.45}.lost{stroke:#c4314b;stroke-width:2}\
.failed{fill-opacity:.25;stroke:#57606a;stroke-dasharray:3 2}\
.queue{fill:#c5cdd6}.one{fill:#66717e}.several{fill:#d6455f}.zoom{fill:none;stroke:#1b1f24}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.soft{fill:#9aa5b1}.bad{fill:#ff8296}\
.back{fill:#0d1117}.grid{stroke:#30363d}.overlap{fill:#43202a}.w0{fill:#5c9fea}.w1{fill:#e9ae45}\
.w2{fill:#3fbd98}.w3{fill:#ab8be4}.w4{fill:#98a5b3}.w5{fill:#9bbd48}.lost{stroke:#ff6b81}\
.failed{stroke:#9aa5b1}.queue{fill:#3d4651}.one{fill:#93a1b0}.several{fill:#f0607a}\
.zoom{stroke:#e6edf3}}";

/// An image that grows downwards.
#[derive(Debug, Default)]
pub(super) struct Svg {
    body: String,
}

impl Svg {
    /// Returns the file.
    pub(super) fn finish(self, height: f64, title: &str, description: &str) -> String {
        let (title, description, body) = (escaped(title), escaped(description), self.body);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" \
             width=\"{WIDTH}\" height=\"{height:.0}\" role=\"img\">\n<title>{title}</title>\n\
             <desc>{description}</desc>\n<style>{STYLE}</style>\n\
             <rect class=\"back\" width=\"{WIDTH}\" height=\"{height:.0}\" rx=\"6\"/>\n{body}</svg>\n"
        )
    }

    /// Begins a group with a tooltip.
    pub(super) fn begin_group(&mut self, tooltip: &str) {
        self.push(format_args!("<g><title>{}</title>\n", escaped(tooltip)));
    }

    pub(super) fn end_group(&mut self) {
        self.push("</g>\n");
    }

    /// Draws a text that begins at `x`, or ends there with the class `end`.
    pub(super) fn text(&mut self, class: &str, x: f64, y: f64, text: &str) {
        let text = escaped(text);
        self.push(format_args!(
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>\n"
        ));
    }

    pub(super) fn rect(&mut self, class: &str, x: f64, y: f64, width: f64, height: f64) {
        self.push(format_args!(
            "<rect class=\"{class}\" x=\"{x:.2}\" y=\"{y:.1}\" width=\"{width:.2}\" height=\"{height:.1}\"/>\n"
        ));
    }

    pub(super) fn path(&mut self, class: &str, path: &str) {
        self.push(format_args!("<path class=\"{class}\" d=\"{path}\"/>\n"));
    }

    fn push(&mut self, element: impl Display) {
        // Writing to a String does not fail.
        let _ = write!(self.body, "{element}");
    }
}

/// Returns the class of a worker's color.
pub(super) fn color(worker: u16) -> String {
    format!("w{}", (worker - 1) % COLORS)
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}
