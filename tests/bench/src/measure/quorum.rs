//! What a quorum of independent servers costs against one server, whether it costs more while one of its own is away, and
//! rslock over the same servers.

use std::time::Duration;

use distlock::{LockManager, LockManagerBuilder};
use distlock_tests::RedisQuorum;

use super::lockers::Ours;
use super::ways::{Course, Way};
use super::{Context, connect_by};
use crate::load;
use crate::peers::Peers;
use crate::place::Place;
use crate::report::{Findings, Row};
use crate::setting::Setting;
use crate::stats::Rounds;

const SERVERS: usize = 3;
const ONE: &str = "one server";
/// As each connection to a quorum is the manager's own.
const WITHOUT_LANES: &str = "one server without lanes";
const HEALTHY: &str = "quorum of 3";
const DEAD: &str = "quorum of 3, one dead";
const FROZEN: &str = "quorum of 3, one frozen";
const RSLOCK: &str = "rslock";

/// Of one sitting.
const ROUNDS: usize = 6;
const PAIRS: usize = 100;

pub(crate) fn run(context: &Context) -> anyhow::Result<Findings> {
    let mut rows = Vec::new();
    for setting in &context.settings {
        let server = setting.start_server()?;
        let [healthy, dead, frozen] = [started(setting)?, started(setting)?, started(setting)?];
        dead.server(SERVERS - 1).kill();
        frozen.server(SERVERS - 1).stop_process();
        let way = |name, url: String| Way {
            name,
            builder: LockManager::builder().url(url),
        };
        let without_lanes = Way {
            name: WITHOUT_LANES,
            builder: LockManager::builder().url(server.url()).lanes(0),
        };
        let ways = vec![
            way(ONE, server.url()),
            without_lanes,
            way(HEALTHY, healthy.url()),
            degraded(DEAD, &dead),
            degraded(FROZEN, &frozen),
        ];
        let course = Course::of(ways, setting, context.scale)?;
        rows.extend([
            course.pair(HEALTHY, ONE)?.at_most(2.3),
            course.pair(HEALTHY, WITHOUT_LANES)?,
            course.hand_off(HEALTHY, ONE)?.at_most(2.0),
            course.pair(DEAD, HEALTHY)?.at_most(1.5),
            course.pair(FROZEN, HEALTHY)?.at_most(1.5),
            course.hand_off(DEAD, HEALTHY)?,
            course.hand_off(FROZEN, HEALTHY)?,
        ]);
        // It would still be waited for when it is ended.
        frozen.server(SERVERS - 1).cont_process();
        if let Some(peers) = &context.peers {
            rows.push(against_rslock(context, setting, &healthy, peers)?);
        }
    }
    Ok(rows.into())
}

/// Servers that vote, as they do when they have run for long.
fn started(setting: &Setting) -> anyhow::Result<RedisQuorum> {
    let quorum = RedisQuorum::start(SERVERS);
    for place in 0..SERVERS {
        setting.place_server(quorum.server(place))?;
    }
    quorum.vote("distlock");
    Ok(quorum)
}

/// Who connects waits a moment for the server that is away.
fn degraded(name: &'static str, quorum: &RedisQuorum) -> Way {
    Way {
        name,
        builder: builder(quorum).connect_timeout(Duration::from_secs(1)),
    }
}

fn builder(quorum: &RedisQuorum) -> LockManagerBuilder {
    LockManager::builder().url(quorum.url())
}

/// In rounds that alternate with its own.
fn against_rslock(
    context: &Context,
    setting: &Setting,
    quorum: &RedisQuorum,
    peers: &Peers,
) -> anyhow::Result<Row> {
    let (mut ours, mut theirs) = (Rounds::default(), Rounds::default());
    for _ in 0..context.scale.pick(6, 1) {
        let (builder, urls) = (builder(quorum), quorum.servers_urls());
        let (peers, core) = (peers.clone(), setting.clients);
        let rounds = [ours, theirs];
        [ours, theirs] =
            Place::Task.run(core, move || sitting(rounds, builder, urls, core, peers))?;
    }
    let what = format!("acquire + release p50, {HEALTHY}, {}", setting.name);
    Ok(Row::new(what, ours.median(), "us")
        .against(format!("{RSLOCK} over the same 3"), theirs.median())
        .note(ours.ratios_to(&theirs)))
}

async fn sitting(
    [mut ours, mut theirs]: [Rounds; 2],
    builder: LockManagerBuilder,
    urls: String,
    core: Option<usize>,
    peers: Peers,
) -> anyhow::Result<[Rounds; 2]> {
    let manager = connect_by(&builder, 1).await?.remove(0);
    let locker = Ours(manager.lock("bench:quorum:pair"));
    peers.open_one(RSLOCK, Place::Task, core, &urls).await?;
    // The first round warms up.
    for round in 0..=ROUNDS {
        let pairs = load::pairs(&locker, PAIRS).await?;
        let samples = peers.pairs(RSLOCK, PAIRS).await?;
        if round > 0 {
            ours.push_median(&pairs);
            theirs.push_median(&samples);
        }
    }
    peers.close().await?;
    manager.shutdown().await;
    Ok([ours, theirs])
}
