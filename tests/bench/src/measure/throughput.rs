//! Many tasks, each on a key of its own.

use std::future::Future;
use std::sync::Arc;
use std::time::Instant;

use distlock_tests::RedisServer;
use tokio::task::JoinSet;

use super::{Context, connect, in_task, two_workers};
use crate::baseline::Bare;
use crate::report::{Findings, Row};
use crate::stats::Rounds;
use crate::used::Used;

const TASKS: usize = 256;
/// Of each task in each round.
const PAIRS: usize = 20;

#[derive(Default)]
struct Figures {
    per_second: Rounds,
    used: Used,
}

pub(crate) fn run(context: &Context) -> anyhow::Result<Findings> {
    let server = RedisServer::start();
    let runtime = two_workers()?;
    let rounds = context.scale.pick(40, 8);
    let measuring = measure(server.url(), server.pid(), rounds);
    let (ours, bare) = in_task(&runtime, measuring)?;
    let pairs = (rounds * TASKS * PAIRS) as f64;
    let each = |used: Used| (used.total() / pairs * 1e6, used.client / pairs * 1e6);
    let (cpu, of_client) = each(ours.used);
    let (bare_cpu, of_bare_client) = each(bare.used);
    Ok(vec![
        Row::new(
            format!("{TASKS} tasks, distinct keys"),
            ours.per_second.median(),
            "pairs/s",
        )
        .against("bare pairs, caller's runtime", bare.per_second.median())
        .at_least(0.4)
        .note(ours.per_second.ratios_to(&bare.per_second)),
        Row::new(format!("{TASKS} tasks: CPU of a pair"), cpu, "us")
            .against("of a bare pair", bare_cpu)
            .note(format!(
                "client {of_client:.1} us, server {:.1} us; bare: client {of_bare_client:.1} us, server {:.1} us",
                cpu - of_client,
                bare_cpu - of_bare_client
            )),
    ]
    .into())
}

async fn measure(url: String, server: u32, rounds: usize) -> anyhow::Result<(Figures, Figures)> {
    let manager = connect(&url, 1).await?.remove(0);
    let local = Bare::connect(&url).await?;
    let owner: Arc<str> = "0123456789abcdef0123456789abcdef:1".into();
    let our_task = |task| {
        let lock = manager.lock(format!("bench:throughput:ours:{task}"));
        async move {
            for _ in 0..PAIRS {
                lock.acquire().await?.release().await?;
            }
            Ok(())
        }
    };
    let bare_task = |task| {
        let key: Arc<str> = format!("bench:throughput:bare:{task}").into();
        let (local, owner) = (local.clone(), owner.clone());
        async move {
            for _ in 0..PAIRS {
                local.pair(&key, &owner).await?;
            }
            Ok(())
        }
    };

    // They warm up.
    pairs_per_second(our_task).await?;
    pairs_per_second(bare_task).await?;
    let (mut ours, mut bare) = (Figures::default(), Figures::default());
    for _ in 0..rounds {
        let before = Used::now(server)?;
        ours.per_second.push(pairs_per_second(our_task).await?);
        ours.used.add_since(before, server)?;

        let before = Used::now(server)?;
        bare.per_second.push(pairs_per_second(bare_task).await?);
        bare.used.add_since(before, server)?;
    }
    manager.shutdown().await;
    Ok((ours, bare))
}

async fn pairs_per_second<F>(task: impl Fn(usize) -> F) -> anyhow::Result<f64>
where
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let started = Instant::now();
    let mut tasks: JoinSet<_> = (0..TASKS).map(task).collect();
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok((TASKS * PAIRS) as f64 / started.elapsed().as_secs_f64())
}
