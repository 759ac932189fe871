//! Acquires a lock: attempts it until a majority of nodes has granted it, or the caller stops.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;
use tokio::task::JoinSet;

use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::protocol::kind::Kind;
use crate::protocol::messages::{Acquire, AcquireReply, Grant, OwnerId};
use crate::protocol::rules::rule;
use crate::protocol::store_error::StoreError;
use crate::protocol::timing::Timing;
use crate::store::redis::quorum::attempt::{Attempt, QuorumHold, Token, Traces};
use crate::store::redis::quorum::commands::{NodeCommand, Refusal, VoteAction};
use crate::store::redis::quorum::grants::{AttemptFailure, AttemptStep, Grants};
use crate::store::redis::quorum::release::MIN_REST_TIMEOUT;
use crate::store::redis::quorum::{CallerState, QuorumStore, Turn};
use crate::store::{LockStore, StoreEvent, StoreResult};
use crate::util::clock::BootInstant;
use crate::util::random::Random;

/// How far the floor token is ahead of all nodes' clocks, so that no request arrives after a
/// node's clock has reached it. All nodes then give the same token.
const TOKEN_LEAD: Duration = Duration::from_millis(100);

/// The longest pause between two attempts. Calls that pause at random for up to this long rarely
/// attempt at the same time.
const MAX_PAUSE: Duration = Duration::from_millis(80);

/// The longest pause of a call that has often been too late.
const MIN_PAUSE: Duration = Duration::from_millis(6);

/// How long a failed attempt waits for its release to finish. In an outage the caller gets the
/// error before the release has finished.
const RELEASE_TIMEOUT: Duration = Duration::from_millis(100);

/// What a call wants.
#[derive(Clone)]
struct Wanted {
    caller: OwnerId,
    key: LockKey,
    timing: Timing,
    metadata: Option<Arc<str>>,
    timeout: Duration,
    started: BootInstant,
}

impl QuorumStore {
    pub(super) async fn acquire(
        self: &Arc<Self>,
        acquire: &Acquire<'_>,
        timeout: Duration,
    ) -> StoreResult<AcquireReply> {
        let wanted = Wanted {
            caller: acquire.target.owner,
            key: acquire.target.key.clone(),
            timing: acquire.target.timing,
            metadata: acquire.metadata.map(Arc::from),
            timeout,
            started: self.clock.now(),
        };
        if let Some(hold) = self.find_hold(acquire.target.owner) {
            return Ok(AcquireReply::Held(hold.proof(hold.attempt.started)));
        }
        self.register(acquire.target.owner);
        let reply = if acquire.wait.is_zero() {
            self.try_acquire(wanted).await
        } else {
            self.acquire_or_wait(&wanted, acquire.wait).await
        };
        if !matches!(reply, Ok(AcquireReply::Held(_) | AcquireReply::Queued(_))) {
            self.forget(acquire.target.owner);
        }
        reply
    }

    /// Attempts until the lock is held by this call or by another one. If each of several calls got
    /// a part of the nodes, all of them try again.
    async fn try_acquire(self: &Arc<Self>, mut wanted: Wanted) -> StoreResult<AcquireReply> {
        let mut pauses = Pauses::default();
        let timeout = wanted.timeout;
        let until = wanted.started + timeout;
        loop {
            // An attempt with hardly any time left would fail as an outage, although the lock is
            // only busy.
            wanted.timeout = until.since(self.clock.now()).max(timeout / 2);
            let failure = match self.attempt(&wanted, false).await {
                Ok(hold) => return Ok(AcquireReply::Held(hold.proof(hold.attempt.started))),
                Err(failure) => failure,
            };
            let pause = pauses.next(&failure, &*self.random);
            let has_time = self.clock.now() + pause < until;
            match failure {
                AttemptFailure::Taken {
                    by_majority: false, ..
                } if has_time => tokio::time::sleep(pause).await,
                AttemptFailure::Taken {
                    holder: Some(holder),
                    ..
                } => return Ok(AcquireReply::Busy(vec![holder])),
                AttemptFailure::Taken { holder: None, .. } => {
                    return Err(StoreError::timed_out(timeout));
                }
                AttemptFailure::KeyConflict(detail) => {
                    return Ok(AcquireReply::KeyConflict(detail));
                }
                AttemptFailure::Error(error) => return Err(error),
            }
        }
    }

