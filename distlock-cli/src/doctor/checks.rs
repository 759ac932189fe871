//! What the facts about a server mean for locks.

use std::time::Duration;

use distlock::__doctor::{Facts, Part};

use crate::doctor::finding::{Finding, Verdict};

/// The lease of a lock for which none is set.
const DEFAULT_LEASE: Duration = Duration::from_secs(30);

/// Older servers lack what the scripts need.
const OLDEST: (u32, u32) = (6, 2);
/// Sharded channels came with it.
const OLDEST_CLUSTER: (u32, u32) = (7, 0);
/// A clock that is further away shows wrong times.
const CLOCK: Duration = Duration::from_secs(1);
/// A memory that is fuller may soon refuse writes.
const FULL_PERCENT: u64 = 90;
/// Round trips of a store that is near, and one that stalls.
const NEAR: Duration = Duration::from_millis(5);
const STALLED: Duration = Duration::from_millis(250);
/// Messages of this size wait for a client at times: a grant has some 200 bytes.
const LEAST_BUFFER: u64 = 1 << 20;
/// The shortest lease that people use is not much longer.
const LONG_FAILOVER: u64 = 15_000;

/// The findings about one server.
pub(super) fn of(facts: &Facts) -> Vec<Finding> {
    let mut judge = Judge {
        facts,
        findings: Vec::new(),
    };
    if let Some(outage) = &facts.outage {
        judge.bad(
            "connection",
            outage,
            "see that the server runs, and that it can be reached from here",
        );
        return judge.findings;
    }
    if facts.part == Part::Sentinel {
        judge.sentinel();
        return judge.findings;
    }
    judge.latency();
    judge.clock();
    judge.rights();
    judge.version();
    judge.eviction();
    judge.memory();
    judge.clients();
    judge.persistence();
    judge.replicas();
    judge.messages();
    if facts.part == Part::Primary {
        judge.cluster();
    }
    judge.findings
}

struct Judge<'a> {
    facts: &'a Facts,
    findings: Vec<Finding>,
}

