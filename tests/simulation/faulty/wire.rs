//! One connection of a client, as both ends see it.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard};

use tokio::sync::{Notify, oneshot};

use super::fault::Fault;
use super::network::Millis;
use super::op::{Answer, Op};
use crate::error::Outage;
use crate::mutex::lock;
use crate::protocol::trouble::Trouble;
use crate::protocol::words::Owner;

/// What a command's caller gets: the answer, and the server's time when it was given, µs.
pub(super) type Answered = Result<(Answer, u64), Trouble>;

/// Which of a client's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Commands,
    Renewals,
}

/// A connection and its successors.
#[derive(Debug)]
pub(super) struct Wire {
    state: Mutex<State>,
    /// Not a `watch`, which wakes in an order of its own choice.
    changed: Notify,
}

#[derive(Debug)]
pub(super) struct State {
    /// Counts the connections; the client uses this one.
    pub(super) epoch: u64,
    pub(super) up: bool,
    /// The server applies nothing more of connections up to this one.
    pub(super) dead: u64,
    /// It swallows everything.
    pub(super) silent: bool,
    /// A PING is under way.
    pub(super) tested: bool,
    pub(super) closed: bool,
    last_request: Millis,
    last_reply: Millis,
    by_owner: BTreeMap<Owner, Millis>,
    calls: u64,
    unanswered: BTreeMap<u64, oneshot::Sender<Answered>>,
}

/// What becomes of one message.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fate {
    pub(super) request: Option<Fault>,
    pub(super) reply: Option<Fault>,
    pub(super) request_takes: Millis,
    pub(super) reply_takes: Millis,
}

impl Wire {
    pub(super) fn new() -> Self {
        Wire {
            state: Mutex::new(State {
                epoch: 1,
                up: true,
                dead: 0,
                silent: false,
                tested: false,
                closed: false,
                last_request: 0,
                last_reply: 0,
                by_owner: BTreeMap::new(),
                calls: 0,
                unanswered: BTreeMap::new(),
            }),
            changed: Notify::new(),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// The client notices that the connection is gone: nothing on it will be answered.
    pub(super) fn drop_connection(&self, detail: &str) {
        let unanswered = {
            let mut state = self.state();
            state.up = false;
            state.tested = false;
            std::mem::take(&mut state.unanswered)
        };
        self.changed.notify_waiters();
        for (_, caller) in unanswered {
            // Who does not wait any more is not told.
            let _ = caller.send(Err(Trouble::new(Outage::Unreachable, detail)));
        }
    }

    /// There is a new connection.
    pub(super) fn replace_connection(&self, now: Millis) {
        {
            let mut state = self.state();
            state.epoch += 1;
            state.up = true;
            state.silent = false;
            state.last_request = now;
            state.last_reply = now;
            state.by_owner.clear();
        }
        self.changed.notify_waiters();
    }

    /// Resolves when there is a connection, or never will be one.
    pub(super) async fn ready(&self) {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            {
                let state = self.state();
                if state.up || state.closed {
                    return;
                }
            }
            changed.await;
        }
    }
}

impl State {
    pub(super) fn call(&mut self) -> (u64, oneshot::Receiver<Answered>) {
        let (caller, answer) = oneshot::channel();
        self.calls += 1;
        self.unanswered.insert(self.calls, caller);
        (self.calls, answer)
    }

    pub(super) fn answer(&mut self, call: u64) -> Option<oneshot::Sender<Answered>> {
        self.unanswered.remove(&call)
    }

    /// When a request arrives: not before its predecessors on the connection. One that is overtaken
    /// still keeps its place among those of the same owners.
    pub(super) fn request_arrives(&mut self, op: &Op, earliest: Millis, overtaken: bool) -> Millis {
        let owners = op.owners();
        let of_owners = owners.iter().filter_map(|owner| self.by_owner.get(owner));
        let mut arrives = of_owners.copied().fold(earliest, Millis::max);
        if !overtaken {
            arrives = arrives.max(self.last_request);
            self.last_request = arrives;
        }
        for owner in owners {
            self.by_owner.insert(owner, arrives);
        }
        arrives
    }

    /// When a reply, or a pushed message, arrives: in order.
    pub(super) fn reply_arrives(&mut self, earliest: Millis) -> Millis {
        self.last_reply = self.last_reply.max(earliest);
        self.last_reply
    }
}
