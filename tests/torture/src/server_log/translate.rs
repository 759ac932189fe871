//! What commands mean for locks.

use super::line::Line;
use crate::history::{Nanos, ServerEvent};

const LOCK: &str = "distlock:lock:";
const QUEUE: &str = "distlock:queue:";
const EPOCH: &str = "distlock:epoch";
const CHANNEL: &str = "distlock:client:";

/// What the scripts on a server are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// It decides alone.
    Single,
    /// It is a node of a quorum.
    Node,
}

/// Turns lines of MONITOR into events.
#[derive(Debug)]
pub(crate) struct Translator {
    layout: Layout,
    /// Of the client's command under way, to which those of its script belong.
    serial: u64,
}

impl Translator {
    pub(crate) fn new(layout: Layout) -> Self {
        Translator { layout, serial: 0 }
    }

    pub(crate) fn translate(&mut self, at: Nanos, line: &Line) -> Option<ServerEvent> {
        let Line { wall_us, words, .. } = line;
        let wall_us = *wall_us;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        if !line.in_script {
            self.serial += 1;
        }
        let serial = self.serial;
        let command = words.first()?.to_ascii_uppercase();
        match (command.as_str(), words.get(1..)?) {
            ("EVALSHA" | "EVAL", [_, count, rest @ ..]) if !line.in_script => {
                let keys: usize = count.parse().ok()?;
                let (keys, args) = rest.split_at_checked(keys)?;
                // The last argument of a call with keys is the number of the request.
                let args = if keys.is_empty() {
                    args
                } else {
                    args.split_last()?.1
                };
                let (verb, owner) = match self.layout {
                    Layout::Single => (verb(keys, args), args.first()),
                    Layout::Node => node_verb(keys, args),
                };
                Some(ServerEvent::Script {
                    at,
                    wall_us,
                    serial,
                    verb: verb.to_owned(),
                    owner: owner.map(|owner| (*owner).to_owned()),
                })
            }
            ("FLUSHALL" | "FLUSHDB", _) => Some(ServerEvent::Amnesia { at }),
            ("SET", [key, value, options @ ..]) => {
                let key = lock(key)?;
                let (state, value) = match self.layout {
                    Layout::Single => ("", value.strip_prefix("2 ")?),
                    Layout::Node => value.strip_prefix("3 ")?.split_once(' ')?,
                };
                let mut fields = value.split(' ');
                let owner = fields.next()?.to_owned();
                let token = fields.next()?;
                Some(ServerEvent::Set {
                    at,
                    wall_us,
                    serial,
                    key,
                    owner,
                    token: token.parse().ok()?,
                    kept: token.starts_with('0') || state == "kept",
                    vote: state == "vote",
                    until_us: until(wall_us, options),
                })
            }
            ("PEXPIRE", [key, ms]) => Some(ServerEvent::Extend {
                at,
                wall_us,
                serial,
                key: lock(key)?,
                until_us: until(wall_us, &["PX", ms]),
            }),
            ("DEL", [key]) => Some(ServerEvent::Delete {
                at,
                wall_us,
                serial,
                key: lock(key)?,
            }),
            // The mark of a grant, not an arrival.
            ("ZADD", [_, order, _]) if order.starts_with('-') => None,
            ("ZADD", [key, order, owner]) => Some(ServerEvent::Queue {
                at,
                wall_us,
                serial,
                key: plain(key, QUEUE)?,
                owner: (*owner).to_owned(),
                added: true,
                ticket: match self.layout {
                    Layout::Single => None,
                    Layout::Node => order.parse().ok(),
                },
            }),
            ("ZREM", [key, owner]) => Some(ServerEvent::Queue {
                at,
                wall_us,
                serial,
                key: plain(key, QUEUE)?,
                owner: (*owner).to_owned(),
                added: false,
                ticket: None,
            }),
            ("PUBLISH" | "SPUBLISH", [channel, message]) if channel.starts_with(CHANNEL) => {
                let (fields, message) = match (self.layout, message.split_once(' ')?) {
                    (Layout::Single, _) => (5, *message),
                    (Layout::Node, ("vote", message)) => (4, message),
                    (Layout::Node, ("held", message)) => (5, message),
                    // Others only tell of a lower ticket.
                    (Layout::Node, _) => return None,
                };
                let mut fields = message.splitn(fields, ' ');
                let owner = fields.next()?.to_owned();
                let token = fields.next()?.parse().ok()?;
                Some(ServerEvent::Publish {
                    at,
                    wall_us,
                    serial,
                    key: lock(fields.last()?)?,
                    owner,
                    token,
                })
            }
            _ => None,
        }
    }
}

