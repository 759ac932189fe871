//! `distlock forget`: deletes a success record.

use std::process::ExitCode;

use serde_json::json;

use crate::cli::{Forget, Global};
use crate::connect::connect;
use crate::exit::CommandResult;
use crate::output;
use crate::output::table::printable;

pub(crate) async fn main(global: Global, options: Forget) -> CommandResult {
    let Forget { key, once_for } = options;
    let manager = connect(&global).await?;
    let deleted = manager.delete_record(&key, once_for.as_deref()).await;
    manager.shutdown().await;
    let deleted = deleted?;
    let as_json = || json!({ "key": key, "once_for": once_for, "deleted": deleted });
    let as_text = || {
        let of_value = once_for.as_ref().map(|value| format!(" for `{value}`"));
        let of_value = of_value.unwrap_or_default();
        let text = if deleted {
            format!("success of lock `{key}`{of_value} forgotten: its work may run again at once")
        } else {
            format!("lock `{key}` has no recorded success{of_value}: nothing was deleted")
        };
        format!("{}\n", printable(&text))
    };
    output::show(&global, as_json, as_text)?;
    Ok(ExitCode::SUCCESS)
}
