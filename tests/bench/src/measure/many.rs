//! What it costs to hold very many locks for longer than their lease.

use std::time::{Duration, Instant};

use distlock::{LockGuard, LockManager};
use distlock_tests::{RedisServer, Resp};
use tokio::task::JoinSet;

use super::{Context, connect, in_task, two_workers};
use crate::report::{Findings, Row};
use crate::used::Used;

pub(super) const LEASE: Duration = Duration::from_secs(30);
const TASKS: usize = 256;

pub(crate) fn run(context: &Context) -> anyhow::Result<Findings> {
    let locks = context.scale.pick(100_000, 10_000);
    let hold = Duration::from_secs(context.scale.pick(60, 12));
    let server = RedisServer::start();
    let runtime = two_workers()?;
    let manager = in_task(&runtime, {
        let url = server.url();
        async move { Ok(connect(&url, 1).await?.remove(0)) }
    })?;

    let started = Instant::now();
    let guards = in_task(
        &runtime,
        acquire(manager.clone(), "bench:many", locks, LEASE),
    )?;
    let acquiring = started.elapsed();

    let (started, before) = (Instant::now(), Used::now(server.pid())?);
    std::thread::sleep(hold);
    let mut used = Used::default();
    used.add_since(before, server.pid())?;
    let percent = 100.0 / started.elapsed().as_secs_f64();

    let disbelieved = guards.iter().filter(|guard| !guard.is_held()).count();
    let mut client = server.client();
    let gone = locks.saturating_sub(count_locks(&mut client));
    drop(guards);
    runtime.block_on(manager.shutdown());

    let what = |what: &str| format!("{locks} locks for {} s: {what}", hold.as_secs());
    Ok(vec![
        Row::new(what("lost"), (disbelieved + gone) as f64, "")
            .at_most(0.0)
            .note(format!(
                "{disbelieved} guards not held, {gone} keys not in Redis; acquired in {:.1} s",
                acquiring.as_secs_f64()
            )),
        Row::new(
            what("client + server CPU"),
            (used.client + used.server) * percent,
            "% of a core",
        )
        .at_most(10.0)
        .note(format!(
            "client {:.1} %, server {:.1} %",
            used.client * percent,
            used.server * percent
        )),
    ]
    .into())
}

/// Acquires `count` locks of one prefix.
pub(super) async fn acquire(
    manager: LockManager,
    prefix: &'static str,
    count: usize,
    lease: Duration,
) -> anyhow::Result<Vec<LockGuard>> {
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let manager = manager.clone();
        tasks.spawn(async move {
            let mut guards = Vec::with_capacity(count / TASKS + 1);
            for index in (task..count).step_by(TASKS) {
                guards.push(
                    manager
                        .lock(format!("{prefix}:{index}"))
                        .lease(lease)
                        .acquire()
                        .await?,
                );
            }
            anyhow::Ok(guards)
        });
    }
    let mut guards = Vec::with_capacity(count);
    while let Some(ended) = tasks.join_next().await {
        guards.extend(ended??);
    }
    Ok(guards)
}

/// How many locks there are in a server.
pub(super) fn count_locks(client: &mut Resp) -> usize {
    let (mut count, mut cursor) = (0, "0".to_owned());
    loop {
        let page = client.cmd(&[
            "SCAN",
            &cursor,
            "MATCH",
            "distlock:lock:*",
            "COUNT",
            "10000",
        ]);
        count += page.array()[1].array().len();
        cursor = page.array()[0].text().unwrap_or_default().to_owned();
        if cursor == "0" {
            return count;
        }
    }
}
