//! One connection with both ends.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, Weak};

use redis::{Cmd, RedisResult, Value};
use tokio::sync::oneshot;

use super::fault::Fault;
use super::network::Millis;
use super::site::{Role, Site};
use super::wire::{self, Reply, Request, Run};
use crate::protocol::messages::{Grant, OwnerId};
use crate::store::BoxFuture;
use crate::store::client_id::ClientId;
use crate::store::redis::transport::{ConnectionEvent, ConnectionEventHandler, OpenConnection};
use crate::util::sync::lock;

/// The caller that waits for the replies to requests sent together.
type Caller = oneshot::Sender<RedisResult<Vec<Reply>>>;
type Answers = oneshot::Receiver<RedisResult<Vec<Reply>>>;

/// A connection, from its acceptance until nothing of it is in flight.
pub(super) struct Wire {
    site: Weak<Site>,
    pub(super) number: u64,
    on_event: ConnectionEventHandler,
    state: Mutex<State>,
}

struct State {
    /// The purpose of the connection, once a request shows it.
    role: Option<Role>,
    /// Set while the connection is open at the client.
    here: bool,
    /// Set while the connection is open at the server.
    there: bool,
    /// Set if the connection swallows everything.
    silent: bool,
    last_request: Millis,
    last_reply: Millis,
    by_owner: BTreeMap<OwnerId, Millis>,
    activity: u64,
    calls: u64,
    unanswered: BTreeMap<u64, Caller>,
}

/// The faults and latencies of a request and its reply.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fate {
    pub(super) request: Option<Fault>,
    pub(super) reply: Option<Fault>,
    pub(super) request_takes: Millis,
    pub(super) reply_takes: Millis,
}

/// Requests that are sent together.
#[derive(Clone, Debug)]
pub(super) struct Sent(pub(super) Vec<Request>);

impl Sent {
    pub(super) fn op(&self) -> Option<&super::op::Op> {
        match &self.0[..] {
            [
                Request::Run {
                    what: Run::Op(_, op),
                    ..
                },
            ] => Some(op),
            _ => None,
        }
    }

    /// Returns the purpose of a connection, if this is the first request that shows it.
    fn role(&self) -> Option<Role> {
        if let [Request::Subscribe(_)] | [.., Request::Info { all: true }] = self.0[..] {
            return Some(Role::Commands);
        }
        self.op().map(|op| match op {
            super::op::Op::Renew(_) => Role::Renewals,
            _ => Role::RuntimeConnection,
        })
    }
}

impl Wire {
    pub(super) fn new(
        site: &Arc<Site>,
        number: u64,
        on_event: ConnectionEventHandler,
    ) -> Arc<Self> {
        let now = site.network.now();
        Arc::new(Wire {
            site: Arc::downgrade(site),
            number,
            on_event,
            state: Mutex::new(State {
                role: None,
                here: true,
                there: true,
                silent: false,
                last_request: now,
                last_reply: now,
                by_owner: BTreeMap::new(),
                activity: 0,
                calls: 0,
                unanswered: BTreeMap::new(),
            }),
        })
    }

    pub(super) fn is_for(&self, role: Role) -> bool {
        let state = lock(&self.state);
        state.here && state.role == Some(role)
    }

    /// Returns true for a runtime connection, even after the client has closed it.
    pub(super) fn is_runtime_connection(&self) -> bool {
        lock(&self.state).role == Some(Role::RuntimeConnection)
    }

    pub(super) fn is_silent(&self) -> bool {
        let state = lock(&self.state);
        state.here && state.silent
    }

    pub(super) fn is_over(&self) -> bool {
        let state = lock(&self.state);
        !state.here && !state.there
    }

    pub(super) fn becomes_silent(&self) {
        lock(&self.state).silent = true;
    }

    /// Ends the connection at the server: nothing more is applied. Returns false if it had ended.
    pub(super) fn ends_there(&self) -> bool {
        std::mem::replace(&mut lock(&self.state).there, false)
    }

