//! I5: nobody touches another's lock.
//!
//! A lock that has not expired is deleted or replaced only by a script that acts for its owner. Others may
//! cut its time short (a clamp after a backward step of the clock), never prolong it. What `min_hold` keeps
//! is prolonged by nobody. A renewal writes no lock at all: it could bring one back.

use crate::check::evidence::{Finding, Id, Violation};
use crate::check::run::{Key, Run};
use crate::check::spans::Span;
use crate::check::truth::{Live, Script, Truth};
use crate::history::Nanos;

/// The server decides by a clock that it reads as the script begins, in whole milliseconds.
const ROUNDING_US: u64 = 5_000;

/// What a script did to a lock that was not its own.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Breach {
    pub(crate) at: Nanos,
    pub(crate) key: Key,
    pub(crate) verb: String,
    pub(crate) by: String,
    pub(crate) holder: String,
    pub(crate) token: u64,
    pub(crate) what: &'static str,
}

/// By the time of the command, not of the line that names its script: the clock may step between the two.
fn expired(live: &Live, wall_us: u64) -> bool {
    live.until_us.0 < wall_us + ROUNDING_US
}

/// The owner that a script acts for. A renewal names the token as well.
fn actor(script: &Script) -> Option<&str> {
    script.owner.as_deref()?.split(' ').next()
}

fn renews(script: &Script) -> bool {
    script.verb == "renew" || script.owner.as_deref().is_some_and(|o| o.contains(' '))
}

fn same_client(one: &str, other: &str) -> bool {
    one.split(':').next() == other.split(':').next()
}

/// A hold over several nodes takes back a vote that another has at one of them, and has not confirmed.
fn may_take(script: &Script, live: &Live) -> bool {
    script.verb == "repair" && live.vote
}

pub(crate) fn may_set(
    script: &Script,
    live: Option<&Live>,
    holder: &str,
    wall_us: u64,
) -> Option<&'static str> {
    if renews(script) || script.verb == "confirm" {
        return Some("a renewal or confirmation wrote a lock");
    }
    let live = live?;
    let foreign = actor(script).is_some_and(|actor| actor != holder);
    (foreign && !expired(live, wall_us) && !may_take(script, live))
        .then_some("another's lock was replaced")
}

pub(crate) fn may_delete(
    script: &Script,
    live: &Live,
    holder: &str,
    wall_us: u64,
) -> Option<&'static str> {
    let foreign = actor(script).is_some_and(|actor| actor != holder);
    (foreign && !expired(live, wall_us) && !may_take(script, live))
        .then_some("another's lock was deleted")
}

pub(crate) fn may_extend(
    script: &Script,
    live: &Live,
    holder: &str,
    until_us: u64,
) -> Option<&'static str> {
    if until_us <= live.until_us.1 + ROUNDING_US {
        return None;
    }
    if live.kept {
        return Some("a lock kept by min_hold was prolonged");
    }
    let actor = actor(script)?;
    // A renewal is a batch; only its first hold is named.
    let own = if renews(script) {
        same_client(actor, holder)
    } else {
        actor == holder
    };
    (!own).then_some("another's lock was prolonged")
}

pub(crate) fn check(run: &Run, truth: &Truth) -> Finding {
    let mut finding = Finding::new(Id::I5);
    finding.checked = truth.writes;
    for breach in &truth.breaches {
        finding.violation(run, || Violation {
            key: run.keys.name(breach.key).to_owned(),
            span: Span::new(breach.at, breach.at),
            ops: Vec::new(),
            tokens: vec![breach.token],
            what: format!(
                "{} by `{}` for {}; the holder was {}",
                breach.what, breach.verb, breach.by, breach.holder
            ),
        });
    }
    finding
}

#[cfg(test)]
mod tests {
    use crate::check::testing::Server;

