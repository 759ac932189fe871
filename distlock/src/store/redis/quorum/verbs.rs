//! What is said to one node of a quorum, and what it answers (see `lua/quorum/README.md`).

use std::time::Duration;

use redis::Cmd;

use crate::error::Outage;
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::protocol::timing::Timing;
use crate::protocol::trouble::{Code, Trouble, one_line};
use crate::protocol::words::{Inspected, Occupant, Owner, ReleaseReply};
use crate::store::client_id::ClientId;
use crate::store::command::{Inspect, Release};
use crate::store::redis::conn::client::Shared;
use crate::store::redis::conn::session::Session;
use crate::store::redis::node::Node;
use crate::store::redis::node::unanswered::Carrier;
use crate::store::redis::quorum::candidate::{Heard, Token};
use crate::store::redis::quorum::terms::Terms;
use crate::store::redis::wire::decode;
use crate::store::redis::wire::encode::millis;
use crate::store::redis::wire::reply::{self, Reply};
use crate::store::redis::wire::scripts::VoteScripts;
use crate::store::redis::wire::trouble;
use crate::util::clock::Moment;

/// Who asks for what.
#[derive(Clone, Debug)]
pub(super) struct Asks {
    pub(super) key: LockKey,
    /// What the nodes know it by: what was taken back once is never asked for again.
    pub(super) owner: Owner,
    pub(super) ticket: u64,
    pub(super) timing: Timing,
}

/// What an ask heard, and who has the lock there instead.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) heard: Heard,
    pub(super) seen: Seen,
}

/// How a node sees the lock that was not given.
#[derive(Clone, Debug, Default)]
pub(super) enum Seen {
    #[default]
    Nothing,
    /// Somebody has its vote, or holds it there.
    Occupied {
        by: Occupant,
        is_held: bool,
    },
    Full,
    Foreign(String),
    /// It does not vote before that time of its own (µs), which is so long away.
    NotVoting(Duration),
}

/// What became of a hold that was to be renewed at a node.
#[derive(Clone, Debug)]
pub(super) enum Kept {
    Ours,
    /// Nobody has it there: it may be repaired.
    Free,
    NotOurs,
    /// It was taken away.
    Revoked,
    Trouble(Trouble),
}

impl Node {
    fn votes(&self) -> Result<&VoteScripts, Trouble> {
        let scripts = self.shared.scripts.votes.as_ref();
        scripts.ok_or_else(|| Trouble::new(Outage::Other, "it is no node of a quorum"))
    }

