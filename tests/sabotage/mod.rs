//! Deliberate faults that break the lock from outside: in its scripts and functions, its clock, its
//! executor and its connections. Faults in the protocol itself are places with `rule!`. Only a build with
//! `--cfg sabotage` uses any.

#[cfg(feature = "postgres")]
pub(crate) mod postgres;

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use redis::{Arg, Cmd, RedisResult, Value};
use tokio::runtime::Handle;

use crate::manager::builder::dependencies::Dependencies;
use crate::protocol::rules::Rules;
use crate::protocol::store_error::StoreError;
use crate::store::BoxFuture;
use crate::store::redis::transport::{ConnectionEventHandler, OpenConnection, Transport};
use crate::store::redis::wire::scripts::Scripts;
use crate::util::clock::{BootClock, BootInstant, Clock};

/// Applies the faults of the saboteur named by `DISTLOCK_SABOTAGE` to a manager's dependencies.
pub(crate) fn sabotaged(mut dependencies: Dependencies) -> Dependencies {
    let Ok(saboteur) = std::env::var("DISTLOCK_SABOTAGE") else {
        return dependencies;
    };
    let rules = Rules::in_force();
    dependencies.scripts = Arc::new(scripts(saboteur));
    if !rules.boot_clock {
        dependencies.clock = Arc::new(MonotonicClock::default());
    }
    if !rules.own_thread {
        dependencies.background_runtime = Handle::try_current().ok();
    }
    if !rules.subscribe_first {
        dependencies.transport_factory =
            |sockets| Arc::new(BrokenTransport(Arc::new(sockets), Fault::DelayedSubscribe));
    }
    if !rules.acknowledged {
        dependencies.transport_factory =
            |sockets| Arc::new(BrokenTransport(Arc::new(sockets), Fault::FakeWait));
    }
    dependencies
}

/// A clock that stands still while the machine is suspended, as `std::time::Instant` does.
#[derive(Debug, Default)]
struct MonotonicClock(OnceLock<(Instant, BootInstant)>);

impl Clock for MonotonicClock {
    fn now(&self) -> BootInstant {
        let (origin, at) = *self.0.get_or_init(|| (Instant::now(), BootClock.now()));
        at + origin.elapsed()
    }

    fn wall_micros(&self) -> u64 {
        BootClock.wall_micros()
    }
}

/// What a broken connection does with a command.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// It reports SUBSCRIBE as done, but sends it three seconds later.
    DelayedSubscribe,
    /// It fakes a successful reply to WAIT.
    FakeWait,
}

#[derive(Debug)]
struct BrokenTransport(Arc<dyn Transport>, Fault);

impl Transport for BrokenTransport {
    fn open(
        &self,
        on_event: ConnectionEventHandler,
    ) -> BoxFuture<'_, Result<Arc<dyn OpenConnection>, StoreError>> {
        Box::pin(async move {
            let connection = self.0.open(on_event).await?;
            Ok(Arc::new(BrokenConnection(connection, self.1)) as Arc<dyn OpenConnection>)
        })
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.0.spawn(task);
    }
}

#[derive(Debug)]
struct BrokenConnection(Arc<dyn OpenConnection>, Fault);

impl OpenConnection for BrokenConnection {
    fn send(&self, command: Cmd) -> BoxFuture<'_, RedisResult<Value>> {
        self.0.send(command)
    }

    fn send_all<'a>(
        &'a self,
        commands: &'a [Cmd],
    ) -> BoxFuture<'a, RedisResult<Vec<RedisResult<Value>>>> {
        let waits = |last: &Cmd| matches!(last.args_iter().next(), Some(Arg::Simple(b"WAIT")));
        match commands.split_last() {
            Some((last, writes)) if self.1 == Fault::FakeWait && waits(last) => {
                Box::pin(async move {
                    let mut replies = self.0.send_all(writes).await?;
                    replies.push(Ok(Value::Int(i64::MAX)));
                    Ok(replies)
                })
            }
            _ => self.0.send_all(commands),
        }
    }

    fn subscribe<'a>(&'a self, channel: &'a str) -> BoxFuture<'a, RedisResult<()>> {
        if self.1 != Fault::DelayedSubscribe {
            return self.0.subscribe(channel);
        }
        let (connection, channel) = (self.0.clone(), channel.to_owned());
        Box::pin(async move {
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(3)).await;
                let _ = connection.subscribe(&channel).await;
            });
            Ok(())
        })
    }

    fn has_pushes(&self) -> bool {
        self.0.has_pushes()
    }

    fn activity(&self) -> u64 {
        self.0.activity()
    }

    fn peer(&self) -> Option<&str> {
        self.0.peer()
    }
}

