//! Acquires a lock: attempts it until a majority of nodes has granted it, or the caller stops.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;
use tokio::task::JoinSet;

use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::protocol::messages::{Acquire, AcquireReply, Grant, OwnerNumber, Proof};
use crate::protocol::store_error::StoreError;
use crate::protocol::timing::Timing;
use crate::store::StoreEvent;
use crate::store::redis::quorum::attempt::{Attempt, Token};
use crate::store::redis::quorum::commands::{AcquireOnNode, ConfirmOnNode, Refusal};
use crate::store::redis::quorum::grants::{Failure, Grants, Step};
use crate::store::redis::quorum::{Acquisition, Quorum};
use crate::util::clock::BootInstant;
use crate::util::mutex::lock;

/// How far the floor token is ahead of all nodes' clocks (µs), so that no request arrives after a
/// node's clock has reached it. All nodes then give the same token.
const TOKEN_LEAD_MICROS: u64 = 100_000;

/// The shortest pause between two attempts, and the longest one of a call that has just begun to
/// wait. The longest pause shrinks while the call waits, so that calls that have waited longer are
/// more likely to be next.
const MIN_PAUSE: Duration = Duration::from_millis(10);
const MAX_PAUSE: Duration = Duration::from_millis(80);

/// What a call wants.
#[derive(Clone)]
struct Wanted {
    caller: OwnerNumber,
    key: LockKey,
    timing: Timing,
    metadata: Option<Arc<str>>,
    timeout: Duration,
    started: BootInstant,
}

impl Quorum {
    pub(super) async fn acquire(
        self: &Arc<Self>,
        acquire: Acquire<'_>,
        timeout: Duration,
    ) -> Result<AcquireReply, StoreError> {
        let wanted = Wanted {
            caller: acquire.owner,
            key: acquire.key.clone(),
            timing: acquire.timing,
            metadata: acquire.metadata.map(Arc::from),
            timeout,
            started: self.clock.now(),
        };
        if let Some(hold) = self.find_hold(acquire.owner) {
            return Ok(AcquireReply::Held(hold.proof()));
        }
        lock(&self.acquisitions).entry(acquire.owner).or_default();
        let reply = if acquire.wait.is_zero() {
            self.try_acquire(&wanted).await
        } else {
            self.acquire_or_wait(&wanted, acquire.wait).await
        };
        if !matches!(reply, Ok(AcquireReply::Held(_) | AcquireReply::Queued(_))) {
            self.forget(acquire.owner);
        }
        reply
    }

    /// Attempts until the lock is held by this call or by another one. If each of several calls got
    /// a part of the nodes, all of them try again.
    async fn try_acquire(self: &Arc<Self>, wanted: &Wanted) -> Result<AcquireReply, StoreError> {
        loop {
            let failure = match self.attempt(wanted).await {
                Ok(proof) => return Ok(AcquireReply::Held(proof)),
                Err(failure) => failure,
            };
            let pause = self.pause(wanted);
            let has_time = self.clock.now() + pause < wanted.started + wanted.timeout;
            match failure {
                Failure::Taken {
                    by_majority: false, ..
                } if has_time => tokio::time::sleep(pause).await,
                Failure::Taken {
                    holder: Some(holder),
                    ..
                } => return Ok(AcquireReply::Busy(vec![holder])),
                Failure::Taken { holder: None, .. } => {
                    return Err(StoreError::timed_out(wanted.timeout));
                }
                Failure::KeyConflict(detail) => return Ok(AcquireReply::KeyConflict(detail)),
                Failure::Error(error) => return Err(error),
            }
        }
    }

    /// Attempts once, and continues in the background if others have the lock. The calls of this
    /// client take turns, so only one of them sends commands.
    async fn acquire_or_wait(
        self: &Arc<Self>,
        wanted: &Wanted,
        wait: Duration,
    ) -> Result<AcquireReply, StoreError> {
        let turns = self.turns_of(&wanted.key);
        let wait_until = wanted.started + wait;
        let Ok(turn) = turns.clone().try_lock_owned() else {
            let turn = async move { turns.lock_owned().await };
            self.wait_in_background(wanted.clone(), turn, wait_until);
            let inspected = self.inspect_holder(&wanted.key, wanted.timeout).await;
            return Ok(AcquireReply::Queued(Vec::from_iter(inspected)));
        };
        match self.attempt(wanted).await {
            Ok(proof) => {
                self.keep_turn(wanted.caller, turn);
                Ok(AcquireReply::Held(proof))
            }
            Err(Failure::Taken { holder, .. }) => {
                let turn = std::future::ready(turn);
                self.wait_in_background(wanted.clone(), turn, wait_until);
                Ok(AcquireReply::Queued(Vec::from_iter(holder)))
            }
            Err(Failure::KeyConflict(detail)) => Ok(AcquireReply::KeyConflict(detail)),
            Err(Failure::Error(error)) => Err(error),
        }
    }

