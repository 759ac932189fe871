//! The session that listens for messages, holds the client's liveness lock, and renews.
//!
//! Before version 19, PostgreSQL wakes every listening session of the database for each message. So
//! a client listens only while one of its calls waits, and for a moment after.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Mutex, Notify};
use tokio_postgres::types::Type;

use crate::observer::event::Connection;
use crate::protocol::rules::rule;
use crate::store::availability::Availability;
use crate::store::postgres::client::{LivenessLock, PostgresClient};
use crate::store::postgres::decode::column;
use crate::store::postgres::errors::classify;
use crate::store::postgres::link::{Link, LinkChange};
use crate::store::postgres::session::{Limit, MessageHandler, Session};
use crate::store::{Note, StoreEvent, StoreReport, StoreResult};
use crate::util::sync::lock;

/// How long the client listens after its last call has waited.
pub(super) const LISTENS_ON: Duration = Duration::from_secs(5);

const UNLISTEN_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a message may take before it counts as lost.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// The same when a connection is replaced.
const REPEATED_PROBE_TIMEOUT: Duration = Duration::from_millis(250);

/// The message by which a client finds out whether messages arrive.
const PROBE: &str = "probe";

pub(super) struct Listener {
    pub(super) link: Link,
    client: Arc<PostgresClient>,
    /// Held while `LISTEN` or `UNLISTEN` runs.
    toggle: Arc<Mutex<()>>,
    runtime: Handle,
}

impl Listener {
    pub(super) fn spawn(client: Arc<PostgresClient>, availability: Arc<Availability>) -> Self {
        let (opening, changing) = (client.clone(), client.clone());
        let link = Link::spawn(
            client.clone(),
            availability,
            Connection::Renewals,
            Box::new(move || Box::pin(open(opening.clone()))),
            Box::new(move |change| on_change(&changing, change)),
        );
        Listener {
            link,
            client,
            toggle: Arc::default(),
            runtime: Handle::current(),
        }
    }

    /// Begins to listen, unless the client does. Without a liveness lock, messages may not arrive, and
    /// queue checks find the grants.
    pub(super) async fn listen(&self, limit: Limit) -> StoreResult<()> {
        let client = self.client.clone();
        if client.liveness_lock().is_none() || client.is_listening.load(Ordering::SeqCst) {
            return Ok(());
        }
        let (toggle, session) = (self.toggle.clone(), self.link.session()?);
        let stalled = session.stalled.clone();
        let listening = async move {
            let _toggling = toggle.lock().await;
            // The session that replaces one that has ended listens.
            if client.is_listening.load(Ordering::SeqCst) || session.has_ended() {
                return Ok(());
            }
            listen(&client, &session).await
        };
        // If it takes longer, queue checks find the grant. The command that follows needs the rest.
        let half = limit.duration() / 2;
        let listening = async move { tokio::time::timeout(half, listening).await };
        // A caller whose runtime is blocked, or that has none, does not keep others from it.
        if let Ok(Ok(listened)) = self.runtime.spawn(listening).await {
            return listened;
        }
        stalled.notify_one();
        Ok(())
    }

    /// Stops to listen, unless a call has waited a moment ago.
    pub(super) async fn listen_no_longer(&self) {
        let client = &self.client;
        if !client.is_listening.load(Ordering::SeqCst) || client.has_waited_within(LISTENS_ON) {
            return;
        }
        let _toggling = self.toggle.lock().await;
        let Ok(session) = self.link.session() else {
            return;
        };
        client.is_listening.store(false, Ordering::SeqCst);
        // A call that saw the client listen has recorded its wait before.
        if client.has_waited_within(LISTENS_ON) {
            client.is_listening.store(true, Ordering::SeqCst);
            return;
        }
        // If it fails, the session has ended, or the next wait listens once more, which does no harm.
        let text = format!("UNLISTEN \"{}\"", client.channel());
        let unlistening = session.client.batch_execute(&text);
        if (tokio::time::timeout(UNLISTEN_TIMEOUT, unlistening).await).is_err() {
            session.stalled.notify_one();
        }
    }
}

fn on_change(client: &PostgresClient, change: LinkChange) {
    match change {
        LinkChange::Up(true) => {
            (client.events)(StoreEvent::RenewNow);
            // What waits has the liveness lock of the lost session.
            if client.liveness_lock().is_some() {
                (client.events)(StoreEvent::Reacquire);
            }
        }
        LinkChange::Up(false) => {}
        LinkChange::Down => {
            lock(&client.liveness).is_held = false;
            client.is_listening.store(false, Ordering::SeqCst);
        }
    }
}

