//! A connection that is reopened when it ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::error::Outage;
use crate::observer::event::Connection;
use crate::protocol::store_error::StoreError;
use crate::store::availability::{Availability, ConnectionLoss, OutageCause};
use crate::store::postgres::client::PostgresClient;
use crate::store::postgres::config::MIN_OPEN_TIMEOUT;
use crate::store::postgres::decode::column;
use crate::store::postgres::errors::classify;
use crate::store::postgres::session::{Session, closed_error};
use crate::store::{BoxFuture, StoreResult};
use crate::util::backoff::Backoff;
use crate::util::sync::lock;

const BACKOFF: Backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(500));

/// Upper limit of the time to ask about a connection. If the network is cut, nothing else ends it.
const MAX_CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// A connection to a pooler is replaced when it has had no reply for this long.
const POOLED_STALL: Duration = Duration::from_secs(5);

/// Opens a session of this link.
pub(super) type Opener = Box<dyn Fn() -> BoxFuture<'static, StoreResult<Session>> + Send + Sync>;

/// Called when a session is up, with true if it replaces another, and when it is down.
pub(super) type OnChange = Box<dyn Fn(LinkChange) + Send + Sync>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkChange {
    /// A session is up; true if it replaces one that was lost.
    Up(bool),
    Down,
}

#[derive(Clone)]
enum LinkState {
    /// The first attempt has not ended.
    Opening,
    Up(Arc<Session>),
    Down(StoreError),
    Closed,
}

/// A connection that is reopened when it ends. It is closed when it is dropped.
pub(super) struct Link {
    inner: Arc<Inner>,
}

struct Inner {
    client: Arc<PostgresClient>,
    availability: Arc<Availability>,
    kind: Connection,
    open: Opener,
    on_change: OnChange,
    state: Mutex<LinkState>,
    was_up: AtomicBool,
    close: CancellationToken,
}

impl Link {
    /// Opens the connection on the current runtime.
    pub(super) fn spawn(
        client: Arc<PostgresClient>,
        availability: Arc<Availability>,
        kind: Connection,
        open: Opener,
        on_change: OnChange,
    ) -> Self {
        let inner = Arc::new(Inner {
            client,
            availability,
            kind,
            open,
            on_change,
            state: Mutex::new(LinkState::Opening),
            was_up: AtomicBool::new(false),
            close: CancellationToken::new(),
        });
        let task = inner.clone();
        tokio::spawn(async move {
            task.close.run_until_cancelled(task.run()).await;
            if matches!(&*lock(&task.state), LinkState::Up(_)) {
                task.availability.connection_down(task.kind);
            }
            task.set(LinkState::Closed);
        });
        Link { inner }
    }

    /// Returns the current session, or why there is none.
    pub(super) fn session(&self) -> StoreResult<Arc<Session>> {
        let error = match &*lock(&self.inner.state) {
            LinkState::Up(session) => return Ok(session.clone()),
            LinkState::Down(error) => error.clone(),
            LinkState::Opening => {
                StoreError::new(Outage::Unreachable, "the first connection is being opened")
            }
            LinkState::Closed => closed_error(),
        };
        Err(error.at(&self.inner.client.address).mark_unsent())
    }

    /// Returns true if a session is open, or the link is closed for good.
    pub(super) fn is_settled(&self) -> bool {
        let state = lock(&self.inner.state);
        matches!(&*state, LinkState::Up(_) | LinkState::Closed)
    }

    /// Returns true once there has been a session.
    pub(super) fn was_up(&self) -> bool {
        self.inner.was_up.load(Ordering::Relaxed)
    }

    pub(super) fn close(&self) {
        self.inner.close.cancel();
    }

    /// Is cancelled when the link is closed for good.
    pub(super) fn closing(&self) -> CancellationToken {
        self.inner.close.clone()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.close();
    }
}

impl Inner {
    fn set(&self, state: LinkState) {
        let previous = std::mem::replace(&mut *lock(&self.state), state);
        self.client.state.changed.notify_waiters();
        // Callers may still hold it.
        if let LinkState::Up(session) = previous {
            session.close(&closed_error());
        }
    }

