//! A synchronous RESP2 client that shares no code with the one under test.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::resp::{line_at, value_len};

/// The timeout of a command, unless set otherwise.
const TIMEOUT: Duration = Duration::from_secs(15);

/// A reply of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The absence of a value.
    Nil,
    /// An integer.
    Int(i64),
    /// A string (bytes that are not UTF-8 are replaced).
    Bulk(String),
    /// An array of replies.
    Array(Vec<Reply>),
    /// A status like `OK`.
    Status(String),
    /// An error, which begins with its code.
    Error(String),
}

impl Reply {
    /// Returns the integer.
    ///
    /// # Panics
    ///
    /// Panics if the reply is something else.
    #[track_caller]
    pub fn int(&self) -> i64 {
        match self {
            Reply::Int(n) => *n,
            other => panic!("expected an integer, got {other:?}"),
        }
    }

    /// Returns the string or status, `None` for nil.
    ///
    /// # Panics
    ///
    /// Panics if the reply is something else.
    #[track_caller]
    pub fn text(&self) -> Option<&str> {
        match self {
            Reply::Bulk(text) | Reply::Status(text) => Some(text),
            Reply::Nil => None,
            other => panic!("expected a string, got {other:?}"),
        }
    }

    /// Returns the elements.
    ///
    /// # Panics
    ///
    /// Panics if the reply is something else.
    #[track_caller]
    pub fn array(&self) -> &[Reply] {
        match self {
            Reply::Array(items) => items,
            other => panic!("expected an array, got {other:?}"),
        }
    }

    /// Returns true if the reply is an error.
    pub fn is_error(&self) -> bool {
        matches!(self, Reply::Error(_))
    }
}

/// A connection to a server.
pub struct Resp {
    stream: TcpStream,
    buffer: Vec<u8>,
    timeout: Duration,
}

impl fmt::Debug for Resp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resp").finish_non_exhaustive()
    }
}

impl Resp {
    /// Connects over TCP.
    ///
    /// # Errors
    ///
    /// If no server listens there.
    pub fn connect(address: SocketAddr) -> io::Result<Resp> {
        let stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
        stream.set_nodelay(true)?;
        Ok(Resp {
            stream,
            buffer: Vec::new(),
            timeout: TIMEOUT,
        })
    }

    /// Sets how long [`Resp::cmd`] and [`Resp::try_cmd`] wait for a reply (15 s unless set).
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Sends a command and returns its reply, which may be an error of the server.
    ///
    /// # Panics
    ///
    /// Panics if no reply arrives in time.
    #[track_caller]
    pub fn cmd(&mut self, words: &[&str]) -> Reply {
        match self.try_cmd(words) {
            Ok(reply) => reply,
            Err(error) => panic!("{words:?}: {error}"),
        }
    }

    /// Sends a command that the server must not reject.
    ///
    /// # Panics
    ///
    /// Panics if the server rejects the command, or no reply arrives in time.
    #[track_caller]
    pub fn must(&mut self, words: &[&str]) {
        let reply = self.cmd(words);
        assert!(!reply.is_error(), "{words:?}: {reply:?}");
    }

    /// Sends a command to a server that may not answer, and returns its reply.
    ///
    /// # Errors
    ///
    /// If the connection is closed, or no reply arrived in time. After that, the connection is
    /// unusable, because a late reply would be taken for the reply to the next command.
    pub fn try_cmd(&mut self, words: &[&str]) -> io::Result<Reply> {
        self.send(words)?;
        self.read_reply(self.timeout)
    }

    /// Sends a command without reading its reply.
    ///
    /// # Errors
    ///
    /// If the connection is closed.
    pub fn send(&mut self, words: &[&str]) -> io::Result<()> {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.stream.write_all(request.as_bytes())
    }

    /// Reads the next reply or published message.
    ///
    /// # Errors
    ///
    /// If the connection is closed, or nothing arrived in time.
    pub fn read_reply(&mut self, timeout: Duration) -> io::Result<Reply> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(len) = value_len(&self.buffer).map_err(io::Error::other)? {
                let value: Vec<u8> = self.buffer.drain(..len).collect();
                return Ok(decode(&value, &mut 0));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let reason = format!("no reply within {timeout:?}");
                return Err(io::Error::new(io::ErrorKind::TimedOut, reason));
            }
            self.stream.set_read_timeout(Some(left))?;
            let mut chunk = [0; 16 * 1024];
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => self.buffer.extend_from_slice(&chunk[..n]),
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the string at `key`.
    ///
    /// # Panics
    ///
    /// Panics if the value of `key` is not a string.
    #[track_caller]
    pub fn get(&mut self, key: &str) -> Option<String> {
        self.cmd(&["GET", key]).text().map(str::to_owned)
    }

    /// Returns true if `key` exists.
    #[track_caller]
    pub fn exists(&mut self, key: &str) -> bool {
        self.cmd(&["EXISTS", key]).int() == 1
    }

    /// Returns the keys that match `pattern`, sorted.
    #[track_caller]
    pub fn keys(&mut self, pattern: &str) -> Vec<String> {
        let reply = self.cmd(&["KEYS", pattern]);
        let mut keys: Vec<String> = reply
            .array()
            .iter()
            .filter_map(|key| key.text().map(str::to_owned))
            .collect();
        keys.sort();
        keys
    }

    /// Returns the milliseconds until `key` expires: -1 for never, -2 if it does not exist.
    #[track_caller]
    pub fn pttl(&mut self, key: &str) -> i64 {
        self.cmd(&["PTTL", key]).int()
    }

    /// Returns a field of `INFO` (all sections), for example `connected_clients`.
    ///
    /// # Panics
    ///
    /// Panics if there is no such field.
    #[track_caller]
    pub fn info_field(&mut self, name: &str) -> String {
        let reply = self.cmd(&["INFO", "everything"]);
        let info = reply.text().unwrap_or_default();
        match field(info, name) {
            Some(value) => value.to_owned(),
            None => panic!("INFO has no field {name:?}"),
        }
    }
}

/// Returns the value of a `name:value` line.
pub(crate) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines()
        .filter_map(|line| line.split_once(':'))
        .find_map(|(field, value)| (field == name).then_some(value))
}

/// Returns true for the error kinds of a timeout, which depend on the platform.
fn is_timeout(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

/// Decodes the value at `at` of a complete buffer.
fn decode(value: &[u8], at: &mut usize) -> Reply {
    let (line, next) = line_at(value, *at).expect("a complete value");
    let text = String::from_utf8_lossy(&line[1..]).into_owned();
    *at = next;
    let number = || text.parse::<i64>().expect("a number");
    match line[0] {
        b'+' => Reply::Status(text),
        b'-' => Reply::Error(text),
        b':' => Reply::Int(number()),
        b'$' | b'*' if number() < 0 => Reply::Nil,
        b'$' => {
            let end = next + number() as usize;
            *at = end + 2;
            Reply::Bulk(String::from_utf8_lossy(&value[next..end]).into_owned())
        }
        b'*' => Reply::Array((0..number()).map(|_| decode(value, at)).collect()),
        other => panic!("{:?} is not RESP2", char::from(other)),
    }
}
