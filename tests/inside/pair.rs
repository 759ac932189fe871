//! Two clients of one store, and a clock that the test moves.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::config::options::Defaults;
use crate::manager::builder::connect::CoreBuilder;
use crate::manager::builder::dependencies::Dependencies;
use crate::manager::core::executor::{Executor, Work};
use crate::manager::engine::events::event_sink;
use crate::store::Settings;
use crate::store::client_id::ClientId;
use crate::store::memory::MemoryStore;
use crate::store::memory::server::MemoryServer;
use crate::util::clock::TokioClock;
use crate::{Error, Lock, LockGuard, LockManager};

/// Two managers over one memory store, on the current runtime.
///
/// In a test with `start_paused = true`, time passes only while every task waits. So an hour takes
/// no time, and durations are exact.
#[derive(Debug)]
pub struct Pair {
    pub a: LockManager,
    pub b: LockManager,
    crash_of_a: CancellationToken,
}

impl Default for Pair {
    fn default() -> Self {
        let dependencies = Dependencies {
            clock: Arc::new(TokioClock::new()),
            ..Dependencies::default()
        };
        let server = MemoryServer::new(dependencies.clock.clone());
        let crash_of_a = CancellationToken::new();
        Pair {
            a: client("a", &dependencies, &server, crash_of_a.clone()),
            b: client("b", &dependencies, &server, CancellationToken::new()),
            crash_of_a,
        }
    }
}

impl Pair {
    /// Ends all tasks of `a`, as when its process is killed: it neither renews nor releases.
    pub fn crash_a(&self) {
        self.crash_of_a.cancel();
    }

    /// Starts a call for a lock that is held, and returns the call once it is queued.
    pub async fn queue(&self, lock: Lock) -> JoinHandle<Result<LockGuard, Error>> {
        let call = tokio::spawn(async move { lock.acquire().await });
        // Paused time passes once the call waits.
        tokio::time::sleep(Duration::from_millis(1)).await;
        call
    }
}

/// Creates a manager whose tasks end with `crash`.
fn client(
    name: &str,
    dependencies: &Dependencies,
    server: &MemoryServer,
    crash: CancellationToken,
) -> LockManager {
    let until_crash = move |work: Work| -> Work {
        let crash = crash.clone();
        Box::pin(async move { crash.run_until_cancelled(work).await.unwrap_or_default() })
    };
    let executor = Executor {
        handle: Handle::current(),
        inline: false,
        decorator: Some(Arc::new(until_crash)),
    };
    let core = CoreBuilder::on_executor(executor, dependencies.clone());
    let settings = Settings::named(name);
    core.build(&settings, Defaults::default(), |_, core| {
        let (id, events) = (ClientId::new(), event_sink(core.clone()));
        MemoryStore::new(server.clone(), id, settings.clone(), events).into_opened_store()
    })
}
