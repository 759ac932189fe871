//! `distlock unlock`: revokes a lock.

use std::process::ExitCode;

use distlock::{Revocation, RevokeOutcome};
use serde_json::{Value, json};

use crate::cli::{Global, Unlock};
use crate::connect::connect;
use crate::exit::{BUSY, CommandResult};
use crate::output::table::printable;
use crate::output::{self, lock};

pub(crate) async fn main(global: Global, options: Unlock) -> CommandResult {
    let manager = connect(&global).await?;
    let mut revoke = manager
        .revoke(&options.key)
        .wait(options.wait)
        .wait_until_free(options.wait_until_free)
        .assume_holder_dead(options.assume_holder_dead);
    if let Some(holder) = &options.holder {
        revoke = revoke.holder(holder);
    }
    let revocation = revoke.await;
    manager.shutdown().await;
    let (key, revocation) = (&options.key, revocation?);
    output::show(
        &global,
        || as_json(key, &revocation),
        || as_text(&options, &revocation),
    )?;
    Ok(match revocation.outcome {
        RevokeOutcome::Pending => ExitCode::from(BUSY),
        _ => ExitCode::SUCCESS,
    })
}

fn as_json(key: &str, revocation: &Revocation) -> Value {
    let holders: Vec<_> = revocation.holders.iter().map(lock::holder).collect();
    json!({
        "key": key,
        "outcome": match revocation.outcome {
            RevokeOutcome::NotHeld => "not_held",
            RevokeOutcome::Released => "released",
            RevokeOutcome::Expired => "expired",
            RevokeOutcome::Deleted => "deleted",
            RevokeOutcome::Pending => "pending",
            _ => "other",
        },
        "holders": holders,
        "fencing_token": revocation.fencing_token.map(|token| token.get()),
    })
}

fn as_text(options: &Unlock, revocation: &Revocation) -> String {
    let key = &options.key;
    let holders: Vec<_> = revocation
        .holders
        .iter()
        .map(|holder| &*holder.client)
        .collect();
    let holders = holders.join(", ");
    let mut text = match revocation.outcome {
        RevokeOutcome::NotHeld => match &options.holder {
            Some(holder) => format!("lock `{key}` is not held by {holder}"),
            None => format!("lock `{key}` is free: {}", revocation.outcome),
        },
        RevokeOutcome::Pending => format!(
            "lock `{key}` was revoked from {holders}, but is still held as far as is known: it is free once it is \
             released or its lease and grace period expire; wait for that with `--wait-until-free`"
        ),
        outcome => format!("lock `{key}` was revoked from {holders}: {outcome}"),
    };
    if let Some(token) = revocation.fencing_token {
        text.push_str(&format!(
            "; a resource that has seen fencing token {token} rejects the old holder"
        ));
    }
    let mut text = printable(&text);
    text.push('\n');
    text
}
