//! The state of one lock, and its commands, which follow the scripts in `lua/` step by step.

use std::sync::Arc;
use std::time::Duration;

use super::call::{Call, Client, WORK};
use super::queue::{Entry, Queue, REMOVAL, Who};
use crate::fencing::FencingToken;
use crate::protocol::timing::Timing;
use crate::protocol::words::{
    Ask, AskReply, Grant, Inspection, LookReply, Occupant, Owner, Proof, Renewal, RenewalFailure,
    Revocation, Revoked, Waiting,
};
use crate::store::StoreEvent;
use crate::store::command::Revoke;
use crate::util::clock::Moment;

/// Work that every lock of a queue check may do at least (see [`Call::work`]). No lock then waits
/// for the dead waiters of another.
const LEAST_WORK: i64 = 10;

/// How long an entry is served after the caller's wait has ended.
const SLACK: Duration = Duration::from_secs(1);

/// The state of one lock. An empty slot is equivalent to none.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) hold: Option<Hold>,
    pub(super) queue: Queue,
    pub(super) fence: Option<Fence>,
}

#[derive(Debug)]
pub(super) struct Hold {
    pub(super) who: Who,
    pub(super) token: FencingToken,
    pub(super) state: State,
    /// The longest TTL that the holder may set.
    pub(super) limit: Duration,
    pub(super) until: Moment,
    /// Wall time in µs.
    pub(super) since: u64,
    pub(super) name: Arc<str>,
}

/// The state of a hold. Only a hold that is `Held` can be renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Held,
    /// Released, and kept taken by `min_hold`.
    Kept,
    /// Revoked: ends with its TTL, or when its holder releases it.
    Revoked,
}

#[derive(Debug)]
pub(super) struct Fence {
    pub(super) token: FencingToken,
    pub(super) until: Moment,
}

/// The result of handing on a free lock.
enum Driven {
    /// The first live waiter has the lock.
    Granted,
    /// The caller is the first waiter, and takes the lock itself.
    Mine,
    /// No client waits.
    Free,
    /// The queue has too many dead entries for one script.
    More,
}

impl Slot {
    /// Removes the hold, the fence and the queue if they have expired.
    pub(super) fn settle(&mut self, now: Moment) {
        self.hold.take_if(|hold| hold.until <= now);
        self.fence.take_if(|fence| fence.until <= now);
        self.queue.settle(now);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.hold.is_none() && self.fence.is_none() && self.queue.is_empty()
    }

    pub(super) fn ask(&mut self, call: &mut Call<'_>, ask: &Ask<'_>) -> AskReply {
        let who = call.who(ask.owner);
        let Client {
            name, max_waiters, ..
        } = call.client;
        if self.hold.is_none()
            && let Driven::Mine | Driven::Free = self.drive(call, Some(&who))
        {
            self.queue.remove(&who);
            let ttl = ask.timing.ttl();
            return AskReply::Held(self.take(call, who, ttl, ttl, name));
        }
        let revoked = |hold: &Hold| hold.who == who && hold.state == State::Revoked;
        if self.hold.as_ref().is_some_and(revoked) {
            // The lock was revoked before its owner learned of its hold.
            return AskReply::Busy(self.occupant(call));
        }
        if let Some(proof) = self.prolong(call, &who, ask.timing) {
            return AskReply::Held(proof);
        }
        let occupant = self.occupant(call);
        if ask.wait.is_zero() {
            // A client that queues checks every half second, and cuts the TTL down then.
            self.clamp(call.now);
            return AskReply::Busy(occupant);
        }
        if !self.queue.contains(&who) && self.queue.len() >= *max_waiters {
            self.make_room(call, ask.owner);
            if self.queue.len() >= *max_waiters {
                return AskReply::Full(occupant);
            }
        }
        self.queue.join(Entry {
            who,
            key: ask.key.clone(),
            timing: ask.timing,
            deadline: call.now + ask.wait + SLACK,
            since: call.wall,
            name: Arc::clone(name),
        });
        AskReply::Queued(occupant)
    }

    /// Removes dead and overdue waiters in a part of the queue, which depends on the owner.
    fn make_room(&mut self, call: &Call<'_>, owner: Owner) {
        let gone: Vec<Who> = (self.queue.part(owner))
            .filter(|entry| entry.deadline < call.now || !call.is_alive(&entry.who.client))
            .map(|entry| entry.who.clone())
            .collect();
        for who in &gone {
            self.queue.remove(who);
        }
    }

