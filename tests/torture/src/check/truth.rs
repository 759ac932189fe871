//! What the server held: its commands replayed, its locks and queues as stretches of time.
//!
//! A lock ends when it is deleted, when another is written over it, when its time has come by the server's
//! own clock, or when the server forgets everything. The server decides what has expired when a script
//! begins, so nothing expires inside one.

use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

use crate::check::fifo::Passed;
use crate::check::ownership::{self, Breach};
use crate::check::run::{Key, MICRO, MILLI, Names, SECOND};
use crate::check::spans::{Span, Spans};
use crate::history::{Nanos, ServerEvent};

/// An owner's name, as a number.
pub(crate) type Owner = u32;
/// The part of an owner before its `:`, as a number.
pub(crate) type Client = u32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Deleted,
    Expired,
    Replaced,
    Forgotten,
    /// MONITOR was interrupted.
    Unknown,
    /// The history ended first.
    Open,
}

/// How far the server's clock may be behind within a script.
const SAME_MOMENT: Nanos = 5 * MILLI;

/// By less the server's clock was not set back: lines come late on a busy machine.
const STEP_BACK_US: u64 = 90_000;

/// A lock, as long as the server kept it for one owner and token.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LockSpan {
    pub(crate) key: Key,
    pub(crate) owner: Owner,
    pub(crate) token: u64,
    /// Released, and kept taken by `min_hold`.
    pub(crate) kept: bool,
    /// A node's vote, and not confirmed yet.
    pub(crate) vote: bool,
    pub(crate) span: Span,
    pub(crate) end: End,
    /// The server's clock when it was written.
    pub(crate) wall_us: u64,
    /// The server's clock stepped while a script wrote it.
    pub(crate) stepped: bool,
    /// Given to a waiter by a message.
    pub(crate) pushed: bool,
    /// Its holder has prolonged it.
    pub(crate) confirmed: bool,
    /// The latest moment until which the server ever promised to keep it.
    pub(crate) promised: Nanos,
}

/// A place in a queue, as long as it was there.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Place {
    pub(crate) key: Key,
    pub(crate) owner: Owner,
    pub(crate) span: Span,
    /// It was still there when the history, or what is known of it, ended.
    pub(crate) open: bool,
    /// Another client's script removed it.
    pub(crate) evicted: bool,
}

/// The script that is being executed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Script {
    pub(crate) serial: u64,
    pub(crate) at: Nanos,
    pub(crate) wall_us: u64,
    pub(crate) verb: String,
    pub(crate) owner: Option<String>,
}

/// A lock as a script wrote it.
#[derive(Debug)]
struct Written {
    owner: Owner,
    token: u64,
    kept: bool,
    vote: bool,
    until_us: u64,
}

/// A lock that exists now.
#[derive(Clone, Debug)]
pub(crate) struct Live {
    /// Where it is in `Truth::locks`.
    index: usize,
    pub(crate) owner: Owner,
    pub(crate) token: u64,
    pub(crate) kept: bool,
    pub(crate) vote: bool,
    /// By the server's clock; the earliest and the latest that it may be.
    pub(crate) until_us: (u64, u64),
}

/// A place among those who wait: by arrival, or by ticket and name where a ticket decides.
type Order = (u64, String);

#[derive(Debug, Default)]
struct Queue {
    /// Those who wait and have not been granted, in their order.
    waiting: BTreeMap<Order, Owner>,
    /// Every entry, also granted ones: its order and when it came.
    entries: HashMap<Owner, (Order, Nanos)>,
    /// The entry that was removed last, and by which script: a script removes whom it serves.
    removed: Option<(u64, Owner, Order)>,
}

/// What the server held in the course of time.
#[derive(Debug, Default)]
pub(crate) struct Truth {
    pub(crate) owners: Names,
    pub(crate) clients: Names,
    client_of: Vec<Client>,
    /// In the order of their beginning.
    pub(crate) locks: Vec<LockSpan>,
    pub(crate) entries: Vec<Place>,
    /// Grants that were published.
    pub(crate) grants: u64,
    pub(crate) scripts: u64,
    pub(crate) writes: u64,
    pub(crate) breaches: Vec<Breach>,
    pub(crate) passed: Vec<Passed>,
    pub(crate) amnesias: Vec<Nanos>,
    /// How often it was not seen what a server executed.
    pub(crate) gap_count: u64,
    gaps: Spans,
    /// Of those keys that are concerned by more gaps than all are.
    more_gaps: HashMap<Key, Spans>,
    /// Locks that each server wrote.
    pub(crate) taken: BTreeMap<usize, u64>,
    by_token: HashMap<(Key, u64), usize>,
}