impl Judge<'_> {
    fn say(&mut self, check: &'static str, verdict: Verdict, found: String, advice: &str) {
        self.findings.push(Finding {
            server: self.facts.server.clone(),
            check,
            verdict,
            found,
            advice: advice.to_owned(),
        });
    }

    fn good(&mut self, check: &'static str, found: impl Into<String>) {
        self.say(check, Verdict::Good, found.into(), "");
    }

    fn mind(&mut self, check: &'static str, found: impl Into<String>, advice: &str) {
        self.say(check, Verdict::Mind, found.into(), advice);
    }

    fn bad(&mut self, check: &'static str, found: impl Into<String>, advice: &str) {
        self.say(check, Verdict::Bad, found.into(), advice);
    }

    fn info(&self, name: &str) -> Option<&str> {
        let info = self.facts.info.as_ref().ok()?;
        info.get(name).map(String::as_str)
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.info(name)?.parse().ok()
    }

    fn setting(&self, name: &str) -> Option<&str> {
        let settings = self.facts.settings.as_ref().ok()?;
        settings.get(name).map(String::as_str)
    }

    /// What could not be asked for, which is told once for all (`rights`).
    fn unknown(&mut self, check: &'static str, wanted: &str) {
        self.mind(
            check,
            format!("could not be asked ({wanted})"),
            "look at it by hand, or let the doctor ask as a user who may",
        );
    }

    fn rights(&mut self) {
        let facts = self.facts;
        let asked = [
            ("INFO", facts.info.as_ref().err()),
            ("CONFIG GET", facts.settings.as_ref().err()),
        ];
        let denied: Vec<_> = asked
            .into_iter()
            .filter_map(|(command, error)| Some(format!("{command}: {}", error?)))
            .collect();
        if denied.is_empty() {
            self.good("rights", "INFO and CONFIG GET may be asked");
        } else {
            self.mind(
                "rights",
                denied.join("; "),
                "locks need neither; to have all of this checked use a user with +info and +config|get",
            );
        }
    }

    fn version(&mut self) {
        let Some(version) = self.info("redis_version") else {
            return self.unknown("version", "INFO");
        };
        let mut numbers = version
            .split('.')
            .map(|number| number.parse::<u32>().unwrap_or(0));
        let is = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        let oldest = match self.facts.part {
            Part::Primary => OLDEST_CLUSTER,
            Part::Whole | Part::Voter | Part::Sentinel => OLDEST,
        };
        let shown = match self.info("valkey_version") {
            Some(valkey) => format!("Valkey {valkey}"),
            None => format!("Redis {version}"),
        };
        if is >= oldest {
            self.good("version", shown);
        } else {
            let advice = format!(
                "at least Redis {}.{} is needed, or Valkey",
                oldest.0, oldest.1
            );
            self.bad("version", shown, &advice);
        }
    }

    fn eviction(&mut self) {
        let (Some(policy), limit) = (self.info("maxmemory_policy"), self.number("maxmemory"))
        else {
            return self.unknown("eviction", "INFO");
        };
        let found = format!(
            "maxmemory-policy {policy}, maxmemory {}",
            limit.map_or("unknown".into(), bytes)
        );
        if policy == "noeviction" {
            self.good("eviction", found);
        } else if limit == Some(0) {
            self.mind(
                "eviction",
                found,
                "nothing is evicted without a limit; before one is set, CONFIG SET maxmemory-policy noeviction",
            );
        } else {
            self.bad(
                "eviction",
                found,
                "a full memory removes locks while they are held: CONFIG SET maxmemory-policy noeviction, or give locks a \
                 server of their own",
            );
        }
    }

    fn memory(&mut self) {
        let (Some(used), Some(limit)) = (self.number("used_memory"), self.number("maxmemory"))
        else {
            return;
        };
        if limit == 0 {
            return;
        }
        let percent = used.saturating_mul(100) / limit;
        let found = format!("{} of {} used ({percent} %)", bytes(used), bytes(limit));
        if percent < FULL_PERCENT {
            self.good("memory", found);
        } else {
            self.mind(
                "memory",
                found,
                "a full server refuses locks (OOM): raise maxmemory, or find out what fills it",
            );
        }
    }

    fn clients(&mut self) {
        let (Some(connected), Some(limit)) =
            (self.number("connected_clients"), self.number("maxclients"))
        else {
            return;
        };
        let found = format!("{connected} of {limit} connections");
        if connected.saturating_mul(100) < limit.saturating_mul(80) {
            self.good("clients", found);
        } else {
            self.mind(
                "clients",
                found,
                "who comes when all are taken gets no lock: raise maxclients; a manager has two connections, and one for \
                 each of its lanes",
            );
        }
    }

    fn persistence(&mut self) {
        let Some(log) = self.info("aof_enabled") else {
            return self.unknown("persistence", "INFO");
        };
        let sync = self.setting("appendfsync").unwrap_or("unknown").to_owned();
        let save = self.setting("save").filter(|save| !save.is_empty());
        let snapshots = match (&self.facts.settings, save) {
            (Err(_), _) => String::new(),
            (Ok(_), Some(save)) => format!(", save {save}"),
            (Ok(_), None) => ", no snapshots".into(),
        };
        if log != "1" {
            return self.mind(
                "persistence",
                format!("appendonly no{snapshots}"),
                "a server that starts again has forgotten locks that are held, and others may have them: have it start no sooner \
                 than the longest lease after its end, or set appendonly yes with appendfsync always",
            );
        }
        let found = format!("appendonly yes, appendfsync {sync}{snapshots}");
        if sync == "always" {
            self.good("persistence", found);
        } else {
            self.mind(
                "persistence",
                found,
                "a crash of the machine may forget the locks of its last second, or more: CONFIG SET appendfsync always if \
                 that matters",
            );
        }
    }

    fn replicas(&mut self) {
        let (Some(role), Some(connected)) = (self.info("role"), self.number("connected_slaves"))
        else {
            return self.unknown("replicas", "INFO");
        };
        if role != "master" {
            let found = format!("it is a {role}");
            return self.bad(
                "replicas",
                found,
                "locks are on the master: connect to that one",
            );
        }
        let is_online = |place: u64| {
            let line = self.info(&format!("slave{place}")).unwrap_or_default();
            line.contains("state=online")
        };
        let online = (0..connected).filter(|place| is_online(*place)).count();
        let found = format!("{online} of {connected} replicas online");
        if (online as u64) < connected {
            self.mind(
                "replicas",
                found,
                "see INFO replication, and the logs of those that are not",
            );
        } else if connected == 0 {
            self.good("replicas", "none, so no failover can forget a lock");
        } else {
            self.mind(
                "replicas",
                found,
                "a failover may forget a lock that was not copied yet: set min_replicas(n) for as many as can be promoted, and \
                 show fencing tokens to what must not be written twice",
            );
        }
    }

    fn messages(&mut self) {
        let Some(limits) = self.setting("client-output-buffer-limit") else {
            return self.unknown("messages", "CONFIG GET client-output-buffer-limit");
        };
        let words: Vec<_> = limits.split_whitespace().collect();
        let of_messages = words.windows(4).find(|words| words[0] == "pubsub");
        let numbers = of_messages.map(|words| (words[1].parse::<u64>(), words[2].parse::<u64>()));
        let Some((Ok(hard), Ok(soft))) = numbers else {
            return self.unknown("messages", "client-output-buffer-limit has no pubsub");
        };
        let shown = |limit| {
            if limit == 0 {
                "none".into()
            } else {
                bytes(limit)
            }
        };
        let found = format!(
            "output buffer limits for pubsub: hard {}, soft {}",
            shown(hard),
            shown(soft)
        );
        let is_small = |limit| limit != 0 && limit < LEAST_BUFFER;
        if is_small(hard) || is_small(soft) {
            self.mind(
                "messages",
                found,
                "a client that is slow for a moment is cut off, with its grants: CONFIG SET client-output-buffer-limit \
                 \"pubsub 33554432 8388608 60\"",
            );
        } else {
            self.good("messages", found);
        }
    }

    fn clock(&mut self) {
        let Some((ahead, uncertain)) = self.facts.clock else {
            return;
        };
        let away = Duration::from_micros(ahead.unsigned_abs());
        let direction = if ahead < 0 { "behind" } else { "ahead of" };
        let found = format!("{away:.1?} {direction} ours, give or take {uncertain:.1?}");
        if away.saturating_sub(uncertain) <= CLOCK {
            self.good("clock", found);
        } else {
            self.mind(
                "clock",
                found,
                "leases do not depend on it, but since when a lock is held is shown wrong; have both machines keep the time \
                 (NTP), without steps",
            );
        }
    }

    fn latency(&mut self) {
        let mut rounds = self.facts.rounds.clone();
        rounds.sort_unstable();
        let (Some(longest), Some(median)) = (
            rounds.last().copied(),
            rounds.get(rounds.len() / 2).copied(),
        ) else {
            return;
        };
        let found = format!(
            "{} round trips: p50 {median:.1?}, longest {longest:.1?}",
            rounds.len()
        );
        if longest > STALLED {
            self.mind(
                "latency",
                found,
                "something stalls, here, there or between: see SLOWLOG GET and LATENCY DOCTOR; leases must be much longer",
            );
        } else if median > NEAR {
            self.mind(
                "latency",
                found,
                "a lock costs two of these: bring the store nearer, or hold fewer locks for longer",
            );
        } else {
            self.good("latency", found);
        }
    }

    /// A lock is renewed at every third of its lease, so it survives an outage of two thirds of it.
    fn sentinel(&mut self) {
        let (Some(down_after), Some(quorum), Some(others)) = (
            self.number("down-after-milliseconds"),
            self.number("quorum"),
            self.number("num-other-sentinels"),
        ) else {
            return self.unknown("failover", "SENTINEL MASTER");
        };
        let service = self.info("name").unwrap_or("SERVICE").to_owned();
        let sentinels = others.saturating_add(1);
        let down_after = Duration::from_millis(down_after);
        let found = format!(
            "down-after-milliseconds {}, quorum {quorum} of {sentinels} sentinels",
            down_after.as_millis()
        );
        if quorum > sentinels {
            let advice = format!(
                "no failover can begin, because more sentinels have to agree than there are: SENTINEL SET {service} quorum {}",
                sentinels / 2 + 1
            );
            self.bad("failover", found, &advice);
        } else if down_after >= DEFAULT_LEASE * 2 / 3 {
            let advice = format!(
                "locks with a lease below {:?} are lost before a failover can begin, and {DEFAULT_LEASE:?} is the default: SENTINEL \
                 SET {service} down-after-milliseconds 5000, or choose longer leases",
                down_after.saturating_mul(3) / 2
            );
            self.mind("failover", found, &advice);
        } else if quorum == sentinels || sentinels < 3 {
            self.mind(
                "failover",
                found,
                "one sentinel that is down prevents every failover: run at least three, with a quorum of a majority",
            );
        } else {
            self.good("failover", found);
        }
    }

    fn cluster(&mut self) {
        self.coverage();
        match self.setting("cluster-allow-pubsubshard-when-down") {
            Some("no") => self.mind(
                "messages-when-down",
                "cluster-allow-pubsubshard-when-down no",
                "while the cluster is down who waits is not told of grants, and looks for them: CONFIG SET \
                 cluster-allow-pubsubshard-when-down yes",
            ),
            Some(set) => {
                let found = format!("cluster-allow-pubsubshard-when-down {set}");
                self.good("messages-when-down", found);
            }
            None => self.unknown("messages-when-down", "CONFIG GET cluster-allow-pubsubshard-when-down"),
        }
        match self.setting("cluster-node-timeout").map(|set| (set.to_owned(), set.parse::<u64>())) {
            Some((set, Ok(millis))) if millis > LONG_FAILOVER => self.mind(
                "node-timeout",
                format!("cluster-node-timeout {set}"),
                "for so long nobody takes over from a primary that is dead, and its locks are lost in the meantime: CONFIG SET \
                 cluster-node-timeout 5000, or longer leases",
            ),
            Some((set, _)) => self.good("node-timeout", format!("cluster-node-timeout {set}")),
            None => self.unknown("node-timeout", "CONFIG GET cluster-node-timeout"),
        }
    }

    fn coverage(&mut self) {
        match self.setting("cluster-require-full-coverage") {
            Some("yes") => self.mind(
                "coverage",
                "cluster-require-full-coverage yes",
                "when one shard is down no lock can be had in any: CONFIG SET cluster-require-full-coverage no on all nodes",
            ),
            Some(set) => self.good("coverage", format!("cluster-require-full-coverage {set}")),
            None => self.unknown("coverage", "CONFIG GET cluster-require-full-coverage"),
        }
    }
}

/// A size as people read it.
fn bytes(count: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let (mut shown, mut unit) = (count as f64, "bytes");
    for next in UNITS {
        if shown < 1024.0 {
            break;
        }
        (shown, unit) = (shown / 1024.0, next);
    }
    if unit == "bytes" {
        format!("{count} bytes")
    } else {
        format!("{shown:.1} {unit}")
    }
}

#[cfg(test)]
mod tests;
