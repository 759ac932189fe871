//! One proxied connection: two sockets, and a queue for each direction.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};

use super::filter::{Filter, Verdict};
use super::rules::Direction;
use super::{Shared, reset_on_close};
use crate::resp::{request_len, value_len};

/// Limit of chunks queued for the client, so that a slow client slows the server down.
const CHUNKS_TO_CLIENT: usize = 1024;
/// Upper limit of chunks queued for the server, enough for everything that a test holds back.
const CHUNKS_TO_SERVER: usize = 65_536;

/// The switches of one connection, set through the handles.
#[derive(Clone, Debug, Default)]
pub(super) struct Control {
    pub(super) held: bool,
    pub(super) reset_client: bool,
    pub(super) reset_server: bool,
}

/// Bytes that are written once they are due.
struct Chunk {
    due: Instant,
    bytes: Vec<u8>,
}

/// The state shared between both sides of one connection.
struct Connection {
    id: u64,
    shared: Arc<Shared>,
    control: Arc<watch::Sender<Control>>,
    filter: Mutex<Filter>,
}

/// Serves `client` until both sides have ended.
pub(super) async fn serve(shared: Arc<Shared>, client: TcpStream) {
    let id = {
        let mut stats = shared.stats();
        stats.accepted += 1;
        stats.accepted
    };
    let target = *shared.target();
    let Ok(server) = TcpStream::connect(target).await else {
        // The client is already connected, so a reset is the closest equivalent of "refused".
        reset_on_close(&client);
        return;
    };
    for socket in [&client, &server] {
        let _ = socket.set_nodelay(true);
    }
    let connection = Connection {
        id,
        shared: Arc::clone(&shared),
        control: Arc::new(watch::Sender::new(Control::default())),
        filter: Mutex::new(Filter::of(id)),
    };
    shared
        .connections()
        .insert(id, Arc::clone(&connection.control));
    let (to_server, from_client) = mpsc::channel(CHUNKS_TO_SERVER);
    let (to_client, from_server) = mpsc::channel(CHUNKS_TO_CLIENT);
    tokio::join!(
        connection.side(client, Direction::ToServer, to_server, from_server),
        connection.side(server, Direction::ToClient, to_client, from_client),
    );
    shared.connections().remove(&id);
}

impl Connection {
    /// Serves one socket: sends its data in `direction`, and writes the data of the other direction
    /// to it.
    async fn side(
        &self,
        mut socket: TcpStream,
        direction: Direction,
        outgoing: mpsc::Sender<Chunk>,
        incoming: mpsc::Receiver<Chunk>,
    ) {
        let mut control = self.control.subscribe();
        let (reader, writer) = socket.split();
        let pumps = async {
            tokio::join!(
                self.read(reader, direction, outgoing),
                self.write(writer, direction.opposite(), incoming),
            )
        };
        let reset = tokio::select! {
            biased;
            () = until(&mut control, |control| is_reset(control, direction)) => true,
            _ = pumps => false,
        };
        if reset {
            reset_on_close(&socket);
        }
    }

    /// Reads values and queues those that pass, until the end of the stream.
    async fn read(
        &self,
        mut socket: ReadHalf<'_>,
        direction: Direction,
        outgoing: mpsc::Sender<Chunk>,
    ) {
        let mut rules = self.shared.rules.subscribe();
        let mut buffer = Vec::new();
        loop {
            // Checked before and after the read: data in flight when the rule is set must not pass.
            until(&mut rules, |rules| {
                !rules.switches(self.id, direction).stalled
            })
            .await;
            let read = socket.read_buf(&mut buffer).await.unwrap_or(0);
            until(&mut rules, |rules| {
                !rules.switches(self.id, direction).stalled
            })
            .await;
            if read == 0 {
                // While data is dropped, the end of the stream is withheld too.
                until(&mut rules, |rules| !rules.switches(self.id, direction).drop).await;
                return;
            }
            let Ok(bytes) = self.sieve(&mut buffer, direction) else {
                self.control.send_modify(|control| {
                    control.reset_client = true;
                    control.reset_server = true;
                });
                return;
            };
            if bytes.is_empty() {
                continue;
            }
            let due = Instant::now() + self.delay(direction);
            let gone = outgoing.send(Chunk { due, bytes }).await.is_err();
            // Without the server there is nothing left to do. Without the client, the server must
            // still be read, because closing would discard requests that it has not processed.
            if gone && direction == Direction::ToServer {
                return;
            }
        }
    }

