//! A server that greets a client as Redis does, and gives scripted answers to other commands.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use super::Frame;
use crate::resp::{line_at, request_len};

/// The operation of a script call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Take the lock, or queue.
    Acquire,
    /// Confirm a short grant.
    Confirm,
    /// Renew a batch.
    Renew,
    /// Release, or cancel.
    Release,
    /// Check everything that the client waits for.
    CheckQueue,
    /// Return the state of a lock.
    Inspect,
}

/// A script call.
#[derive(Clone, Debug)]
pub struct Call {
    /// The operation, derived from the arguments.
    pub verb: Verb,
    /// KEYS.
    pub keys: Vec<String>,
    /// ARGV, without the last one.
    pub args: Vec<String>,
    /// The request number, which is the last of ARGV.
    pub number: String,
}

impl Call {
    /// Parses `EVAL source n keys args`, or `EVALSHA`. Returns `None` for other commands, and for
    /// the test run of a script with a probe key.
    fn read(words: &[String]) -> Option<Call> {
        if !words[0].eq_ignore_ascii_case("EVAL") && !words[0].eq_ignore_ascii_case("EVALSHA") {
            return None;
        }
        let keys: usize = words.get(2)?.parse().ok()?;
        let (keys, args) = words.get(3..)?.split_at_checked(keys)?;
        if keys.iter().all(|key| key.ends_with(":probe")) {
            return None;
        }
        let (number, args) = args.split_last()?;
        let first = args.first().map_or("", String::as_str);
        let verb = match args.len() {
            0 => Verb::Inspect,
            2 if first.starts_with("2 ") => Verb::Release,
            _ if first.starts_with("2 ") => Verb::Acquire,
            _ if first.contains(' ') => Verb::Renew,
            _ if first.contains(':') => Verb::Confirm,
            _ => Verb::CheckQueue,
        };
        Some(Call {
            verb,
            keys: keys.to_vec(),
            args: args.to_vec(),
            number: number.clone(),
        })
    }

    /// Returns the number of locks in the call.
    pub fn locks(&self) -> usize {
        match self.verb {
            Verb::Renew => self.keys.len(),
            _ => self.keys.len() / 2,
        }
    }

    /// Encodes `reply` with the number of this request.
    pub fn reply(&self, reply: Frame) -> Vec<u8> {
        reply.numbered(&self.number).encode()
    }
}

/// The server's reaction to a command.
#[derive(Clone, Default)]
pub struct Reaction {
    /// The reply, sent unchanged; empty for no reply.
    pub bytes: Vec<u8>,
    /// The next step after the reply.
    pub then: Then,
}

impl fmt::Debug for Reaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let begin = &self.bytes[..self.bytes.len().min(100)];
        write!(f, "\"{}\", {:?}", begin.escape_ascii(), self.then)
    }
}

/// The next step after a reply.
#[derive(Clone, Copy, Debug, Default)]
pub enum Then {
    /// Read the next command.
    #[default]
    GoOn,
    /// Close the connection.
    Close,
    /// Send these bytes until the client closes the connection.
    Repeat(&'static [u8]),
}

impl Reaction {
    /// Creates a reaction that sends these bytes.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Reaction {
            bytes: bytes.into(),
            then: Then::GoOn,
        }
    }
}

impl From<Frame> for Reaction {
    fn from(frame: Frame) -> Self {
        Reaction::new(frame.encode())
    }
}

type React = dyn Fn(&str, Option<&Call>) -> Option<Reaction> + Send + Sync;

/// The server. It serves a connection until the client closes it.
pub struct Impostor {
    shared: Arc<Shared>,
    port: u16,
}

struct Shared {
    react: Box<React>,
    is_closed: AtomicBool,
    most_sent: AtomicUsize,
}

impl Impostor {
    /// Upper limit of bytes sent to a client that does not close the connection.
    const MAX_REPEATED: usize = 128 << 20;

