//! The driver of one owner's votes: sends its `VoteState`'s commands, and feeds it the replies.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::fencing::FencingToken;
use crate::protocol::messages::{Grant, HolderView, OwnerNumber, ReleaseReply};
use crate::protocol::rules::Rules;
use crate::protocol::store_error::StoreError;
use crate::store::redis::quorum::config::QuorumConfig;
use crate::store::redis::quorum::node_commands::{
    LockView, ReleaseVote, VoteCommand, VoteReply, VoteRequest,
};
use crate::store::redis::quorum::nodes::QuorumNodes;
use crate::store::redis::quorum::vote_state::{
    NodeCommand, NodeEvent, QuorumHold, Token, VoteState,
};
use crate::store::{BoxFuture, EventSink, StoreEvent};
use crate::util::clock::{BootInstant, Clock};
use crate::util::mutex::lock;

/// How far a token is ahead of all nodes' clocks (µs). A node that receives a request later than
/// this votes with a larger token of its own. Once a quorum has confirmed the smaller token, that
/// vote is not confirmed, so only the quorum stores the hold.
const TOKEN_LEAD_MICROS: u64 = 100_000;

/// The state shared by all acquisitions of a client.
pub(super) struct QuorumContext {
    pub(super) nodes: QuorumNodes,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) quorum_config: QuorumConfig,
    pub(super) rules: Rules,
    pub(super) events: EventSink,
    /// The runtime that sends all commands, regardless of the caller's.
    pub(super) runtime: Handle,
}

impl QuorumContext {
    /// Returns a token that all nodes can accept at once.
    pub(super) fn next_token(&self) -> Token {
        self.nodes.newest_time().unwrap_or(0) + TOKEN_LEAD_MICROS
    }

    /// Spawns work on the runtime that sends commands, boxed like the executor's work.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        let work: BoxFuture<'static, ()> = Box::pin(work);
        self.runtime.spawn(work)
    }
}

/// The votes for one owner, from its first request to its release.
#[derive(Debug)]
pub(super) struct QuorumAcquisition {
    /// The owner id of the caller. The nodes know the acquisition by `request.owner`.
    pub(super) caller: OwnerNumber,
    pub(super) request: VoteRequest,
    state: Mutex<State>,
    pub(super) changed: Notify,
}

#[derive(Debug)]
struct State {
    votes: VoteState,
    views: Vec<LockView>,
    wait_until: BootInstant,
    last_error: Option<StoreError>,
    /// The nodes on which a background task releases the acquisition.
    background_releases: Vec<bool>,
    /// The reply to the caller was that it is queued, so an event reports the hold.
    is_queued: bool,
}

/// The progress of a vote.
#[derive(Debug)]
pub(super) enum Progress {
    Held(QuorumHold),
    /// Fewer nodes than a quorum are usable.
    NoQuorum,
    /// No command is in flight.
    Idle,
    InFlight,
}

impl QuorumAcquisition {
    pub(super) fn new(
        context: &QuorumContext,
        caller: OwnerNumber,
        request: VoteRequest,
        wait_until: BootInstant,
    ) -> Arc<Self> {
        let (nodes, quorum_size) = (context.nodes.all.len(), context.nodes.quorum_size);
        let votes = VoteState::new(nodes, quorum_size, request.timing.lease, context.rules);
        Arc::new(QuorumAcquisition {
            caller,
            request,
            state: Mutex::new(State {
                votes,
                views: vec![LockView::Unknown; nodes],
                wait_until,
                last_error: None,
                background_releases: vec![false; nodes],
                is_queued: false,
            }),
            changed: Notify::new(),
        })
    }

    /// Requests all missing votes for a caller that waits for the reply, not for a push.
    pub(super) fn begin_acquire(&self, wait_until: BootInstant) {
        let mut state = lock(&self.state);
        (state.wait_until, state.is_queued) = (wait_until, false);
        state.votes.allow_requests();
    }

    /// Requests all missing votes again.
    pub(super) fn allow_requests(&self) {
        lock(&self.state).votes.allow_requests();
    }

    pub(super) fn progress(&self) -> Progress {
        let state = lock(&self.state);
        if let Some(hold) = state.votes.hold() {
            Progress::Held(hold)
        } else if state.votes.lacks_quorum() {
            Progress::NoQuorum
        } else if state.votes.is_idle() {
            Progress::Idle
        } else {
            Progress::InFlight
        }
    }

    /// Marks the caller as queued, unless the lock is already held. Returns true if it was marked.
    pub(super) fn mark_queued(&self) -> bool {
        let mut state = lock(&self.state);
        state.is_queued = state.votes.hold().is_none();
        state.is_queued
    }

    /// Returns the owner that most nodes report as the holder, and whether they are a quorum. If no
    /// node reports a holder, returns any owner that has a node's vote.
    pub(super) fn occupancy(&self, quorum_size: usize) -> (Option<HolderView>, bool) {
        let state = lock(&self.state);
        let occupied = state.views.iter().filter_map(|view| match view {
            LockView::Occupied { holder, is_held } => Some((holder, *is_held)),
            _ => None,
        });
        // Several owners can each have been granted the lock on some nodes without holding it.
        let held_by = |other: &HolderView| {
            let holds = occupied
                .clone()
                .filter(|(holder, is_held)| *is_held && holder.is_same(other));
            holds.count()
        };
        let most_frequent = occupied.clone().max_by_key(|(holder, _)| held_by(holder));
        let Some((holder, _)) = most_frequent else {
            return (None, false);
        };
        (Some(holder.clone()), held_by(holder) >= quorum_size)
    }

