//! `distlock install`: creates or updates the schema in PostgreSQL.

use std::process::ExitCode;

use serde_json::json;

use crate::cli::Global;
use crate::connect::builder;
use crate::exit::CommandResult;
use crate::output;

pub(crate) async fn main(mut global: Global, store: Option<String>) -> CommandResult {
    global.url = store.or(global.url);
    let (builder, url) = builder(&global)?;
    builder.install_schema(&url).await?;
    let as_text = || {
        "the schema `distlock` is installed: grant the roles of your services USAGE on it, and SELECT, INSERT, UPDATE, \
         DELETE on its tables\n"
            .to_owned()
    };
    output::show(&global, || json!({ "installed": true }), as_text)?;
    Ok(ExitCode::SUCCESS)
}
