//! What those who look on, and those who step in, say to one server.

use std::time::Duration;

use redis::Cmd;

use crate::error::Outage;
use crate::key::LockKey;
use crate::protocol::trouble::Trouble;
use crate::protocol::words::{Inspection, Revoked};
use crate::store::command::{Inspect, List, Revoke};
use crate::store::redis::node::Node;
use crate::store::redis::wire::decode;

impl Node {
    /// `before` it, in the same write, goes what a cluster needs.
    pub(crate) async fn inspect(
        &self,
        before: &[Cmd],
        inspect: &Inspect<'_>,
        timeout: Duration,
    ) -> Result<Inspection, Trouble> {
        let shared = &*self.shared;
        let session = self.commands.session()?;
        let encoder = shared.encoder(&session.client);
        let inspected = self.call(&self.commands, &session, before, timeout, |by| {
            encoder.inspect(by, inspect)
        });
        let inspected = inspected.await;
        let id = shared.id();
        let decoder = shared.decoder(&id);
        let (sent, answer) = match inspected {
            Ok(answered) => answered,
            Err(refusal) => return decoder.refused_inspection(inspect.key, refusal),
        };
        let decoded = decoder.inspect(inspect.key, answer)?;
        self.learn(sent, decoded.at);
        Ok(decoded.said)
    }

    pub(crate) async fn list(
        &self,
        list: &List<'_>,
        timeout: Duration,
    ) -> Result<Vec<LockKey>, Trouble> {
        let shared = &*self.shared;
        let id = shared.id();
        let (encoder, decoder) = (shared.encoder(&id), shared.decoder(&id));
        let (mut keys, mut cursor) = (Vec::new(), "0".to_owned());
        loop {
            let session = self.commands.session()?;
            if session.client.is_polling() {
                // Some proxies close the connection on commands that they do not know.
                let proxied = "a proxy is before the server, and does not list keys; list at the server itself";
                return Err(Trouble::new(Outage::Unsupported, proxied).unsent());
            }
            let step = self.call(&self.commands, &session, &[], timeout, |_| {
                encoder.scan(&cursor)
            });
            let (_, answer) = step.await?;
            let (some, next) = decoder.scanned(answer)?;
            keys.extend(
                some.into_iter()
                    .filter(|key| key.as_str().starts_with(list.prefix)),
            );
            match next {
                Some(next) => cursor = next,
                None => return Ok(keys),
            }
        }
    }

    pub(crate) async fn revoke(
        &self,
        revoke: &Revoke<'_>,
        timeout: Duration,
    ) -> Result<Revoked, Trouble> {
        let session = self.commands.session()?;
        let encoder = self.shared.encoder(&session.client);
        let revoked = self.call(&self.commands, &session, &[], timeout, |by| {
            encoder.revoke(by, revoke)
        });
        decode::revoke(revoked.await?.1)
    }
}
