//! A TCP proxy in front of a Redis server, with faults that are scripted while it runs.
//!
//! The proxy has its own thread and runtime, so it serves tests of any runtime and continues under
//! paused time. It parses both directions (RESP2 and RESP3) and handles whole values, so a fault
//! never cuts a value in two. A rule applies to values that arrive after the call that set it, on
//! open and on new connections.

mod connection;
mod filter;
mod rules;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr};
use std::ops::Deref;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use socket2::{Domain, SockAddr, SockRef, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use connection::{Control, serve};
use filter::Swallow;
use rules::Rules;
pub use rules::{After, Directions, ProxyStats};

/// Upper limit of the time until the proxy's thread opens or closes its port on a loaded machine.
const PORT_DEADLINE: Duration = Duration::from_secs(10);
/// Number of ports that are tried if another process takes each of them first.
const PORT_ATTEMPTS: u32 = 20;

/// A running proxy; dropping it closes its port and all connections.
#[derive(Debug)]
pub struct Proxy {
    handle: ProxyHandle,
    thread: Option<JoinHandle<()>>,
}

/// A handle that scripts a [`Proxy`] from anywhere; cheap to clone.
#[derive(Clone, Debug)]
pub struct ProxyHandle {
    shared: Arc<Shared>,
}

/// The state shared between the handles and the proxy's thread.
#[derive(Debug)]
struct Shared {
    /// The server for new connections.
    target: Mutex<SocketAddr>,
    addr: SocketAddr,
    /// Set if the traffic is encrypted, so that the proxy cannot parse it.
    sealed: bool,
    rules: watch::Sender<Rules>,
    stats: Mutex<ProxyStats>,
    swallows: Mutex<Vec<Swallow>>,
    connections: Mutex<BTreeMap<u64, Arc<watch::Sender<Control>>>>,
    listening: Mutex<bool>,
    listening_changed: Condvar,
}

impl Proxy {
    /// Starts a proxy on a free port of 127.0.0.1 in front of the server at `target`.
    ///
    /// # Panics
    ///
    /// Panics if there is no free port.
    #[track_caller]
    pub fn start(target: SocketAddr) -> Proxy {
        Self::before(target, false)
    }

    /// Starts a proxy in front of a TLS port. It parses nothing: faults cut the stream anywhere,
    /// and faults that look for commands, replies or pushes have no effect.
    ///
    /// # Panics
    ///
    /// Panics like [`Proxy::start`].
    #[track_caller]
    pub fn start_sealed(target: SocketAddr) -> Proxy {
        Self::before(target, true)
    }

    #[track_caller]
    fn before(target: SocketAddr, sealed: bool) -> Proxy {
        // Until the proxy listens, a server that was just given the same port may take it.
        let (reserved, listener) = (0..PORT_ATTEMPTS)
            .find_map(|_| {
                let reserved = reserve_port().ok()?;
                let listener = listen(&reserved.local_addr().ok()?).ok()?;
                Some((reserved, listener))
            })
            .expect("no free port for a proxy");
        let addr = listener
            .local_addr()
            .expect("a bound socket has an address");
        let shared = Arc::new(Shared {
            target: Mutex::new(target),
            addr,
            sealed,
            rules: watch::Sender::new(Rules::default()),
            stats: Mutex::default(),
            swallows: Mutex::default(),
            connections: Mutex::default(),
            listening: Mutex::new(false),
            listening_changed: Condvar::new(),
        });
        let thread = std::thread::Builder::new()
            .name("fault-proxy".into())
            .spawn({
                let shared = Arc::clone(&shared);
                move || {
                    let runtime = tokio::runtime::Builder::new_current_thread()
                        .enable_all()
                        .build()
                        .expect("cannot build the proxy's runtime");
                    runtime.block_on(accept(&shared, listener));
                    drop(reserved);
                }
            })
            .expect("cannot start the proxy's thread");
        let proxy = Proxy {
            handle: ProxyHandle { shared },
            thread: Some(thread),
        };
        proxy.handle.shared.wait_listening(true);
        proxy
    }

    /// Returns a handle that scripts this proxy.
    pub fn handle(&self) -> ProxyHandle {
        self.handle.clone()
    }
}

impl Deref for Proxy {
    type Target = ProxyHandle;

    fn deref(&self) -> &ProxyHandle {
        &self.handle
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.handle.rules(|rules| rules.closing = true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl ProxyHandle {
    /// Returns the port to connect to.
    pub fn port(&self) -> u16 {
        self.addr().port()
    }

    /// Returns the address to connect to.
    pub fn addr(&self) -> SocketAddr {
        self.shared.addr
    }

    /// Returns `redis://127.0.0.1:<port>`; see also [`crate::RedisServer::url_via`].
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port())
    }

    /// Returns the counters so far.
    pub fn stats(&self) -> ProxyStats {
        let open = self.shared.connections().len();
        ProxyStats {
            open,
            ..self.shared.stats().clone()
        }
    }

    /// Returns the open connections, in the order in which they were accepted. (A client of
    /// distlock opens the connections for commands and for renewals at the same time.)
    pub fn connections(&self) -> Vec<u64> {
        self.shared.connections().keys().copied().collect()
    }

    /// Limits all faults, including those set before, to these connections. Other connections, also
    /// later ones, are forwarded. Data that was swallowed or held stays so.
    pub fn limit_to(&self, connections: &[u64]) {
        let scope = connections.iter().copied().collect();
        self.rules(|rules| rules.scope = Some(scope));
    }

    /// Delays everything by `delay` and keeps the order. Zero ends it.
    pub fn delay(&self, directions: Directions, delay: Duration) {
        self.rules(|rules| rules.change_switches(directions, |switches| switches.delay = delay));
    }

    /// Delays requests by `delay` on connections that have not subscribed to anything. Other
    /// connections are not affected. Zero ends it.
    pub fn delay_unsubscribed(&self, delay: Duration) {
        self.rules(|rules| rules.unsubscribed_delay = delay);
    }

    /// Swallows everything. The connections stay open, and neither end notices, not even a close.
    ///
    /// A TCP stream cannot have a gap: after a loss, it is reset once data would flow on it again.
    pub fn drop_data(&self, directions: Directions, on: bool) {
        self.rules(|rules| rules.change_switches(directions, |switches| switches.drop = on));
    }

    /// Applies [`ProxyHandle::drop_data`] to both directions.
    pub fn black_hole(&self, on: bool) {
        self.drop_data(Directions::Both, on);
    }

    /// Stops reading (half-open), so that data waits in the sender's socket buffers. No data is
    /// lost: it arrives once reading resumes.
    pub fn stop_reading(&self, directions: Directions, on: bool) {
        self.rules(|rules| rules.change_switches(directions, |switches| switches.stalled = on));
    }

    /// Forwards `bytes` at a time with pauses of `every` between them. Zero bytes end it.
    pub fn drip(&self, directions: Directions, bytes: usize, every: Duration) {
        let drip = (bytes > 0).then_some((bytes, every));
        self.rules(|rules| rules.change_switches(directions, |switches| switches.drip = drip));
    }

    /// Refuses new connections, as a server that is down does. Open connections continue.
    ///
    /// Waits until the port is closed, or open again.
    ///
    /// # Panics
    ///
    /// Panics if the port does not close, or does not open again, in time.
    #[track_caller]
    pub fn refuse_connections(&self, on: bool) {
        self.rules(|rules| rules.refuse = on);
        self.shared.wait_listening(!on);
    }

    /// Sends new connections to another server, as a DNS change does. Open connections stay.
    pub fn move_to(&self, target: SocketAddr) {
        *self.shared.target() = target;
    }

    /// Resets (RST) all open connections on both sides and returns their number. Held data is lost.
    pub fn reset_connections(&self) -> usize {
        self.control(|control| {
            control.reset_client = true;
            control.reset_server = true;
        })
    }

    /// Resets (RST) all open connections on the client side only. The server first receives the
    /// data in flight or held, and then sees the connection end.
    pub fn reset_clients(&self) -> usize {
        self.control(|control| control.reset_client = true)
    }

    /// Swallows the reply to the next request that contains `needle`, for example `EVALSHA` or a
    /// key. The request itself is forwarded.
    ///
    /// Exact on RESP3 connections, where all requests but subscriptions have one reply.
    pub fn swallow_reply_to(&self, needle: &str, after: After) {
        self.shared.swallows().push(Swallow::new(needle, after));
    }

    /// Swallows every RESP3 push of the kind `message`; all other values pass.
    pub fn drop_pushes(&self, on: bool) {
        self.rules(|rules| rules.drop_pushes = on);
    }

    /// Replaces every reply by this one, for example an error. The server executes the requests,
    /// and pushes pass.
    pub fn replace_replies(&self, reply: &'static str) {
        self.rules(|rules| rules.reply = Some(reply));
    }

    /// Holds back the requests of all open connections, and returns the number of connections.
    /// Later connections are not affected, and replies pass.
    ///
    /// A client may close its side or be reset ([`ProxyHandle::reset_clients`]) meanwhile. The
    /// server does not notice before [`ProxyHandle::release_held`], and then gets commands of a
    /// connection that its client has long given up.
    pub fn hold_requests(&self) -> usize {
        self.control(|control| control.held = true)
    }

    /// Forwards the held requests, in order, and no longer holds any.
    pub fn release_held(&self) -> usize {
        self.control(|control| control.held = false)
    }

    /// Ends all faults, except that held requests stay held.
    ///
    /// # Panics
    ///
    /// Panics if a closed port does not open again.
    #[track_caller]
    pub fn heal(&self) {
        self.shared.swallows().clear();
        self.rules(|rules| *rules = Rules::default());
        self.shared.wait_listening(true);
    }

    fn rules(&self, change: impl FnOnce(&mut Rules)) {
        self.shared.rules.send_modify(change);
    }

    fn control(&self, change: impl Fn(&mut Control)) -> usize {
        let connections = self.shared.connections();
        let scope = self.shared.rules.borrow().clone();
        let concerned = connections.iter().filter(|(id, _)| scope.concern(**id));
        concerned
            .map(|(_, connection)| connection.send_modify(&change))
            .count()
    }
}

impl Shared {
    fn stats(&self) -> MutexGuard<'_, ProxyStats> {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn target(&self) -> MutexGuard<'_, SocketAddr> {
        self.target.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn swallows(&self) -> MutexGuard<'_, Vec<Swallow>> {
        self.swallows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connections(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<watch::Sender<Control>>>> {
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn set_listening(&self, on: bool) {
        *self
            .listening
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = on;
        self.listening_changed.notify_all();
    }

    #[track_caller]
    fn wait_listening(&self, on: bool) {
        let listening = self
            .listening
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (_listening, timeout) = self
            .listening_changed
            .wait_timeout_while(listening, PORT_DEADLINE, |listening| *listening != on)
            .unwrap_or_else(PoisonError::into_inner);
        let state = if on { "open" } else { "close" };
        assert!(
            !timeout.timed_out(),
            "the proxy did not {state} its port within {PORT_DEADLINE:?}"
        );
    }
}

/// Accepts connections while the rules allow it, until the proxy is dropped.
async fn accept(shared: &Arc<Shared>, first: std::net::TcpListener) {
    let mut rules = shared.rules.subscribe();
    let mut first = Some(first);
    loop {
        let closing = match rules.wait_for(|rules| !rules.refuse || rules.closing).await {
            Ok(rules) => rules.closing,
            Err(_) => true,
        };
        if closing {
            return;
        }
        // The caller that reopens the port waits with a deadline, so a panic here is noticed.
        let listener = match first.take() {
            Some(listener) => listener,
            None => listen(&shared.addr.into()).expect("cannot listen on a reserved port"),
        };
        let listener = TcpListener::from_std(listener).expect("cannot register a listener");
        shared.set_listening(true);
        loop {
            let accepted = tokio::select! {
                biased;
                _ = rules.wait_for(|rules| rules.refuse || rules.closing) => break,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((client, _)) => drop(tokio::spawn(serve(Arc::clone(shared), client))),
                // Out of file descriptors; accepting again at once would spin.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
        // Dropping is not enough: a process that starts meanwhile has a copy of the socket until
        // exec.
        let _ = SockRef::from(&listener).shutdown(Shutdown::Both);
        drop(listener);
        shared.set_listening(false);
    }
}

/// Binds a free port without listening, to keep it also while connections are refused.
fn reserve_port() -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
    // Set only now: the listener may share the port, but the kernel must choose an unused one.
    socket.set_reuse_address(true)?;
    Ok(socket)
}

fn listen(addr: &SockAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(addr)?;
    socket.listen(1024)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Makes closing `stream` send a reset.
fn reset_on_close(stream: &TcpStream) {
    // Fails only on a dead socket.
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}
