//! The verdict as JSON, for other programs.

use serde_json::{Value, json};

use crate::check::{Finding, Verdict};

pub(crate) fn json(verdict: &Verdict) -> anyhow::Result<String> {
    let header = &verdict.header;
    let failed: Vec<String> = verdict.failed().iter().map(ToString::to_string).collect();
    let floors: Vec<Value> = verdict
        .floors
        .iter()
        .map(|floor| {
            json!({
                "what": floor.what,
                "reached": floor.reached,
                "wanted": floor.wanted,
                "at_most": floor.at_most,
                "passed": floor.passed(),
            })
        })
        .collect();
    let report = json!({
        "seed": header.seed,
        "seconds": header.seconds,
        "profile": header.profile,
        "topology": header.topology,
        "workers": header.workers,
        "keys": header.keys,
        "sabotage": header.sabotage,
        "redis_version": header.redis_version,
        "distlock_version": env!("CARGO_PKG_VERSION"),
        "commit": header.commit,
        "passed": verdict.passed(),
        "failed": failed,
        "invariants": verdict.findings.iter().map(invariant).collect::<Vec<_>>(),
        "figures": verdict.figures,
        "floors": floors,
    });
    Ok(serde_json::to_string_pretty(&report)? + "\n")
}

fn invariant(finding: &Finding) -> Value {
    let words = |of: &[_]| of.iter().map(ToString::to_string).collect::<Vec<_>>();
    json!({
        "id": finding.id.to_string(),
        "title": finding.id.title(),
        "checked": finding.checked,
        "violations": finding.violations,
        "reported": finding.reported,
        "passed": finding.passed(),
        "note": finding.note,
        "evidence": words(&finding.evidence),
        "remarks": words(&finding.remarks),
    })
}