    fn run<'a>(session: &'a Session, terms: &Terms) -> Result<&'a str, Trouble> {
        if terms.nodes_remember() {
            return Ok("-");
        }
        session.server.as_deref().ok_or_else(|| {
            Trouble::new(
                Outage::Denied,
                "the user needs INFO: whether the server was restarted must be known",
            )
        })
    }

    /// Its time, as far as is known.
    pub(super) fn time(&self) -> Option<u64> {
        let shared = &*self.shared;
        shared.server_time.least(shared.clock.now())
    }

    pub(super) async fn ask_vote(
        &self,
        asks: &Asks,
        named: Option<Token>,
        wait: Duration,
        terms: &Terms,
        within: Duration,
    ) -> Result<Answer, Trouble> {
        let (shared, votes) = (&*self.shared, self.votes()?);
        let session = self.commands.session()?;
        let run = Self::run(&session, terms)?;
        let mut pending = self
            .unanswered
            .ask(asks.owner, Carrier::Home(session.epoch));
        let asked = self.call(&self.commands, &session, &[], within, |by| {
            let apply_by = shared.server_time.latest(shared.clock.now(), within);
            pending.is_sent(apply_by);
            let mut cmd = votes.ask.by(by);
            all(&mut cmd, shared, &asks.key, 5);
            let settings = &shared.settings;
            cmd.arg(owner(&session.client, asks.owner))
                .arg(asks.ticket)
                .arg(millis(asks.timing.ttl()))
                .arg(format!("{apply_by:016}"))
                .arg(millis(settings.fence_ttl))
                .arg(&settings.name)
                .arg(format!(
                    "{} {} {} {} {run} {} {}",
                    millis(asks.timing.lease),
                    millis(wait),
                    settings.max_waiters,
                    millis(terms.quarantine()),
                    session.client.as_str(),
                    shared.names.channels(&asks.key),
                ))
                .arg(named.unwrap_or(0));
            cmd
        });
        let (sent, answer) = match asked.await {
            Ok(answered) => answered,
            Err(refusal) if refusal.code == Code::Foreign => {
                pending.is_answered();
                return Ok(Answer {
                    heard: Heard::NotVoting,
                    seen: Seen::Foreign(refusal.detail),
                });
            }
            Err(refusal) => return Err(refusal),
        };
        pending.is_answered();
        let mut reply = Reply::list(answer)?;
        let (verdict, at) = (reply.int()?, reply.int()?);
        shared.server_time.hear(sent, at, shared.clock.now());
        read_ask(&session.client, sent, at, verdict, &mut reply)
    }

    pub(super) async fn yield_vote(
        &self,
        asks: &Asks,
        token: Token,
        wait: Duration,
        within: Duration,
    ) -> Result<Heard, Trouble> {
        let (shared, votes) = (&*self.shared, self.votes()?);
        let session = self.commands.session()?;
        let yielded = self.call(&self.commands, &session, &[], within, |by| {
            let mut cmd = votes.yields.by(by);
            shared.names.all(&mut cmd, &asks.key);
            let settings = &shared.settings;
            cmd.arg(owner(&session.client, asks.owner))
                .arg(token)
                .arg(asks.ticket)
                .arg(format!(
                    "{} {} {}",
                    millis(asks.timing.lease),
                    millis(asks.timing.ttl()),
                    settings.name
                ))
                .arg(millis(wait))
                .arg(format!(
                    "{} {} {}",
                    millis(settings.fence_ttl),
                    session.client.as_str(),
                    shared.names.channels(&asks.key),
                ));
            cmd
        });
        yielded.await?;
        Ok(Heard::Yielded)
    }

    pub(super) async fn confirm_vote(
        &self,
        asks: &Asks,
        token: Token,
        terms: &Terms,
        within: Duration,
    ) -> Result<Heard, Trouble> {
        let (shared, votes) = (&*self.shared, self.votes()?);
        let session = self.commands.session()?;
        let run = Self::run(&session, terms)?;
        let confirmed = self.call(&self.commands, &session, &[], within, |by| {
            let mut cmd = votes.confirm.by(by);
            all(&mut cmd, shared, &asks.key, 5);
            cmd.arg(owner(&session.client, asks.owner))
                .arg(token)
                .arg(millis(asks.timing.ttl()))
                .arg(millis(shared.settings.fence_ttl))
                .arg(asks.ticket)
                .arg(millis(terms.quarantine()))
                .arg(run);
            cmd
        });
        let (sent, answer) = confirmed.await?;
        let mut reply = Reply::list(answer)?;
        let verdict = reply.int()?;
        shared
            .server_time
            .hear(sent, reply.int()?, shared.clock.now());
        Ok(match verdict {
            1 => Heard::Confirmed {
                token: reply.token()?.get(),
                sent,
            },
            2 => Heard::Newer {
                token: reply.token()?.get(),
            },
            _ => Heard::Refused,
        })
    }

    /// Takes back whatever the owner has there. The next one has it at once with the token that is
    /// named, unless the node may have forgotten something.
    pub(super) async fn release_vote(
        &self,
        asks: &Asks,
        keep: Duration,
        named: Option<Token>,
        terms: &Terms,
        within: Duration,
    ) -> Result<ReleaseReply, Trouble> {
        let next = |session: &Session| {
            let (named, run) = (named?, Self::run(session, terms).ok()?);
            let quarantine = millis(terms.quarantine());
            Some(format!("{named} {} {quarantine} {run}", asks.ticket))
        };
        let release = Release {
            key: &asks.key,
            owner: asks.owner,
            keep,
        };
        self.hand_on(&release, next, within).await
    }

    /// Extends what is held there; what became of each, in their order.
    pub(super) async fn renew_votes(
        &self,
        holds: &[(Asks, Token)],
        terms: &Terms,
        within: Duration,
    ) -> Result<Vec<Kept>, Trouble> {
        let (shared, votes) = (&*self.shared, self.votes()?);
        let session = self.renewals.session()?;
        let run = Self::run(&session, terms)?;
        let id = shared.id();
        let newest = holds.iter().map(|(asks, _)| asks.ticket).max();
        let renewed = self.call(&self.renewals, &session, &[], within, |by| {
            let mut cmd = votes.renew.by(by);
            cmd.arg(holds.len() + 1).arg(&shared.names.epoch);
            for (asks, _) in holds {
                cmd.arg(shared.names.lock(&asks.key));
            }
            cmd.arg(run)
                .arg(millis(terms.quarantine()))
                .arg(newest.unwrap_or(0));
            for (asks, token) in holds {
                cmd.arg(format!("{} {token}", owner(&id, asks.owner)))
                    .arg(millis(asks.timing.ttl()));
            }
            cmd
        });
        let (_, answer) = renewed.await?;
        let mut kept = vec![Kept::Ours; holds.len()];
        let mut reply = Reply::list(answer)?;
        while let Some(failure) = reply.next() {
            let mut failure = Reply::list(failure)?;
            let place = usize::try_from(failure.int()?).unwrap_or(usize::MAX);
            let kept = kept
                .get_mut(place)
                .ok_or_else(|| reply::nonsense("a hold that was not renewed"))?;
            *kept = match &*failure.text()? {
                "" => Kept::NotOurs,
                "FREE" => Kept::Free,
                "REVOKED" => Kept::Revoked,
                error => Kept::Trouble(trouble::of_text(error)),
            };
        }
        Ok(kept)
    }

    pub(super) async fn inspect_votes(
        &self,
        key: &LockKey,
        waiters: usize,
        within: Duration,
    ) -> Result<Inspected, Trouble> {
        let shared = &*self.shared;
        let session = self.commands.session()?;
        let encoder = shared.encoder(&session.client);
        let inspected = self.call(&self.commands, &session, &[], within, |by| {
            encoder.inspect(by, &Inspect { key, waiters })
        });
        let (sent, answer) = match inspected.await {
            Err(refusal) if refusal.code == Code::Foreign => {
                return Ok(Inspected {
                    is_foreign: true,
                    ..Inspected::default()
                });
            }
            inspected => inspected?,
        };
        let mut reply = Reply::list(answer)?;
        let at = reply.int()?;
        shared.server_time.hear(sent, at, shared.clock.now());
        let value = reply.text()?;
        let left = reply.signed()?;
        let waiters = reply.int()?;
        let last = reply.text()?;
        let is_there = reply.int()? == 1;
        let seen = seen(&session.client, &value, decode::ends_at(at, left));
        Ok(Inspected {
            is_foreign: is_there && matches!(seen, Seen::Nothing),
            holder: match seen {
                Seen::Occupied { by, is_held: true } => Some(by),
                _ => None,
            },
            left: decode::left_of(left),
            waiters,
            waiting: decode::waiting(&session.client, &mut reply)?,
            last_token: last.parse().ok().map(FencingToken::new),
        })
    }

    /// Takes a vote that is free for a hold that was lost there.
    pub(super) async fn repair_vote(
        &self,
        asks: &Asks,
        token: Token,
        terms: &Terms,
        within: Duration,
    ) -> Result<(), Trouble> {
        let (shared, votes) = (&*self.shared, self.votes()?);
        let session = self.commands.session()?;
        let run = Self::run(&session, terms)?;
        let mut pending = self
            .unanswered
            .ask(asks.owner, Carrier::Home(session.epoch));
        let repaired = self.call(&self.commands, &session, &[], within, |by| {
            let apply_by = shared.server_time.latest(shared.clock.now(), within);
            pending.is_sent(apply_by);
            let mut cmd = votes.repair.by(by);
            all(&mut cmd, shared, &asks.key, 5);
            cmd.arg(owner(&session.client, asks.owner))
                .arg(token)
                .arg(asks.ticket)
                .arg(millis(asks.timing.ttl()))
                .arg(format!("{apply_by:016}"))
                .arg(millis(shared.settings.fence_ttl))
                .arg(&shared.settings.name)
                .arg(run)
                .arg(millis(terms.quarantine()));
            cmd
        });
        repaired.await?;
        pending.is_answered();
        Ok(())
    }
}