/// Which script it is, by the shape of its call: its hash would not tell a saboteur's.
fn verb(keys: &[&str], args: &[&str]) -> &'static str {
    let first = args.first().copied().unwrap_or_default();
    match (keys.len(), args.len()) {
        (4, 1) if !first.contains(':') => "inspect",
        (4, 4) => "revoke",
        // `owner token`.
        (_, 2..) if first.contains(' ') => "renew",
        // The client alone, without the sequence of an owner.
        (_, 2..) if !first.contains(':') => "look",
        (4, 6) => "ask",
        (4, 3) => "release",
        (3, 2) => "confirm",
        _ => "other",
    }
}

/// The same for a node of a quorum, and whose call it is.
fn node_verb<'a, 'b>(keys: &[&str], args: &'b [&'a str]) -> (&'static str, Option<&'b &'a str>) {
    let verb = match (keys.len(), args.len()) {
        (4, 1) => "inspect",
        (4, 4) => "revoke",
        (4, 3) | (5, 4) => "release",
        (4, 6) => "yield",
        (5, 8) => "ask",
        (5, 7) => "confirm_vote",
        (5, 9) => "repair",
        // `owner token` of the first hold.
        (_, 5..) if keys[0] == EPOCH => return ("renew", args.get(3)),
        _ => "other",
    };
    (verb, args.first())
}

/// The key that the caller wrote.
fn plain(key: &str, prefix: &str) -> Option<String> {
    let tagged = key.strip_prefix(prefix)?;
    let inner = tagged.strip_prefix('{')?.strip_suffix('}')?;
    Some(inner.to_owned())
}

fn lock(key: &str) -> Option<String> {
    plain(key, LOCK)
}

