//! Decides about every value on one connection.

use std::collections::VecDeque;

use super::Shared;
use super::rules::{After, Direction};
use crate::resp::{command_name, is_push, push_kind};

/// A pending request to swallow one reply.
#[derive(Debug)]
pub(super) struct Swallow {
    /// Bytes that the request contains.
    needle: Vec<u8>,
    after: After,
}

impl Swallow {
    pub(super) fn new(needle: &str, after: After) -> Swallow {
        let needle = needle.into();
        Swallow { needle, after }
    }
}

/// The decision about a value.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Forward,
    Drop,
    /// Drop the value and reset the connection.
    Reset,
    /// Forward the value after another reply.
    ForwardBehind(&'static str),
    /// Forward another reply in its place.
    Replace(&'static str),
}

/// The state of one connection.
#[derive(Debug, Default)]
pub(super) struct Filter {
    connection: u64,
    /// One entry for every request without a reply; the reply to a marked request is swallowed.
    unanswered: VecDeque<Option<After>>,
    pub(super) subscribed: bool,
    hole_to_server: bool,
    hole_to_client: bool,
    silent: bool,
}

impl Filter {
    pub(super) fn of(connection: u64) -> Filter {
        Filter {
            connection,
            ..Filter::default()
        }
    }

    /// Decides about a request from the client.
    pub(super) fn request(&mut self, shared: &Shared, request: &[u8]) -> Verdict {
        shared.stats().requests += 1;
        let (dropping, concerned) = {
            let rules = shared.rules.borrow();
            let switches = rules.switches(self.connection, Direction::ToServer);
            (switches.drop, rules.concern(self.connection))
        };
        if dropping {
            self.hole_to_server = true;
            return Verdict::Drop;
        }
        if self.hole_to_server {
            return Verdict::Reset;
        }
        if shared.sealed {
            return Verdict::Forward;
        }
        if !has_reply(request) {
            self.subscribed = true;
        } else {
            let mut swallows = shared.swallows();
            let mut orders = swallows.iter();
            let order = orders.position(|order| concerned && contains(request, &order.needle));
            let mark = order.map(|order| swallows.remove(order).after);
            self.unanswered.push_back(mark);
        }
        Verdict::Forward
    }

    /// Decides about a reply or push from the server.
    pub(super) fn reply(&mut self, shared: &Shared, value: &[u8]) -> Verdict {
        let mark = if shared.sealed || is_push(value) {
            None
        } else {
            self.unanswered.pop_front().flatten()
        };
        let (dropping, drop_pushes, replacement) = {
            let rules = shared.rules.borrow();
            let switches = rules.switches(self.connection, Direction::ToClient);
            let concerned = rules.concern(self.connection);
            let replacement = rules.reply.filter(|_| concerned);
            (switches.drop, concerned && rules.drop_pushes, replacement)
        };
        if dropping {
            self.hole_to_client = true;
            return Verdict::Drop;
        }
        if self.silent {
            return Verdict::Drop;
        }
        if self.hole_to_client {
            return Verdict::Reset;
        }
        if shared.sealed {
            return Verdict::Forward;
        }
        if push_kind(value) == Some(b"message") {
            let mut stats = shared.stats();
            return if drop_pushes {
                stats.pushes_dropped += 1;
                Verdict::Drop
            } else {
                stats.pushes_passed += 1;
                Verdict::Forward
            };
        }
        if is_push(value) {
            return Verdict::Forward;
        }
        if let Some(reply) = replacement {
            return Verdict::Replace(reply);
        }
        let Some(after) = mark else {
            return Verdict::Forward;
        };
        if !matches!(after, After::Inserted(_)) {
            shared.stats().replies_swallowed += 1;
        }
        match after {
            After::Inserted(reply) => Verdict::ForwardBehind(reply),
            After::GoOn => Verdict::Drop,
            After::Reset => Verdict::Reset,
            After::Silence => {
                self.silent = true;
                Verdict::Drop
            }
        }
    }
}

/// Returns true if a request has a reply. In RESP3, subscriptions are confirmed by pushes.
fn has_reply(request: &[u8]) -> bool {
    command_name(request).is_none_or(|name| {
        let name = name.to_ascii_lowercase();
        !name.ends_with(b"subscribe")
    })
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    needle.is_empty()
        || haystack
            .windows(needle.len())
            .any(|window| window == needle)
}