/// Reads the reply to an ask behind its verdict.
fn read_ask(
    client: &ClientId,
    sent: Moment,
    at: u64,
    verdict: u64,
    reply: &mut Reply,
) -> Result<Answer, Trouble> {
    let heard = |heard| Answer {
        heard,
        seen: Seen::Nothing,
    };
    Ok(match verdict {
        1 => {
            let token = reply.token()?.get();
            heard(match reply.int()? {
                1 => Heard::Confirmed { token, sent },
                _ => Heard::Granted { token, at },
            })
        }
        2 => heard(Heard::Yours {
            token: reply.token()?.get(),
            lower: reply.int()? == 1,
            at,
        }),
        3 => {
            let value = reply.text()?;
            let kept_until = decode::kept_until(at, reply)?;
            Answer {
                heard: Heard::Queued { at },
                seen: seen(client, &value, kept_until),
            }
        }
        4 => heard(Heard::Unanswered),
        5 => Answer {
            heard: Heard::NotVoting,
            seen: Seen::Foreign(trouble::FOREIGN_VALUE.to_owned()),
        },
        6 => Answer {
            heard: Heard::NotVoting,
            seen: Seen::Full,
        },
        7 => Answer {
            heard: Heard::NotVoting,
            seen: Seen::NotVoting(Duration::from_micros(reply.int()?.saturating_sub(at))),
        },
        other => return Err(reply::nonsense(&format!("verdict {other}"))),
    })
}

/// A lock's four keys, and the one of the node itself.
fn all(cmd: &mut Cmd, shared: &Shared, key: &LockKey, count: usize) {
    cmd.arg(count);
    shared.names.each(cmd, key);
    cmd.arg(&shared.names.epoch);
}

fn owner(client: &ClientId, owner: Owner) -> String {
    format!("{}:{owner}", client.as_str())
}

/// Reads `3 state owner token ticket ttl since name` of a lock that ends at `ends_at`.
fn seen(client: &ClientId, value: &str, ends_at: Option<u64>) -> Seen {
    let read = || {
        let mut fields = value.strip_prefix("3 ")?.splitn(7, ' ');
        let state = fields.next()?;
        let (this_process, ours) = client.recognise(fields.next()?);
        let mut number = || fields.next()?.parse().ok();
        let (token, _ticket, _ttl, since) = (number()?, number()?, number()?, number()?);
        Some(Seen::Occupied {
            by: Occupant {
                ours,
                this_process,
                token: FencingToken::new(token),
                since,
                kept_until: ends_at.filter(|_| state == "kept"),
                name: one_line(fields.next()?.to_owned()),
            },
            is_held: state != "vote",
        })
    };
    read().unwrap_or_default()
}
