//! Re-authentication of open connections, because they may outlive the credentials that they were
//! opened with.

use std::sync::Weak;
use std::time::Duration;

use futures_util::future::{FutureExt, join_all};

use crate::config::credentials::{Credentials, CredentialsProvider};
use crate::error::Outage;
use crate::protocol::store_error::StoreError;
use crate::store::redis::conn::session::Session;
use crate::store::redis::node::Node;
use crate::store::redis::transport::login;
use crate::store::redis::wire::errors::{self, Code, RedisCode};
use crate::store::{Note, StoreReport, StoreResult};

/// Upper limit of the delay before a failed re-authentication is retried.
const RETRY_AUTH_INTERVAL: Duration = Duration::from_secs(10);

impl Node {
    /// Re-authenticates the connections of a node at the intervals of the provider.
    pub(super) async fn keep_authenticated(node: Weak<Self>, provider: CredentialsProvider) {
        let mut pause = provider.interval;
        let mut is_reported = false;
        loop {
            tokio::time::sleep(pause).await;
            let Some(node) = node.upgrade() else {
                return;
            };
            pause = match reauthenticate(&node, &provider).await {
                Ok(()) => {
                    is_reported = false;
                    provider.interval
                }
                Err(error) => {
                    if !is_reported {
                        let address = node.address().into();
                        let note = Note::NotAuthenticated { address, error };
                        (node.shared.client.reports)(StoreReport::Note(note));
                    }
                    is_reported = true;
                    provider.interval.min(RETRY_AUTH_INTERVAL)
                }
            };
        }
    }
}

async fn reauthenticate(node: &Node, provider: &CredentialsProvider) -> StoreResult<()> {
    let credentials = login::fetch_credentials(provider).await?;
    // A connection that is being opened requests its credentials itself.
    for session in node.sessions() {
        authenticate(&session, &credentials).await?;
    }
    let connections = node.runtime_connections.all();
    // A runtime that does not run may leave its connection as it is. That connection is then
    // closed, or rejected and reopened.
    let sessions = connections.iter();
    join_all(sessions.map(|session| authenticate(session, &credentials).boxed())).await;
    Ok(())
}

/// Sends the credentials on an open connection.
async fn authenticate(session: &Session, credentials: &Credentials) -> StoreResult<()> {
    let mut auth = redis::cmd("AUTH");
    // A default user without a password accepts any password, but only if `AUTH` names the user.
    auth.arg(credentials.user().unwrap_or("default"))
        .arg(credentials.reveal());
    match tokio::time::timeout(login::CREDENTIALS_TIMEOUT, session.connection.send(auth)).await {
        Ok(Ok(_)) => Ok(()),
        // The connection has ended, and its successor requests the credentials itself.
        Ok(Err(_)) if session.has_ended() => Ok(()),
        // The server's error text repeats the command, so it is not used.
        Ok(Err(error)) if *errors::classify(&error).code() == Code::UnknownCommand => Err(
            StoreError::new(Outage::Denied, "the server does not know AUTH"),
        ),
        Ok(Err(error)) => Err(errors::classify(&error)),
        Err(_) => Err(StoreError::timed_out(login::CREDENTIALS_TIMEOUT)),
    }
}
