//! Writes that count only once replicas, or disks, have them. `WAIT` blocks its connection and
//! counts only that connection's writes, so they use separate connections. Writes that arrive while
//! a `WAIT` is in flight share the next one.

use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::{Cmd, RedisError, Value};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{self, Instant};

use crate::config::options::Durability;
use crate::error::Outage;
use crate::protocol::trouble::{Code, Trouble};
use crate::store::BoxFuture;
use crate::store::redis::conn::handshake::Dialer;
use crate::store::redis::conn::health::Health;
use crate::store::redis::conn::reconnecting_connection::{
    LIVENESS_CHECK_DELAY, MAX_IN_FLIGHT, OnConnected, ReconnectingConnection,
};
use crate::store::redis::conn::session::Session;
use crate::store::redis::wire::errors;
use crate::store::redis::wire::scripts;
use crate::store::redis::wire::{decode, encode};
use crate::util::clock::Moment;
use crate::util::mutex::lock;

/// The connections of one server for writes that require acknowledgments. Every requirement has its
/// own connection, so a `WAIT` for two replicas does not delay writes that need one. A connection
/// is opened on first use.
pub(crate) struct AcksByNeed {
    /// `None` once closed for good.
    opened: Mutex<Option<Vec<Arc<Acks>>>>,
    dialer: Dialer,
    needed: Duration,
    health: Arc<Health>,
    connected: Arc<OnConnected>,
}

impl AcksByNeed {
    /// Opens no connection yet. A reconnect attempt may take as long as `needed` to connect,
    /// because a distant server needs that long again.
    pub(crate) fn new(
        dialer: Dialer,
        needed: Duration,
        health: Arc<Health>,
        connected: Arc<OnConnected>,
    ) -> Self {
        AcksByNeed {
            opened: Mutex::new(Some(Vec::new())),
            dialer,
            needed,
            health,
            connected,
        }
    }

    /// Returns the connection for `need`. Its tasks run on the runtime of the first call.
    pub(crate) fn of(&self, need: Durability) -> Result<Arc<Acks>, Trouble> {
        let mut opened = lock(&self.opened);
        let opened = opened.as_mut().ok_or_else(closed)?;
        if let Some(acks) = opened.iter().find(|acks| acks.need == need) {
            return Ok(acks.clone());
        }
        let acks = Arc::new(Acks::open(self, need));
        opened.push(acks.clone());
        Ok(acks)
    }

    /// Returns the sessions that are up.
    pub(crate) fn sessions(&self) -> Vec<Arc<Session>> {
        let opened = lock(&self.opened);
        let acks = opened.iter().flatten();
        acks.filter_map(|acks| acks.link.session().ok()).collect()
    }

    pub(crate) fn close(&self) {
        let opened = lock(&self.opened).take();
        for acks in opened.iter().flatten() {
            acks.link.close();
        }
    }
}

impl fmt::Debug for AcksByNeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AcksByNeed").field(&self.opened).finish()
    }
}

/// A connection for writes with the same requirement.
#[derive(Debug)]
pub(crate) struct Acks {
    link: Arc<ReconnectingConnection>,
    need: Durability,
    writes: mpsc::UnboundedSender<Write>,
    under_way: Arc<Mutex<Option<Round>>>,
}

/// A queued write, for which a caller waits.
#[derive(Debug)]
struct Write {
    /// A command sent before the write; its reply is discarded.
    before: Option<Cmd>,
    command: Cmd,
    within: Duration,
    deadline: Instant,
    told: oneshot::Sender<Result<Told, Trouble>>,
}

/// The result of a write that was sent.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) session: Arc<Session>,
    pub(crate) answer: Result<Answer, Trouble>,
}

/// An instant before the write was sent, and the server's reply.
pub(crate) type Answer = (Moment, Value);

/// A batch of writes in flight, with its `WAIT`.
#[derive(Debug)]
struct Round {
    session: Arc<Session>,
    /// The connection's activity count before the batch was sent.
    heard: u64,
}

impl Acks {
    fn open(of: &AcksByNeed, need: Durability) -> Self {
        let dialer = of.dialer.with_new_epoch();
        let (transport, shared) = (dialer.transport.clone(), dialer.shared.clone());
        let link = ReconnectingConnection::spawn(
            dialer,
            None,
            of.needed,
            of.health.clone(),
            of.connected.clone(),
        );
        let link = Arc::new(link);
        let under_way = Arc::default();
        let (writes, queue) = mpsc::unbounded_channel();
        let writer = Writer {
            link: link.clone(),
            need,
            under_way: Arc::clone(&under_way),
            now: Box::new(move || shared.clock.now()),
        };
        transport.spawn(Box::pin(writer.keep(queue)));
        Acks {
            link,
            need,
            writes,
            under_way,
        }
    }

