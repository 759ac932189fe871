//! The verdict as text.

use std::fmt::Write;

use crate::check::{Finding, Millis, Verdict};

pub(crate) fn table(verdict: &Verdict) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write(&mut out, verdict);
    out
}

fn write(out: &mut String, verdict: &Verdict) -> std::fmt::Result {
    let header = &verdict.header;
    writeln!(
        out,
        "torture: seed {}, {} s, profile {}, {}, {} workers, {} keys, redis {}, commit {}{}",
        header.seed,
        header.seconds,
        header.profile,
        header.topology,
        header.workers,
        header.keys,
        header.redis_version,
        header.commit,
        header
            .sabotage
            .as_deref()
            .map_or_else(String::new, |name| format!(", SABOTAGED: {name}")),
    )?;
    writeln!(out)?;
    writeln!(
        out,
        "{:<4} {:<40} {:>9} {:>10} {:>8}  verdict",
        "id", "invariant", "checked", "violations", "reported"
    )?;
    for finding in &verdict.findings {
        row(out, finding)?;
    }
    writeln!(out)?;
    figures(out, verdict)?;
    if !verdict.floors.is_empty() {
        writeln!(out)?;
        for floor in &verdict.floors {
            writeln!(
                out,
                "floor: {:<28} {:>10.1} {:<7} {:>8}  {}",
                floor.what,
                floor.reached,
                if floor.at_most { "at most" } else { "of" },
                floor.wanted,
                if floor.passed() { "reached" } else { "MISSED" }
            )?;
        }
    }
    for finding in &verdict.findings {
        for evidence in finding.evidence.iter().take(5) {
            writeln!(out, "{} violated {evidence}", finding.id)?;
        }
    }
    writeln!(out)?;
    let failed = verdict.failed();
    if verdict.passed() {
        writeln!(out, "passed")
    } else if failed.is_empty() {
        writeln!(out, "FAILED: too easy a run")
    } else {
        let ids: Vec<String> = failed.iter().map(ToString::to_string).collect();
        writeln!(out, "FAILED: {}", ids.join(" "))
    }
}

fn row(out: &mut String, finding: &Finding) -> std::fmt::Result {
    writeln!(
        out,
        "{:<4} {:<40} {:>9} {:>10} {:>8}  {}{}",
        finding.id.to_string(),
        finding.id.title(),
        finding.checked,
        finding.violations,
        finding.reported,
        if finding.passed() { "ok" } else { "VIOLATED" },
        if finding.note.is_empty() {
            String::new()
        } else {
            format!("  ({})", finding.note)
        }
    )
}

fn figures(out: &mut String, verdict: &Verdict) -> std::fmt::Result {
    let figures = &verdict.figures;
    let mut line = |what: &str, value: String| writeln!(out, "{what:<34} {value}");
    line(
        "acquired",
        format!(
            "{} of {} calls ({:.0}/s), {} keys",
            figures.acquired, figures.calls, figures.acquisitions_per_second, figures.keys_acquired
        ),
    )?;
    line("  by door", counts(&figures.by_door))?;
    line("  by workload", counts(&figures.by_workload))?;
    line("  outcomes of all calls", counts(&figures.by_outcome))?;
    line(
        "  through a pushed grant",
        format!(
            "{} ({:.1} %), {:.0} hand-overs/s",
            figures.acquired_through_push, figures.pushed_percent, figures.hand_overs_per_second
        ),
    )?;
    line(
        "  bodies up to 5 ms",
        format!("{:.1} %", figures.short_bodies_percent),
    )?;
    line("  wait, ms", millis(figures.wait_ms))?;
    line(
        "grants",
        format!(
            "{}, never confirmed {}",
            figures.grants, figures.grants_never_confirmed
        ),
    )?;
    line(
        "faults",
        format!("{}: {}", figures.faults, counts(&figures.faults_by_kind)),
    )?;
    line(
        "leases lost",
        format!("{}: {}", figures.lost, counts(&figures.lost_by_outcome)),
    )?;
    if figures.failovers > 0 {
        line(
            "failovers",
            format!(
                "{}; {:.1} % of what was acquired is judged as if there were none",
                figures.failovers, figures.unexcused_percent
            ),
        )?;
        line(
            "  holds that outlived one",
            figures.held_through_failovers.to_string(),
        )?;
        line(
            "  acquired while no log counted",
            format!("{:.1} %", figures.unseen_percent),
        )?;
        line("outages of replicas", figures.replica_outages.to_string())?;
    }
    if figures.keys_moved > 0 {
        let shards: Vec<_> = figures.locks_by_shard.iter().map(u64::to_string).collect();
        line(
            "moved to other shards",
            format!(
                "{} keys; locks seen in each shard: {}",
                figures.keys_moved,
                shards.join(", ")
            ),
        )?;
    }
    line(
        "overlaps",
        format!(
            "{} lossless, {} lossy",
            figures.overlaps_lossless, figures.overlaps_lossy
        ),
    )?;
    line(
        "lost updates",
        format!(
            "{} unfenced, {} fenced; {} stale writes rejected",
            figures.lost_updates_unfenced,
            figures.lost_updates_fenced,
            figures.stale_writes_rejected
        ),
    )?;
    line("loss told after validity, ms", millis(figures.loss_told_ms))?;
    line("wait overshoot, ms", millis(figures.wait_overshoot_ms))?;
    for (kind, recovery) in &figures.recovery_ms_by_kind {
        line(&format!("recovery after {kind}, ms"), millis(*recovery))?;
    }
    line(
        "orphans",
        format!(
            "{}, oldest {:.0} ms, of a spared worker {:.0} ms",
            figures.orphans, figures.orphan_max_ms, figures.orphan_spared_max_ms
        ),
    )?;
    line(
        "liveness, longest wait",
        format!("{:.0} ms", figures.liveness_max_ms),
    )?;
    line(
        "scripts on the server",
        format!(
            "{}, {} gaps in what was seen",
            figures.server_scripts, figures.monitor_gaps
        ),
    )
}

fn counts(of: &std::collections::BTreeMap<String, u64>) -> String {
    let texts: Vec<String> = of.iter().map(|(name, n)| format!("{name} {n}")).collect();
    texts.join(", ")
}

fn millis(of: Millis) -> String {
    if of.count == 0 {
        return "none".to_owned();
    }
    format!(
        "p50 {:.1}, p99 {:.1}, max {:.1} (n {})",
        of.p50, of.p99, of.max, of.count
    )
}
