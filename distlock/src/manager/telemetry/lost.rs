//! How a loss is told in the log: with who has the lock now, which is asked for first, but not
//! waited for for long.

use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::manager::engine::core::{Core, Phase};
use crate::manager::engine::hold::Hold;
use crate::manager::telemetry::observed::loss;
use crate::manager::telemetry::report;
use crate::observer::event::Loss;
use crate::protocol::trouble::Trouble;
use crate::protocol::words::{Inspection, Occupant};
use crate::store::command::Inspect;

/// How long the line of a loss waits for the name of who has the lock now.
const ASK_WITHIN: Duration = Duration::from_millis(250);

/// Tells of a hold that ended by itself. The line comes in any case, also if who has the lock now
/// is not known.
pub(crate) fn tell(hold: Hold, error: Error) {
    let core = hold.core.clone();
    // These were asked for, and nobody need have the lock now.
    let was_asked_for = matches!(loss(&error), None | Some(Loss::Closed | Loss::Revoked));
    if was_asked_for || core.phase() != Phase::Running || !report::shows_losses() {
        core.report(move || report::lost(&hold, &error, None));
        return;
    }
    let line = Line(Some((hold, error)));
    let under_way = core.under_way.one();
    core.clone().executor.spawn_later(async move {
        let now_held_by = line.who(&core).await;
        line.write(&core, now_held_by);
        drop(under_way);
    });
}

/// A line that is still to be written. If it is dropped before, because its runtime ends, it is
/// written then.
struct Line(Option<(Hold, Error)>);

impl Line {
    async fn who(&self, core: &Arc<Core>) -> String {
        let Some((hold, _)) = &self.0 else {
            return String::new();
        };
        let inspected = async {
            core.store.ready().await;
            let inspect = Inspect {
                key: hold.key(),
                waiters: 0,
            };
            core.call(inspect, ASK_WITHIN).await
        };
        match tokio::time::timeout(ASK_WITHIN, inspected).await {
            Ok(answer) => who(answer),
            Err(_) => format!("unknown: no answer within {ASK_WITHIN:?}"),
        }
    }

    fn write(mut self, core: &Core, now_held_by: String) {
        if let Some((hold, error)) = self.0.take() {
            core.report(move || report::lost(&hold, &error, Some(&now_held_by)));
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Some((hold, error)) = self.0.take() {
            report::lost(&hold, &error, None);
        }
    }
}

fn who(answer: Result<Box<Inspection>, Trouble>) -> String {
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
