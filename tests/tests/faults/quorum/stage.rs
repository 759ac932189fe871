//! Three servers, a client affected by the faults (the subject), and a client with direct
//! connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use distlock::observer::{self, Event};
use distlock::{Error, LockGuard, LockManager};
use distlock_tests::{Directions, Proxy, RedisQuorum, RedisServer, eventually_async};
use futures::{StreamExt as _, stream};

use crate::quorum::{until_clean, with_leases_up_to};
use crate::support::{Acquiring, Exclusion, LONG, acquire_later, fence_key, hold, lock_key, ms};

/// Longer than a test waits, so a lock that is gone by then did not expire.
pub(super) const LEASE: Duration = ms(30_000);

/// Added latency of a round trip.
const SLOW: Duration = ms(300);

/// Size of a clock step, longer than anything lasts here.
const STEP: Duration = ms(60_000);

/// A fault of a server, or on one client's path to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Kill,
    Freeze,
    RestartEmpty,
    Flush,
    ClockForward,
    ClockBack,
    Cut,
    RequestsLost,
    RepliesLost,
    Slow,
}

impl Fault {
    pub(super) const ALL: [Fault; 10] = [
        Fault::Kill,
        Fault::Freeze,
        Fault::RestartEmpty,
        Fault::Flush,
        Fault::ClockForward,
        Fault::ClockBack,
        Fault::Cut,
        Fault::RequestsLost,
        Fault::RepliesLost,
        Fault::Slow,
    ];

    /// Returns true if the fault affects only one of the clients.
    pub(super) fn is_of_the_connection(self) -> bool {
        use Fault::{Cut, RepliesLost, RequestsLost, Slow};
        matches!(self, Cut | RequestsLost | RepliesLost | Slow)
    }
}

/// The next step of an acquisition when the fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Acquire,
    /// All servers have granted the lock, and the client does not know yet.
    Given,
    /// The servers have granted it with different tokens, of which one must be confirmed.
    Confirmation,
}

impl Phase {
    pub(super) const ALL: [Phase; 3] = [Phase::Acquire, Phase::Given, Phase::Confirmation];
}

/// A fault, with the servers and the clients.
pub(super) struct Stage {
    pub(super) quorum: RedisQuorum,
    pub(super) fault: Fault,
    /// The affected servers.
    places: Vec<usize>,
    /// The subject's proxies, one per server.
    proxies: Vec<Proxy>,
    pub(super) subject: LockManager,
    pub(super) other: LockManager,
    pub(super) exclusion: Arc<Exclusion>,
    /// How many calls have waited so far.
    queued: Arc<AtomicU64>,
}

impl Stage {
    pub(super) async fn new(fault: Fault, places: &[usize]) -> Self {
        Self::with_leases_up_to(ms(60_000), fault, places).await
    }

    /// A server that has lost its data does not grant for `longest`, and a little more.
    pub(super) async fn with_leases_up_to(
        longest: Duration,
        fault: Fault,
        places: &[usize],
    ) -> Self {
        let quorum = RedisQuorum::of((0..3).map(|place| {
            let is_stepped = matches!(fault, Fault::ClockForward | Fault::ClockBack);
            if is_stepped && places.contains(&place) {
                RedisServer::builder().own_clock().start()
            } else {
                RedisServer::start()
            }
        }));
        quorum.vote("distlock");
        let proxies = quorum.proxies();
        let url = RedisQuorum::url_at(proxies.iter().map(|proxy| proxy.port()));
        let queued = Arc::new(AtomicU64::new(0));
        let count = queued.clone();
        let observer = observer::from_fn(move |event| {
            let is_queued = matches!(event, Event::Queued { .. });
            count.fetch_add(u64::from(is_queued), Ordering::SeqCst);
        });
        let builder = with_leases_up_to(longest).add_observer(observer);
        let builder = builder.connect_timeout(LONG);
        let connect = async |url: String| builder.clone().connect(&url).await.unwrap();
        let subject = connect(url).await;
        // The servers know the scripts from then on, so that no command is sent twice.
        let guard = hold(&subject, "scripts", longest).await;
        guard.release().await.unwrap();
        Stage {
            subject,
            other: connect(quorum.url()).await,
            quorum,
            fault,
            places: places.to_vec(),
            proxies,
            exclusion: Exclusion::new(),
            queued,
        }
    }