    pub(super) fn confirm(
        &mut self,
        call: &mut Call<'_>,
        owner: Owner,
        timing: Timing,
    ) -> Option<Proof> {
        // A kept lock was released, and a revoked one must end, so a late confirmation changes
        // nothing.
        if (self.hold.as_ref()).is_some_and(|hold| hold.state != State::Held) {
            return None;
        }
        self.prolong(call, &call.who(owner), timing)
    }

    /// Extends the hold if it is still that of the renewal.
    pub(super) fn renew(
        &mut self,
        call: &mut Call<'_>,
        renewal: &Renewal,
    ) -> Result<(), RenewalFailure> {
        let who = call.who(renewal.owner);
        let ours = |hold: &&mut Hold| hold.who == who && hold.token == renewal.token;
        let hold = self.hold.as_mut().filter(ours);
        let hold = hold.ok_or(RenewalFailure::Gone)?;
        match hold.state {
            State::Held => {
                hold.until = call.now + renewal.timing.ttl();
                Ok(())
            }
            State::Revoked => Err(RenewalFailure::Revoked),
            State::Kept => Err(RenewalFailure::Gone),
        }
    }

    /// Revokes the hold with this token.
    pub(super) fn revoke(&mut self, call: &mut Call<'_>, revoke: &Revoke<'_>) -> Revoked {
        let Revoke {
            key,
            token,
            deletes,
        } = *revoke;
        let Some(hold) = self.hold.as_ref().filter(|hold| hold.token == token) else {
            return Revoked::NotHeld;
        };
        let (who, state) = (hold.who.clone(), hold.state);
        let is_kept = state == State::Kept;
        if deletes && !is_kept && call.is_alive(&who.client) {
            return Revoked::Connected;
        }
        let newest = if state == State::Revoked {
            self.fence.as_ref().map_or(token, |fence| fence.token)
        } else {
            // The later end counts, because other clients may remember tokens for longer.
            let known = self.fence.as_ref().map(|fence| fence.until);
            let newest = self.next_token(call);
            if let Some(fence) = &mut self.fence {
                fence.until = fence.until.max(known.unwrap_or(fence.until));
            }
            newest
        };
        self.clamp(call.now);
        if is_kept || deletes {
            self.hold = None;
            self.queue.remove(&who);
            self.drive(call, None);
            return Revoked::Deleted(newest);
        }
        if let Some(hold) = &mut self.hold {
            hold.state = State::Revoked;
        }
        let revocation = Revocation {
            key: key.clone(),
            token,
            by: call.client.name.to_string(),
        };
        call.push(&who.client, StoreEvent::Revoked(revocation));
        Revoked::Ending(newest)
    }

    pub(super) fn release(&mut self, call: &mut Call<'_>, owner: Owner, keep: Duration) -> bool {
        let who = call.who(owner);
        let held = self.hold.as_ref().is_some_and(|hold| hold.who == who);
        if held && keep.is_zero() {
            self.hold = None;
        } else if held && let Some(hold) = &mut self.hold {
            hold.state = State::Kept;
            hold.limit = keep;
            hold.until = call.now + keep;
        }
        self.queue.remove(&who);
        // The work limit of one script is not enough to pass very many dead waiters.
        while self.hold.is_none() && matches!(self.drive(call, None), Driven::More) {
            call.work = WORK;
        }
        held
    }

    pub(super) fn look(&mut self, call: &mut Call<'_>, owners: &[Owner]) -> LookReply {
        call.work = call.work.max(LEAST_WORK);
        if self.hold.is_none() {
            self.drive(call, None);
        }
        self.clamp(call.now);
        let here = |owner: Owner| {
            let who = call.who(owner);
            self.hold.as_ref().is_some_and(|hold| hold.who == who) || self.queue.contains(&who)
        };
        LookReply::Seen {
            occupant: self.occupant(call),
            missing: (owners.iter().copied())
                .filter(|owner| !here(*owner))
                .collect(),
        }
    }