    /// Spawns the attempts of a call that waits. They end with a grant, with the wait, with the
    /// call's release, or with an error, which the call gets when it acquires again.
    fn wait_in_background(
        self: &Arc<Self>,
        wanted: Wanted,
        turn: impl Future<Output = OwnedMutexGuard<()>> + Send + 'static,
        wait_until: BootInstant,
    ) {
        let (quorum, caller) = (self.clone(), wanted.caller);
        let waiting = self.spawn(async move {
            let turn = turn.await;
            loop {
                tokio::time::sleep(quorum.pause(&wanted)).await;
                if quorum.clock.now() >= wait_until {
                    return;
                }
                match quorum.attempt(&wanted).await {
                    Ok(proof) => {
                        quorum.keep_turn(wanted.caller, turn);
                        (quorum.events)(StoreEvent::Granted(Grant {
                            key: wanted.key,
                            is_counted: false,
                            owner: wanted.caller,
                            token: proof.token,
                            granted_at: Some(proof.sent_at),
                            lease: wanted.timing.lease,
                        }));
                        return;
                    }
                    Err(Failure::Taken { .. }) => {}
                    Err(Failure::KeyConflict(_) | Failure::Error(_)) => {
                        quorum.forget(wanted.caller);
                        return;
                    }
                }
            }
        });
        if let Some(acquisition) = lock(&self.acquisitions).get_mut(&caller) {
            acquisition.waiting = Some(waiting.abort_handle());
        }
    }

    /// Attempts once to take the lock on a majority of nodes.
    async fn attempt(self: &Arc<Self>, wanted: &Wanted) -> Result<Proof, Failure> {
        let nodes = &self.nodes;
        if let Some(error) = nodes.unavailable() {
            return Err(Failure::Error(error));
        }
        let started = self.clock.now();
        let attempt = Arc::new(Attempt::new(
            wanted.key.clone(),
            self.random.next(),
            wanted.timing,
            wanted.metadata.clone(),
            nodes.newest_time() + TOKEN_LEAD_MICROS,
            (started, nodes.all.len()),
        ));
        let begin = |acquisition: &mut Acquisition| acquisition.begin(attempt.clone());
        if self.update(wanted.caller, begin) != Some(true) {
            return Err(Failure::Error(StoreError::timed_out(wanted.timeout)));
        }
        let mut grants = Grants::new(nodes.all.len(), nodes.quorum_size, self.rules);
        let mut commands = JoinSet::new();
        for node in 0..nodes.all.len() {
            let acquiring = self
                .clone()
                .acquire_on(node, attempt.clone(), wanted.timeout);
            commands.spawn_on(acquiring, &self.runtime);
        }
        while let Some(Ok((node, reply))) = commands.join_next().await {
            grants.handle(node, reply);
            match grants.step() {
                Step::AwaitReply => {}
                Step::Confirm(token, outdated) => {
                    for node in outdated {
                        let (quorum, attempt) = (self.clone(), attempt.clone());
                        let confirming = quorum.confirm_on(node, attempt, token, wanted.timeout);
                        commands.spawn_on(confirming, &self.runtime);
                    }
                }
                Step::Held(token) => {
                    commands.detach_all();
                    let set_held = |acquisition: &mut Acquisition| acquisition.token = Some(token);
                    self.update(wanted.caller, set_held);
                    return Ok(Proof {
                        sent_at: started,
                        token: FencingToken::new(token),
                    });
                }
                Step::Failed => break,
            }
        }
        commands.detach_all();
        if self.rules.released_everywhere {
            let (quorum, timeout) = (self.clone(), wanted.timeout);
            // Continues if this call ends meanwhile.
            let releasing = self.spawn(async move {
                let released = quorum.release_attempt(&attempt, Duration::ZERO, timeout);
                // A background task releases what is still stored.
                let _ = released.await;
            });
            let _ = releasing.await;
        }
        Err(grants.failure())
    }

    async fn acquire_on(
        self: Arc<Self>,
        node: usize,
        attempt: Arc<Attempt>,
        timeout: Duration,
    ) -> (usize, Result<Option<Token>, Refusal>) {
        let acquire = AcquireOnNode {
            attempt: &attempt,
            config: &self.config,
        };
        let reply = attempt
            .run((node, &self.nodes.all[node]), &acquire, timeout)
            .await;
        let reply = match reply {
            Some(Ok(granted)) => granted.map(Some),
            Some(Err(error)) => Err(Refusal::Failed(error)),
            None => Err(Refusal::Outdated),
        };
        (node, reply)
    }

    async fn confirm_on(
        self: Arc<Self>,
        node: usize,
        attempt: Arc<Attempt>,
        token: Token,
        timeout: Duration,
    ) -> (usize, Result<Option<Token>, Refusal>) {
        let confirm = ConfirmOnNode {
            attempt: &attempt,
            token,
            repairs: false,
            config: &self.config,
        };
        let reply = attempt
            .run((node, &self.nodes.all[node]), &confirm, timeout)
            .await;
        let reply = match reply {
            Some(Ok(true)) => Ok(None),
            Some(Ok(false)) | None => Err(Refusal::Outdated),
            Some(Err(error)) => Err(Refusal::Failed(error)),
        };
        (node, reply)
    }

    /// Ends the wait of a caller, whose turn lasts until it releases.
    fn keep_turn(&self, caller: OwnerNumber, turn: OwnedMutexGuard<()>) {
        self.update(caller, |acquisition| {
            (acquisition.waiting, acquisition.turn) = (None, Some(turn));
        });
    }

    /// Returns the pause before the next attempt.
    fn pause(&self, wanted: &Wanted) -> Duration {
        let waited = self.clock.now().since(wanted.started);
        let longest = MAX_PAUSE.saturating_sub(waited / 4).max(2 * MIN_PAUSE);
        let [random, ..] = self.random.next().to_be_bytes();
        MIN_PAUSE + (longest - MIN_PAUSE) * u32::from(random) / 255
    }
}
