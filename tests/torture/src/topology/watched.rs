//! Servers under the watch of sentinels.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use distlock_tests::sentinel::Sentinels;
use distlock_tests::{RedisServer, RedisServerBuilder};

use super::{ask, user};

/// Longer than a second: for so long a sentinel may not connect to a new master, if it last tried to reach the old one just
/// before, and it takes that for silence.
const DOWN_AFTER: Duration = Duration::from_millis(1_500);

/// How much of a log is shown.
const LAST_LINES: usize = 25;

/// A master, a replica, and three sentinels.
#[derive(Debug)]
pub(crate) struct Watched {
    group: Sentinels,
    /// Which of the servers was the master when everything was last in order.
    master: AtomicUsize,
    /// A lock counts once the replica has it.
    pub(crate) acknowledged: bool,
}

impl Watched {
    /// What the sentinels call them.
    pub(crate) const SERVICE: &str = Sentinels::SERVICE;

    pub(super) fn start(server: RedisServerBuilder, acknowledged: bool) -> Self {
        // A replica is there again at once, or there would be no second failover for a while.
        let server = server.arg("--repl-diskless-sync-delay", "0");
        let sentinel = user::at_sentinel(RedisServer::builder().sentinel());
        let group = Sentinels::of(&server, &sentinel);
        group.set_down_after(DOWN_AFTER);
        let master = AtomicUsize::new(0);
        Watched {
            group,
            master,
            acknowledged,
        }
    }

    /// `redis+sentinel://...` with all of them.
    pub(super) fn url(&self, user: &str) -> String {
        let beginning = format!("redis+sentinel://{user}");
        self.group.url_of(&beginning, Sentinels::SERVICE)
    }

    /// The server that was the master when everything was last in order. (Frozen sentinels cannot be asked.)
    pub(crate) fn master(&self) -> &RedisServer {
        &self.servers()[self.master.load(Ordering::Acquire)]
    }

    pub(crate) fn replicas(&self) -> impl Iterator<Item = &RedisServer> {
        let master = self.master().port();
        let servers = self.servers().iter();
        servers.filter(move |server| server.port() != master)
    }

    pub(crate) fn servers(&self) -> &[RedisServer] {
        &self.group.servers
    }

    pub(crate) fn sentinels(&self) -> &[RedisServer] {
        &self.group.sentinels
    }

    /// Servers and sentinels.
    pub(super) fn all(&self) -> impl Iterator<Item = &RedisServer> {
        self.servers().iter().chain(self.sentinels())
    }

    /// Whether nothing of an earlier failover is left to be done.
    pub(crate) fn is_in_order(&self) -> bool {
        self.group.is_complete()
    }

    /// Whether the replicas hear of each write.
    pub(crate) fn has_replicas(&self) -> bool {
        self.group.has_replicas(self.master())
    }

    /// The ends of the logs of all servers and sentinels.
    pub(crate) fn last_words(&self) -> String {
        last_lines(self.all())
    }

    /// That the sentinels have replaced the master although nobody made them: what each of them wrote last.
    pub(crate) fn moved(&self) -> Option<String> {
        let named = self.group.master()?.port();
        (named != self.master().port()).then(|| last_lines(self.sentinels()))
    }

    /// The one that has taken the master's place, in its own eyes too.
    pub(crate) fn successor(&self) -> Option<&RedisServer> {
        self.group.another(self.master())
    }

    /// Servers and sentinels that have ended although nobody killed them: what each of them wrote last.
    pub(crate) fn ended(&self) -> Option<String> {
        let ended: Vec<_> = self.all().filter(|server| server.has_ended()).collect();
        (!ended.is_empty()).then(|| last_lines(ended))
    }

    /// From now on the old master is the successor's replica.
    pub(crate) fn succeed(&self, successor: &RedisServer) -> anyhow::Result<()> {
        follow(self.master(), successor)?;
        let servers = self.servers().iter();
        let index = servers
            .map(RedisServer::port)
            .position(|port| port == successor.port());
        self.master
            .store(index.expect("one of ours"), Ordering::Release);
        Ok(())
    }

    /// A replica that died is there again, and knows nothing.
    pub(crate) fn restart_replicas(&self) -> anyhow::Result<()> {
        for replica in self.replicas() {
            replica.restart();
            follow(replica, self.master())?;
        }
        Ok(())
    }
}

fn follow(replica: &RedisServer, master: &RedisServer) -> anyhow::Result<()> {
    let port = master.port().to_string();
    ask(replica, &["REPLICAOF", "127.0.0.1", &port]).map(drop)
}

/// The ends of the logs.
fn last_lines<'a>(of: impl IntoIterator<Item = &'a RedisServer>) -> String {
    let last = |server: &RedisServer| {
        let log = server.log();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
    };
    let each: Vec<_> = of.into_iter().map(last).collect();
    each.join("\n\n")
}