    /// Attempts once, and continues in the background if others have the lock. The calls of this
    /// client take turns, so only one of them sends commands.
    async fn acquire_or_wait(
        self: &Arc<Self>,
        wanted: &Wanted,
        wait: Duration,
    ) -> StoreResult<AcquireReply> {
        let turns = self.turns_of(&wanted.key);
        let wait_until = wanted.started + wait;
        let Ok(turn) = turns.clone().try_lock_owned() else {
            self.wait_in_background(wanted.clone(), turns.lock_owned(), None, wait_until);
            let inspected = self.inspect_holder(&wanted.key, wanted.timeout).await;
            return Ok(AcquireReply::Queued(Vec::from_iter(inspected)));
        };
        match self.attempt(wanted, false).await {
            Ok(hold) => {
                self.keep_turn(wanted.caller, turn, &hold);
                Ok(AcquireReply::Held(hold.proof(hold.attempt.started)))
            }
            Err(failure @ AttemptFailure::Taken { .. }) => {
                let holder = failure.holder().cloned();
                let turn = std::future::ready(turn);
                self.wait_in_background(wanted.clone(), turn, Some(failure), wait_until);
                Ok(AcquireReply::Queued(Vec::from_iter(holder)))
            }
            Err(AttemptFailure::KeyConflict(detail)) => Ok(AcquireReply::KeyConflict(detail)),
            Err(AttemptFailure::Error(error)) => Err(error),
        }
    }

    /// Spawns the attempts of a call that waits. They end with a grant, with the wait, with the
    /// call's release, or with an error, which the call gets when it acquires again. `failure` is
    /// that of its first attempt, if there was one. Without one, the call takes over from another
    /// call of this client, and only pauses if other clients want the lock.
    fn wait_in_background(
        self: &Arc<Self>,
        wanted: Wanted,
        turn: impl Future<Output = OwnedMutexGuard<Turn>> + Send + 'static,
        mut failure: Option<AttemptFailure>,
        wait_until: BootInstant,
    ) {
        let (quorum, caller) = (self.clone(), wanted.caller);
        let waiting = self.spawn(async move {
            let turn = turn.await;
            if *turn && failure.is_none() {
                failure = Some(AttemptFailure::CONTENDED);
            }
            let mut pauses = Pauses::default();
            loop {
                if let Some(failure) = &failure {
                    tokio::time::sleep(pauses.next(failure, &*quorum.random)).await;
                }
                if quorum.clock.now() >= wait_until {
                    return;
                }
                match quorum.attempt(&wanted, pauses.lock_changes_hands).await {
                    Ok(hold) => {
                        quorum.keep_turn(wanted.caller, turn, &hold);
                        (quorum.events)(StoreEvent::Granted(Grant {
                            key: wanted.key,
                            kind: Kind::Mutex,
                            owner: wanted.caller,
                            token: FencingToken::new(hold.token),
                            granted_at: Some(hold.attempt.started),
                            lease: wanted.timing.lease,
                        }));
                        return;
                    }
                    Err(taken @ AttemptFailure::Taken { .. }) => failure = Some(taken),
                    Err(AttemptFailure::KeyConflict(_) | AttemptFailure::Error(_)) => {
                        quorum.forget(wanted.caller);
                        return;
                    }
                }
            }
        });
        self.update(caller, |acquisition| {
            acquisition.waiting = Some(waiting.abort_handle());
        });
    }

    /// Attempts once to take the lock on a majority of nodes. With `asks_one_first`, only continues
    /// if the first usable node is free.
    async fn attempt(
        self: &Arc<Self>,
        wanted: &Wanted,
        asks_one_first: bool,
    ) -> Result<QuorumHold, AttemptFailure> {
        let nodes = &self.nodes;
        if let Some(error) = self.unavailable() {
            return Err(AttemptFailure::Error(error));
        }
        let started = self.clock.now();
        let attempt = Arc::new(Attempt {
            key: wanted.key.clone(),
            owner: OwnerId(self.random.next()),
            timing: wanted.timing,
            metadata: wanted.metadata.clone(),
            floor: (self.newest_time() + TOKEN_LEAD).0,
            started,
            is_contended: AtomicBool::new(false),
            is_released: AtomicBool::new(false),
            nodes: nodes.iter().map(|_| Traces::default().into()).collect(),
        });
        let begin = |acquisition: &mut CallerState| acquisition.begin(attempt.clone());
        if self.update(wanted.caller, begin) != Some(true) {
            return Err(AttemptFailure::Error(StoreError::timed_out(wanted.timeout)));
        }
        let mut grants = Grants::new(nodes.len(), self.quorum_size);
        let send = |node, action| {
            let (quorum, attempt) = (self.clone(), attempt.clone());
            quorum.send(node, attempt, action, wanted.timeout)
        };
        let is_usable = |node: &usize| nodes[*node].unavailable().is_none();
        let first = (0..nodes.len()).find(is_usable);
        let first = first.filter(|_| asks_one_first);
        if let Some(first) = first {
            let (_, reply) = send(first, VoteAction::Acquire).await;
            if let Err(Refusal::Taken(holder)) = reply {
                return Err(AttemptFailure::Taken {
                    holder: Some(holder),
                    by_majority: false,
                });
            }
            grants.handle(first, reply);
        }
        let mut commands = JoinSet::new();
        for node in (0..nodes.len()).filter(|node| first != Some(*node)) {
            commands.spawn_on(send(node, VoteAction::Acquire), &self.runtime);
        }
        while let Some(Ok((node, reply))) = commands.join_next().await {
            grants.handle(node, reply);
            match grants.step() {
                AttemptStep::AwaitReply => {}
                AttemptStep::Confirm(token, outdated) => {
                    for node in outdated {
                        commands.spawn_on(send(node, VoteAction::Confirm(token)), &self.runtime);
                    }
                }
                AttemptStep::Held(token) => {
                    commands.detach_all();
                    let set_held = |acquisition: &mut CallerState| acquisition.token = Some(token);
                    self.update(wanted.caller, set_held);
                    return Ok(QuorumHold { attempt, token });
                }
                AttemptStep::Failed => {
                    // Whether one holder has a majority may be known only from the other replies.
                    let rest = self.clock.now().since(started) + MIN_REST_TIMEOUT;
                    let replies = async {
                        while let Some(Ok((node, reply))) = commands.join_next().await {
                            grants.handle(node, reply);
                        }
                    };
                    let _ = tokio::time::timeout(rest, replies).await;
                    break;
                }
            }
        }
        commands.detach_all();
        if rule!(released_everywhere) {
            let (quorum, timeout) = (self.clone(), wanted.timeout);
            // Continues if this call ends meanwhile.
            let releasing = self.spawn(async move {
                let released = quorum.release_attempt(&attempt, Duration::ZERO, timeout);
                // A background task releases what is still stored.
                let _ = released.await;
            });
            let _ = tokio::time::timeout(RELEASE_TIMEOUT, releasing).await;
        }
        Err(grants.failure())
    }

