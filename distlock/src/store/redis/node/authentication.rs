//! Live connections are told the credentials of the moment: they may outlive those that they were
//! opened with.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;

use crate::config::credentials::Source;
use crate::protocol::trouble::Trouble;
use crate::store::StoreEvent;
use crate::store::redis::node::Node;
use crate::store::redis::transport::Transport;
use crate::store::redis::transport::config::RedisConfig;
use crate::store::redis::transport::login;

/// How soon it is tried again when it failed.
const AGAIN: Duration = Duration::from_secs(10);

/// Has the connections of a node told, from time to time, until it is closed: if its credentials
/// come from a source.
pub(crate) fn begin(node: &Arc<Node>, config: &RedisConfig, transport: &dyn Transport) {
    if let Some(source) = &config.credentials {
        let keeper = keep(Arc::downgrade(node), source.clone());
        transport.spawn(node.while_open(keeper));
    }
}

async fn keep(node: Weak<Node>, source: Source) {
    let mut pause = source.every;
    let mut is_told = false;
    loop {
        tokio::time::sleep(pause).await;
        let Some(node) = node.upgrade() else {
            return;
        };
        pause = match tell(&node, &source).await {
            Ok(()) => {
                is_told = false;
                source.every
            }
            Err(trouble) => {
                if !is_told {
                    let trouble = trouble.at(node.address());
                    (node.shared.events)(StoreEvent::NotAuthenticated(trouble));
                }
                is_told = true;
                source.every.min(AGAIN)
            }
        };
    }
}

async fn tell(node: &Node, source: &Source) -> Result<(), Trouble> {
    let credentials = login::ask(source).await?;
    // What is being opened asks for itself.
    for session in node.sessions() {
        login::authenticate(&session, &credentials).await?;
    }
    let lanes = node.lanes.all();
    // A runtime that does not run may leave its lane as it is: that one is closed then, or refused
    // and opened anew.
    let sessions = lanes.iter().map(|lane| &lane.session);
    join_all(sessions.map(|session| login::authenticate(session, &credentials))).await;
    Ok(())
}