    async fn run(&self) {
        let (mut loss, mut backoff) = (None, BACKOFF);
        let longest = self.client.config.open_timeout();
        let mut limit = longest;
        loop {
            match self.open_within(limit).await {
                Ok(session) => {
                    backoff.reset();
                    // The next attempts are short at first, because a connection that is opened
                    // while the network is cut never replies.
                    limit = MIN_OPEN_TIMEOUT;
                    self.was_up.store(true, Ordering::Relaxed);
                    let session = Arc::new(session);
                    let replaces = loss.is_some();
                    self.set(LinkState::Up(session.clone()));
                    self.availability.connection_up(self.kind, loss.take());
                    (self.on_change)(LinkChange::Up(replaces));
                    let error = self.until_lost(&session).await;
                    session.close(&error);
                    (self.on_change)(LinkChange::Down);
                    self.set(LinkState::Down(error));
                    loss = Some(ConnectionLoss {
                        since: self.availability.connection_down(self.kind),
                        is_harmless: false,
                    });
                }
                Err(mut error) => {
                    // The server was the right one before, and may be again.
                    if loss.is_some() && error.outage == Outage::Misconfigured {
                        error.outage = Outage::NotReady;
                    }
                    let cause = OutageCause::Disconnected(self.kind);
                    self.availability.report(cause, &error);
                    self.set(LinkState::Down(error));
                    let [random, ..] = self.client.random.next().to_be_bytes();
                    let pause = backoff.next_delay() / 2;
                    tokio::time::sleep(pause + pause * u32::from(random) / 255).await;
                    limit = (limit * 2).min(longest);
                }
            }
        }
    }

    async fn open_within(&self, limit: Duration) -> StoreResult<Session> {
        if self.kind == Connection::Commands {
            // The listening session finds out what the others may do.
            self.client.is_probed.wait().await;
        }
        let opened = tokio::time::timeout(limit, (self.open)()).await;
        opened.unwrap_or_else(|_| Err(StoreError::timed_out(limit)))
    }

    /// Waits until the session ends, or the server no longer works for it, and returns why.
    async fn until_lost(&self, session: &Session) -> StoreError {
        loop {
            tokio::select! {
                biased;
                error = session.ended() => return error,
                () = session.stalled.notified() => {}
            }
            tokio::select! {
                biased;
                error = session.ended() => return error,
                checked = check(&self.client, &self.availability, session) => {
                    if let Err(error) = checked {
                        return error;
                    }
                }
            }
        }
    }
}

/// Asks the server over another connection whether it works for a session that does not reply.
/// It does while it waits for its disk or its standby: then another connection would not help,
/// and each would leave a busy process in the server.
pub(super) async fn check(
    client: &PostgresClient,
    availability: &Availability,
    session: &Session,
) -> StoreResult<()> {
    let lost = StoreError::new(Outage::TimedOut, "the connection no longer replies");
    if !client.is_direct() {
        // Behind a pooler the server cannot be asked, and commands also wait for a free connection.
        let is_lost = session.idle_time(client.clock.now()) >= POOLED_STALL;
        return if is_lost { Err(lost) } else { Ok(()) };
    }
    let asking = async {
        let other = Session::open_unchecked(client, false, Arc::new(|_| {}), true);
        let query = format!(
            "SELECT wait_event FROM pg_stat_activity WHERE pid = {} AND state = 'active'",
            session.backend
        );
        let rows = other.await?.client.query_typed(&query, &[]).await;
        let rows = rows.map_err(classify)?;
        rows.first()
            .map(|row| column::<Option<String>>(row, "wait_event"))
            .transpose()
    };
    let limit = client
        .config
        .connect_timeout
        .clamp(MIN_OPEN_TIMEOUT, MAX_CHECK_TIMEOUT);
    let Ok(waits_for) = tokio::time::timeout(limit, asking).await else {
        return Err(lost);
    };
    let waits_for = match waits_for {
        // It works, and only has no room for a question.
        Err(error) if error.outage == Outage::NotReady => return Ok(()),
        waits_for => waits_for?.ok_or(lost)?,
    };
    if waits_for.as_deref() == Some("SyncRep") {
        let detail = "the server waits for a synchronous standby; check the standbys, or remove the lost one from \
            `synchronous_standby_names`";
        let error = StoreError::new(Outage::NotReady, detail);
        session.explain_stall(error.clone());
        availability.report(OutageCause::Rejecting, &error);
    }
    Ok(())
}
