//! Commands of more than one step, and how their arguments are written.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio_postgres::types::ToSql;

use crate::error::Outage;
use crate::protocol::messages::{
    Acquire, AcquireReply, Release, ReleaseReply, RenewReply, Renewal, RenewalFailure,
};
use crate::protocol::store_error::StoreError;
use crate::store::availability::OutageCause;
use crate::store::client_id::join_name;
use crate::store::postgres::decode::{column, holders, kind, record, server_time};
use crate::store::postgres::decode::{held_token, one};
use crate::store::postgres::encode::{int, kind_letter, long, short};
use crate::store::postgres::errors::malformed;
use crate::store::postgres::session::Limit;
use crate::store::postgres::shared::Shared;
use crate::store::postgres::verbs::Verb;
use crate::store::{StoreEvent, StoreResult};

impl Shared {
    /// Acquires, and waits in the queue for up to `wait`.
    pub(super) async fn acquire(
        &self,
        acquire: &Acquire<'_>,
        wait: Duration,
        limit: Limit,
    ) -> StoreResult<AcquireReply> {
        let (client, target) = (&self.client, &acquire.target);
        let (name, once) = (client.name(target.key), acquire.once);
        let apply_by = client
            .server_clock
            .apply_by(client.clock.now(), limit.duration());
        let holder_name = join_name(&client.settings.client_name, acquire.metadata, false);
        let parameters: [&(dyn ToSql + Sync); 17] = [
            &name,
            &client.uuid,
            &client.liveness_lock(),
            &target.owner.0.cast_signed(),
            &kind_letter(target.kind),
            &int(target.kind.capacity()),
            &int(target.kind.weight()),
            &short(target.timing.lease),
            &short(target.timing.ttl()),
            &long(wait),
            &apply_by.0.cast_signed(),
            &self.fence_ttl(),
            &int(client.settings.max_waiters),
            &&*holder_name,
            &once.map(|once| &*once.selector),
            &once.map(|once| long(once.gap)),
            &once.map(|once| long(once.ttl)),
        ];
        let session = self.session()?;
        let acquiring = self.command_on(&session, Verb::Acquire, &parameters, limit);
        let (sent_at, rows) = acquiring.await.inspect_err(|error| {
            // Reports a server that replies but refuses.
            if error.outage.is_rejection() {
                self.availability.report(OutageCause::Rejecting, error);
            }
        })?;
        let row = one(&rows)?;
        self.learn_time(sent_at, row)?;
        let held = kind(row, "held_kind", "held_capacity")?;
        if let Some(event) = StoreEvent::other_permits(acquire, held) {
            (client.events)(event);
        }
        let lines = || column::<Option<Vec<&str>>>(row, "holders").map(Option::unwrap_or_default);
        let at = server_time(row)?.unwrap_or_default();
        let named = || Ok::<_, StoreError>(holders(&client.id, at, &lines()?));
        let reply: i8 = column(row, "reply")?;
        let reply = match reply as u8 {
            b'H' => AcquireReply::Held(self.proof(sent_at, held_token(row)?)),
            b'Q' => AcquireReply::Queued(named()?),
            b'B' => AcquireReply::Busy(named()?),
            b'F' => AcquireReply::Full(named()?),
            b'L' => AcquireReply::Late,
            b'R' => AcquireReply::AlreadyRan(record(lines()?.first().copied().unwrap_or(""))?),
            b'W' => AcquireReply::WrongKind {
                existing: held.ok_or_else(|| malformed("no kind"))?,
                holders: named()?,
            },
            _ => return Err(malformed("an unknown result of an acquire")),
        };
        // The server has written for this acquire, so it no longer refuses.
        if reply.left_state() {
            self.availability.clear(OutageCause::Rejecting);
        }
        Ok(reply)
    }

