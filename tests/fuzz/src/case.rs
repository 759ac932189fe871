//! One case: a server, a manager, and a few calls.

use std::ops::AddAssign;
use std::time::{Duration, Instant};

use distlock::{Error, LockManager};
use proptest::sample::select;

use crate::panics;
use crate::server::{Dice, Mood, Server};

/// How much later than it should anything may end on a busy machine.
const SLACK: Duration = Duration::from_secs(10);
const CONNECT_WITHIN: Duration = Duration::from_millis(300);
/// The longest that a command may take (`Timing::command_deadline`).
const COMMAND: Duration = Duration::from_secs(1);

/// What became of the calls of many cases.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Cases run.
    pub cases: u64,
    /// Managers that the handshake did not let connect.
    pub unconnected: u64,
    /// Commands that the servers answered, or not.
    pub commands: u64,
    /// Guards that the calls got, all of them proven.
    pub guards: u64,
    /// Calls that were told that somebody else has the lock.
    pub busy: u64,
    /// Calls that failed otherwise.
    pub failed: u64,
    /// Guards that were lost while they were held.
    pub lost: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.cases += other.cases;
        self.unconnected += other.unconnected;
        self.commands += other.commands;
        self.guards += other.guards;
        self.busy += other.busy;
        self.failed += other.failed;
        self.lost += other.lost;
    }
}

/// One call.
#[derive(Clone, Copy, Debug)]
struct Plan {
    key: &'static str,
    lease: Duration,
    wait: Duration,
    hold: Duration,
}

/// Runs the case of a seed.
///
/// # Errors
///
/// What the manager did that it must not.
pub async fn run(seed: u64) -> Result<Tally, String> {
    let panics = panics::count();
    let mut dice = Dice::new(!seed);
    let mood = Mood {
        honest: dice.draw(select(vec![0, 40, 70, 90])),
        handshake: dice.draw(select(vec![0, 0, 0, 5, 30])),
        bytes: dice.draw(select(vec![0, 0, 0, 5, 20])),
        stubborn: dice.percent(15),
    };
    let ms = Duration::from_millis;
    let plans: Vec<Plan> = (0..dice.draw(1..5usize))
        .map(|_| Plan {
            key: dice.draw(select(vec!["a", "b", "c"])),
            lease: ms(dice.draw(select(vec![50, 120, 400]))),
            wait: ms(dice.draw(select(vec![0, 1, 50, 150, 700]))),
            hold: ms(dice.draw(select(vec![0, 20, 150, 300]))),
        })
        .collect();
    let server = Server::start(seed, mood);
    let result = converse(&server, &plans)
        .await
        .map_err(|why| format!("seed {seed}: {why}"))?;
    if let Some(call) = server.zero() {
        return Err(format!("seed {seed}: a TTL of zero: {call}"));
    }
    if panics::count() != panics {
        return Err(format!(
            "seed {seed}, or one that ran beside it: a thread panicked"
        ));
    }
    Ok(result)
}

async fn converse(server: &Server, plans: &[Plan]) -> Result<Tally, String> {
    let mut tally = Tally {
        cases: 1,
        ..Tally::default()
    };
    let builder = LockManager::builder()
        .url(server.impostor.url())
        .connect_timeout(CONNECT_WITHIN);
    let manager = match within("connecting", CONNECT_WITHIN, builder.connect()).await? {
        Ok(manager) => manager,
        Err(error) => {
            let _ = error.to_string();
            tally.unconnected += 1;
            return Ok(tally);
        }
    };
    let calls = plans.iter().map(|plan| call(server, &manager, *plan));
    for call in join_all(calls).await {
        tally += call?;
    }
    if let Err(error) = within("an inspection", COMMAND, manager.inspect("a")).await? {
        let _ = error.to_string();
    }
    // Bodies have ended; releases are given two seconds.
    within("a shutdown", 2 * COMMAND, manager.shutdown()).await?;
    tally.commands = server.impostor.commands();
    Ok(tally)
}

async fn call(server: &Server, manager: &LockManager, plan: Plan) -> Result<Tally, String> {
    let mut tally = Tally::default();
    let lock = manager.lock(plan.key).lease(plan.lease).wait(plan.wait);
    let guard = match within("an acquire", plan.wait + COMMAND, lock.acquire()).await? {
        Ok(guard) => guard,
        Err(error) => {
            let told = error.to_string();
            if told.contains('\u{1b}') || told.contains('\n') {
                return Err(format!("an error with control characters: {told:?}"));
            }
            match error {
                Error::Busy { .. } => tally.busy += 1,
                _ => tally.failed += 1,
            }
            return Ok(tally);
        }
    };
    tally.guards += 1;
    let token = u64::from(guard.fencing_token());
    if token == 0 {
        return Err("a fencing token of zero".into());
    }
    if let Some(objection) = server.objection(plan.key, token) {
        return Err(objection);
    }
    let end = Instant::now() + plan.hold;
    loop {
        let now = Instant::now();
        let held = guard.is_held();
        // A hold is believed from the send of a command on, which is before the server received it.
        if held
            && let Some(proven) = server.proven_at(plan.key, token)
            && now > proven + plan.lease
        {
            let late = now - proven - plan.lease;
            return Err(format!(
                "`{}` is believed {late:?} after its lease",
                plan.key
            ));
        }
        if !held || now >= end {
            tally.lost += u64::from(!held);
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Repeated until it is answered, but a caller waits for one attempt.
    if let Err(error) = within("a release", COMMAND, guard.release()).await? {
        let _ = error.to_string();
    }
    Ok(tally)
}

async fn within<T>(
    what: &str,
    limit: Duration,
    future: impl Future<Output = T>,
) -> Result<T, String> {
    let limit = limit + SLACK;
    let ended = tokio::time::timeout(limit, future).await;
    ended.map_err(|_| format!("{what} did not end within {limit:?}"))
}

/// Runs all at once, on one task.
async fn join_all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut running: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|context| {
        let mut pending = false;
        for (future, output) in &mut running {
            if output.is_none() {
                match future.as_mut().poll(context) {
                    std::task::Poll::Ready(ready) => *output = Some(ready),
                    std::task::Poll::Pending => pending = true,
                }
            }
        }
        if pending {
            std::task::Poll::Pending
        } else {
            std::task::Poll::Ready(())
        }
    })
    .await;
    running
        .into_iter()
        .filter_map(|(_, output)| output)
        .collect()
}
