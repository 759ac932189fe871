//! `distlock doctor`: checks whether a store is set up as locks need it.

mod checks;
mod diagnostic;
mod facts;
mod postgres;
mod trial;

use std::fmt::Write as _;
use std::process::ExitCode;

use distlock::{__doctor, Error, LockManager, LockManagerBuilder};
use serde_json::json;

use crate::cli::Global;
use crate::connect::builder;
use crate::doctor::diagnostic::{Diagnostic, Severity};
use crate::doctor::facts::ServerFacts;
use crate::exit::{CommandResult, FOUND_ERROR};
use crate::output;
use crate::output::table::wrap;

/// The column at which the text of a diagnostic begins.
const INDENT: usize = 31;

pub(crate) async fn main(mut global: Global, store: Option<String>) -> CommandResult {
    global.url = store.or(global.url);
    let (builder, url) = builder(&global)?;
    let manager = builder.clone().connect(&url).await?;
    let diagnostics = diagnostics(&manager, &builder, &url).await;
    manager.shutdown().await;
    let diagnostics = diagnostics?;
    let has_errors = diagnostics
        .iter()
        .any(|diagnostic| diagnostic.severity == Severity::Error);
    let as_json = || json!({ "has_errors": has_errors, "diagnostics": diagnostics });
    output::show(&global, as_json, || as_text(&diagnostics))?;
    Ok(ExitCode::from(if has_errors { FOUND_ERROR } else { 0 }))
}

/// Tries out a lock, and checks the settings of every primary of a cluster, every server of a
/// quorum, or the primary and each sentinel. An unreachable server is a diagnostic.
async fn diagnostics(
    manager: &LockManager,
    builder: &LockManagerBuilder,
    url: &str,
) -> Result<Vec<Diagnostic>, Error> {
    let mut diagnostics = vec![trial::of(manager).await];
    if let Some(facts) = __doctor::postgres_facts(builder, url).await? {
        diagnostics.extend(postgres::of(__doctor::address(manager), &facts));
    }
    for server in __doctor::servers(builder, url).await? {
        diagnostics.extend(checks::of(&ServerFacts::of(&server).await));
    }
    Ok(diagnostics)
}

/// Returns the diagnostics as text, by server.
fn as_text(diagnostics: &[Diagnostic]) -> String {
    let mut text = String::new();
    let mut server = None;
    for diagnostic in diagnostics {
        if server.replace(&diagnostic.server) != Some(&diagnostic.server) {
            let _ = writeln!(text, "{}", wrap(&diagnostic.server, 0));
        }
        let message = wrap(&diagnostic.message, INDENT);
        let (severity, check) = (diagnostic.severity, diagnostic.check);
        let _ = writeln!(text, "  {severity:<7}  {check:<18}  {message}");
        if !diagnostic.help.is_empty() {
            let _ = writeln!(
                text,
                "{:INDENT$}-> {}",
                "",
                wrap(&diagnostic.help, INDENT + 3)
            );
        }
    }
    let count = |severity| {
        diagnostics
            .iter()
            .filter(|diagnostic| diagnostic.severity == severity)
            .count()
    };
    let [ok, warnings, errors] = [Severity::Ok, Severity::Warning, Severity::Error].map(count);
    let _ = writeln!(text, "ok: {ok}, warnings: {warnings}, errors: {errors}");
    text
}