    /// Acquires, and listens for a grant before it waits.
    pub(super) async fn acquire_or_queue(
        &self,
        acquire: &Acquire<'_>,
        limit: Limit,
    ) -> StoreResult<AcquireReply> {
        let client = &self.client;
        self.acquires.fetch_add(1, Ordering::Relaxed);
        if acquire.wait.is_zero() {
            return self.acquire(acquire, Duration::ZERO, limit).await;
        }
        client.note_wait();
        if client.is_listening.load(Ordering::SeqCst) || client.liveness_lock().is_none() {
            return self.acquire(acquire, acquire.wait, limit).await;
        }
        // Most locks are free: for those, the client need not listen.
        let started = client.clock.now();
        let tried = self.acquire(acquire, Duration::ZERO, limit).await?;
        if !matches!(tried, AcquireReply::Busy(_)) {
            return Ok(tried);
        }
        let left = || limit.after(client.clock.now().since(started));
        self.listener.listen(left()).await?;
        self.acquire(acquire, acquire.wait, left()).await
    }

    pub(super) async fn release(
        &self,
        release: &Release<'_>,
        limit: Limit,
    ) -> StoreResult<ReleaseReply> {
        let (client, target) = (&self.client, &release.target);
        let cancel_until = release
            .unanswered_until
            .map(|_| client.server_clock.latest_apply_by());
        let success = release.success;
        let parameters: [&(dyn ToSql + Sync); 10] = [
            &client.name(target.key),
            &client.uuid,
            &target.owner.0.cast_signed(),
            &short(release.keep_for),
            &self.fence_ttl(),
            &cancel_until.unwrap_or_default().0.cast_signed(),
            &success.map(|(_, token)| token.as_i64()),
            &success.map(|(once, _)| &*once.selector),
            &success.map(|(once, _)| long(once.gap)),
            &success.map(|(once, _)| long(once.ttl)),
        ];
        let session = self.session()?;
        let releasing = self.command_on(&session, Verb::Release, &parameters, limit);
        let (_, rows) = releasing.await?;
        let row = one(&rows)?;
        Ok(ReleaseReply {
            was_held: column(row, "was_held")?,
            repeat_after: None,
            is_recorded: column(row, "is_recorded")?,
        })
    }

    /// Extends one batch of holds of any kinds.
    pub(super) async fn renew(
        &self,
        batch: &[Renewal<'_>],
        timeout: Duration,
    ) -> StoreResult<RenewReply> {
        let client = &self.client;
        let names: Vec<_> = batch
            .iter()
            .map(|one| client.name(one.target.key))
            .collect();
        let owners: Vec<_> = batch
            .iter()
            .map(|one| one.target.owner.0.cast_signed())
            .collect();
        let tokens: Vec<_> = batch.iter().map(|one| one.token.as_i64()).collect();
        let ttls: Vec<_> = batch
            .iter()
            .map(|one| short(one.target.timing.ttl()))
            .collect();
        let parameters: [&(dyn ToSql + Sync); 6] = [
            &names,
            &client.uuid,
            &owners,
            &tokens,
            &ttls,
            &client.liveness_lock(),
        ];
        // A connection of their own, so that no command delays them; any other if that is down.
        let session = self.listener.link.session().or_else(|_| self.session())?;
        let renewing = self.command_on(&session, Verb::Renew, &parameters, Limit::Timer(timeout));
        let (sent_at, rows) = renewing.await?;
        let mut failures = Vec::new();
        for row in &rows {
            let index: i32 = column(row, "index")?;
            let index = usize::try_from(index - 1)
                .ok()
                .filter(|index| *index < batch.len());
            let index = index.ok_or_else(|| malformed("an index that is none"))?;
            let failure: i8 = column(row, "failure")?;
            let failure = match failure as u8 {
                b'G' => RenewalFailure::Gone,
                b'R' => RenewalFailure::Revoked,
                _ => RenewalFailure::Error(StoreError::new(
                    Outage::NotReady,
                    "another transaction had locked the row of the hold",
                )),
            };
            failures.push((index, failure));
        }
        Ok(RenewReply { sent_at, failures })
    }
}
