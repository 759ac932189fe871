//! The log line of a loss. It names the current holder, and a later token in the fence, if the
//! store reports them in time.

use std::time::Duration;

use crate::fencing::FencingToken;
use crate::loss::LossReason;
use crate::manager::engine::core::{Core, Phase};
use crate::manager::engine::held::HeldLock;
use crate::manager::telemetry::data_loss;
use crate::manager::telemetry::logging::{self, TARGET};
use crate::observer::event::Operation;
use crate::protocol::messages::Inspection;
use crate::protocol::outcome::HoldEnd;
use crate::store::StoreResult;
use crate::store::command::Inspect;

/// Timeout of the query for the current holder.
const HOLDER_QUERY_TIMEOUT: Duration = Duration::from_millis(250);

/// Logs the loss of a hold.
pub(crate) fn log_loss(hold: HeldLock, end: HoldEnd) {
    let core = hold.core.clone();
    // A requested loss does not imply another holder, so the store is not queried.
    let may_have_holder = matches!(
        end,
        HoldEnd::Lost(LossReason::NotRenewed { .. } | LossReason::Gone)
    );
    let mut line = LossLine {
        hold,
        end,
        current_holder: None,
        newer_token: None,
    };
    if !may_have_holder
        || core.phase() != Phase::Running
        || !tracing::enabled!(target: TARGET, tracing::Level::ERROR)
    {
        core.spawn_logging(move || drop(line));
        return;
    }
    let token = core.loss_lines.token();
    core.clone().executor.spawn(async move {
        line.query_store(&core).await;
        core.spawn_logging(move || drop(line));
        drop(token);
    });
}

/// The log line of a loss. It is written on drop, and so even if its runtime ends before the
/// current holder is known.
struct LossLine {
    hold: HeldLock,
    end: HoldEnd,
    current_holder: Option<String>,
    /// The token in the fence, if it is later than that of the lost hold.
    newer_token: Option<FencingToken>,
}

impl Drop for LossLine {
    fn drop(&mut self) {
        let holder = self.current_holder.as_deref();
        logging::lost(&self.hold, &self.end, holder, self.newer_token);
    }
}

impl LossLine {
    async fn query_store(&mut self, core: &Core) {
        let inspect_lock = async {
            core.store.ready().await;
            let inspect = Inspect {
                key: self.hold.lock_key(),
                max_listed: 0,
            };
            let inspecting = core.store.inspect(&inspect, HOLDER_QUERY_TIMEOUT);
            core.run_command(Operation::Inspect, inspecting).await
        };
        let reply = tokio::time::timeout(HOLDER_QUERY_TIMEOUT, inspect_lock).await;
        if let Ok(Ok(inspection)) = &reply {
            let (key, hold) = (self.hold.lock_key().clone(), &self.hold.hold);
            data_loss::examine(core, &(key, hold.token, hold.since), inspection);
            let lost = self.hold.public_token();
            let is_newer = |last: &FencingToken| lost.is_some_and(|lost| *last > lost);
            self.newer_token = inspection.last_token.filter(is_newer);
        }
        self.current_holder = Some(match reply {
            Ok(reply) => describe_holder(reply),
            Err(_) => format!("unknown: no answer within {HOLDER_QUERY_TIMEOUT:?}"),
        });
    }
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
