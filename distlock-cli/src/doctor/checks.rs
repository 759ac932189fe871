//! Judges the facts about a server by their effect on locks.

use std::time::Duration;

use distlock::__doctor::ServerRole;

use crate::doctor::diagnostic::{Diagnostic, Severity};
use crate::doctor::facts::ServerFacts;

/// The default lease of a lock.
const DEFAULT_LEASE: Duration = Duration::from_secs(30);

/// The oldest supported server. Older ones lack features that the scripts need.
const MIN_VERSION: (u32, u32) = (6, 2);
/// The oldest supported cluster, because it introduced sharded channels.
const MIN_CLUSTER_VERSION: (u32, u32) = (7, 0);
/// Maximum clock skew. With more, the displayed times are wrong.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(1);
/// The percentage of used memory from which the server may soon refuse writes.
const MAX_MEMORY_PERCENT: u64 = 90;
/// The round trips of a nearby store, and of one that stalls.
const MAX_MEDIAN_ROUND_TRIP: Duration = Duration::from_millis(5);
const MAX_ROUND_TRIP: Duration = Duration::from_millis(250);
/// Minimum output buffer. Messages of this size may wait for a client: a grant has some 200 bytes.
const MIN_OUTPUT_BUFFER: u64 = 1 << 20;
/// Upper limit of a failover (ms). The shortest leases in use are not much longer.
const MAX_NODE_TIMEOUT: u64 = 15_000;

/// Returns the diagnostics about one server.
pub(super) fn of(facts: &ServerFacts) -> Vec<Diagnostic> {
    let mut checks = Checks {
        facts,
        diagnostics: Vec::new(),
    };
    if let Some(outage) = &facts.outage {
        checks.add(
            "connection",
            Severity::Error,
            outage,
            "check that the server runs and can be reached from this machine",
        );
    } else if let ServerRole::Sentinel { .. } = facts.role {
        checks.sentinel();
    } else {
        checks.latency();
        checks.clock();
        checks.rights();
        checks.version();
        checks.eviction();
        checks.memory();
        checks.clients();
        checks.persistence();
        checks.replicas();
        checks.messages();
        if facts.role == ServerRole::Primary {
            checks.cluster();
        }
    }
    checks.diagnostics
}

struct Checks<'a> {
    facts: &'a ServerFacts,
    diagnostics: Vec<Diagnostic>,
}

impl<'a> Checks<'a> {
    fn add(
        &mut self,
        check: &'static str,
        severity: Severity,
        message: impl Into<String>,
        help: &str,
    ) {
        self.diagnostics.push(Diagnostic {
            server: self.facts.server.clone(),
            check,
            severity,
            message: message.into(),
            help: help.to_owned(),
        });
    }

    /// Adds a diagnostic that is `Ok` or `Warning`; in the second case, with the help.
    fn expect(&mut self, is_good: bool, check: &'static str, message: String, help: &str) {
        if is_good {
            self.add(check, Severity::Ok, message, "");
        } else {
            self.add(check, Severity::Warning, message, help);
        }
    }

