//! The log line of a loss. It names the present holder if the store returns that soon.

use std::time::Duration;

use crate::error::Error;
use crate::manager::engine::core::{Core, Phase};
use crate::manager::engine::held::HeldLock;
use crate::manager::telemetry::observed::loss;
use crate::manager::telemetry::report::{self, TARGET};
use crate::observer::event::LossKind;
use crate::protocol::messages::{Inspection, Occupant};
use crate::protocol::store_error::StoreError;
use crate::store::command::Inspect;

/// Timeout of the query for the present holder.
const ASK_WITHIN: Duration = Duration::from_millis(250);

/// Logs the loss of a hold.
pub(crate) fn log(hold: HeldLock, error: Error) {
    let core = hold.core.clone();
    // A requested loss says nothing about a present holder.
    let was_asked_for = matches!(
        loss(&error),
        None | Some(LossKind::ShutDown | LossKind::Revoked)
    );
    let mut line = Line {
        hold,
        error,
        new_holder: None,
    };
    if was_asked_for
        || core.phase() != Phase::Running
        || !tracing::enabled!(target: TARGET, tracing::Level::ERROR)
    {
        core.report(move || drop(line));
        return;
    }
    let in_flight = core.under_way.token();
    core.clone().executor.spawn_later(async move {
        line.new_holder = Some(line.present_holder(&core).await);
        core.report(move || drop(line));
        drop(in_flight);
    });
}

/// The log line of a loss. It is written when dropped, so also if its runtime ends before the
/// present holder is known.
struct Line {
    hold: HeldLock,
    error: Error,
    new_holder: Option<String>,
}

impl Drop for Line {
    fn drop(&mut self) {
        report::lost(&self.hold, &self.error, self.new_holder.as_deref());
    }
}

impl Line {
    async fn present_holder(&self, core: &Core) -> String {
        let inspected = async {
            core.store.ready().await;
            let inspect = Inspect {
                key: self.hold.lock_key(),
                waiters: 0,
            };
            core.call(inspect, ASK_WITHIN).await
        };
        match tokio::time::timeout(ASK_WITHIN, inspected).await {
            Ok(answer) => who(answer),
            Err(_) => format!("unknown: no answer within {ASK_WITHIN:?}"),
        }
    }
}

fn who(answer: Result<Box<Inspection>, StoreError>) -> String {
    match answer.map(|inspection| *inspection) {
        Ok(Inspection {
            foreign: Some(_), ..
        }) => "nobody: something that distlock did not write stands at its key".into(),
        Ok(seen) => match seen.occupant.as_ref().map(Occupant::holder) {
            Some(holder) => holder.to_string(),
            None => "nobody".into(),
        },
        Err(trouble) => format!("unknown: {trouble}"),
    }
}