impl Truth {
    pub(crate) fn client_of(&self, owner: Owner) -> Client {
        self.client_of[owner as usize]
    }

    /// When it was not seen what became of a key.
    pub(crate) fn gaps_at(&self, key: Key) -> &Spans {
        self.more_gaps.get(&key).unwrap_or(&self.gaps)
    }

    /// The lock that carried this token.
    pub(crate) fn lock(&self, key: Key, token: u64) -> Option<&LockSpan> {
        self.by_token.get(&(key, token)).map(|&i| &self.locks[i])
    }
}

/// Replays the server's events.
#[derive(Debug)]
pub(crate) struct Replay<'a> {
    keys: &'a mut Names,
    truth: Truth,
    script: Option<Script>,
    live: HashMap<Key, Live>,
    /// The last lock of each key, if its time has come. The server may not have noticed, and keep it after all.
    expired: HashMap<Key, Live>,
    queues: HashMap<Key, Queue>,
    /// When locks expire by the server's clock, the next one first; those that changed since are skipped.
    expiries: BinaryHeap<Reverse<(u64, Key)>>,
    /// What this script has published.
    published: Option<(Key, u64, Owner)>,
    gaps: Vec<(Option<Vec<Key>>, Span)>,
    /// Whose event it is, and what the others are doing.
    server: usize,
    others: HashMap<usize, Doing>,
    arrivals: u64,
    last_at: Nanos,
    /// When the last script began, and the server's clock then.
    last_script: (Nanos, u64),
    /// A queue that nobody joins disappears; entries older than this may have.
    oldest: Nanos,
    /// Until then there may be entries that came before or in a gap, of which nothing is known.
    blurred_until: Nanos,
    /// For some keys longer.
    more_blurred: HashMap<Key, Nanos>,
}

/// What a server was doing when another one did something.
#[derive(Debug, Default)]
struct Doing {
    script: Option<Script>,
    published: Option<(Key, u64, Owner)>,
}

impl<'a> Replay<'a> {
    /// `longest_wait`: of any call.
    pub(crate) fn new(keys: &'a mut Names, longest_wait: Nanos) -> Self {
        Replay {
            keys,
            truth: Truth::default(),
            script: None,
            live: HashMap::new(),
            expired: HashMap::new(),
            queues: HashMap::new(),
            expiries: BinaryHeap::new(),
            published: None,
            gaps: Vec::new(),
            server: 0,
            others: HashMap::new(),
            arrivals: 0,
            last_at: 0,
            last_script: (0, 0),
            oldest: longest_wait + 12 * SECOND,
            blurred_until: 0,
            more_blurred: HashMap::new(),
        }
    }

    /// Takes what one of several servers did. What is at a key is one thing, wherever it is: a slot that moves takes it
    /// along.
    pub(crate) fn push_from(&mut self, server: usize, event: ServerEvent) {
        if server != self.server {
            let next = self.others.remove(&server).unwrap_or_default();
            let doing = Doing {
                script: std::mem::replace(&mut self.script, next.script),
                published: std::mem::replace(&mut self.published, next.published),
            };
            self.others.insert(self.server, doing);
            self.server = server;
        }
        self.push(event);
    }