    /// Sends an idempotent write, and waits until its requirement is met. On any error after
    /// sending, the write may have been applied.
    pub(crate) fn write(
        &self,
        before: Option<Cmd>,
        command: Cmd,
        within: Duration,
    ) -> BoxFuture<'_, Result<Told, Trouble>> {
        Box::pin(async move {
            let deadline = Instant::now() + within;
            let _place = self.link.permit(within).await?;
            // The first write opens the connection.
            let _ = time::timeout_at(deadline, self.link.ready()).await;
            self.link.session()?;
            let (told, answer) = oneshot::channel();
            let write = Write {
                before,
                command,
                within,
                deadline,
                told,
            };
            self.writes.send(write).map_err(|_| closed())?;
            match time::timeout_at(deadline, answer).await {
                Ok(answer) => answer.unwrap_or_else(|_| Err(closed().sent())),
                Err(_) if self.is_acknowledging() => Err(too_few(self.need, within)),
                Err(_) => Err(Trouble::timed_out(within)),
            }
        })
    }

    /// Returns true if the server has sent data since the batch, so only `WAIT` is still pending.
    fn is_acknowledging(&self) -> bool {
        let under_way = lock(&self.under_way);
        (under_way.as_ref()).is_some_and(|round| round.session.connection.activity() != round.heard)
    }
}

/// The task that sends the queued writes in batches of up to `MAX_IN_FLIGHT`.
struct Writer {
    link: Arc<ReconnectingConnection>,
    need: Durability,
    under_way: Arc<Mutex<Option<Round>>>,
    now: Box<dyn Fn() -> Moment + Send + Sync>,
}

impl Writer {
    async fn keep(self, mut queue: mpsc::UnboundedReceiver<Write>) {
        let mut batch = Vec::new();
        while queue.recv_many(&mut batch, MAX_IN_FLIGHT).await > 0 {
            // A caller that has gone has released what it had, so its write is not sent.
            batch.retain(|write| !write.told.is_closed());
            let unknown = self.send(mem::take(&mut batch)).await;
            // The scripts are loaded now.
            let unknown = self.send(unknown).await;
            tell(unknown, || {
                Trouble::new(Outage::Other, "the server forgets its scripts")
            });
        }
    }

    /// Sends writes with one `WAIT`, and delivers their results. Loads the scripts if the server
    /// does not know one, and returns the writes that need it.
    async fn send(&self, batch: Vec<Write>) -> Vec<Write> {
        let last = batch.iter().map(|write| write.deadline).max();
        let Some(last) = last else {
            return batch;
        };
        let session = match self.link.session() {
            Ok(session) => session,
            Err(trouble) => {
                tell(batch, || trouble.clone());
                return Vec::new();
            }
        };
        let loaded = session.scripts.reload_count();
        let mut commands = Vec::with_capacity(batch.len() + 1);
        for write in &batch {
            commands.extend(write.before.clone());
            commands.push(write.command.clone());
        }
        let left = last.saturating_duration_since(Instant::now());
        // Sent together, so that `WAIT` covers no other writes, and last, so that it covers these.
        commands.push(encode::wait(self.need, left));
        let sent = (self.now)();
        let (replies, wait) = match self.exchange(&session, &commands, left).await {
            Ok(replies) => replies,
            Err(trouble) => {
                tell(batch, || trouble.clone());
                return Vec::new();
            }
        };
        let mut replies = replies.into_iter();
        let mut unknown = Vec::new();
        for write in batch {
            let Some(reply) = replies.nth(usize::from(write.before.is_some())) else {
                break;
            };
            let answer = match (reply, &wait) {
                (Err(error), _) if scripts::is_noscript(&error) => {
                    unknown.push(write);
                    continue;
                }
                (Err(error), _) => Err(errors::classify(&error)),
                (Ok(answer), Ok(true)) => Ok((sent, answer)),
                (Ok(_), Ok(false)) => Err(too_few(self.need, write.within)),
                (Ok(_), Err(trouble)) => Err(trouble.clone()),
            };
            let session = session.clone();
            // The caller may have gone.
            let _ = write.told.send(Ok(Told { session, answer }));
        }
        if !unknown.is_empty() {
            let loading = session.scripts.reload(&*session.connection, loaded);
            // If loading fails, the next attempt fails as well.
            let _ = time::timeout_at(last, loading).await;
        }
        unknown
    }

