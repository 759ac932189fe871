//! Many tasks, each on a key of its own.

use std::sync::Arc;

use distlock_tests::RedisServer;

use super::lockers::{Ours, Polling};
use super::{Context, connect, in_task, two_workers};
use crate::baseline::Bare;
use crate::load::{self, MANY, Many};
use crate::peers::Peers;
use crate::report::{Findings, Row};
use crate::stats::Rounds;

/// A client of one manager, which keeps up with it best under this load.
const PEER: &str = "rslock";

pub(crate) fn run(context: &Context) -> anyhow::Result<Findings> {
    let server = RedisServer::start();
    let turns = context.scale.pick(10, 2);
    let measuring = measure(server.url(), server.pid(), turns, context.peers.clone());
    let [ours, bare, peer] = in_task(&two_workers()?, measuring)?;
    let [per_second, of_bare, of_peer] =
        [&ours, &bare, &peer].map(|many| Rounds::from(many.per_second.clone()));
    let what = format!("{MANY} tasks, distinct keys");
    let mut rows = vec![
        Row::new(&what, per_second.median(), "pairs/s")
            .against("bare pairs, caller's runtime", of_bare.median())
            .at_least(0.4)
            .note(per_second.ratios_to(&of_bare)),
    ];
    let mut cpu = format!("{}; bare: {}", shares(&ours), shares(&bare));
    if context.peers.is_some() {
        rows.push(
            Row::new(&what, per_second.median(), "pairs/s")
                .against(PEER, of_peer.median())
                .at_least(0.6)
                .note(per_second.ratios_to(&of_peer)),
        );
        cpu += &format!("; {PEER}: {}", shares(&peer));
    }
    rows.push(
        Row::new(
            format!("{MANY} tasks: CPU of a pair"),
            of_a_pair(&ours),
            "us",
        )
        .against("of a bare pair", of_a_pair(&bare))
        .note(cpu),
    );
    Ok(rows.into())
}

fn of_a_pair(many: &Many) -> f64 {
    many.used.total() / many.pairs() * 1e6
}

fn shares(many: &Many) -> String {
    let [client, server] =
        [many.used.client, many.used.server].map(|used| used / many.pairs() * 1e6);
    format!("client {client:.1} us, server {server:.1} us")
}

/// Ours, the bare pair, and a peer if there are peers.
async fn measure(
    url: String,
    server: u32,
    turns: usize,
    peers: Option<Peers>,
) -> anyhow::Result<[Many; 3]> {
    let manager = connect(&url, 1).await?.remove(0);
    let bare = Bare::connect(&url).await?;
    let our_lockers: Vec<_> = (0..MANY)
        .map(|task| Ours(manager.lock(format!("bench:throughput:ours:{task}"))))
        .collect();
    let owner: Arc<str> = "0123456789abcdef0123456789abcdef:1".into();
    let bare_lockers: Vec<_> = (0..MANY)
        .map(|task| Polling {
            bare: bare.clone(),
            key: format!("bench:throughput:bare:{task}").into(),
            owner: owner.clone(),
        })
        .collect();
    let mut all = [Many::default(), Many::default(), Many::default()];
    for _ in 0..turns {
        all[0].add(load::many(&our_lockers, server).await?);
        all[1].add(load::many(&bare_lockers, server).await?);
        if let Some(peers) = &peers {
            all[2].add(peers.many(PEER, &url, server).await?);
        }
    }
    manager.shutdown().await;
    Ok(all)
}
