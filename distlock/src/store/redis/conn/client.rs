//! Who uses a server, and what all its connections know.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use redis::Value;

use crate::protocol::rules::Rules;
use crate::protocol::words::Grant;
use crate::store::client_id::ClientId;
use crate::store::redis::cluster::member::Member;
use crate::store::redis::conn::same_server::SameServer;
use crate::store::redis::conn::server_time::ServerTime;
use crate::store::redis::quorum::seats::Seat;
use crate::store::redis::quorum::told::{Told, VoteSink};
use crate::store::redis::transport::Transport;
use crate::store::redis::transport::sockets::Sockets;
use crate::store::redis::wire::decode::Decoder;
use crate::store::redis::wire::encode::Encoder;
use crate::store::redis::wire::names::Names;
use crate::store::redis::wire::scripts::Scripts;
use crate::store::{EventSink, IsIdle, Settings, StoreEvent};
use crate::util::clock::Clock;
use crate::util::random::Random;

/// Who uses a Redis store.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) id: ClientId,
    pub(crate) settings: Settings,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) events: EventSink,
    pub(crate) is_idle: IsIdle,
    pub(crate) scripts: Arc<Scripts>,
    /// From which of its calls on a runtime has a lane.
    pub(crate) lane_after: u32,
    /// How it reaches its server.
    pub(crate) way: Way,
    /// Who hears what a node of a quorum tells.
    pub(crate) votes: Option<VoteSink>,
    /// The one vote of such a node.
    pub(crate) seat: Option<Seat>,
}

/// Makes a way to a server of the sockets to it.
pub(crate) type Way = fn(Sockets) -> Arc<dyn Transport>;

/// What the handshakes, the commands and the pushed messages of one server's connections need.
pub(crate) struct Shared {
    pub(crate) names: Names,
    pub(crate) scripts: Arc<Scripts>,
    pub(crate) server_time: ServerTime,
    pub(crate) settings: Settings,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) events: EventSink,
    pub(crate) lane_after: u32,
    /// Of a node of a cluster.
    pub(crate) member: Option<Member>,
    pub(crate) same_server: SameServer,
    /// Of a node of a quorum.
    pub(crate) seat: Option<Seat>,
    votes: Option<VoteSink>,
    is_idle: IsIdle,
    id: RwLock<ClientId>,
    /// A connection has listened in this client's name.
    has_listened: AtomicBool,
}

impl Shared {
    pub(crate) fn new(namespace: &str, client: Client, member: Option<Member>) -> Self {
        Shared {
            names: match &member {
                None => Names::new(namespace),
                Some(_) => Names::in_slots(namespace),
            },
            scripts: client.scripts,
            server_time: ServerTime::default(),
            settings: client.settings,
            clock: client.clock,
            random: client.random,
            events: client.events,
            lane_after: client.lane_after,
            member,
            same_server: SameServer::default(),
            seat: client.seat,
            votes: client.votes,
            is_idle: client.is_idle,
            id: RwLock::new(client.id),
            has_listened: AtomicBool::new(false),
        }
    }

    /// The name of this client.
    pub(crate) fn id(&self) -> ClientId {
        let id = self.id.read().unwrap_or_else(PoisonError::into_inner);
        id.clone()
    }

    /// Takes another name, which is possible while nothing in the store bears the old one.
    pub(crate) fn rename_if_idle(&self) {
        if (self.is_idle)() {
            let mut id = self.id.write().unwrap_or_else(PoisonError::into_inner);
            *id = id.renewed(&*self.random);
        }
    }

    /// From now on nobody can take this client for one that only looks.
    pub(crate) fn listens(&self) {
        self.has_listened.store(true, Ordering::Release);
    }

    /// Takes the name of a client that looks, if none of its connections has ever listened. Whether
    /// it bears it.
    pub(crate) fn start_polling(&self) -> bool {
        let mut id = self.id.write().unwrap_or_else(PoisonError::into_inner);
        if !self.has_listened.load(Ordering::Acquire) {
            *id = id.polling();
        }
        id.is_polling()
    }

    /// Writes commands in the name of this client.
    pub(crate) fn encoder<'a>(&'a self, client: &'a ClientId) -> Encoder<'a> {
        Encoder {
            scripts: &self.scripts,
            names: &self.names,
            settings: &self.settings,
            client,
        }
    }

    pub(crate) fn decoder<'a>(&'a self, client: &'a ClientId) -> Decoder<'a> {
        Decoder {
            names: &self.names,
            client,
        }
    }

    /// Whether the server is one of a quorum.
    pub(crate) fn is_of_quorum(&self) -> bool {
        self.seat.is_some()
    }

    /// Passes a message on this client's channel on, which arrives at this moment.
    pub(crate) fn hears(&self, message: &[Value]) {
        if let Some(revocation) = self.decoder(&self.id()).revocation(message) {
            (self.events)(StoreEvent::Revoked(revocation));
            return;
        }
        match &self.votes {
            Some(votes) => {
                let received = self.clock.now();
                let given_at = |at| {
                    if Rules::in_force().grant_age {
                        self.server_time.bound(at, received)
                    } else {
                        Some(received)
                    }
                };
                if let Some(told) = Told::read(&self.names, &self.id(), message, given_at) {
                    votes(told);
                }
            }
            None => {
                if let Some(grant) = self.read_grant(message) {
                    (self.events)(StoreEvent::Granted(grant));
                }
            }
        }
    }

    fn read_grant(&self, message: &[Value]) -> Option<Grant> {
        let received = self.clock.now();
        let pushed = self.decoder(&self.id()).grant(message)?;
        let granted_at = self.server_time.bound(pushed.granted, received);
        Some(Grant {
            key: pushed.key,
            owner: pushed.owner,
            token: pushed.token,
            granted_at,
            lease: pushed.lease,
        })
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("id", &self.id())
            .finish_non_exhaustive()
    }
}
