//! Three servers, a client affected by the faults (the subject), and a client with direct
//! connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use distlock::{Error, LockGuard, LockManager};
use distlock_tests::{Directions, Proxy, RedisQuorum, RedisServer, eventually_async};
use futures::{StreamExt as _, stream};
use tokio::task::JoinHandle;

use crate::quorum::{until_clean, until_queued_everywhere, with_leases_up_to};
use crate::support::{Acquiring, Exclusion, LONG, acquire_later, fence_key, lock_key, ms};

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

    pub(super) fn is_of_the_clock(self) -> bool {
        matches!(self, Fault::ClockForward | Fault::ClockBack)
    }
}

/// The next step of an acquisition when the fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Acquire,
    /// All servers have granted the lock in one round, and the client does not know yet.
    Given,
    /// All servers have voted, and the client does not know yet.
    Votes,
    /// All votes are known, and must be confirmed.
    Confirmation,
}

impl Phase {
    pub(super) const ALL: [Phase; 4] = [
        Phase::Acquire,
        Phase::Given,
        Phase::Votes,
        Phase::Confirmation,
    ];
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
    /// Set if a command may have arrived before the strike although it was to be held back.
    has_slipped: AtomicBool,
}

impl Stage {
    pub(super) async fn new(fault: Fault, places: &[usize]) -> Self {
        Self::with_leases_up_to(ms(60_000), fault, places).await
    }

    /// A server that has lost its data does not vote for `longest`, and a little more.
    pub(super) async fn with_leases_up_to(
        longest: Duration,
        fault: Fault,
        places: &[usize],
    ) -> Self {
        let quorum = RedisQuorum::of((0..3).map(|place| {
            if fault.is_of_the_clock() && places.contains(&place) {
                RedisServer::builder().own_clock().start()
            } else {
                RedisServer::start()
            }
        }));
        quorum.vote("distlock");
        let proxies = quorum.proxies();
        let url = RedisQuorum::url_at(proxies.iter().map(|proxy| proxy.port()));
        let connect = async |url: String| {
            let builder = with_leases_up_to(longest).connect_timeout(LONG);
            builder.connect(&url).await.unwrap()
        };
        Stage {
            subject: connect(url).await,
            other: connect(quorum.url()).await,
            quorum,
            fault,
            places: places.to_vec(),
            proxies,
            exclusion: Exclusion::new(),
            has_slipped: AtomicBool::new(false),
        }
    }

    /// Returns true if the machine was too busy for [`Stage::strike_before_delivery`].
    pub(super) fn has_slipped(&self) -> bool {
        self.has_slipped.load(Ordering::SeqCst)
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

    /// Ends the fault, and gives the affected servers their votes as if it were long ago.
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
                Fault::RestartEmpty | Fault::Flush => {}
                Fault::Cut | Fault::RequestsLost | Fault::RepliesLost | Fault::Slow => {
                    proxy.heal();
                    proxy.release_held();
                }
            }
        }
    }

    /// Cuts the subject off from all servers.
    pub(super) fn cut_off(&self) {
        for proxy in &self.proxies {
            proxy.black_hole(true);
        }
    }

    /// Stops or resumes the data from the servers to the subject.
    fn stop_replies(&self, on: bool) {
        for proxy in &self.proxies {
            proxy.stop_reading(Directions::ToClient, on);
        }
    }

    /// Holds back the subject's commands, has it send one to each server, and then strikes.
    pub(super) async fn strike_before_delivery(&self, send: impl FnOnce()) {
        let held = |proxy: &Proxy| proxy.stats().requests_held;
        let before: Vec<_> = self.proxies.iter().map(held).collect();
        let accepted = |proxy: &Proxy| proxy.stats().accepted;
        let dialed = || self.proxies.iter().map(accepted).sum::<u64>();
        let dialed_before = dialed();
        for proxy in &self.proxies {
            proxy.hold_requests();
        }
        send();
        // On a busy machine a connection may have been replaced, and the old one carries nothing.
        let until_sent = async {
            for (proxy, before) in self.proxies.iter().zip(before) {
                eventually_async(LONG, async || held(proxy) > before).await;
            }
        };
        let _ = tokio::time::timeout(LONG / 3, until_sent).await;
        self.strike();
        // A connection that is silent for long is replaced, and the new one was not held back.
        let has_slipped = dialed() != dialed_before;
        self.has_slipped.store(has_slipped, Ordering::SeqCst);
        for (place, proxy) in self.proxies.iter().enumerate() {
            // A fault of the connection also loses the commands in flight.
            if !self.fault.is_of_the_connection() || !self.places.contains(&place) {
                proxy.release_held();
            }
        }
    }

    /// Starts an acquisition, and strikes when the call has reached `phase`.
    pub(super) async fn acquire(&self, phase: Phase, wait: Duration) -> Acquiring {
        let acquire = || acquire_later(&self.subject, "k", LEASE, wait);
        if phase == Phase::Acquire {
            self.strike();
            return acquire();
        }
        if phase != Phase::Given {
            self.have_a_token_ahead();
        }
        self.stop_replies(true);
        let acquiring = acquire();
        for place in 0..3 {
            let mut raw = self.quorum.server(place).client();
            eventually_async(LONG, async || raw.exists(&lock_key("k"))).await;
        }
        if phase == Phase::Confirmation {
            self.strike_before_delivery(|| self.stop_replies(false))
                .await;
        } else {
            self.strike();
            self.stop_replies(false);
        }
        acquiring
    }

    /// Stores a token above any that a client would propose. The servers then vote, and must
    /// confirm in a second round.
    fn have_a_token_ahead(&self) {
        for place in 0..3 {
            let mut raw = self.quorum.server(place).client();
            let seconds = raw.cmd(&["TIME"]).array()[0].text().unwrap().to_owned();
            let ahead = seconds.parse::<u64>().unwrap() + 10;
            let token = format!("{ahead}000000");
            raw.cmd(&["SET", &fence_key("k"), &token, "PX", "60000"]);
        }
    }

    /// Lets the other client hold the lock, with the subject in all queues.
    pub(super) async fn queued(&self, wait: Duration) -> (LockGuard, Acquiring) {
        self.queue(&self.other, &self.subject, wait).await
    }

    /// Lets the subject hand off to the other client, and strikes before the release arrives.
    pub(super) async fn handed_on(&self) -> (Acquiring, JoinHandle<Result<(), Error>>) {
        let (guard, waiting) = self.queue(&self.subject, &self.other, LONG).await;
        let mut releasing = None;
        self.strike_before_delivery(|| releasing = Some(tokio::spawn(guard.release())))
            .await;
        (waiting, releasing.expect("the release was sent"))
    }

    async fn queue(
        &self,
        holder: &LockManager,
        waiter: &LockManager,
        wait: Duration,
    ) -> (LockGuard, Acquiring) {
        let lock = holder.lock("k").lease(LEASE);
        let guard = lock.acquire().await.unwrap();
        drop(self.exclusion.enter(guard.fencing_token()));
        let waiting = acquire_later(waiter, "k", LEASE, wait);
        until_queued_everywhere(&self.quorum, "k", 1).await;
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