    /// Returns the replies to writes, and whether their requirement is met.
    async fn exchange(
        &self,
        session: &Arc<Session>,
        commands: &[Cmd],
        within: Duration,
    ) -> Result<(Vec<Result<Value, RedisError>>, Result<bool, Trouble>), Trouble> {
        let connection = &session.connection;
        let heard = connection.activity();
        *lock(&self.under_way) = Some(Round {
            session: session.clone(),
            heard,
        });
        let mut sent = connection.send_all(commands);
        let mut silence = std::pin::pin!(time::sleep(LIVENESS_CHECK_DELAY));
        let mut is_over = false;
        let replies = loop {
            tokio::select! {
                biased;
                replies = &mut sent => break replies.map_err(|error| errors::classify(&error)),
                why = self.link.session_ended(session) => break Err(why),
                () = &mut silence, if !is_over => {
                    is_over = true;
                    // A server that has replied to the writes only waits for acknowledgments.
                    if connection.activity() == heard {
                        self.link.check_liveness(within);
                    }
                }
            }
        };
        *lock(&self.under_way) = None;
        let mut replies = replies?;
        let wait = match replies.pop() {
            Some(Ok(answer)) => decode::is_acknowledged(self.need, answer),
            Some(Err(error)) => Err(refused(self.need, errors::classify(&error))),
            None => Err(Trouble::new(Outage::Other, "the server did not answer")),
        };
        Ok((replies, wait))
    }
}

fn closed() -> Trouble {
    Trouble::new(Outage::Unreachable, "the connection was closed").unsent()
}

fn tell(batch: Vec<Write>, what: impl Fn() -> Trouble) {
    for write in batch {
        // The caller may have gone.
        let _ = write.told.send(Err(what()));
    }
}

fn too_few(need: Durability, within: Duration) -> Trouble {
    let Durability { replicas, fsync } = need;
    let detail = match (replicas, fsync) {
        (n, false) => {
            format!("fewer than {n} replicas acknowledged within {within:?} (`min_replicas`)")
        }
        (0, true) => format!(
            "it was not on the server's disk within {within:?} (`fsync`, which needs `appendfsync always` there)"
        ),
        (n, true) => format!(
            "it was not on the disks of the server and {n} replicas within {within:?} (`fsync`, which needs \
             `appendonly yes` and `appendfsync always` on them, and `min_replicas`)"
        ),
    };
    Trouble::new(Outage::TooFewReplicas, detail)
}

/// Returns why the server rejected the `WAIT` or `WAITAOF`.
fn refused(need: Durability, said: Trouble) -> Trouble {
    let (command, right, setting, since) = if need.fsync {
        ("WAITAOF", "waitaof", "fsync", " (Redis 7.2, Valkey 8)")
    } else {
        ("WAIT", "wait", "min_replicas", "")
    };
    let it = &said.detail;
    let (outage, detail) = match (said.outage, &said.code) {
        (Outage::Denied, _) => (
            Outage::Denied,
            format!("the user needs +{right} for `{setting}`: {it}"),
        ),
        (_, Code::UnknownCommand) => (
            Outage::Unsupported,
            format!(
                "`{setting}` needs the command {command}{since}, which the server does not know"
            ),
        ),
        (_, Code::NoAppendOnly) => (
            Outage::Unsupported,
            format!("`{setting}` needs `appendonly yes` on the server: {it}"),
        ),
        _ => return said,
    };
    Trouble::new(outage, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With `fsync`, the disks of the replicas count as well as the server's own.
    #[test]
    fn the_server_is_asked_for_what_is_needed_and_its_count_decides() {
        for (fsync, replicas, command, enough, too_few) in [
            (false, 2, "WAIT 2 5", vec![2], vec![1]),
            (true, 0, "WAITAOF 1 0 5", vec![1, 0], vec![0, 2]),
            (true, 2, "WAITAOF 1 2 5", vec![1, 2], vec![1, 1]),
            (true, 2, "WAITAOF 1 2 5", vec![1, 3], vec![0, 2]),
        ] {
            let need = Durability { replicas, fsync };
            let sent = encode::wait(need, Duration::from_millis(5)).get_packed_command();
            let sent = String::from_utf8(sent).unwrap();
            let words: Vec<_> = sent.split("\r\n").skip(2).step_by(2).collect();
            assert_eq!(words.join(" "), command);
            let is_enough = |counts: Vec<i64>| {
                let answer = match counts[..] {
                    [count] => Value::Int(count),
                    _ => Value::Array(counts.into_iter().map(Value::Int).collect()),
                };
                decode::is_acknowledged(need, answer).unwrap()
            };
            assert!(is_enough(enough) && !is_enough(too_few), "{command}");
        }
    }
}