/// When a key expires, in microseconds of the server's time; never is the end of time.
fn until(wall_us: u64, options: &[&str]) -> u64 {
    match options {
        [kind, ms, ..] => {
            let ms: u64 = ms.parse().unwrap_or(0);
            if kind.eq_ignore_ascii_case("PXAT") {
                ms * 1_000
            } else {
                wall_us + ms * 1_000
            }
        }
        _ => u64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use distlock::{LockGuard, LockManager};
    use distlock_tests::{RedisQuorum, RedisServer, eventually_async};

    use super::*;

    /// Waits until the watchdog prolongs a hold.
    async fn until_renewed(guard: &LockGuard) {
        let mut before = guard.remaining();
        let is_prolonged = async || {
            let remaining = guard.remaining();
            remaining > std::mem::replace(&mut before, remaining)
        };
        eventually_async(Duration::from_secs(30), is_prolonged).await;
    }

    fn translated(lines: &[String]) -> Vec<ServerEvent> {
        let mut translator = Translator::new(Layout::Single);
        let lines = lines
            .iter()
            .map(|line| Line::parse(line).unwrap_or_else(|| panic!("cannot read {line}")));
        lines
            .filter_map(|line| translator.translate(0, &line))
            .collect()
    }

    fn shown(event: &ServerEvent) -> String {
        match event {
            ServerEvent::Script { verb, .. } => verb.clone(),
            ServerEvent::Set { key, kept, .. } => format!("set {key} {kept}"),
            ServerEvent::Extend { key, .. } => format!("extend {key}"),
            ServerEvent::Delete { key, .. } => format!("delete {key}"),
            ServerEvent::Queue { key, added, .. } => format!("queue {key} {added}"),
            ServerEvent::Publish { key, .. } => format!("publish {key}"),
            ServerEvent::Amnesia { .. } => "amnesia".into(),
            ServerEvent::Gap { .. } => "gap".into(),
        }
    }

    /// The whole life of two holds, and nothing more: what the real scripts do on a real server.
    #[tokio::test]
    async fn a_hand_off_is_read_back() {
        let server = RedisServer::start();
        let manager = LockManager::connect(server.url()).await.unwrap();
        let lock = |lease| {
            let lock = manager.lock("k").wait(Duration::from_secs(10));
            lock.lease(Duration::from_millis(lease))
        };
        let monitor = server.monitor();
        let first = lock(3_000).acquire().await.unwrap();
        let first_token = first.fencing_token().get();
        let behind = lock(60_000).min_hold(Duration::from_secs(60));
        let waiting = tokio::spawn(async move { behind.acquire().await });
        while manager.inspect("k").await.unwrap().waiters == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        until_renewed(&first).await;
        first.release().await.unwrap();
        let second = waiting.await.unwrap().unwrap();
        let second_token = second.fencing_token().get();
        // What is not confirmed yet is believed for a second.
        let is_confirmed = async || second.remaining() > Duration::from_secs(2);
        eventually_async(Duration::from_secs(30), is_confirmed).await;
        second.release().await.unwrap();
        server.client().cmd(&["FLUSHALL"]);
        let events = translated(&monitor.stop());

        let mut interesting: Vec<_> = events
            .iter()
            .map(shown)
            .filter(|event| event != "inspect" && event != "look")
            .collect();
        // By hash, which the server does not know yet; then by source.
        interesting.dedup_by(|next, event| next == event && !event.contains(' '));
        let mut expected = vec!["ask", "set k false", "ask", "queue k true"];
        expected.extend(["renew", "extend k"].repeat(renewals(&interesting)));
        expected.extend(["release", "delete k", "set k false", "publish k"]);
        expected.extend(["confirm", "extend k", "queue k false"]);
        expected.extend(["release", "delete k", "set k true", "amnesia"]);
        assert_eq!(interesting, expected);

        let tokens: Vec<_> = events
            .iter()
            .filter_map(|event| match event {
                ServerEvent::Set { token, .. } | ServerEvent::Publish { token, .. } => Some(*token),
                _ => None,
            })
            .collect();
        let second = second_token;
        assert_eq!(tokens, [first_token, second, second, second]);
        // TTLs: lease and grace; then a short grant; then the rest of the shortest hold.
        let ttls: Vec<_> = events
            .iter()
            .filter_map(|event| match event {
                ServerEvent::Set {
                    until_us, wall_us, ..
                } => Some((until_us - wall_us) as f64 / 1e6),
                _ => None,
            })
            .collect();
        for (ttl, expected) in ttls.iter().zip([3.0..3.5, 1.0..1.5, 45.0..60.0]) {
            assert!(expected.contains(ttl), "{ttls:?}");
        }
        // All that a script did belongs to it.
        let published = events.iter().find_map(|event| match event {
            ServerEvent::Publish { serial, owner, .. } => Some((*serial, owner.clone())),
            _ => None,
        });
        let (serial, owner) = published.unwrap();
        let releases = |event: &ServerEvent| matches!(event, ServerEvent::Script { verb, serial: of, .. } if verb == "release" && *of == serial);
        assert!(events.iter().any(releases));
        let confirmed = events.iter().any(|event| {
            matches!(event, ServerEvent::Script { verb, owner: Some(by), .. } if verb == "confirm" && *by == owner)
        });
        assert!(confirmed);
        manager.shutdown().await;
    }

    fn renewals(events: &[String]) -> usize {
        let count = events.iter().filter(|event| *event == "renew").count();
        assert!(count >= 1, "{events:?}");
        count
    }

    /// What the real scripts do on the nodes of a quorum.
    #[tokio::test]
    async fn a_hand_off_at_a_node_is_read_back() {
        let nodes = RedisQuorum::start(3);
        nodes.vote("distlock");
        let manager = LockManager::connect(nodes.url()).await.unwrap();
        let lock = || {
            let lock = manager.lock("k").wait(Duration::from_secs(10));
            lock.lease(Duration::from_secs(3))
        };
        let monitors: Vec<_> = nodes.servers().iter().map(RedisServer::monitor).collect();
        let first = lock().acquire().await.unwrap();
        let first_token = first.fencing_token().get();
        let behind = lock();
        let waiting = tokio::spawn(async move { behind.acquire().await });
        while manager.inspect("k").await.unwrap().waiters == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        until_renewed(&first).await;
        first.release().await.unwrap();
        let second = waiting.await.unwrap().unwrap();
        let second_token = second.fencing_token().get();
        second.release().await.unwrap();
        manager.shutdown().await;
        let (mut held, mut verbs) = (Vec::new(), BTreeSet::new());
        for monitor in monitors {
            let mut translator = Translator::new(Layout::Node);
            let lines = monitor.stop();
            let lines = lines.iter().filter_map(|line| Line::parse(line));
            for event in lines.filter_map(|line| translator.translate(0, &line)) {
                match event {
                    ServerEvent::Set {
                        vote: false, token, ..
                    } => held.push(token),
                    ServerEvent::Set { .. } => drop(verbs.insert("vote".to_owned())),
                    ServerEvent::Publish { .. } => drop(verbs.insert("publish".to_owned())),
                    ServerEvent::Queue { added, ticket, .. } => {
                        assert_eq!(ticket.is_some(), added);
                        verbs.insert("queue".to_owned());
                    }
                    ServerEvent::Script { verb, owner, .. } => {
                        let is_owner = owner.is_some_and(|owner| owner.contains(':'));
                        assert_eq!(is_owner, verb != "inspect", "{verb}");
                        verbs.insert(verb);
                    }
                    _ => {}
                }
            }
        }
        for token in [first_token, second_token] {
            let had = held.iter().filter(|held| **held == token).count();
            assert!(had >= 2, "{token} of {held:?}");
        }
        let all = ["ask", "publish", "queue", "release", "renew"];
        for verb in all {
            assert!(verbs.contains(verb), "{verb} is not in {verbs:?}");
        }
    }

    #[test]
    fn scripts_are_told_apart_by_their_shape() {
        let keys = ["l", "q", "e", "f"];
        let (owner, client) = ("ab:1", "ab");
        let six = [owner, "1", "1", "1", "n", "1 1 9 ab c"];
        assert_eq!(verb(&keys, &six), "ask");
        assert_eq!(verb(&keys, &[owner, "0", "1 ab c"]), "release");
        assert_eq!(verb(&keys[..3], &[owner, "1250"]), "confirm");
        assert_eq!(verb(&keys, &["1000"]), "inspect");
        assert_eq!(verb(&keys, &["7", "0", "1 c d", "name"]), "revoke");
        assert_eq!(verb(&keys[..1], &["ab:1 7", "1250"]), "renew");
        assert_eq!(
            verb(&keys, &["ab:1 7", "1", "a", "1", "a", "1", "a", "1"]),
            "renew"
        );
        assert_eq!(verb(&[], &[client, "c"]), "look");

        // As many arguments as an ask has.
        let six = [client, "c", "1", "2", owner, owner];
        assert_eq!(verb(&keys, &six), "look");
        assert_eq!(verb(&keys, &["x:1"]), "other");
    }

    #[test]
    fn a_nodes_scripts_are_told_apart_by_their_shape() {
        let keys = ["l", "q", "e", "f", EPOCH];
        let args = ["ab:1"; 9];
        for (keys, count, verb) in [
            (&keys[..4], 3, "release"),
            (&keys[..], 4, "release"),
            (&keys[..4], 6, "yield"),
            (&keys[..], 8, "ask"),
            (&keys[..], 7, "confirm_vote"),
            (&keys[..], 9, "repair"),
        ] {
            assert_eq!(node_verb(keys, &args[..count]).0, verb);
        }
    }
}
