//! The log line of a loss. It names the current holder, and a later token in the fence, if the
//! store reports them in time.

use std::time::Duration;

use crate::fencing::FencingToken;
use crate::loss::LossReason;
use crate::manager::core::Phase;
use crate::manager::core::held::HoldHandle;
use crate::manager::telemetry::data_loss;
use crate::manager::telemetry::logging::{self, TARGET};
use crate::observer::event::Operation;
use crate::protocol::messages::Inspect;
use crate::protocol::messages::Inspection;
use crate::protocol::outcome::HoldEnd;
use crate::store::StoreResult;

/// Timeout of the query for the current holder.
const HOLDER_QUERY_TIMEOUT: Duration = Duration::from_millis(250);

/// Logs the loss of a hold.
pub(crate) fn log(hold: HoldHandle, end: HoldEnd) {
    let core = hold.core.clone();
    // A requested loss does not imply another holder, so the store is not queried.
    let may_have_holder = matches!(
        end,
        HoldEnd::Lost(LossReason::NotRenewed { .. } | LossReason::Gone)
    );
    if !may_have_holder
        || core.phase() != Phase::Running
        || !tracing::enabled!(target: TARGET, tracing::Level::ERROR)
    {
        core.spawn_logging(move || logging::lost(&hold, &end, None, None));
        return;
    }
    let token = core.loss_lines.token();
    core.clone().executor.run_or_spawn(async move {
        let (current_holder, newer_token) = query_store(&hold).await;
        core.spawn_logging(move || {
            logging::lost(&hold, &end, Some(&current_holder), newer_token);
        });
        drop(token);
    });
}

/// Returns the current holder, and the token in the fence if it is later than that of the lost
/// hold.
async fn query_store(hold: &HoldHandle) -> (String, Option<FencingToken>) {
    let core = &hold.core;
    let inspect_lock = async {
        core.store.ready().await;
        let inspect = Inspect {
            key: hold.lock_key(),
            max_listed: 0,
        };
        let inspecting = core.store.inspect(&inspect, HOLDER_QUERY_TIMEOUT);
        core.run_command(Operation::Inspect, inspecting).await
    };
    let Ok(reply) = tokio::time::timeout(HOLDER_QUERY_TIMEOUT, inspect_lock).await else {
        let holder = format!("unknown: no answer within {HOLDER_QUERY_TIMEOUT:?}");
        return (holder, None);
    };
    let mut newer_token = None;
    if let Ok(inspection) = &reply {
        let acquired = (
            hold.lock_key().clone(),
            hold.fencing_token(),
            hold.hold.since,
        );
        data_loss::examine(core, &acquired, inspection);
        let lost = hold.public_token();
        let is_newer = |last: &FencingToken| lost.is_some_and(|lost| *last > lost);
        newer_token = inspection.last_token.filter(is_newer);
    }
    (describe_holder(reply), newer_token)
}

fn describe_holder(reply: StoreResult<Inspection>) -> String {
    match reply {
        Ok(Inspection {
            key_conflict: Some(_),
            ..
        }) => "none: a value that distlock did not write is stored at its key".into(),
        Ok(inspection) => match inspection.named_holders().first() {
            Some(holder) => holder.to_string(),
            None => "none".into(),
        },
        Err(error) => format!("unknown: {error}"),
    }
}