    /// Ends the connection at the client: no request on it will be answered.
    pub(super) fn ends_here(&self, why: &str) {
        let unanswered = {
            let mut state = lock(&self.state);
            if !std::mem::replace(&mut state.here, false) {
                return;
            }
            std::mem::take(&mut state.unanswered)
        };
        for (_, caller) in unanswered {
            // A caller that no longer waits is not notified.
            let _ = caller.send(Err(gone(why)));
        }
        (self.on_event)(ConnectionEvent::End(None));
    }

    /// Discards the client's end without any notice, because its process has been killed.
    pub(super) fn forgets(&self) {
        let unanswered = {
            let mut state = lock(&self.state);
            state.here = false;
            std::mem::take(&mut state.unanswered)
        };
        drop(unanswered);
    }

    /// Sends requests. They stay sent even if the caller is dropped.
    fn send(self: &Arc<Self>, sent: Vec<Request>) -> Answers {
        let sent = Sent(sent);
        let (caller, answer) = oneshot::channel();
        let mut state = lock(&self.state);
        let (Some(site), true) = (self.site.upgrade(), state.here) else {
            // Cannot fail, because `answer` is the receiver.
            let _ = caller.send(Err(gone("no connection")));
            return answer;
        };
        state.role = state.role.or_else(|| sent.role());
        state.calls += 1;
        let call = state.calls;
        state.unanswered.insert(call, caller);
        let fate = site.fate(&sent);
        if state.silent || fate.request == Some(Fault::DroppedRequest) {
            return answer;
        }
        let overtaken = fate.request == Some(Fault::Reorder);
        let earliest = site.after(fate.request_takes);
        let arrives = state.request_arrives(&sent, earliest, overtaken);
        let wire = self.clone();
        site.network
            .at(arrives, move || wire.arrived(call, &sent, fate));
        answer
    }

    /// Handles a request that arrives at the server.
    fn arrived(self: &Arc<Self>, call: u64, sent: &Sent, fate: Fate) {
        {
            let state = lock(&self.state);
            if !state.there || state.silent {
                return;
            }
        }
        let Some(site) = self.site.upgrade() else {
            return;
        };
        let serve = || -> Vec<Reply> {
            let requests = sent.0.iter();
            requests.map(|request| site.serve(self, request)).collect()
        };
        let mut replies = serve();
        if fate.request == Some(Fault::Duplicate) {
            replies = serve();
        }
        // The fault phase may have ended since the request was sent.
        let fate = match fate.reply {
            Some(_) if site.server.conditions.is_calm() => Fate {
                reply: None,
                reply_takes: site.latency(),
                ..fate
            },
            _ => fate,
        };
        if let (Some(fault), Some(op)) = (fate.reply, sent.op()) {
            site.fault(fault, format_args!("{op:?}, takes {}", fate.reply_takes));
            if fault == Fault::DroppedReply {
                return;
            }
        }
        let arrives = lock(&self.state).reply_arrives(site.after(fate.reply_takes));
        let wire = self.clone();
        site.deliver(arrives, move || wire.answered(call, replies));
    }

    fn answered(&self, call: u64, replies: Vec<Reply>) {
        let caller = {
            let mut state = lock(&self.state);
            if !state.here || state.silent {
                return;
            }
            state.activity += 1;
            state.unanswered.remove(&call)
        };
        if let Some(caller) = caller {
            // Fails only if the caller no longer waits.
            let _ = caller.send(Ok(replies));
        }
    }