    /// Returns why a quorum cannot be reached, or `None` if enough usable nodes may still vote.
    /// An obstacle that passes by itself carries the time until enough nodes vote.
    pub(super) fn obstacle(&self, quorum_size: usize) -> Option<LockView> {
        let state = lock(&self.state);
        let (mut voting, mut durations, mut other) = (0, Vec::new(), None);
        for (node, view) in state.views.iter().enumerate() {
            match view {
                _ if !state.votes.is_usable(node) => {}
                LockView::NotVoting(remaining) => durations.push(*remaining),
                LockView::Full | LockView::KeyConflict(_) => other = other.or(Some(view)),
                LockView::Unknown | LockView::Occupied { .. } => voting += 1,
            }
        }
        let missing = quorum_size.saturating_sub(voting).checked_sub(1)?;
        durations.sort_unstable();
        let enough = durations.get(missing).or(match other {
            Some(_) => None,
            None => durations.last(),
        });
        enough
            .map(|remaining| LockView::NotVoting(*remaining))
            .or(other.cloned())
    }

    /// Returns the latest error.
    pub(super) fn last_error(&self) -> Option<StoreError> {
        lock(&self.state).last_error.clone()
    }

    /// Stops requesting votes.
    pub(super) fn stop(&self) {
        lock(&self.state).votes.stop();
    }

    /// Handles an unsolicited message from a node.
    pub(super) fn handle_push(
        self: &Arc<Self>,
        context: &Arc<QuorumContext>,
        node: usize,
        event: NodeEvent,
    ) {
        let now = context.clock.now();
        lock(&self.state).votes.handle_event(node, event, now);
        self.drive(context);
    }

    /// Sends the pending commands, and publishes the hold if the caller is queued.
    pub(super) fn drive(self: &Arc<Self>, context: &Arc<QuorumContext>) {
        let now = context.clock.now();
        let mut commands = Vec::new();
        let hold = {
            let mut state = lock(&self.state);
            state.votes.set_min_token(context.next_token());
            for (node, server) in context.nodes.all.iter().enumerate() {
                let is_usable = server.unavailable().is_none();
                state.votes.set_usable(node, is_usable);
                if let Some(command) = state.votes.next_command(node, now) {
                    commands.push((node, command, state.wait_until.since(now)));
                }
            }
            let hold = state.votes.hold();
            hold.filter(|_| std::mem::take(&mut state.is_queued))
        };
        for (node, command, wait) in commands {
            let (acquisition, context) = (self.clone(), context.clone());
            context
                .clone()
                .spawn(async move { acquisition.run(&context, node, command, wait).await });
        }
        if let Some(hold) = hold {
            (context.events)(StoreEvent::Granted(Grant {
                key: self.request.key.clone(),
                is_counted: false,
                owner: self.caller,
                token: FencingToken::new(hold.token),
                granted_at: Some(hold.sent_at),
                lease: hold.lease,
            }));
        }
        self.changed.notify_waiters();
    }

    async fn run(
        self: &Arc<Self>,
        context: &Arc<QuorumContext>,
        node: usize,
        command: NodeCommand,
        wait: Duration,
    ) {
        let server = &context.nodes.all[node];
        let vote = VoteCommand {
            request: &self.request,
            command,
            wait,
            quorum_config: &context.quorum_config,
        };
        let timeout = self.request.timing.command_timeout();
        let reply = server.run(None, &vote, timeout).await;
        {
            let mut state = lock(&self.state);
            let event = match reply {
                Ok(VoteReply { event, view }) => {
                    if let Some(view) = view {
                        state.views[node] = view;
                    }
                    event
                }
                Err(error) => {
                    state.last_error = Some(error.at(server.address()));
                    NodeEvent::NoReply
                }
            };
            let now = context.clock.now();
            state.votes.handle_reply(node, event, now);
        }
        self.drive(context);
    }

    /// Reserves a node for a repair. Returns false if the node may no longer be repaired.
    pub(super) fn start_repair(&self, node: usize) -> bool {
        lock(&self.state).votes.start_repair(node)
    }

    /// Ends a repair, whether or not the node replied.
    pub(super) fn finish_repair(self: &Arc<Self>, context: &Arc<QuorumContext>, node: usize) {
        lock(&self.state).votes.finish_repair(node);
        self.drive(context);
    }

    /// Waits until no command is in flight to a node.
    async fn wait_idle(&self, node: usize) {
        loop {
            let changed = self.changed.notified();
            if !lock(&self.state).votes.is_in_flight(node) {
                return;
            }
            changed.await;
        }
    }

    /// Releases what a node stores, which hands the lock to the next waiter with the token
    /// `next_token`. Returns `None` if the node never received a request.
    pub(super) async fn release_on(
        self: Arc<Self>,
        context: Arc<QuorumContext>,
        node: usize,
        keep_for: Duration,
        next_token: Option<Token>,
        timeout: Duration,
    ) -> Option<Result<ReleaseReply, StoreError>> {
        self.wait_idle(node).await;
        if !lock(&self.state).votes.may_store(node) {
            return None;
        }
        let release = ReleaseVote {
            request: &self.request,
            keep_for,
            next_token,
            quorum_config: &context.quorum_config,
        };
        let server = &context.nodes.all[node];
        Some(server.release(self.request.owner, &release, timeout).await)
    }

    /// Marks a node for release in the background. Returns false if it already was.
    pub(super) fn mark_background_release(&self, node: usize) -> bool {
        !std::mem::replace(&mut lock(&self.state).background_releases[node], true)
    }

    /// Returns the time after which no node can store state for this acquisition.
    pub(super) fn expires_at(&self, now: BootInstant) -> BootInstant {
        let ttl = now + self.request.timing.ttl();
        ttl.max(lock(&self.state).wait_until + Duration::from_secs(2))
    }
}
