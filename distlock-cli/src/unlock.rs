//! `distlock unlock`: takes a lock away from its holder.

use std::process::ExitCode;

use distlock::{HowUnlocked, Unlocked};
use serde_json::{Value, json};

use crate::cli::{Global, Unlock};
use crate::connect::connect;
use crate::exit::Ended;
use crate::output::table::printable;
use crate::output::{self, lock};

pub(crate) async fn main(global: Global, options: Unlock) -> Ended {
    let manager = connect(&global).await?;
    let mut unlock = manager.unlock(&options.key).wait(options.wait);
    if options.force {
        unlock = unlock.force();
    }
    if options.holder_is_gone {
        unlock = unlock.holder_is_gone();
    }
    let unlocked = unlock.await;
    manager.shutdown().await;
    let unlocked = unlocked?;
    if global.json {
        output::json(&as_json(&options.key, &unlocked))?;
    } else {
        output::write(as_text(&options.key, &unlocked).as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn as_json(key: &str, unlocked: &Unlocked) -> Value {
    json!({
        "key": key,
        "how": match unlocked.how {
            HowUnlocked::WasFree => "was-free",
            HowUnlocked::Released => "released",
            HowUnlocked::Expired => "expired",
            HowUnlocked::Deleted => "deleted",
            _ => "unlocked",
        },
        "holder": unlocked.holder.as_ref().map(lock::holder),
        "fencing_token": unlocked.fencing_token.map(|token| token.get()),
    })
}

fn as_text(key: &str, unlocked: &Unlocked) -> String {
    let mut text = format!("lock `{key}` is free: {}", unlocked.how);
    if let Some(holder) = &unlocked.holder {
        text.push_str(&format!(" ({})", printable(&holder.client)));
    }
    if let (Some(token), true) = (unlocked.fencing_token, unlocked.how != HowUnlocked::WasFree) {
        text.push_str(&format!(
            "; a fenced resource that is told {token} refuses what the old holder may still send"
        ));
    }
    text.push('\n');
    text
}
