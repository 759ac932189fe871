//! Many tasks, each on a key of its own.

use std::sync::Arc;

use distlock_tests::RedisServer;

use super::lockers::{Ours, Polling};
use super::{Context, connect, in_task, two_workers};
use crate::baseline::Bare;
use crate::load::{self, MANY, Many, PAIRS};
use crate::peers::Peers;
use crate::report::{Findings, Row};
use crate::stats::Rounds;

/// The other lock that runs under the same load.
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
        Row::new(format!("{MANY} tasks: CPU of a pair"), total(&ours), "us")
            .against("of a bare pair", total(&bare))
            .note(cpu),
    );
    Ok(rows.into())
}

/// Processor time of a pair in the client and in the server, in µs.
fn of_a_pair(many: &Many) -> [f64; 2] {
    let pairs = (many.per_second.len() * MANY * PAIRS) as f64;
    [many.used.client, many.used.server].map(|used| used / pairs * 1e6)
}

fn total(many: &Many) -> f64 {
    of_a_pair(many).iter().sum()
}

fn shares(many: &Many) -> String {
    let [client, server] = of_a_pair(many);
    format!("client {client:.1} us, server {server:.1} us")
}

fn add(sum: &mut Many, turn: Many) {
    sum.per_second.extend(turn.per_second);
    sum.used.client += turn.used.client;
    sum.used.server += turn.used.server;
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
        add(&mut all[0], load::many(&our_lockers, server).await?);
        add(&mut all[1], load::many(&bare_lockers, server).await?);
        if let Some(peers) = &peers {
            add(&mut all[2], peers.many(PEER, &url, server).await?);
        }
    }
    manager.shutdown().await;
    Ok(all)
}
