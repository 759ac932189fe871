//! Bars, in panels beside each other.

use super::{COLORS, Canvas, marks, number};

const PANEL: f64 = 400.0;
const LEFT: f64 = 130.0;
/// For the value behind the longest bar.
const RIGHT: f64 = 60.0;
const TOP: f64 = 80.0;
const ROW: f64 = 34.0;
const BAR: f64 = 22.0;
const BOTTOM: f64 = 40.0;

/// Bars of one unit. The first is ours.
#[derive(Clone, Debug)]
pub(crate) struct Panel {
    pub(crate) name: String,
    pub(crate) bars: Vec<(String, f64)>,
}

pub(crate) fn bars(title: &str, panels: &[Panel]) -> String {
    let most = panels.iter().map(|panel| panel.bars.len()).max();
    let bottom = TOP + ROW * most.unwrap_or(0) as f64;
    let width = PANEL * panels.len().max(1) as f64;
    let mut canvas = Canvas::new(width, bottom + BOTTOM, title);
    for (index, panel) in panels.iter().enumerate() {
        draw(&mut canvas, panel, PANEL * index as f64, bottom);
    }
    canvas.finish()
}

fn draw(canvas: &mut Canvas, panel: &Panel, from: f64, bottom: f64) {
    let left = from + LEFT;
    canvas.text("head", (from + 20.0, TOP - 20.0), "start", &panel.name);
    let marks = marks(panel.bars.iter().map(|bar| bar.1).fold(0.0, f64::max));
    let top = marks.last().copied().unwrap_or(1.0);
    let length = |value: f64| value / top * (PANEL - LEFT - RIGHT);
    for &mark in &marks {
        let x = left + length(mark);
        canvas.line((x, TOP - 6.0), (x, bottom));
        canvas.text("soft", (x, bottom + 18.0), "middle", &number(mark));
    }
    for (index, (name, value)) in panel.bars.iter().enumerate() {
        let y = TOP + ROW * index as f64;
        canvas.text("", (left - 8.0, y + 16.0), "end", name);
        if value.is_finite() {
            let color = COLORS[usize::from(index > 0)];
            canvas.rect(color, (left, y), length(*value), BAR);
            let end = (left + length(*value) + 6.0, y + 16.0);
            canvas.text("", end, "start", &number(*value));
        }
    }
}
