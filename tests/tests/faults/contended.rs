//! A lock with a holder and a waiter in different clients, the start of most fault tests.

use std::time::Duration;

use distlock::{LockGuard, LockManager};
use distlock_tests::{Proxy, RedisServer, Resp};

use crate::support::{
    Acquiring, LONG, acquire_later, connect, hand_on, hold, until_answered, until_queued, warm,
};

/// A holder and a waiter of the lock `k`, at least one of them behind the proxy.
pub(crate) struct Contended {
    pub(crate) server: RedisServer,
    pub(crate) proxy: Proxy,
    pub(crate) raw: Resp,
    pub(crate) holder: LockManager,
    pub(crate) waiter: LockManager,
    pub(crate) guard: LockGuard,
    pub(crate) waiting: Acquiring,
}

impl Contended {
    /// Starts on a new server, with the waiter behind the proxy.
    pub(crate) async fn start(lease: Duration) -> Self {
        Self::on(RedisServer::start(), lease).await
    }

    /// Starts on a server that knows every script, so that each use of one is a single command.
    pub(crate) async fn warm(lease: Duration) -> Self {
        let server = RedisServer::start();
        warm(&server).await;
        Self::on(server, lease).await
    }

    /// Starts on this server, with the waiter behind the proxy.
    pub(crate) async fn on(server: RedisServer, lease: Duration) -> Self {
        let proxy = server.proxy();
        let urls = [server.url(), server.url_via(&proxy)];
        Self::at(server, proxy, urls, lease).await
    }

    /// Starts on this server, with the holder behind the proxy.
    pub(crate) async fn with_far_holder(server: RedisServer, lease: Duration) -> Self {
        let proxy = server.proxy();
        let urls = [server.url_via(&proxy), server.url()];
        Self::at(server, proxy, urls, lease).await
    }

    /// Starts on this server, with both behind the proxy.
    pub(crate) async fn behind_proxy(server: RedisServer, lease: Duration) -> Self {
        let proxy = server.proxy();
        let urls = [server.url_via(&proxy), server.url_via(&proxy)];
        Self::at(server, proxy, urls, lease).await
    }

    async fn at(
        server: RedisServer,
        proxy: Proxy,
        [holder, waiter]: [String; 2],
        lease: Duration,
    ) -> Self {
        let (holder, waiter) = (connect(&holder).await, connect(&waiter).await);
        let mut raw = server.client();
        let guard = hold(&holder, "k", lease).await;
        let waiting = acquire_later(&waiter, "k", lease, LONG * 6);
        until_queued(&mut raw, "k", 1).await;
        // This reply follows the one to the acquire, so the waiter knows that it is queued.
        until_answered(&waiter).await;
        Contended {
            server,
            proxy,
            raw,
            holder,
            waiter,
            guard,
            waiting,
        }
    }

    /// Releases. The waiter then acquires and releases too, which leaves nothing on the server.
    pub(crate) async fn hand_on(mut self) {
        hand_on(self.guard, self.waiting, &mut self.raw).await;
    }
}
