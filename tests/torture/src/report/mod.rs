//! What a run's verdict looks like: a table, JSON, a chart.

mod chart;
mod json;
mod table;

use std::path::Path;

use anyhow::Context;

use crate::check::Verdict;

/// Prints the table; writes `report.json` and `chart.svg` into `dir`.
pub(crate) fn report(dir: &Path, verdict: &Verdict) -> anyhow::Result<()> {
    print!("{}", table::table(verdict));
    let write = |name: &str, text: String| {
        let path = dir.join(name);
        std::fs::write(&path, text).with_context(|| path.display().to_string())
    };
    write("report.json", json::json(verdict)?)?;
    write(
        "chart.svg",
        chart::chart(&verdict.header, &verdict.timeline),
    )
}