    /// Sends a command of an attempt to a node, after the attempt's command before. Returns the
    /// token of the lock there. Sends nothing once the attempt is being released.
    pub(super) async fn send(
        self: Arc<Self>,
        index: usize,
        attempt: Arc<Attempt>,
        action: VoteAction,
        timeout: Duration,
    ) -> (usize, Result<Token, Refusal>) {
        let node = &self.nodes[index];
        let mut traces = attempt.nodes[index].lock().await;
        if attempt.is_released.load(Ordering::Acquire) {
            return (index, Err(Refusal::Outdated));
        }
        let before = *traces;
        (traces.may_be_stored, traces.was_unanswered) = (true, true);
        let command = NodeCommand {
            attempt: &attempt,
            action,
            config: &self.config,
        };
        let reply = node.run(&command, timeout).await;
        match (action, &reply) {
            (_, Err(error)) if error.unsent => *traces = before,
            (_, Err(error)) if error.is_unanswered() => {}
            (VoteAction::Acquire, Ok(Err(Refusal::Taken(_) | Refusal::Quarantine(_)))) => {
                *traces = before;
            }
            _ => traces.was_unanswered = before.was_unanswered,
        }
        let reply = reply.unwrap_or_else(|error| Err(Refusal::Failed(error.at(node.address()))));
        let token = reply.map(|granted| {
            if granted.is_contended {
                attempt.is_contended.store(true, Ordering::Relaxed);
            }
            granted.token
        });
        (index, token)
    }

    /// Ends the wait of a caller. Its turn lasts until it releases.
    fn keep_turn(&self, caller: OwnerId, mut turn: OwnedMutexGuard<Turn>, hold: &QuorumHold) {
        *turn = hold.attempt.is_contended.load(Ordering::Relaxed);
        self.update(caller, |acquisition| {
            (acquisition.waiting, acquisition.turn) = (None, Some(turn));
        });
    }
}

/// The pauses between the attempts of one call. They grow shorter while the lock changes hands
/// without this call, and longer while one holder has it.
struct Pauses {
    longest: Duration,
    last_holder: Option<FencingToken>,
    /// Set if the last attempt found another holder than the one before. The next attempt then asks
    /// one node first, which costs less, and leaves fewer nodes divided between calls. With one
    /// holder, that node may be the only one that still has a lock of a client that has died.
    lock_changes_hands: bool,
}

impl Default for Pauses {
    fn default() -> Self {
        Pauses {
            longest: MAX_PAUSE / 2,
            last_holder: None,
            lock_changes_hands: false,
        }
    }
}

impl Pauses {
    /// Returns the pause after a failed attempt.
    fn next(&mut self, failure: &AttemptFailure, random: &dyn Random) -> Duration {
        let holder = failure.holder().map(|holder| holder.token);
        if let Some(last) = self.last_holder {
            self.lock_changes_hands = holder.is_some_and(|holder| holder != last);
            self.longest = if self.lock_changes_hands {
                (self.longest / 2).max(MIN_PAUSE)
            } else {
                (self.longest * 2).min(MAX_PAUSE)
            };
        }
        self.last_holder = holder.or(self.last_holder);
        let [random, ..] = random.next().to_be_bytes();
        let shortest = self.longest / 4;
        shortest + (self.longest - shortest) * u32::from(random) / 255
    }
}