    pub(crate) fn push(&mut self, event: ServerEvent) {
        match event {
            ServerEvent::Script {
                at,
                wall_us,
                serial,
                verb,
                owner,
            } => {
                self.expire(at, wall_us);
                self.truth.scripts += 1;
                self.published = None;
                self.script = Some(Script {
                    serial,
                    at,
                    wall_us,
                    verb,
                    owner,
                });
                self.last_at = at;
            }
            ServerEvent::Set {
                at,
                wall_us,
                serial,
                key,
                owner,
                token,
                kept,
                vote,
                until_us,
            } => {
                self.begin(at, wall_us, serial);
                let key = self.keys.number(&key);
                let owner = self.owner(&owner);
                let lock = Written {
                    owner,
                    token,
                    kept,
                    vote,
                    until_us,
                };
                self.set(at, wall_us, serial, key, &lock);
            }
            ServerEvent::Extend {
                at,
                wall_us,
                serial,
                key,
                until_us,
            } => {
                self.begin(at, wall_us, serial);
                let key = self.keys.number(&key);
                self.extend(at, wall_us, key, until_us);
            }
            ServerEvent::Delete {
                at,
                wall_us,
                serial,
                key,
            } => {
                self.begin(at, wall_us, serial);
                let key = self.keys.number(&key);
                self.judge(at, wall_us, key, None);
                self.truth.writes += 1;
                self.end(key, at, End::Deleted);
            }
            ServerEvent::Queue {
                at,
                wall_us,
                serial,
                key,
                owner,
                added,
                ticket,
            } => {
                self.begin(at, wall_us, serial);
                let key = self.keys.number(&key);
                let order = ticket.map(|ticket| (ticket, owner.clone()));
                let owner = self.owner(&owner);
                match added {
                    true => self.join(at, key, owner, order),
                    false => self.leave(at, serial, key, owner),
                }
            }
            ServerEvent::Publish {
                at,
                wall_us,
                serial,
                key,
                owner,
                token,
            } => {
                self.begin(at, wall_us, serial);
                let key = self.keys.number(&key);
                let owner = self.owner(&owner);
                self.truth.grants += 1;
                self.published = Some((key, token, owner));
                // It comes after the lock was written; a saboteur's before.
                if let Some(live) = self.live.get(&key)
                    && (live.owner, live.token) == (owner, token)
                {
                    self.truth.locks[live.index].pushed = true;
                }
            }
            ServerEvent::Amnesia { at } => {
                self.forget(at, End::Forgotten, None);
                self.truth.amnesias.push(at);
                self.blurred_until = 0;
                self.more_blurred.clear();
                self.script = None;
            }
            ServerEvent::Gap { from, until, keys } => {
                let keys: Option<Vec<Key>> =
                    keys.map(|keys| keys.iter().map(|key| self.keys.number(key)).collect());
                let at = from.max(self.last_at).min(until);
                self.forget(at, End::Unknown, keys.as_deref());
                let blurred_until = until + self.oldest;
                match &keys {
                    None => {
                        self.blurred_until = blurred_until;
                        self.last_at = self.last_at.max(until);
                    }
                    Some(keys) => {
                        let keys = keys.iter().map(|key| (*key, blurred_until));
                        self.more_blurred.extend(keys);
                    }
                }
                self.gaps.push((keys, Span::new(from, until)));
                self.script = None;
            }
        }
    }

    pub(crate) fn finish(mut self) -> Truth {
        self.forget(self.last_at, End::Open, None);
        let gaps = std::mem::take(&mut self.gaps);
        let concerning = |wanted: &dyn Fn(&Option<Vec<Key>>) -> bool| {
            let gaps = gaps.iter().filter(|(keys, _)| wanted(keys));
            Spans::of(gaps.map(|(_, span)| *span))
        };
        self.truth.gap_count = gaps.len() as u64;
        self.truth.gaps = concerning(&Option::is_none);
        for key in gaps.iter().flat_map(|(keys, _)| keys).flatten() {
            self.truth.more_gaps.entry(*key).or_insert_with(|| {
                concerning(&|keys| keys.as_ref().is_none_or(|keys| keys.contains(key)))
            });
        }
        self.truth.entries.sort_by_key(|entry| entry.span.from);
        self.truth
    }

    fn owner(&mut self, name: &str) -> Owner {
        let owner = self.truth.owners.number(name);
        if owner as usize == self.truth.client_of.len() {
            let client = name.split(':').next().unwrap_or(name);
            let client = self.truth.clients.number(client);
            self.truth.client_of.push(client);
        }
        owner
    }

    /// A command that belongs to no script stands for itself.
    fn begin(&mut self, at: Nanos, wall_us: u64, serial: u64) {
        if self.script.as_ref().is_none_or(|s| s.serial != serial) {
            self.script = None;
            self.published = None;
            self.expire(at, wall_us);
        }
        self.last_at = at;
    }

    /// Ends what has expired by the server's clock.
    fn expire(&mut self, at: Nanos, wall_us: u64) {
        self.doubt_expired(at, wall_us);
        while let Some(&Reverse((until, key))) = self.expiries.peek() {
            if until >= wall_us {
                break;
            }
            self.expiries.pop();
            let Some(live) = self.live.get(&key) else {
                continue;
            };
            if live.until_us.1 == until {
                self.expired.insert(key, live.clone());
                let ago = (wall_us - until) * MICRO;
                let when = at.saturating_sub(ago).max(self.last_at);
                self.end(key, when, End::Expired);
            }
        }
    }

