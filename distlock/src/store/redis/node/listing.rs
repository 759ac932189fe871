//! The state of a lock on a server, and the list of locks.

use std::time::Duration;

use redis::Cmd;

use crate::error::Outage;
use crate::key::LockKey;
use crate::protocol::messages::{Inspect, Inspection, List};
use crate::protocol::store_error::StoreError;
use crate::store::StoreResult;
use crate::store::redis::node::Node;
use crate::store::redis::wire::commands::InspectAs;
use crate::store::redis::wire::names;

impl Node {
    /// Inspects a lock as a mutex, and as a counted lock if its keys are not those of a mutex.
    /// `preceding` is sent in the same write as each command.
    pub(crate) async fn inspect(
        &self,
        preceding: Option<&Cmd>,
        inspect: &Inspect<'_>,
        timeout: Duration,
    ) -> StoreResult<Inspection> {
        let mutex = InspectAs::mutex(inspect);
        let mutex = self.run_after(preceding, &mutex, timeout).await?;
        if mutex.key_conflict.is_none() {
            return Ok(mutex);
        }
        let counted = InspectAs::counted(inspect);
        let counted = self.run_after(preceding, &counted, timeout).await?;
        Ok(if counted.key_conflict.is_none() {
            counted
        } else {
            mutex
        })
    }

    pub(crate) async fn list(
        &self,
        list: &List<'_>,
        timeout: Duration,
    ) -> StoreResult<Vec<LockKey>> {
        let (id, mut keys, mut cursor) = (self.shared.id(), Vec::new(), "0".to_owned());
        let context = self.shared.script_context(&id);
        loop {
            let session = self.commands.session()?;
            if session.is_proxied {
                // Some proxies close the connection on unknown commands.
                let detail = "the connection goes through a proxy, which cannot list keys; connect to the server \
                    directly to list them";
                return Err(StoreError::new(Outage::Unsupported, detail).mark_unsent());
            }
            let scan = |_, _| names::scan(context.names, &cursor);
            let step = self.call(&self.commands, &session, None, timeout, &scan);
            let (page, next) = context.decode_scan(step.await?.1)?;
            let page = page.into_iter();
            keys.extend(page.filter(|key| key.as_str().starts_with(list.prefix)));
            match next {
                Some(next) => cursor = next,
                None => return Ok(keys),
            }
        }
    }
}
