//! `distlock unlock`: revokes a lock.

use std::process::ExitCode;

use distlock::{Error, HowUnlocked, Unlocked};
use serde_json::{Value, json};

use crate::cli::{Global, Unlock};
use crate::connect::connect;
use crate::exit::{BUSY, Ended, Failure};
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
    let unlocked = unlocked.map_err(|error| still_held(&error).unwrap_or_else(|| error.into()))?;
    let key = &options.key;
    output::show(
        &global,
        || as_json(key, &unlocked),
        || as_text(key, &unlocked),
    )?;
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
    let mut text = match &unlocked.holder {
        None => format!("lock `{key}` is free: {}", unlocked.how),
        Some(holder) => format!(
            "lock `{key}` is no longer that of {}: {}",
            holder.client, unlocked.how
        ),
    };
    if let Some(token) = unlocked.fencing_token {
        text.push_str(&format!(
            "; a fenced resource that is told {token} refuses what the old holder may still send"
        ));
    }
    let mut text = printable(&text);
    text.push('\n');
    text
}

/// Returns the failure of a lock that was still held when the wait expired.
fn still_held(error: &Error) -> Option<Failure> {
    let Error::Busy { key, holders, .. } = error else {
        return None;
    };
    let holder = holders
        .first()
        .map_or("its holder", |holder| holder.client.as_str());
    let message = format!(
        "lock `{key}` is taken away from {holder}, which has not released it yet: nobody renews it any more, so others have it when it is \
         released, or its lease and grace are over; `--force` waits for that, and `distlock inspect` shows how long it is"
    );
    Some(Failure::new(BUSY, message).about(key))
}