    fn info(&self, name: &str) -> Option<&'a str> {
        let info = self.facts.info.as_ref().ok()?;
        info.get(name).map(String::as_str)
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.info(name)?.parse().ok()
    }

    fn setting(&self, name: &str) -> Option<&'a str> {
        let settings = self.facts.settings.as_ref().ok()?;
        settings.get(name).map(String::as_str)
    }

    /// Adds a diagnostic about a missing fact. `rights` reports the reason once for all of them.
    fn unknown(&mut self, check: &'static str, wanted: &str) {
        self.add(
            check,
            Severity::Warning,
            format!("unknown: {wanted} is not available"),
            "check it by hand, or run the doctor as a user with +info and +config|get",
        );
    }

    fn rights(&mut self) {
        let commands = [
            ("INFO", &self.facts.info),
            ("CONFIG GET", &self.facts.settings),
        ];
        let denied = commands
            .into_iter()
            .filter_map(|(command, fields)| Some(format!("{command}: {}", fields.as_ref().err()?)));
        let denied: Vec<_> = denied.collect();
        let message = if denied.is_empty() {
            "INFO and CONFIG GET are permitted".into()
        } else {
            denied.join("; ")
        };
        self.expect(
            denied.is_empty(),
            "rights",
            message,
            "locks need neither; to check everything, use a user with +info and +config|get",
        );
    }

    fn version(&mut self) {
        let Some(version) = self.info("redis_version") else {
            return self.unknown("version", "INFO");
        };
        let mut numbers = version
            .split('.')
            .map(|number| number.parse::<u32>().unwrap_or(0));
        let version_numbers = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        let min_version = if self.facts.role == ServerRole::Primary {
            MIN_CLUSTER_VERSION
        } else {
            MIN_VERSION
        };
        let shown = match self.info("valkey_version") {
            Some(valkey) => format!("Valkey {valkey}"),
            None => format!("Redis {version}"),
        };
        if version_numbers >= min_version {
            return self.add("version", Severity::Ok, shown, "");
        }
        let (major, minor) = min_version;
        let help = format!("upgrade to Redis {major}.{minor} or later, or to Valkey");
        self.add("version", Severity::Error, shown, &help);
    }

    fn eviction(&mut self) {
        let Some(policy) = self.info("maxmemory_policy") else {
            return self.unknown("eviction", "INFO");
        };
        let limit = self.number("maxmemory");
        let (severity, help) = if policy == "noeviction" {
            (Severity::Ok, "")
        } else if limit == Some(0) {
            (
                Severity::Warning,
                "no key is evicted without a limit: CONFIG SET maxmemory-policy noeviction before you set one",
            )
        } else {
            (
                Severity::Error,
                "a full server evicts held locks: CONFIG SET maxmemory-policy noeviction, or use a separate server for \
                 locks",
            )
        };
        let limit = limit.map_or("unknown".into(), bytes);
        let message = format!("maxmemory-policy {policy}, maxmemory {limit}");
        self.add("eviction", severity, message, help);
    }

    fn memory(&mut self) {
        let numbers = (self.number("used_memory"), self.number("maxmemory"));
        let (Some(used), Some(limit @ 1..)) = numbers else {
            return;
        };
        let percent = used.saturating_mul(100) / limit;
        self.expect(
            percent < MAX_MEMORY_PERCENT,
            "memory",
            format!("{} of {} used ({percent} %)", bytes(used), bytes(limit)),
            "a full server rejects locks (OOM): raise maxmemory, or find out which keys fill it",
        );
    }

    fn clients(&mut self) {
        let (Some(connected), Some(limit)) =
            (self.number("connected_clients"), self.number("maxclients"))
        else {
            return;
        };
        self.expect(
            connected.saturating_mul(100) < limit.saturating_mul(80),
            "clients",
            format!("{connected} of {limit} connections"),
            "clients above the limit cannot connect: raise maxclients; a manager has two connections, and one for each \
             runtime that calls often",
        );
    }

    fn persistence(&mut self) {
        let Some(log) = self.info("aof_enabled") else {
            return self.unknown("persistence", "INFO");
        };
        let sync = self.setting("appendfsync").unwrap_or("unknown");
        let snapshots = match self.setting("save") {
            _ if self.facts.settings.is_err() => String::new(),
            None | Some("") => ", no snapshots".into(),
            Some(save) => format!(", save {save}"),
        };
        if log != "1" {
            return self.add(
                "persistence",
                Severity::Warning,
                format!("appendonly no{snapshots}"),
                "a restarted server has lost the held locks, which other clients can acquire, and the success records since \
                 its last snapshot, so that once_per and once_for run again: set appendonly yes with appendfsync always; for \
                 locks alone, it is enough to delay its restart by the longest lease",
            );
        }
        self.expect(
            sync == "always",
            "persistence",
            format!("appendonly yes, appendfsync {sync}{snapshots}"),
            "a crash of the machine can lose the locks and the success records of its last second, or more: CONFIG SET \
             appendfsync always to prevent that",
        );
    }

    fn replicas(&mut self) {
        let (Some(role), Some(connected)) = (self.info("role"), self.number("connected_slaves"))
        else {
            return self.unknown("replicas", "INFO");
        };
        if role != "master" {
            let help = "locks are stored on the primary: connect to it";
            return self.add("replicas", Severity::Error, format!("it is a {role}"), help);
        }
        if connected == 0 {
            let message = "none, so no failover can lose a lock";
            return self.add("replicas", Severity::Ok, message, "");
        }
        let is_online = |place: &u64| {
            let line = self.info(&format!("slave{place}")).unwrap_or_default();
            line.contains("state=online")
        };
        let online = (0..connected).filter(is_online).count();
        let help = if (online as u64) < connected {
            "check INFO replication, and the logs of the replicas that are not online"
        } else {
            "a failover can lose a lock that was not replicated yet: set min_replicas to the number of replicas that can \
             be promoted, and check fencing tokens in the database"
        };
        let message = format!("{online} of {connected} replicas online");
        self.add("replicas", Severity::Warning, message, help);
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
        let shown = |limit| match limit {
            0 => "none".into(),
            limit => bytes(limit),
        };
        self.expect(
            [hard, soft].iter().all(|limit| *limit == 0 || *limit >= MIN_OUTPUT_BUFFER),
            "messages",
            format!("output buffer limits for pubsub: hard {}, soft {}", shown(hard), shown(soft)),
            "the server disconnects a client that is slow for a moment, and its grants are lost: CONFIG SET \
             client-output-buffer-limit \"pubsub 33554432 8388608 60\"",
        );
    }

    fn clock(&mut self) {
        let Some((ahead, uncertain)) = self.facts.clock else {
            return;
        };
        let offset = Duration::from_micros(ahead.unsigned_abs());
        let direction = if ahead < 0 { "behind" } else { "ahead of" };
        self.expect(
            offset.saturating_sub(uncertain) <= MAX_CLOCK_SKEW,
            "clock",
            format!("{offset:.1?} {direction} the local clock, within {uncertain:.1?}"),
            "times in the output are wrong, but leases do not depend on them: synchronize both clocks (NTP), without \
             steps",
        );
    }

    fn latency(&mut self) {
        let mut round_trips = self.facts.round_trips.clone();
        round_trips.sort_unstable();
        let Some(longest) = round_trips.last() else {
            return;
        };
        let (count, median) = (round_trips.len(), round_trips[round_trips.len() / 2]);
        let help = if *longest > MAX_ROUND_TRIP {
            "this machine, the network or the server stalls: check SLOWLOG GET and LATENCY DOCTOR, and use much longer leases"
        } else {
            "a lock takes two round trips: move the store closer, or hold fewer locks for longer"
        };
        self.expect(
            *longest <= MAX_ROUND_TRIP && median <= MAX_MEDIAN_ROUND_TRIP,
            "latency",
            format!("{count} round trips: p50 {median:.1?}, longest {longest:.1?}"),
            help,
        );
    }

    /// A lock survives an outage of two thirds of its lease, because it is renewed at every third.
    fn sentinel(&mut self) {
        let (Some(down_after), Some(quorum), Some(others)) = (
            self.number("down-after-milliseconds"),
            self.number("quorum"),
            self.number("num-other-sentinels"),
        ) else {
            return self.unknown("failover", "SENTINEL MASTER");
        };
        let service = self.info("name").unwrap_or("SERVICE");
        let sentinels = others.saturating_add(1);
        let message = format!(
            "down-after-milliseconds {down_after}, quorum {quorum} of {sentinels} sentinels"
        );
        let down_after = Duration::from_millis(down_after);
        if quorum > sentinels {
            let help = format!(
                "no failover can begin, because the quorum is above the number of sentinels: SENTINEL SET {service} quorum {}",
                sentinels / 2 + 1
            );
            self.add("failover", Severity::Error, message, &help);
        } else if down_after >= DEFAULT_LEASE * 2 / 3 {
            let help = format!(
                "locks with a lease below {:?} are lost before a failover can begin, and {DEFAULT_LEASE:?} is the default: SENTINEL \
                 SET {service} down-after-milliseconds 5000, or choose longer leases",
                down_after.saturating_mul(3) / 2
            );
            self.add("failover", Severity::Warning, message, &help);
        } else {
            self.expect(
                quorum < sentinels && sentinels >= 3,
                "failover",
                message,
                "one unavailable sentinel prevents every failover: run at least three, with a majority as the quorum",
            );
        }
    }

    fn cluster(&mut self) {
        self.expect_setting(
            "coverage",
            "cluster-require-full-coverage",
            |set| set != "yes",
            "one unavailable shard stops the locks of all shards: CONFIG SET cluster-require-full-coverage no on all nodes",
        );
        self.expect_setting(
            "messages-when-down",
            "cluster-allow-pubsubshard-when-down",
            |set| set != "no",
            "while the cluster is down, waiters poll instead of being notified: CONFIG SET \
             cluster-allow-pubsubshard-when-down yes",
        );
        self.expect_setting(
            "node-timeout",
            "cluster-node-timeout",
            |set| set.parse().unwrap_or(0) <= MAX_NODE_TIMEOUT,
            "no replica replaces a dead primary before this timeout, and its locks are lost in the meantime: CONFIG SET \
             cluster-node-timeout 5000, or use longer leases",
        );
    }

    fn expect_setting(
        &mut self,
        check: &'static str,
        name: &str,
        is_good: impl Fn(&str) -> bool,
        help: &str,
    ) {
        match self.setting(name) {
            Some(set) => self.expect(is_good(set), check, format!("{name} {set}"), help),
            None => self.unknown(check, &format!("CONFIG GET {name}")),
        }
    }
}

/// Returns a size in a readable form.
fn bytes(count: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if count < 1024 {
        return format!("{count} bytes");
    }
    let (mut shown, mut unit) = (count as f64 / 1024.0, 0);
    while shown >= 1024.0 && unit < UNITS.len() - 1 {
        (shown, unit) = (shown / 1024.0, unit + 1);
    }
    format!("{shown:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests;