/// A passage of some scripts, and the replacement with which a saboteur breaks a rule.
struct Edit {
    saboteur: &'static str,
    scripts: &'static [&'static str],
    passage: &'static str,
    replacement: &'static str,
}

/// The scripts that include `next.lua`.
const NEXT: &[&str] = &[
    "acquire",
    "check_queue",
    "counted/acquire",
    "counted/downgrade",
    "counted/release",
    "once/acquire",
    "once/release",
    "release",
    "revoke",
];

/// The scripts that include `quorum/epoch.lua`, except `quorum/revoke`, for the same reason.
const EPOCH: &[&str] = &["quorum/acquire", "quorum/renew"];

const EDITS: &[Edit] = &[
    Edit {
        saboteur: "del-without-token",
        scripts: &["release"],
        passage: "  if held then call('DEL', lock) end\n",
        replacement: "  if value then call('DEL', lock) end\n",
    },
    Edit {
        saboteur: "renew-recreates",
        scripts: &["renew"],
        passage: "  if not held then failures",
        replacement: "  if redis.call('EXISTS', key) == 0 then
    held = redis.call('SET', key, '2 ' .. ARGV[2 * i - 1] .. ' ' .. ARGV[2 * i] .. ' ' .. now_text .. ' renewed', 'PX', ARGV[2 * i])
  end
  if not held then failures",
    },
    Edit {
        saboteur: "renew-by-set",
        scripts: &["renew"],
        passage: "  local held, failure = extend(key, owner, token, ARGV[2 * i], now_text)\n",
        replacement: "  local value = redis.pcall('GET', key)
  local written = type(value) ~= 'string' or redis.pcall('SET', key, value, 'PX', ARGV[2 * i])
  local held, failure = extend(key, owner, token, ARGV[2 * i], now_text)
  if type(written) == 'table' and written.err then held, failure = nil, written.err end
",
    },
    // First the lock, with a token of one; then everything that may fail; then the lock as it
    // should be.
    Edit {
        saboteur: "failed-acquire-not-cancelled",
        scripts: &["acquire"],
        passage: "start, ttl = redis.call, KEYS[1], KEYS[2], ARGV[1], ARGV[3]\nlocal time = call('TIME')\n",
        replacement: "start, ttl = redis.call, KEYS[1], KEYS[2], ARGV[1], ARGV[3]
local was_free = redis.call('EXISTS', lock, (string.gsub(lock, ':lock:', ':queue:', 1))) == 0
if was_free then redis.call('SET', lock, start .. '1 ' .. ttl .. ' 1 ' .. ARGV[5], 'PX', ttl) end
local time = call('TIME')
",
    },
    Edit {
        saboteur: "failed-acquire-not-cancelled",
        scripts: &["acquire"],
        passage: "if now_text > ARGV[2] then return { 'late', tonumber(now_text), ARGV[6] } end\n",
        replacement: "if now_text > ARGV[2] then
  if was_free then redis.call('DEL', lock) end
  return { 'late', tonumber(now_text), ARGV[6] }
end
",
    },
    Edit {
        saboteur: "failed-acquire-not-cancelled",
        scripts: &["acquire"],
        passage: "if is_uncontended and not value then\n",
        replacement: "if was_free then\n",
    },
    Edit {
        saboteur: "failed-acquire-not-cancelled",
        scripts: &["acquire"],
        passage: "'PX', ttl, 'NX') then\n",
        replacement: "'PX', ttl) then\n",
    },
    Edit {
        saboteur: "no-apply-by",
        scripts: &["acquire"],
        passage: "if now_text > ARGV[2] then return { 'late', tonumber(now_text), ARGV[6] } end\n",
        replacement: "",
    },
    Edit {
        saboteur: "publish-before-write",
        scripts: NEXT,
        passage: "      begin_write(l)\n      l.kind, l.capacity, l.used",
        replacement: "      redis.pcall('PUBLISH', l.channels .. client_id,
        table.concat({ kind, owner, next_token(l), call.now_text, 1000, l.lock }, ' '))
      begin_write(l)
      l.kind, l.capacity, l.used",
    },
    Edit {
        saboteur: "long-grant-lease",
        scripts: NEXT,
        passage: "math.min(ttl - 250, 1000)",
        replacement: "ttl - 250",
    },
    Edit {
        saboteur: "silent-not-skipped",
        scripts: NEXT,
        passage: "or is_silent or",
        replacement: "or",
    },
    Edit {
        saboteur: "silent-not-skipped",
        scripts: NEXT,
        passage: "    alive[client_id] = subscribers.err ~= nil or subscribers[2] > 0\n",
        replacement: "    alive[client_id] = true\n",
    },
    Edit {
        saboteur: "newcomer-passes",
        scripts: &["acquire"],
        passage: "if is_uncontended and not value then\n",
        replacement: "if not value and (not fence_value or string.sub(fence_value, 1, 16) < now_text) then\n",
    },
    Edit {
        saboteur: "no-write-back",
        scripts: &["quorum/acquire"],
        passage: "set_fence(string.format('%.0f', math.max(known, tonumber(token)))) -- a server that rejects writes stops here\n",
        replacement: "",
    },
    Edit {
        saboteur: "no-quarantine",
        scripts: EPOCH,
        passage: "  from = math.max(now, tonumber(latest_time)) + tonumber(quarantine) * 1000\n",
        replacement: "  from = now\n",
    },
    Edit {
        saboteur: "number-of-the-last-call",
        scripts: &["counted/acquire"],
        passage: "l.used + request.weight > request.capacity) then\n",
        replacement: "l.used + request.weight > (l.capacity or request.capacity)) then\n",
    },
    Edit {
        saboteur: "number-of-the-last-call",
        scripts: NEXT,
        passage: "elseif l.used + weight > capacity then\n",
        replacement: "elseif l.used + weight > (l.capacity or capacity) then\n",
    },
    Edit {
        saboteur: "takes-held-keys",
        scripts: &["acquire_all"],
        passage: "  if not is_uncontended or redis.call('EXISTS', KEYS[i]) == 1 then return { 'busy', tonumber(now_text) } end\n",
        replacement: "  if i == 1 and redis.call('EXISTS', KEYS[i]) == 1 then return { 'busy', tonumber(now_text) } end\n",
    },
];

