//! The client of a store in PostgreSQL, which all its connections share.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::SetOnce;
use uuid::Uuid;

use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::protocol::kind::Kind;
use crate::protocol::messages::{Grant, OwnerId, RevocationNotice};
use crate::protocol::store_error::one_line;
use crate::protocol::timing::Timing;
use crate::store::client_id::{ClientId, parse_number};
use crate::store::connecting::StoreState;
use crate::store::postgres::config::PostgresConfig;
use crate::store::server_clock::ServerClock;
use crate::store::{EventSink, ReportSink, Settings, StoreEvent};
use crate::util::clock::{BootInstant, Clock, ServerTime};
use crate::util::random::Random;
use crate::util::sync::lock;

/// The advisory lock of the listening session, by which others see that this client is alive.
/// Without it they count it as alive, and a dead one costs each lock one unconfirmed grant.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LivenessLock {
    /// Zero before the first.
    pub(super) number: i64,
    pub(super) is_held: bool,
}

/// A client, and what its connections know.
pub(crate) struct PostgresClient {
    pub(crate) config: PostgresConfig,
    pub(crate) address: Arc<str>,
    pub(crate) settings: Settings,
    pub(crate) id: ClientId,
    pub(crate) uuid: Uuid,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) events: EventSink,
    pub(crate) reports: ReportSink,
    pub(crate) state: Arc<StoreState>,
    pub(crate) server_clock: ServerClock,
    /// The index of the host at which a connection was last opened.
    pub(super) host: AtomicUsize,
    /// The prefix of the names of locks.
    pub(super) prefix: String,
    /// Set once the first listening session has found out whether messages arrive.
    pub(super) is_probed: SetOnce<()>,
    /// True once messages have arrived. False while a pooler may be in between.
    pub(super) is_direct: AtomicBool,
    pub(super) liveness: Mutex<LivenessLock>,
    /// True while the listening session listens on this client's channel.
    pub(super) is_listening: AtomicBool,
    /// When a call last waited, in nanoseconds of the clock.
    waited_at: AtomicU64,
}

impl PostgresClient {
    pub(crate) fn new(
        config: PostgresConfig,
        settings: Settings,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        (events, reports): (EventSink, ReportSink),
        state: Arc<StoreState>,
    ) -> Self {
        let id = ClientId::new();
        PostgresClient {
            address: config.address().into(),
            prefix: format!("{}:lock:", config.namespace),
            config,
            settings,
            // It is made of 32 hex digits.
            uuid: Uuid::parse_str(id.as_str()).unwrap_or_default(),
            id,
            clock,
            random,
            events,
            reports,
            state,
            server_clock: ServerClock::default(),
            host: AtomicUsize::new(0),
            is_probed: SetOnce::new(),
            is_direct: AtomicBool::new(false),
            liveness: Mutex::default(),
            is_listening: AtomicBool::new(false),
            waited_at: AtomicU64::new(0),
        }
    }

    /// Returns the channel for messages to this client.
    pub(super) fn channel(&self) -> String {
        format!("distlock:{}", self.uuid)
    }

    /// Returns the name of a lock in the tables. Braces around the whole key make no difference.
    pub(super) fn name(&self, key: &LockKey) -> String {
        let key = key.as_str();
        let inner = key.strip_prefix('{').and_then(|key| key.strip_suffix('}'));
        format!("{}{}", self.prefix, inner.unwrap_or(key))
    }

    /// Returns the key of a name; `None` for a name that distlock did not write.
    pub(super) fn key(&self, name: &str) -> Option<LockKey> {
        LockKey::new(name.strip_prefix(&self.prefix)?).ok()
    }

    pub(super) fn is_direct(&self) -> bool {
        self.is_direct.load(Ordering::Relaxed)
    }

    pub(super) fn liveness_lock(&self) -> Option<i64> {
        let liveness = *lock(&self.liveness);
        liveness.is_held.then_some(liveness.number)
    }

    /// Records that a call waits.
    pub(super) fn note_wait(&self) {
        self.waited_at.store(self.clock.now().0, Ordering::SeqCst);
    }

    /// Returns true if a call has waited within the last `time`.
    pub(super) fn has_waited_within(&self, time: Duration) -> bool {
        let last = self.waited_at.load(Ordering::SeqCst);
        last > 0 && self.clock.now().since(BootInstant(last)) < time
    }

    /// Reports a message on this client's channel, unless it is none of distlock's.
    pub(super) fn handle_message(&self, text: &str) {
        let received = self.clock.now();
        if let Some(revocation) = self.decode_revocation(text) {
            (self.events)(StoreEvent::Revoked(revocation));
        } else if let Some(grant) = self.decode_grant(text, received) {
            (self.events)(StoreEvent::Granted(grant));
        }
    }

    /// Reads `granted owner token granted_us lease kind name`.
    fn decode_grant(&self, text: &str, received: BootInstant) -> Option<Grant> {
        let mut fields = text.strip_prefix("granted ")?.splitn(6, ' ');
        let owner: i64 = fields.next()?.parse().ok()?;
        let mut number = || parse_number(fields.next()?);
        let (token, granted, lease) = (number()?, ServerTime(number()?), number()?);
        let kind = match fields.next()? {
            "m" => Kind::Mutex,
            // The counted locks are all released in the same way.
            _ => Kind::Read,
        };
        Some(Grant {
            key: self.key(fields.next()?)?,
            kind,
            owner: OwnerId(owner.cast_unsigned()),
            token: FencingToken::new(token),
            granted_at: self.server_clock.earliest_grant_time(granted, received),
            // The lease is short, even if the message names a longer one (R4).
            lease: Timing::new(Duration::from_millis(lease))
                .short_grant_timing()
                .lease,
        })
    }

    /// Reads `revoked owner token name`, and the revoking client on a second line.
    fn decode_revocation(&self, text: &str) -> Option<RevocationNotice> {
        let (header, by) = text.strip_prefix("revoked ")?.split_once('\n')?;
        let mut fields = header.splitn(3, ' ');
        fields.next()?;
        let token = FencingToken::new(parse_number(fields.next()?)?);
        Some(RevocationNotice {
            key: self.key(fields.next()?)?,
            token,
            by: one_line(by.to_owned()),
        })
    }
}