    /// Where the server's clock was set back, a lock may have expired before by the clock that was ahead.
    fn doubt_expired(&mut self, at: Nanos, wall_us: u64) {
        let passed = at.saturating_sub(self.last_script.0) / MICRO;
        let ahead = self.last_script.1 + passed;
        self.last_script = (at, wall_us);
        if ahead > wall_us + STEP_BACK_US {
            for live in self
                .live
                .values_mut()
                .filter(|live| live.until_us.0 < ahead)
            {
                live.until_us.0 = live.until_us.0.min(wall_us);
            }
        }
    }

    fn end(&mut self, key: Key, at: Nanos, end: End) {
        if let Some(live) = self.live.remove(&key) {
            let lock = &mut self.truth.locks[live.index];
            lock.span.until = at.max(lock.span.from);
            lock.end = end;
        }
    }

    /// All that there is, or what there is at some keys.
    fn forget(&mut self, at: Nanos, end: End, keys: Option<&[Key]>) {
        let concerned = |key: &Key| keys.is_none_or(|keys| keys.contains(key));
        let live: Vec<Key> = self.live.keys().copied().filter(concerned).collect();
        for key in live {
            self.end(key, at, end);
        }
        self.expired.retain(|key, _| !concerned(key));
        let queues: Vec<Key> = self.queues.keys().copied().filter(concerned).collect();
        for key in queues {
            let Some(queue) = self.queues.remove(&key) else {
                continue;
            };
            for (owner, (_, from)) in queue.entries {
                self.truth.entries.push(Place {
                    key,
                    owner,
                    span: Span::new(from, at.max(from)),
                    open: end != End::Forgotten,
                    evicted: false,
                });
            }
        }
    }

    /// Asks whether the script may do that to the lock that is there. `until_us`: it sets the TTL.
    fn judge(&mut self, at: Nanos, wall_us: u64, key: Key, until_us: Option<u64>) {
        let (Some(script), Some(live)) = (&self.script, self.live.get(&key)) else {
            return;
        };
        let holder = self.truth.owners.name(live.owner);
        let wrong = match until_us {
            None => ownership::may_delete(script, live, holder, wall_us),
            Some(until) => ownership::may_extend(script, live, holder, until),
        };
        self.breach(at, key, wrong);
    }

    fn breach(&mut self, at: Nanos, key: Key, wrong: Option<&'static str>) {
        let Some(what) = wrong else { return };
        let script = self.script.as_ref();
        let live = self.live.get(&key);
        self.truth.breaches.push(Breach {
            at,
            key,
            verb: script.map_or_else(String::new, |s| s.verb.clone()),
            by: script.and_then(|s| s.owner.clone()).unwrap_or_default(),
            holder: live.map_or_else(String::new, |l| self.truth.owners.name(l.owner).to_owned()),
            token: live.map_or(0, |l| l.token),
            what,
        });
    }

    fn set(&mut self, at: Nanos, wall_us: u64, serial: u64, key: Key, lock: &Written) {
        let &Written {
            owner,
            token,
            kept,
            vote,
            until_us,
        } = lock;
        self.truth.writes += 1;
        let wrong = self.script.as_ref().and_then(|script| {
            let live = self.live.get(&key);
            let holder = live.map_or("", |live| self.truth.owners.name(live.owner));
            ownership::may_set(script, live, holder, wall_us)
        });
        self.breach(at, key, wrong);
        if !kept {
            // A node's vote was given before it is confirmed, or repaired.
            let verb = self.script.as_ref().map(|script| script.verb.as_str());
            if !matches!(verb, Some("confirm_vote" | "repair")) {
                self.serve(at, serial, key, owner, token);
            }
            *self.truth.taken.entry(self.server).or_default() += 1;
        }
        self.end(key, at, End::Replaced);
        let index = self.truth.locks.len();
        self.truth.locks.push(LockSpan {
            key,
            owner,
            token,
            kept,
            vote,
            span: Span::new(at, Nanos::MAX),
            end: End::Open,
            wall_us,
            stepped: self.has_stepped(at, wall_us),
            pushed: self.published == Some((key, token, owner)),
            confirmed: false,
            promised: at + until_us.saturating_sub(wall_us) * MICRO,
        });
        if !kept {
            self.truth.by_token.entry((key, token)).or_insert(index);
        }
        let live = Live {
            index,
            owner,
            token,
            kept,
            vote,
            until_us: self.expiry(wall_us, until_us),
        };
        self.expiries.push(Reverse((live.until_us.1, key)));
        self.live.insert(key, live);
        self.expired.remove(&key);
    }

