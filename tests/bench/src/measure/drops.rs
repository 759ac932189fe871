//! Very many guards dropped at once.

use std::time::{Duration, Instant};

use anyhow::ensure;
use distlock_tests::RedisServer;

use super::many::{LEASE, acquire, count_locks};
use super::{Context, connect, in_task, two_workers};
use crate::report::{Findings, Row};

const GUARDS: usize = 10_000;
/// When to stop looking: long after the target was missed.
const GIVE_UP: Duration = Duration::from_secs(30);

pub(crate) fn run(_: &Context) -> anyhow::Result<Findings> {
    let server = RedisServer::start();
    let runtime = two_workers()?;
    let (manager, guards) = in_task(&runtime, {
        let url = server.url();
        async move {
            let manager = connect(&url, 1).await?.remove(0);
            let guards = acquire(manager.clone(), "bench:drop", GUARDS, LEASE).await?;
            Ok((manager, guards))
        }
    })?;
    let mut client = server.client();
    let locks = count_locks(&mut client);
    ensure!(locks == GUARDS, "{locks} locks in Redis, and not {GUARDS}");
    let all = client.cmd(&["DBSIZE"]).int();

    let started = Instant::now();
    drop(guards);
    let dropping = started.elapsed();
    // DBSIZE costs the server nothing. What stays is a fence for each key.
    while client.cmd(&["DBSIZE"]).int() > all - GUARDS as i64 && started.elapsed() < GIVE_UP {
        std::thread::sleep(Duration::from_millis(1));
    }
    let gone = started.elapsed();
    let left = count_locks(&mut client);
    runtime.block_on(manager.shutdown());
    Ok(vec![
        Row::new(
            format!("{GUARDS} guards dropped: all keys gone"),
            gone.as_secs_f64(),
            "s",
        )
        .at_most(2.0)
        .note(format!(
            "the drop itself took {:.1} ms",
            dropping.as_secs_f64() * 1e3
        )),
        Row::new(
            format!("{GUARDS} guards dropped: locks left"),
            left as f64,
            "",
        )
        .at_most(0.0),
    ]
    .into())
}
