//! Observes holds from separate threads, independent of how bodies block the worker's runtime.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use distlock::{Error, HeldLock};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::hold::Hold;
use super::nodes::Nodes;
use super::server::Server;
use super::table::Table;
use crate::history::{Recorder, Step, now};

/// The interval between two samples of a hold.
const SAMPLE_EVERY: Duration = Duration::from_millis(8);
/// One in this many samples includes an audit.
const AUDIT_EVERY: u32 = 4;
/// Upper limit of queued audits; more are skipped.
const AUDITS: usize = 8;

/// The handles of the observer's threads.
#[derive(Debug)]
pub(super) struct Observer {
    handle: Handle,
    recorder: Arc<Recorder>,
    audits: SyncSender<Audit>,
    stop: oneshot::Sender<()>,
    threads: [JoinHandle<()>; 2],
}

/// A hold to be compared with the store.
#[derive(Debug)]
pub(super) struct Audit {
    op: u64,
    held: HeldLock,
}

/// The servers that audits read.
#[derive(Debug)]
pub(super) enum Witness {
    One(Server),
    Nodes(Nodes),
    Database(Table),
}

impl Witness {
    /// Returns the token stored for a hold with `token`, or `None` if no server answers.
    fn found(&mut self, key: &str, token: u64) -> Option<Option<u64>> {
        match self {
            Witness::One(server) => {
                let value = server.read(&value_key(key))?;
                Some(value.and_then(|value| value.split(' ').nth(2)?.parse().ok()))
            }
            Witness::Nodes(nodes) => Some(nodes.held(&value_key(key), token)),
            Witness::Database(table) => table.held(key, token),
        }
    }
}

impl Observer {
    pub(super) fn start(recorder: Arc<Recorder>, witness: Witness) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let watching = std::thread::Builder::new()
            .name("observer".into())
            .spawn(move || drop(runtime.block_on(stopped)))?;
        let (audits, orders) = sync_channel(AUDITS);
        let of_auditor = recorder.clone();
        let auditing = std::thread::Builder::new()
            .name("auditor".into())
            .spawn(move || audit_all(&orders, witness, &of_auditor))?;
        Ok(Observer {
            handle,
            recorder,
            audits,
            stop,
            threads: [watching, auditing],
        })
    }

    /// Records samples, audits and the loss of a hold, until it ends.
    pub(super) fn watch(&self, op: u64, held: Hold, audited: bool) {
        let recorder = self.recorder.clone();
        let audits = self.audits.clone();
        self.handle.spawn(async move {
            let lost = held.lost();
            tokio::pin!(lost);
            for number in 0_u32.. {
                let ended = tokio::time::timeout(SAMPLE_EVERY, &mut lost).await;
                let at = now();
                if let Ok(error) = ended {
                    if !matches!(error, Error::Released { .. }) {
                        recorder.step(op, at, Step::LossSeen);
                    }
                    return;
                }
                let remaining_us = micros(held.remaining());
                // An ended hold had ended by now. A valid hold was also valid at the earlier `at`.
                let at = if remaining_us == 0 { now() } else { at };
                recorder.step(op, at, Step::Sampled { remaining_us });
                if number % AUDIT_EVERY == 1
                    && let Hold::Lock(held) = held.clone()
                    && audited
                {
                    // A full queue: the server does not answer, nor would it answer this audit.
                    let _ = audits.try_send(Audit { op, held });
                }
            }
        });
    }

    /// Audits a hold now.
    pub(super) fn audit(&self, op: u64, held: HeldLock) {
        let _ = self.audits.try_send(Audit { op, held });
    }

    /// Stops the threads, and with them all observations.
    pub(super) fn stop(self) {
        let _ = self.stop.send(());
        let [watching, auditing] = self.threads;
        watching.join().expect("the observer does not panic");
        // All other senders of audits were in the tasks that have just ended.
        drop(self.audits);
        auditing.join().expect("the auditor does not panic");
    }
}

/// Returns whole microseconds, rounded down, so never more than the duration.
pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Returns the key in Redis of a lock's value.
fn value_key(key: &str) -> String {
    format!("distlock:lock:{{{key}}}")
}

fn audit_all(orders: &Receiver<Audit>, mut witness: Witness, recorder: &Recorder) {
    for Audit { op, held } in orders {
        let at = now();
        let token = held.fencing_token().get();
        let Some(found) = witness.found(held.key(), token) else {
            continue;
        };
        let believed_after = now();
        if held.is_held() {
            let audited = Step::Audited {
                believed_after,
                token,
                found,
            };
            recorder.step(op, at, audited);
        }
    }
}
