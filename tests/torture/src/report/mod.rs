//! The verdict on a run, as a table and as JSON.

mod json;
mod table;

use std::path::Path;

use anyhow::Context;

use crate::check::Verdict;

/// Prints the table, and writes `report.json` into `dir`.
pub(crate) fn report(dir: &Path, verdict: &Verdict) -> anyhow::Result<()> {
    print!("{}", table::table(verdict));
    let path = dir.join("report.json");
    std::fs::write(&path, json::json(verdict)?).with_context(|| path.display().to_string())
}
