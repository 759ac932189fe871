//! Deliberate faults, for showing that the checkers notice them. Compiled with `--cfg sabotage` only; the
//! environment variable `DISTLOCK_SABOTAGE` names the one that is at work (see CONTRIBUTING.md).

use std::env;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use crate::clock::{Clock, Moment};
use crate::error::{Error, Outage};

const VARIABLE: &str = "DISTLOCK_SABOTAGE";

macro_rules! saboteurs {
    ($($(#[$what:meta])* $saboteur:ident = $name:literal,)*) => {
        /// What is broken.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Saboteur {
            $($(#[$what])* $saboteur,)*
        }

        const ALL: &[(&str, Saboteur)] = &[$(($name, Saboteur::$saboteur),)*];
    };
}

saboteurs! {
    /// A hold is never over by its safe deadline.
    NoValidity = "no-validity",
    /// The safe deadline counts from the reply and not from the send.
    ValidityFromReply = "validity-from-reply",
    /// A release deletes the lock whoever holds it.
    DelWithoutToken = "del-without-token",
    /// A renewal sets a lock that is gone.
    RenewRecreates = "renew-recreates",
    /// A renewal writes with SET, which a server without memory refuses.
    RenewBySet = "renew-by-set",
    /// An ask without an answer is repeated with a new id, and the old one is not undone.
    NoIdempotentAcquire = "no-idempotent-acquire",
    /// Connections and watchdog run on the runtime of the caller that connects.
    WatchdogOnUserRuntime = "watchdog-on-user-runtime",
    /// The clock stops while the machine is suspended.
    InstantInsteadOfBoottime = "instant-instead-of-boottime",
    /// The lock is written before what can fail, and an error counts as "not acquired".
    SetBeforeIncr = "set-before-incr",
    /// After a transient failure the id is undone, and asked for again.
    UndoThenAskAgain = "undo-then-ask-again",
    /// An ask is applied however late it is.
    NoApplyBy = "no-apply-by",
    /// A grant is published before the first write.
    PublishBeforeWrite = "publish-before-write",
    /// An unconfirmed grant lasts for the waiter's full lease.
    LongGrantLease = "long-grant-lease",
    /// Nobody looks every half second.
    NoLook = "no-look",
    /// A dead client's entries are removed one at a time, each after its own grant.
    DeadNotPurged = "dead-not-purged",
    /// Who finds the lock free takes it, although others wait.
    NewcomerPasses = "newcomer-passes",
    /// Asks are sent long before SUBSCRIBE.
    AskBeforeSubscribe = "ask-before-subscribe",
    /// A pushed grant is believed from its arrival.
    GrantAgeUnchecked = "grant-age-unchecked",
    /// A wait that is cancelled, or runs out, leaves its entry in the queue.
    EntryLeaked = "entry-leaked",
    /// Nothing here: a guarded resource that does not check tokens when it is read.
    FenceNotOnRead = "fence-not-on-read",
}

/// Whether this one is at work.
///
/// # Panics
///
/// When the variable names none.
pub(crate) fn is(saboteur: Saboteur) -> bool {
    static CHOSEN: OnceLock<Option<Saboteur>> = OnceLock::new();
    *CHOSEN.get_or_init(|| named(&env::var(VARIABLE).unwrap_or_default())) == Some(saboteur)
}

fn named(name: &str) -> Option<Saboteur> {
    if name.is_empty() {
        return None;
    }
    let found = ALL.iter().find(|(known, _)| *known == name);
    let Some((_, saboteur)) = found else {
        let names: Vec<_> = ALL.iter().map(|(name, _)| *name).collect();
        panic!("{VARIABLE}=`{name}`: there is no such saboteur, only {names:?}");
    };
    Some(*saboteur)
}

/// The safe deadline. A `max_hold` is another rule, and a hold that has reached it is not renewed.
pub(crate) fn safe_until(until: Moment, max_hold: Option<Duration>) -> Moment {
    if is(Saboteur::NoValidity) && max_hold.is_none() {
        until + Duration::from_secs(3_600)
    } else {
        until
    }
}

/// From when a hold is believed that a reply has just proven.
pub(crate) fn proven_at(sent: Moment, clock: &dyn Clock) -> Moment {
    if is(Saboteur::ValidityFromReply) {
        clock.now()
    } else {
        sent
    }
}

/// The age of a grant that has just arrived.
pub(crate) fn granted_at(bound: Option<Moment>, received: Moment) -> Option<Moment> {
    if is(Saboteur::GrantAgeUnchecked) {
        Some(received)
    } else {
        bound
    }
}

/// The runtime of all background work.
pub(crate) fn runtime(of_thread: Handle) -> Handle {
    if is(Saboteur::WatchdogOnUserRuntime) {
        Handle::try_current().unwrap_or(of_thread)
    } else {
        of_thread
    }
}

/// The time of `std::time::Instant`, or of the boot clock.
pub(crate) fn now(boot: Moment) -> Moment {
    static ORIGIN: OnceLock<(Instant, Moment)> = OnceLock::new();
    if is(Saboteur::InstantInsteadOfBoottime) {
        let (origin, at) = *ORIGIN.get_or_init(|| (Instant::now(), boot));
        at + origin.elapsed()
    } else {
        boot
    }
}

/// Whether the server answered a call that failed, and so the call left nothing behind, as one might think.
pub(crate) fn needs_no_release(error: &Error) -> bool {
    let answered = match error {
        Error::ForeignKey { .. } => true,
        Error::Unavailable { outage, .. } => {
            !matches!(outage, Outage::TimedOut | Outage::Unreachable)
        }
        _ => false,
    };
    answered && is(Saboteur::SetBeforeIncr)
}

/// Looks no more.
pub(crate) async fn look_no_more() {
    if is(Saboteur::NoLook) {
        std::future::pending::<()>().await;
    }
}

/// A passage of some scripts, and what the saboteur writes instead.
struct Edit {
    by: Saboteur,
    scripts: &'static [&'static str],
    passage: &'static str,
    instead: &'static str,
}

/// The scripts that include `next.lua`.
const NEXT: &[&str] = &["ask", "look", "release"];

const EDITS: &[Edit] = &[
    Edit {
        by: Saboteur::DelWithoutToken,
        scripts: &["release"],
        passage: "if held then\n",
        instead: "if type(value) == 'string' then\n",
    },
    Edit {
        by: Saboteur::RenewRecreates,
        scripts: &["renew"],
        passage: "  else\n    trouble = ''\n  end\n",
        instead: "  elseif not value then
    local time = redis.call('TIME')
    local stamp = string.format('%.0f', time[1] * 1000000 + time[2])
    redis.call('SET', key, prefix .. ARGV[2 * i] .. ' ' .. stamp .. ' renewed', 'PX', ARGV[2 * i])
  else
    trouble = ''
  end
",
    },
    Edit {
        by: Saboteur::RenewBySet,
        scripts: &["renew"],
        passage: "redis.pcall('PEXPIRE', key, ARGV[2 * i])",
        instead: "redis.pcall('SET', key, value, 'PX', ARGV[2 * i])",
    },
    // First the lock, with a token of one; then everything that may fail; then the lock as it should be.
    Edit {
        by: Saboteur::SetBeforeIncr,
        scripts: &["ask"],
        passage: "local time = redis.call('TIME')\n",
        instead: "local was_free = redis.call('EXISTS', lock, queue) == 0
if was_free then redis.call('SET', lock, owner .. ' 1 ' .. ttl .. ' 1 ' .. name, 'PX', ttl) end
local time = redis.call('TIME')
",
    },
    Edit {
        by: Saboteur::SetBeforeIncr,
        scripts: &["ask"],
        passage: "if now > tonumber(ARGV[5]) then return { 4, now } end\n",
        instead: "if now > tonumber(ARGV[5]) then
  if was_free then redis.call('DEL', lock) end
  return { 4, now }
end
",
    },
    Edit {
        by: Saboteur::SetBeforeIncr,
        scripts: &["ask"],
        passage: "if redis.call('EXISTS', lock, queue) == 0 then\n",
        instead: "if was_free then\n",
    },
    Edit {
        by: Saboteur::NoApplyBy,
        scripts: &["ask"],
        passage: "if now > tonumber(ARGV[5]) then return { 4, now } end\n",
        instead: "",
    },
    Edit {
        by: Saboteur::PublishBeforeWrite,
        scripts: NEXT,
        passage: "  redis.call('DEL', lock) -- the write that a refusing server rejects, before anything is changed\n",
        instead: "  redis.pcall('PUBLISH', channels .. client_of(owner),
    owner .. ' ' .. token .. ' ' .. stamp .. ' ' .. short .. ' ' .. lock)
  redis.call('DEL', lock)
",
    },
    Edit {
        by: Saboteur::LongGrantLease,
        scripts: NEXT,
        passage: "  return math.min(lease, 1000)\n",
        instead: "  return lease\n",
    },
    Edit {
        by: Saboteur::DeadNotPurged,
        scripts: NEXT,
        passage: "        purge(whose, owner, string.sub(order, 2))\n",
        instead: "        remove(owner)\n        work = work - REMOVAL\n",
    },
    Edit {
        by: Saboteur::DeadNotPurged,
        scripts: NEXT,
        passage: "    alive[whose] = subscribers.err ~= nil or subscribers[2] > 0\n",
        instead: "    alive[whose] = true\n",
    },
    Edit {
        by: Saboteur::NewcomerPasses,
        scripts: &["ask"],
        passage: "if redis.call('EXISTS', lock, queue) == 0 then\n",
        instead: "if redis.call('EXISTS', lock) == 0 then\n",
    },
];

/// A script, which begins with a comment that names it, as the saboteur wants it.
pub(crate) fn script(source: String) -> String {
    let at_work = EDITS.iter().filter(|edit| is(edit.by));
    at_work.fold(source, |source, edit| edit.apply(source))
}

impl Edit {
    /// # Panics
    ///
    /// When the script was changed and the passage is not there, or not once.
    fn apply(&self, source: String) -> String {
        let heading = source.strip_prefix("-- ").and_then(|it| it.split_once(':'));
        let name = heading.map_or("", |(name, _)| name);
        let name = name.split(',').next().unwrap_or_default();
        if !self.scripts.contains(&name) {
            return source;
        }
        let found = source.matches(self.passage).count();
        assert!(
            found == 1,
            "{:?}: {name}.lua has this passage {found} times:\n{}",
            self.by,
            self.passage
        );
        source.replace(self.passage, self.instead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_passage_is_found_where_it_is_looked_for() {
        let next = include_str!("../../lua/next.lua");
        let scripts = [
            ("ask", include_str!("../../lua/ask.lua")),
            ("look", include_str!("../../lua/look.lua")),
            ("release", include_str!("../../lua/release.lua")),
            ("renew", include_str!("../../lua/renew.lua")),
        ];
        for edit in EDITS {
            for name in edit.scripts {
                let (_, source) = scripts.iter().find(|(known, _)| known == name).unwrap();
                let source = source.replace("--@include next", next);
                assert_ne!(edit.apply(source.clone()), source, "{:?}", edit.by);
            }
        }
    }

    #[test]
    fn saboteurs_are_known_by_name() {
        assert_eq!(named(""), None);
        for (name, saboteur) in ALL {
            assert_eq!(named(name), Some(*saboteur));
        }
    }

    #[test]
    #[should_panic(expected = "`no-lock`: there is no such saboteur")]
    fn an_unknown_saboteur_is_refused() {
        named("no-lock");
    }
}
