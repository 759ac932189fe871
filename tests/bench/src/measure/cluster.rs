//! What a cluster costs, and whether it costs more the more nodes it has.

use distlock::LockManager;
use distlock_tests::RedisCluster;

use super::Context;
use super::ways::{Course, Way};
use crate::report::Findings;
use crate::setting::Setting;

const STANDALONE: &str = "standalone";
/// As each connection to a cluster is the manager's own.
const WITHOUT_LANES: &str = "standalone without lanes";
const ONE: &str = "cluster of 1";
const SIX: &str = "cluster of 6";

pub(crate) fn run(context: &Context) -> anyhow::Result<Findings> {
    let mut rows = Vec::new();
    for setting in &context.settings {
        let server = setting.start_server()?;
        let [one, six] = [started(1, setting)?, started(6, setting)?];
        let way = |name, url: String| Way {
            name,
            builder: LockManager::builder().url(url),
        };
        let without_lanes = Way {
            name: WITHOUT_LANES,
            builder: LockManager::builder().url(server.url()).lanes(0),
        };
        let ways = vec![
            way(STANDALONE, server.url()),
            without_lanes,
            way(ONE, one.url()),
            way(SIX, six.url()),
        ];
        let course = Course::of(ways, setting, context.scale)?;
        rows.extend([
            course.pair(SIX, STANDALONE)?,
            course.pair(SIX, WITHOUT_LANES)?,
            course.pair(SIX, ONE)?,
            course.hand_off(SIX, STANDALONE)?,
            course.hand_off(SIX, ONE)?.at_most(1.2),
        ]);
    }
    Ok(rows.into())
}

fn started(masters: u16, setting: &Setting) -> anyhow::Result<RedisCluster> {
    let cluster = RedisCluster::start(masters);
    for node in cluster.nodes() {
        setting.place_server(node)?;
    }
    Ok(cluster)
}
