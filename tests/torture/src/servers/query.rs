//! Commands of the supervisor to a server.

use std::io;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use distlock_tests::{RedisServer, Reply};

/// Upper limit of retries while the connection keeps being closed.
const PATIENCE: Duration = Duration::from_secs(5);

/// Sends an idempotent command and returns the reply.
///
/// Every command uses a new connection, because a restarted server does not know earlier ones. The
/// command is retried if its connection is closed: a sentinel that demotes a server closes all
/// connections. Fails if the server does not run or replies with an error.
pub(crate) fn query(server: &RedisServer, words: &[&str]) -> anyhow::Result<Reply> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let reply = server
            .try_client()
            .and_then(|mut client| client.try_cmd(words));
        match reply {
            Err(error) if is_closed(&error) && Instant::now() < deadline => {}
            Err(error) => {
                let to = server.addr();
                return Err(error).with_context(|| format!("{words:?} to the server at {to}"));
            }
            Ok(Reply::Error(error)) => {
                bail!("{words:?} to the server at {}: {error}", server.addr())
            }
            Ok(reply) => return Ok(reply),
        }
    }
}

/// Returns true if a server accepted and then closed the connection. A dead server refuses it.
fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(
        error.kind(),
        BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof
    )
}
