//! The supervisor's own commands to a server.

use std::io;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use distlock_tests::{RedisServer, Reply};

/// For so long a command is repeated whose connection is closed again and again.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a server answers to an idempotent command.
///
/// Each goes over a connection of its own, for a server that was replaced, and has come back, does
/// not know those from before. It is repeated when its connection is closed: a sentinel that
/// demotes a server closes all of them. A server that does not run is an error.
pub(crate) fn ask(server: &RedisServer, words: &[&str]) -> anyhow::Result<Reply> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let asked = server
            .try_client()
            .and_then(|mut client| client.try_cmd(words));
        match asked {
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

/// Whether a server accepted the connection and closed it. (A dead one refuses it.)
fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(
        error.kind(),
        BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof
    )
}