    fn breaches(server: Server) -> Vec<&'static str> {
        let (truth, _) = server.replay();
        truth.breaches.iter().map(|b| b.what).collect()
    }

    #[test]
    fn owners_and_expiry_may() {
        let mut server = Server::default();
        server.take(10, "k", "a:1", 100, 100);
        server.extend(20, "k", "renew", "a:1 100", 300);
        server.keep(30, "k", "a:1", 100, 50);
        server.take(100, "k", "b:1", 101, 50); // kept until 80
        server.take(200, "k", "c:1", 102, 50); // until 150
        server.take(247, "k", "d:1", 103, 50); // until 250, give or take a few ms
        assert!(breaches(server).is_empty());
    }

    #[test]
    fn a_repair_may_take_a_vote_and_no_hold() {
        for (is_vote, expected) in [(true, 0), (false, 1)] {
            let mut server = Server::default();
            if is_vote {
                server.vote(10, "k", "a:1", 100, 1_000);
            } else {
                server.set_by(10, "k", "confirm_vote", "a:1", "a:1", 100, 1_000);
            }
            server.script(20, "repair", "b:1");
            server.delete(20, "k");
            server.set(20, "k", "b:1", 101, false, 1_000);
            assert_eq!(breaches(server).len(), expected, "{is_vote}");
        }
    }

    #[test]
    fn a_clamp_may() {
        let mut server = Server::default();
        server.take(10, "k", "a:1", 100, 1000);
        server.extend(20, "k", "look", "b", 300);
        assert!(breaches(server).is_empty());
    }

    #[test]
    fn the_clock_may_step_as_a_script_begins() {
        for (ahead_ms, expected) in [(5_000, 0), (0, 1)] {
            let mut server = Server::default();
            server.take(10, "k", "a:1", 100, 100);
            server.script(20, "release", "b:1");
            server.ahead_ms = ahead_ms;
            server.delete(20, "k");
            assert_eq!(breaches(server).len(), expected, "{ahead_ms}");
        }
    }

    #[test]
    fn what_expired_by_a_clock_that_was_ahead_may_be_replaced() {
        for (at, expected) in [(700, 0), (400, 1)] {
            let mut server = Server {
                ahead_ms: 400,
                ..Server::default()
            };
            // Until 1000 by the clock that is ahead, which is at 600.
            server.take(100, "k", "a:1", 100, 500);
            server.ahead_ms = 0;
            server.take(at, "k", "b:1", 101, 500);
            assert_eq!(breaches(server).len(), expected, "{at}");
        }
    }

    #[test]
    fn a_foreign_release_may_not() {
        let mut server = Server::default();
        server.take(10, "k", "a:1", 100, 100);
        server.release(20, "k", "b:1");
        assert_eq!(breaches(server), ["another's lock was deleted"]);
    }

    #[test]
    fn a_lock_is_not_replaced() {
        let mut server = Server::default();
        server.take(10, "k", "a:1", 100, 100);
        server.take(20, "k", "b:1", 101, 100);
        assert_eq!(breaches(server), ["another's lock was replaced"]);
    }

    #[test]
    fn a_renewal_writes_no_lock() {
        let mut server = Server::default();
        server.take(10, "k", "a:1", 100, 100);
        server.set_by(50, "k", "renew", "a:1 100", "a:1", 100, 100);
        assert_eq!(breaches(server), ["a renewal or confirmation wrote a lock"]);
    }

    #[test]
    fn nobody_prolongs_anothers_or_a_kept_lock() {
        let mut server = Server::default();
        server.take(10, "k", "a:1", 100, 100);
        server.extend(20, "k", "renew", "b:1 99", 300);
        server.extend(25, "k", "confirm", "a:2", 500);
        server.keep(30, "k", "a:1", 100, 100);
        server.extend(40, "k", "confirm", "a:1", 300);
        assert_eq!(
            breaches(server),
            [
                "another's lock was prolonged",
                "another's lock was prolonged",
                "a lock kept by min_hold was prolonged"
            ]
        );
    }
}