/// Opens the session. Until messages have arrived once, each one finds out whether they do.
async fn open(client: Arc<PostgresClient>) -> StoreResult<Session> {
    let (arrived, handler) = handler(Arc::downgrade(&client));
    let session = if client.is_direct() {
        Session::open(&client, true, handler).await?
    } else {
        let session = Session::open_unchecked(&client, false, handler, true).await?;
        let is_direct = probe(&client, &session, &arrived).await?;
        let session = session.settle(is_direct).await?;
        client.is_direct.store(is_direct, Ordering::Relaxed);
        // Fails for all but the first.
        if client.is_probed.set(()).is_ok() && !is_direct {
            let address = client.address.clone();
            (client.reports)(StoreReport::Note(Note::Polls { address }));
        }
        session
    };
    if client.is_direct() {
        let number = take_liveness_lock(&client, &session).await?;
        if client.has_waited_within(LISTENS_ON) {
            listen(&client, &session).await?;
        }
        // Last, because the liveness lock of a session that is not used is free.
        *lock(&client.liveness) = LivenessLock {
            number,
            is_held: true,
        };
    }
    Ok(session)
}

/// Opens a session for the doctor. Returns true if messages arrive there.
pub(super) async fn probed(client: &PostgresClient) -> StoreResult<(Session, bool)> {
    let (arrived, handler) = handler(Weak::new());
    let session = Session::open_unchecked(client, false, handler, true).await?;
    let receives = probe(client, &session, &arrived).await?;
    Ok((session, receives))
}

/// Returns the handler of messages, and what it notifies of the probe.
fn handler(client: Weak<PostgresClient>) -> (Arc<Notify>, MessageHandler) {
    let arrived = Arc::new(Notify::new());
    let probed = arrived.clone();
    let handler = move |text: &str| {
        if text == PROBE {
            probed.notify_one();
        } else if let Some(client) = client.upgrade() {
            client.handle_message(text);
        }
    };
    (arrived, Arc::new(handler))
}

/// Returns true if a message of another connection arrives, so that nothing in between gives this
/// session's transactions to several connections. Two connections to one process of the server are
/// behind such a pooler, so that need not be waited for.
async fn probe(client: &PostgresClient, session: &Session, arrived: &Notify) -> StoreResult<bool> {
    if !rule!(session_proven) {
        return Ok(true);
    }
    let channel = client.channel();
    let listen = format!("LISTEN \"{channel}\"");
    session
        .client
        .batch_execute(&listen)
        .await
        .map_err(classify)?;
    let other = Session::open_unchecked(client, false, Arc::new(|_| {}), true).await?;
    let unlisten = format!("UNLISTEN \"{channel}\"");
    if other.backend == session.backend {
        let unlistening = session.client.batch_execute(&unlisten);
        unlistening.await.map_err(classify)?;
        return Ok(false);
    }
    let notify = "SELECT pg_notify($1, $2)";
    let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 2] =
        [(&channel, Type::TEXT), (&PROBE, Type::TEXT)];
    other
        .client
        .query_typed(notify, &parameters)
        .await
        .map_err(classify)?;
    // Time is left for the rest of the attempt. Later ones are short, because holders renew after them.
    let limit = if client.is_probed.get().is_none() {
        PROBE_TIMEOUT.min(client.config.connect_timeout / 4)
    } else {
        REPEATED_PROBE_TIMEOUT
    };
    let is_direct = tokio::time::timeout(limit, arrived.notified())
        .await
        .is_ok();
    session
        .client
        .batch_execute(&unlisten)
        .await
        .map_err(classify)?;
    Ok(is_direct)
}

async fn listen(client: &PostgresClient, session: &Session) -> StoreResult<()> {
    let text = format!("LISTEN \"{}\"", client.channel());
    session
        .client
        .batch_execute(&text)
        .await
        .map_err(classify)?;
    if !session.has_ended() {
        client.is_listening.store(true, Ordering::SeqCst);
    }
    Ok(())
}

/// Takes the client's liveness lock: the last one if it is free, so that holds and waiters keep theirs.
async fn take_liveness_lock(client: &PostgresClient, session: &Session) -> StoreResult<i64> {
    let mut number = lock(&client.liveness).number;
    loop {
        if number == 0 {
            // 62 bits, because other programs use advisory locks with small or negative numbers.
            number = (client.random.next() >> 2 | 1 << 61).cast_signed();
        }
        let query = "SELECT pg_try_advisory_lock($1) AS taken";
        let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 1] =
            [(&number, Type::INT8)];
        let taking = session.client.query_typed(query, &parameters);
        let rows = taking.await.map_err(classify)?;
        if rows.first().map_or(Ok(false), |row| column(row, "taken"))? {
            return Ok(number);
        }
        number = 0;
    }
}
