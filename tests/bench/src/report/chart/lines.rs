//! Lines over a logarithmic axis.

use super::{COLORS, Canvas, marks, number};

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 116.0;
const BOTTOM: f64 = 60.0;

/// A line, by points from left to right.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
    pub(crate) dashed: bool,
}

/// Two series at a time share a color: a dashed one is what the line before it is compared with.
pub(crate) fn lines(title: &str, [x_label, y_label]: [&str; 2], series: &[Series]) -> String {
    let mut canvas = Canvas::new(WIDTH, HEIGHT, title);
    let points = || series.iter().flat_map(|series| &series.points);
    let mut columns: Vec<f64> = points().map(|point| point.0).collect();
    columns.sort_by(f64::total_cmp);
    columns.dedup();
    let rows = marks(points().map(|point| point.1).fold(0.0, f64::max));

    let first = columns.first().map_or(0.0, |x| x.ln());
    let span = columns.last().map_or(0.0, |x| x.ln()) - first;
    let x = |value: f64| LEFT + (value.ln() - first) / span.max(1e-9) * (WIDTH - LEFT - RIGHT);
    let top = rows.last().copied().unwrap_or(1.0);
    let y = |value: f64| HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM);

    for &row in &rows {
        canvas.line((LEFT, y(row)), (WIDTH - RIGHT, y(row)));
        canvas.text("soft", (LEFT - 8.0, y(row) + 4.0), "end", &number(row));
    }
    for &column in &columns {
        canvas.line((x(column), y(0.0)), (x(column), y(0.0) + 5.0));
        let at = (x(column), y(0.0) + 21.0);
        canvas.text("soft", at, "middle", &number(column));
    }
    let middle = (LEFT + WIDTH - RIGHT) / 2.0;
    canvas.text("head", (middle, HEIGHT - 14.0), "middle", x_label);
    canvas.text("head", (20.0, TOP - 14.0), "start", y_label);

    let column = (WIDTH - 40.0) / series.len().div_ceil(2).max(1) as f64;
    for (index, series) in series.iter().enumerate() {
        let color = COLORS[index / 2 % COLORS.len()];
        let class = if series.dashed { "line dashed" } else { "line" };
        let path = |points: &[(f64, f64)]| {
            let points = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}"));
            points.collect::<Vec<_>>().join(" ")
        };
        // The legend has a column for each color.
        let legend = 20.0 + column * (index / 2) as f64;
        let at = 52.0 + 20.0 * (index % 2) as f64;
        let line: Vec<_> = series.points.iter().map(|&(a, b)| (x(a), y(b))).collect();
        for points in [line, vec![(legend, at), (legend + 24.0, at)]] {
            canvas.add(format_args!(
                "<polyline class=\"{class}\" stroke=\"{color}\" points=\"{}\"/>",
                path(&points)
            ));
        }
        canvas.text("soft", (legend + 30.0, at + 4.0), "start", &series.name);
    }
    canvas.finish()
}