/// Returns the scripts with the edits of a saboteur.
fn scripts(saboteur: String) -> Scripts {
    Scripts::edited(move |name, source| {
        let active = EDITS.iter().filter(|edit| edit.saboteur == saboteur);
        active.fold(source, |source, edit| edit.apply(name, source))
    })
}

impl Edit {
    /// # Panics
    ///
    /// Panics unless `passage` occurs exactly once, because the script may have changed.
    fn apply(&self, name: &str, source: String) -> String {
        if !self.scripts.contains(&name) {
            return source;
        }
        let found = source.matches(self.passage).count();
        assert!(
            found == 1,
            "{:?}: {name} has this passage {found} times:\n{}",
            self.saboteur,
            self.passage
        );
        source.replace(self.passage, self.replacement)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::store::redis::quorum;

    #[test]
    fn every_passage_is_found_in_its_file() {
        for edit in EDITS {
            let edited = Arc::new(Mutex::new(Vec::new()));
            let names = edited.clone();
            // Compared before comments are stripped, because the script as sent has none.
            let scripts = Scripts::edited(move |name, source| {
                let after = edit.apply(name, source.clone());
                if after != source {
                    names.lock().unwrap().push(name.to_owned());
                }
                after
            });
            quorum::hooks::scripts(&scripts);
            let mut edited = edited.lock().unwrap().clone();
            edited.sort();
            edited.dedup();
            let mut wanted = edit.scripts.to_vec();
            wanted.sort_unstable();
            assert_eq!(edited, wanted, "{:?}", edit.saboteur);
        }
    }

    #[test]
    fn every_edit_of_a_script_breaks_a_rule() {
        for edit in EDITS {
            assert!(
                Rules::broken_by(edit.saboteur).is_some(),
                "{}",
                edit.saboteur
            );
        }
    }
}
