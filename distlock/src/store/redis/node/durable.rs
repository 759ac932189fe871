//! What a lock needs beside the server's word: its ask, its confirmations and its renewals count
//! once replicas have them, or disks.

use std::sync::Arc;
use std::time::Duration;

use redis::Cmd;

use crate::config::options::Durability;
use crate::error::Outage;
use crate::protocol::trouble::Trouble;
use crate::protocol::words::{Ask, AskReply, Proof, Renewal, Renewed};
use crate::store::command::Confirm;
use crate::store::redis::conn::session::Session;
use crate::store::redis::node::Node;
use crate::store::redis::node::acks::{Answer, Told};
use crate::store::redis::wire::decode;
use crate::store::redis::wire::scripts::By;

impl Node {
    /// Asks on the command connection.
    pub(crate) async fn ask_at_home(
        &self,
        ask: &Ask<'_>,
        timeout: Duration,
    ) -> Result<AskReply, Trouble> {
        let home = self.home()?;
        // A proxy may have several servers behind it, and shares its connections to them among its
        // clients.
        if home.session.client.is_polling() && !ask.durability.is_none() {
            let detail = "`min_replicas` and `fsync` need a way to the server without a proxy that reads the commands";
            return Err(Trouble::new(Outage::Unsupported, detail).unsent());
        }
        let reply = self.ask(&home, ask, timeout).await?;
        self.acknowledged(ask, reply, timeout).await
    }

    /// The answer to an ask. What it took is confirmed where that can be waited for, and held by
    /// that proof; while too few have it, it is the owner's in the store and nowhere else.
    pub(crate) async fn acknowledged(
        &self,
        ask: &Ask<'_>,
        reply: AskReply,
        timeout: Duration,
    ) -> Result<AskReply, Trouble> {
        if ask.durability.is_none() || !matches!(reply, AskReply::Held(_)) {
            return Ok(reply);
        }
        let confirm = Confirm {
            key: ask.key,
            owner: ask.owner,
            timing: ask.timing,
            durability: ask.durability,
        };
        match self.confirm_durably(&[], &confirm, timeout).await {
            Ok(Some(proof)) => Ok(AskReply::Held(proof)),
            Ok(None) => Err(Trouble::new(
                Outage::Other,
                "the lock was gone before its replicas acknowledged it",
            )),
            // The ask was sent.
            Err(trouble) => Err(trouble.sent()),
        }
    }

    pub(super) async fn confirm_durably(
        &self,
        before: &[Cmd],
        confirm: &Confirm<'_>,
        timeout: Duration,
    ) -> Result<Option<Proof>, Trouble> {
        // This connection does not listen: the name is that of the other.
        let id = self.shared.id();
        let command = self.shared.encoder(&id).confirm(By::Hash, confirm);
        let written = self.write(before, command, confirm.durability, timeout);
        let (_, (sent, answer)) = written.await?;
        Ok(decode::confirm(sent, answer)?.said)
    }

    pub(super) async fn renew_durably(
        &self,
        before: &[Cmd],
        batch: &[Renewal],
        durability: Durability,
        within: Duration,
    ) -> Result<Renewed, Trouble> {
        let id = self.shared.id();
        let command = self.shared.encoder(&id).renew(By::Hash, batch);
        let written = self.write(before, command, durability, within);
        let (session, (sent, answer)) = written.await?;
        self.renewed(batch, &session, sent, answer)
    }

    /// Sends a write that counts once it is where it is to be.
    async fn write(
        &self,
        before: &[Cmd],
        command: Cmd,
        durability: Durability,
        within: Duration,
    ) -> Result<(Arc<Session>, Answer), Trouble> {
        let acks = self.acks.of(durability)?;
        let Told { session, answer } = acks.write(before, command, within).await?;
        match answer {
            Ok(answer) => Ok((session, answer)),
            Err(trouble) => {
                self.note_role(&session, &trouble);
                Err(trouble)
            }
        }
    }
}
