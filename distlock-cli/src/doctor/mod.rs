//! `distlock doctor`: checks whether a store is set up as locks need it.

mod checks;
mod facts;
mod finding;
mod trial;

use std::fmt::Write as _;
use std::process::ExitCode;

use distlock::{__doctor, Error, LockManager, LockManagerBuilder};
use serde_json::json;

use crate::cli::Global;
use crate::connect::builder;
use crate::doctor::facts::Facts;
use crate::doctor::finding::{Finding, Verdict};
use crate::exit::{BAD, Ended};
use crate::output;
use crate::output::table::wrap;

/// The column at which the text of a finding begins.
const INDENT: usize = 28;

pub(crate) async fn main(mut global: Global, store: Option<String>) -> Ended {
    global.url = store.or(global.url);
    let builder = builder(&global)?;
    let manager = builder.clone().connect().await?;
    let findings = findings(&manager, &builder).await;
    manager.shutdown().await;
    let findings = findings?;
    let is_bad = findings
        .iter()
        .any(|finding| finding.verdict == Verdict::Bad);
    let as_json = || json!({ "bad": is_bad, "findings": findings });
    output::show(&global, as_json, || as_text(&findings))?;
    Ok(ExitCode::from(if is_bad { BAD } else { 0 }))
}

/// Tries out a lock, and checks the settings of every primary of a cluster, every server of a
/// quorum, or the primary and each sentinel. An unreachable server is a finding.
async fn findings(
    manager: &LockManager,
    builder: &LockManagerBuilder,
) -> Result<Vec<Finding>, Error> {
    let mut findings = vec![trial::of(manager).await];
    for server in __doctor::servers(builder).await? {
        findings.extend(checks::of(&Facts::of(&server).await));
    }
    Ok(findings)
}

/// Returns the findings as text, by server.
fn as_text(findings: &[Finding]) -> String {
    let mut text = String::new();
    let mut server = None;
    for finding in findings {
        if server.replace(&finding.server) != Some(&finding.server) {
            let _ = writeln!(text, "{}", wrap(&finding.server, 0));
        }
        let found = wrap(&finding.found, INDENT);
        let (verdict, check) = (finding.verdict, finding.check);
        // Two spaces, four columns for the verdict, two spaces, and the check.
        let _ = writeln!(text, "  {verdict:<4}  {check:<18}  {found}");
        if !finding.advice.is_empty() {
            let _ = writeln!(
                text,
                "{:INDENT$}-> {}",
                "",
                wrap(&finding.advice, INDENT + 3)
            );
        }
    }
    let count = |verdict| findings.iter().filter(|one| one.verdict == verdict).count();
    let [good, mind, bad] = [Verdict::Good, Verdict::Mind, Verdict::Bad].map(count);
    let _ = writeln!(text, "{good} good, {mind} mind, {bad} bad");
    text
}
