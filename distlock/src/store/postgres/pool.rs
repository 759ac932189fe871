//! The connections for commands. The server runs the commands of one connection one after the
//! other, and each waits for the disk, so more are opened when commands queue.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;

use crate::observer::event::Connection;
use crate::store::StoreResult;
use crate::store::availability::Availability;
use crate::store::postgres::client::PostgresClient;
use crate::store::postgres::errors::classify;
use crate::store::postgres::link::{Link, check};
use crate::store::postgres::session::Session;
use crate::util::sync::lock;

/// Upper limit of the connections besides the first.
const MAX_MORE: usize = 3;

/// A connection besides the first is closed when it has not been used for this long.
const IDLE: Duration = Duration::from_secs(60);

pub(super) struct Pool {
    pub(super) link: Link,
    client: Arc<PostgresClient>,
    availability: Arc<Availability>,
    more: Arc<Mutex<Vec<Arc<Session>>>>,
    is_opening: Arc<AtomicBool>,
    runtime: Handle,
}

impl Pool {
    /// Opens the first connection on the current runtime.
    pub(super) fn spawn(client: Arc<PostgresClient>, availability: Arc<Availability>) -> Self {
        let opening = client.clone();
        let more: Arc<Mutex<Vec<Arc<Session>>>> = Arc::default();
        let losing = more.clone();
        let link = Link::spawn(
            client.clone(),
            availability.clone(),
            Connection::Commands,
            Box::new(move || Box::pin(open(opening.clone()))),
            // What broke the first connection has broken the others, too.
            Box::new(move |_| lock(&losing).clear()),
        );
        Pool {
            link,
            client,
            availability,
            more,
            is_opening: Arc::default(),
            runtime: Handle::current(),
        }
    }

    /// Returns the session with the fewest commands in flight, or why there is none.
    pub(super) fn session(&self) -> StoreResult<Arc<Session>> {
        let first = self.link.session()?;
        if first.in_flight() == 0 {
            return Ok(first);
        }
        let mut more = lock(&self.more);
        more.retain(|session| !session.has_ended());
        let sessions = more.iter().chain([&first]);
        let least = sessions
            .min_by_key(|session| session.in_flight())
            .unwrap_or(&first);
        if least.in_flight() > 0 && more.len() < MAX_MORE {
            self.open_another();
        }
        Ok(least.clone())
    }

    fn open_another(&self) {
        if self.is_opening.swap(true, Ordering::Relaxed) {
            return;
        }
        let (client, more) = (self.client.clone(), Arc::downgrade(&self.more));
        let (is_opening, closing) = (self.is_opening.clone(), self.link.closing());
        let (availability, closed) = (self.availability.clone(), closing.clone());
        let opening = async move {
            let limit = client.config.connect_timeout;
            // If it fails, commands continue on the others, and the first reports an outage.
            let opened = tokio::time::timeout(limit, open(client.clone())).await;
            let Ok(Ok(session)) = opened else {
                is_opening.store(false, Ordering::Relaxed);
                return;
            };
            let stalled = session.stalled.clone();
            let watched = {
                let (Some(more), session) = (more.upgrade(), Arc::new(session)) else {
                    return;
                };
                let watched = Arc::downgrade(&session);
                let mut more = lock(&more);
                // `close` may have emptied it while this task ran.
                if closed.is_cancelled() {
                    return;
                }
                more.push(session);
                is_opening.store(false, Ordering::Relaxed);
                watched
            };
            loop {
                stalled.notified().await;
                let (Some(session), Some(more)) = (watched.upgrade(), more.upgrade()) else {
                    return;
                };
                if let Err(error) = check(&client, &availability, &session).await {
                    lock(&more).retain(|other| !Arc::ptr_eq(other, &session));
                    session.close(&error);
                    return;
                }
            }
        };
        self.runtime
            .spawn(async move { closing.run_until_cancelled(opening).await });
    }

    pub(super) fn close_idle(&self) {
        let now = self.client.clock.now();
        lock(&self.more).retain(|session| session.in_flight() > 0 || session.idle_time(now) < IDLE);
    }

    pub(super) fn close(&self) {
        self.link.close();
        lock(&self.more).clear();
    }
}

/// Opens a session for commands.
async fn open(client: Arc<PostgresClient>) -> StoreResult<Session> {
    let is_direct = client.is_direct();
    let session = Session::open(&client, is_direct, Arc::new(|_| {})).await?;
    if is_direct {
        // Otherwise the first calls would be planned with a lock's row in hand.
        let warm = session.client.batch_execute("SELECT distlock.warm()");
        warm.await.map_err(classify)?;
    }
    Ok(session)
}
