//! Asks a server about itself, over the connection for commands. Whatever it does not tell is left
//! out: none of these commands is needed for locks.

use std::collections::BTreeMap;
use std::time::Duration;

use redis::{Cmd, from_redis_value};

use crate::error::Outage;
use crate::protocol::trouble::Trouble;
use crate::store::facts::{Facts, Part, outage};
use crate::store::redis::conn::session::Session;
use crate::store::redis::node::Node;
use crate::store::redis::wire::reply::nonsense;

/// How many round trips are measured.
const ROUNDS: usize = 20;

/// The settings that matter to locks, and are not in `INFO`. Before Redis 7 each has to be asked
/// for by itself.
const SETTINGS: &[&str] = &["appendfsync", "save", "client-output-buffer-limit"];

/// The same, of the nodes of a cluster.
const CLUSTER_SETTINGS: &[&str] = &[
    "cluster-require-full-coverage",
    "cluster-allow-pubsubshard-when-down",
    "cluster-node-timeout",
];

impl Node {
    /// What this server says about itself; each command may take `within`.
    pub(crate) async fn facts(&self, part: Part, within: Duration) -> Facts {
        // One that is used for the first time is being connected to.
        let _ = tokio::time::timeout(within, self.ready()).await;
        let session = match self.commands.session() {
            Ok(session) => session,
            Err(trouble) => return Facts::out_of_reach(self.address(), part, &trouble),
        };
        let mut facts = Facts {
            server: self.address().to_owned(),
            part,
            outage: None,
            info: (self.info(&session, within).await).map_err(|trouble| trouble.detail),
            settings: (self.settings(&session, part, within).await)
                .map_err(|trouble| trouble.detail),
            rounds: Vec::with_capacity(ROUNDS),
            clock: None,
        };
        for _ in 0..ROUNDS {
            match self.round(&session, within).await {
                Ok((took, ahead)) => {
                    // The fastest answer tells the time best.
                    if facts.rounds.iter().all(|other| took < *other) {
                        facts.clock = Some((ahead, took / 2));
                    }
                    facts.rounds.push(took);
                }
                Err(trouble) => {
                    facts.outage = Some(outage(&trouble));
                    break;
                }
            }
        }
        facts
    }

    async fn info(
        &self,
        session: &Session,
        within: Duration,
    ) -> Result<BTreeMap<String, String>, Trouble> {
        let info: String = self.told(session, &["INFO"], within).await?;
        let fields = info.lines().filter_map(|line| line.split_once(':'));
        Ok(fields
            .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
            .collect())
    }

    async fn settings(
        &self,
        session: &Session,
        part: Part,
        within: Duration,
    ) -> Result<BTreeMap<String, String>, Trouble> {
        let of_cluster = match part {
            Part::Primary => CLUSTER_SETTINGS,
            Part::Whole | Part::Voter | Part::Sentinel => &[],
        };
        let mut settings = BTreeMap::new();
        for name in SETTINGS.iter().chain(of_cluster) {
            let words = ["CONFIG", "GET", name];
            let told: BTreeMap<String, String> = self.told(session, &words, within).await?;
            settings.extend(told);
        }
        Ok(settings)
    }

    /// How long a round trip takes, and how far the server's clock is ahead of ours.
    async fn round(&self, session: &Session, within: Duration) -> Result<(Duration, i64), Trouble> {
        let clock = &self.shared.clock;
        let wall = clock.wall_micros();
        let call = self.call(&self.commands, session, &[], within, |_| redis::cmd("TIME"));
        let (sent, answer) = call.await?;
        let took = clock.now().since(sent);
        let (seconds, micros): (u64, u64) =
            from_redis_value(answer).map_err(|_| nonsense("something that is not a time"))?;
        let there = seconds.saturating_mul(1_000_000).saturating_add(micros);
        let half = u64::try_from(took.as_micros() / 2).unwrap_or(u64::MAX);
        let here = wall.saturating_add(half);
        let ahead = i128::from(there) - i128::from(here);
        let ahead = ahead.clamp(i64::MIN.into(), i64::MAX.into());
        Ok((took, i64::try_from(ahead).unwrap_or_default()))
    }

    async fn told<T: redis::FromRedisValue>(
        &self,
        session: &Session,
        words: &[&str],
        within: Duration,
    ) -> Result<T, Trouble> {
        // One that reads commands may end the connection for a word that it does not know.
        if !session.connection.has_pushes() {
            let why = "a proxy stands before it, which is not asked for such things";
            return Err(Trouble::new(Outage::Unsupported, why));
        }
        let call = self.call(&self.commands, session, &[], within, |_| {
            let mut command = Cmd::new();
            command.arg(words);
            command
        });
        let (_, answer) = call.await?;
        from_redis_value(answer).map_err(|_| nonsense("something that is not what was asked for"))
    }
}
