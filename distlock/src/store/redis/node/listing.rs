//! The list of locks on a server.

use std::time::Duration;

use crate::error::Outage;
use crate::key::LockKey;
use crate::protocol::store_error::StoreError;
use crate::store::command::List;
use crate::store::redis::node::Node;
use crate::store::redis::wire::encode;

impl Node {
    pub(crate) async fn list(
        &self,
        list: &List<'_>,
        timeout: Duration,
    ) -> Result<Vec<LockKey>, StoreError> {
        let (id, mut keys, mut cursor) = (self.shared.id(), Vec::new(), "0".to_owned());
        let context = self.shared.script_context(&id);
        loop {
            let session = self.commands.session()?;
            if session.client.is_polling() {
                // Some proxies close the connection on unknown commands.
                let detail = "the connection goes through a proxy, which cannot list keys; connect to the server \
                    directly to list them";
                return Err(StoreError::new(Outage::Unsupported, detail).mark_unsent());
            }
            let scan = |_| encode::scan(context.names, &cursor);
            let step = self.call(&self.commands, &session, &[], timeout, &scan);
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
