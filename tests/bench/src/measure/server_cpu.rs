//! What a pair of acquire and release costs the server, which all clients share.

use std::future::Future;
use std::sync::Arc;

use distlock_tests::RedisServer;
use tokio::task::JoinSet;

use super::lockers::Ours;
use super::{Context, Scale, connect, in_task, two_workers};
use crate::baseline::Bare;
use crate::load;
use crate::report::{Findings, Row};
use crate::stats::{Rounds, micros};
use crate::used::by_server;

/// Tasks, and pairs of each in a round. Alone, each command costs a wake-up, most of which is the system's; of
/// many, one read takes several, and what is left is the commands: that is what is judged.
const LOADS: [(usize, usize); 2] = [(1, 1_000), (64, 100)];

#[derive(Default)]
struct Figures {
    ours: Rounds,
    bare: Rounds,
}

pub(crate) fn run(context: &Context) -> anyhow::Result<Findings> {
    let server = RedisServer::start();
    let measuring = measure(server.url(), server.pid(), context.scale);
    let figures = in_task(&two_workers()?, measuring)?;
    let rows = LOADS.iter().zip(&figures).map(|((tasks, _), figures)| {
        let plural = if *tasks == 1 { "" } else { "s" };
        let row = Row::new(
            format!("server CPU of an uncontended pair, {tasks} task{plural}"),
            figures.ours.median(),
            "us",
        )
        .against("of a bare pair", figures.bare.median())
        .note(figures.ours.ratios_to(&figures.bare));
        if *tasks == 1 { row } else { row.at_most(3.0) }
    });
    Ok(rows.collect::<Vec<_>>().into())
}

async fn measure(url: String, server: u32, scale: Scale) -> anyhow::Result<[Figures; 2]> {
    let manager = connect(&url, 1).await?.remove(0);
    let local = Bare::connect(&url).await?;
    let owner: Arc<str> = "0123456789abcdef0123456789abcdef:1".into();
    let mut all = [Figures::default(), Figures::default()];
    for ((tasks, pairs), figures) in LOADS.into_iter().zip(&mut all) {
        let ours = |task| {
            let ours = Ours(manager.lock(format!("bench:server:ours:{task}")));
            async move { load::pairs(&ours, pairs).await.map(drop) }
        };
        let bare = |task| {
            let key: Arc<str> = format!("bench:server:bare:{task}").into();
            let (local, owner) = (local.clone(), owner.clone());
            async move {
                for _ in 0..pairs {
                    local.pair(&key, &owner).await?;
                }
                Ok(())
            }
        };
        // The first round warms up.
        for round in 0..=scale.pick(10, 4) {
            let a = cost(server, tasks, pairs, ours).await?;
            let b = cost(server, tasks, pairs, bare).await?;
            if round > 0 {
                figures.ours.push(a);
                figures.bare.push(b);
            }
        }
    }
    manager.shutdown().await;
    Ok(all)
}

/// The server's time for one pair, in µs.
async fn cost<F>(
    server: u32,
    tasks: usize,
    pairs: usize,
    task: impl Fn(usize) -> F,
) -> anyhow::Result<f64>
where
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let before = by_server(server)?;
    let mut running: JoinSet<_> = (0..tasks).map(task).collect();
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    Ok(micros(by_server(server)? - before) / (tasks * pairs) as f64)
}
