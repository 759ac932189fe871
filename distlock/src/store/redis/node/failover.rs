//! Failover: when the sentinels report another primary, connections to the old one are closed.

use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::{FutureExt, join_all};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::error::Outage;
use crate::protocol::store_error::StoreError;
use crate::store::redis::conn::session::Session;
use crate::store::redis::node::Node;
use crate::store::redis::transport::sentinel::Sentinels;
use crate::store::redis::transport::url::Host;
use crate::store::redis::transport::{ConnectionEventHandler, OpenConnection};
use crate::store::redis::wire::errors;
use crate::util::backoff::Backoff;

/// Interval at which a silent sentinel is queried, and the timeout of a query.
const QUERY_INTERVAL: Duration = Duration::from_secs(10);

const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));

/// Makes a node leave a server that is no longer the primary.
pub(crate) async fn watch(node: Weak<Node>, sentinels: Arc<Sentinels>) {
    let hosts = sentinels.hosts.iter();
    join_all(hosts.map(|host| watch_through(host, &node, &sentinels).boxed())).await;
}

async fn watch_through(host: &Host, node: &Weak<Node>, sentinels: &Sentinels) {
    let Some(state) = node.upgrade().map(|node| node.shared.client.state.clone()) else {
        return;
    };
    let mut backoff = BACKOFF;
    loop {
        let wake_up = Arc::new(Notify::new());
        let waker = wake_up.clone();
        // Any message, and the end of the connection, is a reason to query the sentinel.
        let push_sink: ConnectionEventHandler = Arc::new(move |_| waker.notify_one());
        let subscribing = async {
            let connection = sentinels.connect(host, push_sink).await?;
            let subscribed = connection.subscribe("+switch-master").await;
            subscribed.map_err(|error| errors::classify(&error))?;
            Ok::<_, StoreError>(connection)
        };
        if let Ok(Ok(connection)) = tokio::time::timeout(QUERY_INTERVAL, subscribing).await {
            let opened_at = Instant::now();
            loop {
                let mut changed = pin!(state.changed.notified());
                changed.as_mut().enable();
                let querying = sentinels.query_primary(&connection);
                let Ok(Ok(Some(primary))) = tokio::time::timeout(QUERY_INTERVAL, querying).await
                else {
                    break;
                };
                // A sentinel may end each connection after its first replies.
                if opened_at.elapsed() >= QUERY_INTERVAL {
                    backoff.reset();
                }
                follow_primary(node, sentinels, &primary).await;
                // The sentinel publishes a change. A connection that was being opened meanwhile
                // reaches the old primary if that server was frozen and has resumed.
                let changes = async {
                    tokio::select! {
                        () = wake_up.notified() => {}
                        () = changed => {}
                    }
                };
                let _ = tokio::time::timeout(QUERY_INTERVAL, changes).await;
            }
        }
        tokio::time::sleep(backoff.next_delay()).await;
    }
}

/// Ends every session to another server, if the sentinels agree on `primary`.
async fn follow_primary(node: &Weak<Node>, sentinels: &Sentinels, primary: &Host) {
    let name = sentinels.address_of(primary);
    let is_elsewhere = |session: &Arc<Session>| session.connection.peer() != Some(&*name);
    let is_followed = |node: Arc<Node>| !node.sessions().any(|session| is_elsewhere(&session));
    if node.upgrade().is_none_or(is_followed) {
        return;
    }
    sentinels.limiter.ready().await;
    if let Ok(agreed) = sentinels.primary().await
        && agreed == *primary
        && let Some(node) = node.upgrade()
    {
        let detail = format!("the sentinels report {name} as the primary now");
        let error = StoreError::new(Outage::NotReady, detail);
        for session in node.sessions().filter(is_elsewhere) {
            session.end_with(&error);
        }
    }
}