    pub(super) fn strike(&self) {
        for place in &self.places {
            let (server, proxy) = (self.quorum.server(*place), &self.proxies[*place]);
            match self.fault {
                Fault::Kill => server.kill(),
                Fault::Freeze => server.stop_process(),
                Fault::RestartEmpty => server.restart(),
                Fault::Flush => drop(server.client().cmd(&["FLUSHALL"])),
                Fault::ClockForward => server.step_clock(true, STEP),
                Fault::ClockBack => server.step_clock(false, STEP),
                Fault::Cut => proxy.black_hole(true),
                Fault::RequestsLost => proxy.drop_data(Directions::ToServer, true),
                Fault::RepliesLost => proxy.drop_data(Directions::ToClient, true),
                Fault::Slow => proxy.delay(Directions::Both, SLOW / 2),
            }
        }
    }

    /// Ends the fault, and lets the affected servers grant as if it were long ago.
    pub(super) fn heal(&self) {
        self.stop();
        for place in &self.places {
            self.quorum.vote_at(*place, "distlock");
        }
    }

    /// Ends the fault.
    pub(super) fn stop(&self) {
        for place in &self.places {
            let (server, proxy) = (self.quorum.server(*place), &self.proxies[*place]);
            match self.fault {
                Fault::Kill => server.restart(),
                Fault::Freeze => server.cont_process(),
                Fault::ClockForward | Fault::ClockBack => server.step_clock(true, Duration::ZERO),
                _ => proxy.heal(),
            }
        }
    }

    /// Cuts the subject off from all servers.
    pub(super) fn cut_off(&self) {
        for proxy in &self.proxies {
            proxy.black_hole(true);
        }
    }

    /// Starts an acquisition, and strikes when the call has reached `phase`.
    pub(super) async fn acquire(&self, phase: Phase, wait: Duration) -> Acquiring {
        let acquire = || acquire_later(&self.subject, "k", LEASE, wait);
        if phase == Phase::Acquire {
            self.strike();
            return acquire();
        }
        if phase == Phase::Confirmation {
            self.have_different_tokens();
        }
        let stop_replies = |on| {
            let proxies = self.proxies.iter();
            proxies.for_each(|proxy| proxy.stop_reading(Directions::ToClient, on));
        };
        stop_replies(true);
        let acquiring = acquire();
        for server in self.quorum.servers() {
            let mut raw = server.client();
            eventually_async(LONG, async || raw.exists(&lock_key("k"))).await;
        }
        self.strike();
        stop_replies(false);
        acquiring
    }

    /// Stores tokens above any that a client would propose, so that each server gives another. The
    /// largest is at a server that the fault does not affect, so that the others must confirm it.
    fn have_different_tokens(&self) {
        let ahead = UNIX_EPOCH.elapsed().unwrap().as_secs() + 10;
        for (place, server) in self.quorum.servers().iter().enumerate() {
            let rank = place + 3 * usize::from(!self.places.contains(&place));
            let token = format!("{ahead}00{rank}000");
            let set = ["SET", &fence_key("k"), &token, "PX", "60000"];
            server.client().cmd(&set);
        }
    }

    /// Lets the other client hold the lock, while the subject waits.
    pub(super) async fn queued(&self) -> (LockGuard, Acquiring) {
        let before = self.queued.load(Ordering::SeqCst);
        let guard = hold(&self.other, "k", LEASE).await;
        drop(self.exclusion.enter(guard.fencing_token()));
        let waiting = acquire_later(&self.subject, "k", LEASE, LONG);
        let is_queued = async || self.queued.load(Ordering::SeqCst) > before;
        eventually_async(LONG, is_queued).await;
        (guard, waiting)
    }

    /// Acquires alone, with a token above all earlier ones, and releases.
    pub(super) async fn serves(&self, acquiring: Acquiring) -> Result<(), Error> {
        let guard = acquiring.await.unwrap().0?;
        let inside = self.exclusion.enter(guard.fencing_token());
        tokio::task::yield_now().await;
        drop(inside);
        guard.release().await
    }

    /// Serves both clients in turn.
    pub(super) async fn assert_both_acquire(&self) {
        for manager in [&self.subject, &self.other, &self.subject] {
            let acquiring = acquire_later(manager, "k", LEASE, LONG);
            self.serves(acquiring).await.unwrap();
        }
    }

    /// Ends the fault. Afterwards no key is left on any server, and both clients are served.
    pub(super) async fn ends(&self) {
        self.heal();
        until_clean(&self.quorum).await;
        self.assert_both_acquire().await;
        until_clean(&self.quorum).await;
    }
}

/// Runs `test` for each fault, four at a time, because each has its own servers.
pub(super) async fn for_each(faults: &[Fault], test: impl AsyncFn(Fault)) {
    let act = async |fault: &Fault| {
        let _printer = PrintOnPanic(*fault);
        test(*fault).await;
    };
    stream::iter(faults).for_each_concurrent(4, act).await;
}

/// Prints the fault during which a panic occurred.
struct PrintOnPanic(Fault);

impl Drop for PrintOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("while there was {:?}", self.0);
        }
    }
}