    /// Publishes a grant. The message carries the server's time, but not `granted_at`.
    pub(super) fn push(self: &Arc<Self>, site: &Arc<Site>, client: &ClientId, grant: &Grant) {
        let message = wire::message(client, grant, site.server.wall());
        let (owner, token) = (grant.owner, grant.token);
        let hit = |fault| site.hits(fault, format_args!("grant #{owner}"));
        if hit(Fault::DroppedPush) {
            return;
        }
        let takes = site.latency();
        let mut arrives = if hit(Fault::DelayedPush) {
            vec![site.after(takes + site.delay())]
        } else {
            let earliest = site.after(takes);
            vec![lock(&self.state).reply_arrives(earliest)]
        };
        if hit(Fault::DuplicatePush) {
            arrives.push(arrives[0] + site.delay());
        }
        for when in arrives {
            let (wire, to, message) = (self.clone(), site.clone(), message.clone());
            site.deliver(when, move || {
                {
                    let mut state = lock(&wire.state);
                    if !state.here || state.silent {
                        return;
                    }
                    state.activity += 1;
                }
                to.note(format_args!("hears of grant #{owner} token {token}"));
                (wire.on_event)(ConnectionEvent::Message(message));
            });
        }
    }

    /// Closes the connection at the client. The server sees that after all requests, if at all.
    fn hangs_up(self: &Arc<Self>) {
        let last = {
            let mut state = lock(&self.state);
            if !std::mem::replace(&mut state.here, false) || !state.there || state.silent {
                return;
            }
            let by_owner = state.by_owner.values().copied();
            by_owner.fold(state.last_request, Millis::max)
        };
        let Some(site) = self.site.upgrade() else {
            return;
        };
        let arrives = site.after(site.latency()).max(last);
        let (to, wire) = (site.clone(), self.clone());
        site.network.at(arrives, move || {
            to.bury(&wire);
        });
    }
}

impl State {
    /// Returns when a request arrives: not before earlier requests on the connection. An overtaken
    /// request keeps its order only among requests of the same owners.
    fn request_arrives(&mut self, sent: &Sent, earliest: Millis, overtaken: bool) -> Millis {
        let owners = sent.op().map(super::op::Op::owners).unwrap_or_default();
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

    /// Returns when a reply or a pushed message arrives, in order.
    fn reply_arrives(&mut self, earliest: Millis) -> Millis {
        self.last_reply = self.last_reply.max(earliest);
        self.last_reply
    }
}

fn gone(why: &str) -> redis::RedisError {
    io::Error::new(io::ErrorKind::ConnectionReset, why).into()
}

/// The client's end of a connection.
pub(super) struct ClientEnd(pub(super) Arc<Wire>);

impl Drop for ClientEnd {
    fn drop(&mut self) {
        self.0.hangs_up();
    }
}

impl ClientEnd {
    async fn request(&self, requests: Vec<Request>) -> RedisResult<Vec<Reply>> {
        let answers = self.0.send(requests).await;
        answers.unwrap_or_else(|_| Err(gone("closed")))
    }

    async fn request_one(&self, request: Request) -> RedisResult<Value> {
        let mut answers = self.request(vec![request]).await?;
        wire::into_redis_result(answers.remove(0))
    }
}

impl OpenConnection for ClientEnd {
    fn send(&self, command: Cmd) -> BoxFuture<'_, RedisResult<Value>> {
        Box::pin(self.request_one(wire::read(&command)))
    }

    fn send_all<'a>(
        &'a self,
        commands: &'a [Cmd],
    ) -> BoxFuture<'a, RedisResult<Vec<RedisResult<Value>>>> {
        Box::pin(async move {
            let answers = self
                .request(commands.iter().map(wire::read).collect())
                .await?;
            Ok(answers.into_iter().map(wire::into_redis_result).collect())
        })
    }

    fn subscribe<'a>(&'a self, channel: &'a str) -> BoxFuture<'a, RedisResult<()>> {
        Box::pin(async move {
            let subscribe = Request::Subscribe(wire::listener(channel));
            self.request_one(subscribe).await.map(drop)
        })
    }

    fn activity(&self) -> u64 {
        lock(&self.0.state).activity
    }
}

impl fmt::Debug for ClientEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ClientEnd").field(&self.0.number).finish()
    }
}