    /// Whether the server's clock moved otherwise than time did since the script began.
    fn has_stepped(&self, at: Nanos, wall_us: u64) -> bool {
        let Some(script) = &self.script else {
            return false;
        };
        let passed = at.saturating_sub(script.at) / MICRO;
        wall_us.abs_diff(script.wall_us + passed) > SAME_MOMENT / MICRO
    }

    /// A relative TTL counts from the beginning of the script, which may have been a while ago.
    fn expiry(&self, wall_us: u64, until_us: u64) -> (u64, u64) {
        let since = self
            .script
            .as_ref()
            .map_or(0, |s| wall_us.saturating_sub(s.wall_us));
        (until_us.saturating_sub(since), until_us)
    }

    fn extend(&mut self, at: Nanos, wall_us: u64, key: Key, until_us: u64) {
        self.revive(at, wall_us, key);
        self.judge(at, wall_us, key, Some(until_us));
        self.truth.writes += 1;
        let until = self.expiry(wall_us, until_us);
        let Some(live) = self.live.get_mut(&key) else {
            return;
        };
        let lock = &mut self.truth.locks[live.index];
        lock.confirmed |= until.0 > live.until_us.1;
        let promised = at + until_us.saturating_sub(wall_us) * MICRO;
        lock.promised = lock.promised.max(promised);
        live.until_us = until;
        self.expiries.push(Reverse((until.1, key)));
    }

    /// A lock that was extended was there. Its time had come, but the server's clock stands still within a script; or
    /// it stepped forward and back, and nobody touched the lock in between.
    fn revive(&mut self, at: Nanos, wall_us: u64, key: Key) {
        let Entry::Occupied(expired) = self.expired.entry(key) else {
            return;
        };
        let lock = &mut self.truth.locks[expired.get().index];
        let just_now = at < lock.span.until + SAME_MOMENT;
        if lock.end == End::Expired && (just_now || wall_us <= expired.get().until_us.1) {
            lock.span.until = Nanos::MAX;
            lock.end = End::Open;
            self.live.insert(key, expired.remove());
        }
    }

    fn join(&mut self, at: Nanos, key: Key, owner: Owner, order: Option<Order>) {
        let queue = self.queues.entry(key).or_default();
        // Who is there already keeps its place.
        if let Entry::Vacant(place) = queue.entries.entry(owner) {
            self.arrivals += 1;
            let order = order.unwrap_or((self.arrivals, String::new()));
            place.insert((order.clone(), at));
            queue.waiting.insert(order, owner);
        }
    }

    fn leave(&mut self, at: Nanos, serial: u64, key: Key, owner: Owner) {
        let queue = self.queues.entry(key).or_default();
        if let Some((order, from)) = queue.entries.remove(&owner) {
            queue.waiting.remove(&order);
            queue.removed = Some((serial, owner, order));
            let client = self.truth.client_of[owner as usize];
            let by = self.script.as_ref().and_then(|s| s.owner.as_deref());
            let by = by.and_then(|by| by.split(':').next());
            self.truth.entries.push(Place {
                key,
                owner,
                span: Span::new(from, at),
                open: false,
                evicted: by.is_some_and(|by| by != self.truth.clients.name(client)),
            });
        }
    }

    /// The lock goes to `owner`: notes whom it passes.
    fn serve(&mut self, at: Nanos, serial: u64, key: Key, owner: Owner, token: u64) {
        let oldest = at.saturating_sub(self.oldest);
        let blurred = self.more_blurred.get(&key).copied().unwrap_or(0);
        let blurred_until = self.blurred_until.max(blurred);
        let Some(queue) = self.queues.get_mut(&key) else {
            return;
        };
        let own = match (queue.entries.get(&owner), &queue.removed) {
            (Some((order, _)), _) => {
                queue.waiting.remove(order);
                Some(order)
            }
            (None, Some((by, whom, order))) if *by == serial && *whom == owner => {
                // It was removed because it is served.
                if let Some(place) = self.truth.entries.last_mut() {
                    place.evicted = false;
                }
                Some(order)
            }
            _ if at < blurred_until => return,
            _ => None,
        };
        let ahead = queue.waiting.iter().find_map(|(order, &whom)| {
            let &(_, since) = queue.entries.get(&whom)?;
            let waits = since >= oldest && own.is_none_or(|own| order < own);
            waits.then_some((whom, since))
        });
        if let Some((whom, since)) = ahead {
            self.truth.passed.push(Passed {
                at,
                key,
                granted: owner,
                token,
                whom,
                since,
            });
        }
    }
}

#[cfg(test)]
mod tests;
