//! The supervisor's own words to a server.

use std::io;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use distlock_tests::{RedisServer, Reply};

/// For so long a command is repeated that is cut off again and again.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a server answers to an idempotent command. Each goes over a connection of its own, for a server that was
/// replaced, and has come back, does not know those from before. And it is repeated when it is cut off: a sentinel that
/// tells a server whom to follow cuts all of them. A server that does not run is an error.
pub(crate) fn ask(server: &RedisServer, words: &[&str]) -> anyhow::Result<Reply> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let asked = server
            .try_client()
            .and_then(|mut client| client.try_cmd(words));
        match asked {
            Err(error) if is_cut(&error) && Instant::now() < deadline => {}
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

/// Whether somebody listened, and ended the connection. (Nobody listens where a server has died.)
fn is_cut(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(
        error.kind(),
        BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof
    )
}

#[cfg(test)]
mod tests {
    use distlock_tests::eventually;

    use super::*;

    const DEADLINE: Duration = Duration::from_secs(30);

    #[test]
    fn a_server_that_was_away_is_asked_again() {
        let server = RedisServer::start();
        assert_eq!(
            ask(&server, &["PING"]).unwrap(),
            Reply::Status("PONG".into())
        );
        server.restart();
        assert_eq!(
            ask(&server, &["PING"]).unwrap(),
            Reply::Status("PONG".into())
        );
    }

    #[test]
    fn what_is_cut_off_is_repeated() {
        let server = RedisServer::start();
        let waits = || {
            let info = server.client().cmd(&["INFO", "clients"]);
            info.text()
                .is_some_and(|info| info.contains("blocked_clients:1"))
        };
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| ask(&server, &["BLPOP", "list", "0"]));
            eventually(DEADLINE, waits);
            let killed = server.client().cmd(&["CLIENT", "KILL", "TYPE", "normal"]);
            assert!(killed.int() >= 1, "{killed:?}");
            eventually(DEADLINE, waits);
            server.client().cmd(&["RPUSH", "list", "element"]);
            let answer = asked.join().unwrap().unwrap();
            assert_eq!(answer.array()[1].text(), Some("element"));
        });
    }

    #[test]
    fn a_server_that_has_died_is_an_error_as_is_a_refusal() {
        let server = RedisServer::start();
        let refused = ask(&server, &["NONSENSE"]).unwrap_err().to_string();
        assert!(refused.contains("unknown command"), "{refused}");
        server.kill();
        let dead = format!("{:#}", ask(&server, &["PING"]).unwrap_err());
        assert!(dead.contains(&server.addr().to_string()), "{dead}");
    }
}