    pub(super) fn inspect(&self, call: &Call<'_>, waiters: usize) -> Inspection {
        // The owner of a marked entry no longer waits.
        let marked = usize::from(self.queue.marked().is_some());
        let waiting = self.queue.entries.values().skip(marked).take(waiters);
        Inspection {
            occupant: self.occupant(call),
            left: self.hold.as_ref().map(|hold| hold.until.since(call.now)),
            waiters: (self.queue.len() - marked) as u64,
            waiting: waiting
                .map(|entry| Waiting {
                    this_process: true,
                    since: entry.since,
                    name: entry.name.to_string(),
                })
                .collect(),
            last_token: self.fence.as_ref().map(|fence| fence.token),
            ..Inspection::default()
        }
    }

    pub(super) fn is_taken(&self) -> bool {
        self.hold.is_some()
    }

    fn occupant(&self, call: &Call<'_>) -> Option<Occupant> {
        let hold = self.hold.as_ref()?;
        let left = hold.until.since(call.now).as_micros();
        let ends_at = call
            .wall
            .saturating_add(u64::try_from(left).unwrap_or(u64::MAX));
        Some(Occupant {
            ours: (hold.who.client == *call.caller).then_some(hold.who.owner),
            // No other process can reach this store.
            this_process: true,
            token: hold.token,
            since: hold.since,
            kept_until: (hold.state == State::Kept).then_some(ends_at),
            name: hold.name.to_string(),
        })
    }

    /// Extends the hold of `who` to its full lease and removes its mark; `None` if it has no hold.
    fn prolong(&mut self, call: &Call<'_>, who: &Who, timing: Timing) -> Option<Proof> {
        let hold = self.hold.as_mut().filter(|hold| hold.who == *who)?;
        hold.until = call.now + timing.ttl();
        self.queue.remove(who);
        Some(Proof {
            sent: call.now,
            token: hold.token,
        })
    }

    /// Hands the free lock to the first live waiter, unless that is `me`.
    fn drive(&mut self, call: &mut Call<'_>, me: Option<&Who>) -> Driven {
        while call.work > 0 {
            let Some((head, marked)) = self.queue.head() else {
                return Driven::Free;
            };
            if marked && head.who.client != *call.caller {
                // Granted, never confirmed, and the lock has expired: the client does not answer.
                self.queue.purge_client_of_head(&mut call.work);
            } else if !marked && Some(&head.who) == me {
                return Driven::Mine;
            } else if !marked && head.deadline >= call.now && call.is_alive(&head.who.client) {
                self.grant(call);
                return Driven::Granted;
            } else {
                self.queue.remove_head();
                call.work -= REMOVAL;
            }
        }
        Driven::More
    }

    /// Grants the lock to the head for a short time, and notifies its client.
    fn grant(&mut self, call: &mut Call<'_>) {
        let Some((head, _)) = self.queue.head() else {
            return;
        };
        let (who, key, name) = (head.who.clone(), head.key.clone(), Arc::clone(&head.name));
        let timing = head.timing;
        self.queue.mark_head();
        let proof = self.take(call, who.clone(), timing.grant().ttl(), timing.ttl(), &name);
        let grant = Grant {
            key,
            owner: who.owner,
            token: proof.token,
            granted_at: Some(call.now),
            lease: timing.grant().lease,
        };
        call.push(&who.client, StoreEvent::Granted(grant));
    }

    fn take(
        &mut self,
        call: &Call<'_>,
        who: Who,
        ttl: Duration,
        limit: Duration,
        name: &Arc<str>,
    ) -> Proof {
        let token = self.next_token(call);
        self.hold = Some(Hold {
            who,
            token,
            state: State::Held,
            limit,
            until: call.now + ttl,
            since: call.wall,
            name: Arc::clone(name),
        });
        Proof {
            sent: call.now,
            token,
        }
    }

    fn next_token(&mut self, call: &Call<'_>) -> FencingToken {
        let after_previous = (self.fence.as_ref()).map_or(0, |fence| fence.token.get() + 1);
        let token = after_previous.max(call.wall);
        let ahead = Duration::from_micros(token - call.wall);
        let token = FencingToken::new(token);
        self.fence = Some(Fence {
            token,
            until: call.now + call.client.fence_ttl + ahead,
        });
        token
    }

    /// Cuts the hold down to the longest TTL that its holder may set (R21).
    fn clamp(&mut self, now: Moment) {
        let Some(hold) = &mut self.hold else { return };
        let limit = match self.queue.marked() {
            Some(entry) if entry.who == hold.who => hold.limit.min(entry.timing.grant().ttl()),
            _ => hold.limit,
        };
        hold.until = hold.until.min(now + limit);
    }
}