    fn delay(&self, direction: Direction) -> Duration {
        let rules = self.shared.rules.borrow();
        let delay = rules.switches(self.id, direction).delay;
        if direction == Direction::ToServer && !self.filter().subscribed {
            return delay + rules.unsubscribed_delay;
        }
        delay
    }

    fn filter(&self) -> MutexGuard<'_, Filter> {
        self.filter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the complete values out of `buffer` and returns those that pass, or `Err` to reset.
    fn sieve(&self, buffer: &mut Vec<u8>, direction: Direction) -> Result<Vec<u8>, ()> {
        let mut passed = Vec::new();
        let mut at = 0;
        let result = loop {
            let rest = &buffer[at..];
            let len = match direction {
                _ if rest.is_empty() => break Ok(()),
                _ if self.shared.sealed => Ok(Some(rest.len())),
                Direction::ToServer => request_len(rest),
                Direction::ToClient => value_len(rest),
            };
            let value = match len {
                Ok(Some(len)) => &rest[..len],
                Ok(None) => break Ok(()),
                Err(_) => break Err(()),
            };
            at += value.len();
            match self.judge(direction, value) {
                Verdict::Forward => passed.extend_from_slice(value),
                Verdict::ForwardBehind(reply) => {
                    passed.extend_from_slice(reply.as_bytes());
                    passed.extend_from_slice(value);
                }
                Verdict::Replace(reply) => passed.extend_from_slice(reply.as_bytes()),
                Verdict::Drop => {}
                Verdict::Reset => break Err(()),
            }
        };
        buffer.drain(..at);
        result.map(|()| passed)
    }

    fn judge(&self, direction: Direction, value: &[u8]) -> Verdict {
        let mut filter = self.filter();
        if direction == Direction::ToClient {
            return filter.reply(&self.shared, value);
        }
        let verdict = filter.request(&self.shared, value);
        if verdict == Verdict::Forward && self.control.borrow().held {
            self.shared.stats().requests_held += 1;
        }
        verdict
    }

    /// Writes data of the other side until that side has ended, then ends this stream too.
    async fn write(
        &self,
        mut socket: WriteHalf<'_>,
        direction: Direction,
        mut incoming: mpsc::Receiver<Chunk>,
    ) {
        while let Some(chunk) = incoming.recv().await {
            sleep_until(chunk.due).await;
            self.gate(direction).await;
            if self
                .write_chunk(&mut socket, direction, &chunk.bytes)
                .await
                .is_err()
            {
                return;
            }
        }
        self.gate(direction).await;
        // The other side may know of a reset of both first; then the stream has no orderly end.
        if is_reset(&self.control.borrow(), direction.opposite()) {
            return std::future::pending().await;
        }
        let _ = socket.shutdown().await;
    }

    /// Waits while writing is suspended.
    async fn gate(&self, direction: Direction) {
        let mut rules = self.shared.rules.subscribe();
        let mut control = self.control.subscribe();
        until(&mut rules, |rules| {
            !rules.switches(self.id, direction).stalled
        })
        .await;
        if direction == Direction::ToServer {
            until(&mut control, |control| !control.held).await;
        }
    }

    async fn write_chunk(
        &self,
        socket: &mut WriteHalf<'_>,
        direction: Direction,
        bytes: &[u8],
    ) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            // Read for every piece, so that a drip can end in the middle of a chunk.
            let drip = self.shared.rules.borrow().switches(self.id, direction).drip;
            let (size, pause) = drip.unwrap_or((rest.len(), Duration::ZERO));
            let (piece, later) = rest.split_at(size.min(rest.len()));
            socket.write_all(piece).await?;
            rest = later;
            if !pause.is_zero() {
                sleep(pause).await;
            }
        }
        Ok(())
    }
}

/// Returns true if the socket on which data in `direction` arrives must be reset.
fn is_reset(control: &Control, direction: Direction) -> bool {
    match direction {
        Direction::ToServer => control.reset_client,
        Direction::ToClient => control.reset_server,
    }
}

/// Waits for `condition`. An error would mean that the proxy, and this task with it, has ended.
async fn until<T>(receiver: &mut watch::Receiver<T>, condition: impl FnMut(&T) -> bool) {
    let _ = receiver.wait_for(condition).await;
}