    /// Starts a server. `react` gets the name of a command and, for a script, the call. If it
    /// returns `None`, the server answers as Redis would, but rejects script calls.
    ///
    /// # Panics
    ///
    /// Panics if there is no free port.
    pub fn start(
        react: impl Fn(&str, Option<&Call>) -> Option<Reaction> + Send + Sync + 'static,
    ) -> Impostor {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let shared = Arc::new(Shared {
            react: Box::new(react),
            is_closed: AtomicBool::new(false),
            most_sent: AtomicUsize::new(0),
        });
        let accepting = shared.clone();
        thread::spawn(move || {
            for connection in listener.incoming().map_while(Result::ok) {
                if accepting.is_closed.load(Ordering::Acquire) {
                    return;
                }
                let shared = accepting.clone();
                // A client may close the connection at any time.
                thread::spawn(move || shared.serve(connection).ok());
            }
        });
        Impostor { shared, port }
    }

    /// Returns `redis://127.0.0.1:<port>`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Returns the address.
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Returns the largest number of bytes of one endless reply that a client has accepted.
    pub fn most_sent(&self) -> usize {
        self.shared.most_sent.load(Ordering::Acquire)
    }

    /// Returns the server's time, µs.
    pub fn micros() -> i64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        i64::try_from(now.unwrap_or_default().as_micros()).unwrap_or(i64::MAX)
    }
}

impl Shared {
    fn serve(&self, mut connection: TcpStream) -> io::Result<()> {
        connection.set_nodelay(true)?;
        let mut buffer = Vec::new();
        let mut chunk = [0; 16 * 1024];
        loop {
            while let Some(length) = request_len(&buffer).map_err(io::Error::other)? {
                let request: Vec<u8> = buffer.drain(..length).collect();
                let reaction = self.answer(&words(&request));
                connection.write_all(&reaction.bytes)?;
                match reaction.then {
                    Then::GoOn => {}
                    Then::Close => return Ok(()),
                    Then::Repeat(bytes) => return self.flood(&mut connection, bytes),
                }
            }
            match connection.read(&mut chunk)? {
                0 => return Ok(()),
                read => buffer.extend(&chunk[..read]),
            }
        }
    }

    fn flood(&self, connection: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
        let many = bytes.repeat(64 * 1024 / bytes.len());
        let mut sent = 0;
        while sent < Impostor::MAX_REPEATED {
            connection.write_all(&many)?;
            sent += many.len();
            self.most_sent.fetch_max(sent, Ordering::AcqRel);
        }
        Ok(())
    }

    fn answer(&self, words: &[String]) -> Reaction {
        let Some(name) = words.first() else {
            return Frame::error("ERR no command").into();
        };
        let call = Call::read(words);
        if let Some(reaction) = (self.react)(name, call.as_ref()) {
            return reaction;
        }
        let word = |index| words.get(index).map_or("", |word: &String| word);
        let text = |text: &str| Frame::text(text);
        match name.to_ascii_uppercase().as_str() {
            "HELLO" => Frame::List('%', vec![text("proto"), Frame::int(3)]),
            "SUBSCRIBE" => Frame::push([text("subscribe"), text(word(1)), Frame::int(1)]),
            "PING" if words.len() > 1 => text(word(1)),
            "PING" => Frame::Line('+', "PONG".into()),
            "INFO" => text("maxmemory:0\r\nmaxmemory_policy:noeviction\r\n"),
            "EVAL" | "EVALSHA" if call.is_none() => {
                let number = words.last().map_or("", String::as_str);
                Frame::array([Frame::int(Impostor::micros()), text(""), text(number)])
            }
            "EVAL" | "EVALSHA" => Frame::error("ERR not today"),
            _ => Frame::Line('+', "OK".into()),
        }
        .into()
    }
}

impl Drop for Impostor {
    fn drop(&mut self) {
        self.shared.is_closed.store(true, Ordering::Release);
        // Wakes the accepting thread.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

impl fmt::Debug for Impostor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Impostor({})", self.port)
    }
}

/// Splits a request, an array of bulk strings, into its words.
fn words(request: &[u8]) -> Vec<String> {
    let mut words = Vec::new();
    let mut at = line_at(request, 0).map_or(0, |(_, next)| next);
    while let Some((line, next)) = line_at(request, at) {
        let length = std::str::from_utf8(&line[1..]).map(str::parse::<usize>);
        let Ok(Ok(length)) = length else { break };
        let Some(word) = request.get(next..next + length) else {
            break;
        };
        words.push(String::from_utf8_lossy(word).into_owned());
        at = next + length + 2;
    }
    words
}
