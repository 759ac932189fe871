//! A server that answers the handshake of a client as Redis does, and everything else as it is told.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{SystemTime, UNIX_EPOCH};

use super::Frame;
use crate::resp::{is_push, line_at, request_len, value_len};

/// What a script is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Take the lock, or queue.
    Ask,
    /// Confirm a short grant.
    Confirm,
    /// Renew a batch.
    Renew,
    /// Release, or cancel.
    Release,
    /// Ask after everything that is waited for.
    Look,
    /// See who holds a lock.
    Inspect,
}

/// A script call.
#[derive(Clone, Debug)]
pub struct Call {
    /// Which one, told by its arguments.
    pub verb: Verb,
    /// KEYS.
    pub keys: Vec<String>,
    /// ARGV, without the last one.
    pub args: Vec<String>,
    /// The number of the request, which is the last of ARGV.
    pub number: String,
}

impl Call {
    /// Reads `EVAL source n keys args`, or `EVALSHA`. `None` for other commands, and for a script that is
    /// only tried.
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
        let verb = match args.first().map(String::as_str) {
            None => Verb::Inspect,
            Some(first) if first.contains(' ') => Verb::Renew,
            Some(first) if !first.contains(':') => Verb::Look,
            Some(_) if keys.len() == 3 => Verb::Confirm,
            Some(_) if args.len() == 3 => Verb::Release,
            Some(_) => Verb::Ask,
        };
        Some(Call {
            verb,
            keys: keys.to_vec(),
            args: args.to_vec(),
            number: number.clone(),
        })
    }

    /// These bytes as the reply to this call.
    pub fn reply(&self, bytes: &[u8]) -> Vec<u8> {
        numbered(bytes, &self.number)
    }
}

/// These bytes with a request's number in the first reply, if that is complete, and a list or a text.
pub fn numbered(bytes: &[u8], number: &str) -> Vec<u8> {
    let mut at = 0;
    while let Ok(Some(length)) = value_len(&bytes[at..]) {
        let value = &bytes[at..at + length];
        if is_push(value) {
            at += length;
            continue;
        }
        let (line, body) = line_at(value, 0).expect("a complete value has a line");
        let count: Option<usize> = std::str::from_utf8(&line[1..])
            .ok()
            .and_then(|digits| digits.parse().ok());
        let value = match (line[0], count) {
            (b'*', Some(count)) => {
                let number = Frame::text(number).encode();
                [
                    format!("*{}\r\n", count + 1).as_bytes(),
                    &value[body..],
                    &number,
                ]
                .concat()
            }
            (b'$', Some(count)) => {
                let text = [&value[body..body + count], b" ", number.as_bytes()].concat();
                Frame::Bulk(text).encode()
            }
            (b'+', _) => Frame::Bulk([&line[1..], b" ", number.as_bytes()].concat()).encode(),
            _ => value.to_vec(),
        };
        return [&bytes[..at], &value, &bytes[at + length..]].concat();
    }
    bytes.to_vec()
}

/// What is done about a command.
#[derive(Clone, Debug, Default)]
pub struct Reaction {
    /// Sent as they are; none is no answer.
    pub bytes: Vec<u8>,
    /// The connection is closed behind them.
    pub close: bool,
}

impl From<Frame> for Reaction {
    fn from(frame: Frame) -> Self {
        Reaction {
            bytes: frame.encode(),
            close: false,
        }
    }
}

type React = dyn Fn(&str, Option<&Call>) -> Option<Reaction> + Send + Sync;

/// The server. Dropping it closes everything.
pub struct Impostor {
    shared: Arc<Shared>,
    port: u16,
    accepting: Option<JoinHandle<()>>,
}

struct Shared {
    react: Box<React>,
    over: AtomicBool,
    commands: AtomicU64,
    connections: Mutex<Vec<TcpStream>>,
}

impl Impostor {
    /// Starts one. `react` gets a command's name and, of a script, the call; what it leaves is answered as
    /// Redis would answer it, but a script's call is refused.
    ///
    /// # Panics
    ///
    /// When there is no free port.
    pub fn start(
        react: impl Fn(&str, Option<&Call>) -> Option<Reaction> + Send + Sync + 'static,
    ) -> Impostor {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let shared = Arc::new(Shared {
            react: Box::new(react),
            over: AtomicBool::new(false),
            commands: AtomicU64::new(0),
            connections: Mutex::default(),
        });
        let accepted = shared.clone();
        let accepting = thread::spawn(move || {
            for connection in listener.incoming() {
                if accepted.over.load(Ordering::Acquire) {
                    return;
                }
                let Ok(connection) = connection else { continue };
                let shared = accepted.clone();
                if let Ok(other) = connection.try_clone() {
                    lock(&shared.connections).push(other);
                }
                // It ends with the connection.
                thread::spawn(move || shared.serve(connection));
            }
        });
        Impostor {
            shared,
            port,
            accepting: Some(accepting),
        }
    }

    /// `redis://127.0.0.1:<port>`
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// How many commands it has read.
    pub fn commands(&self) -> u64 {
        self.shared.commands.load(Ordering::Acquire)
    }

    /// Its time, µs.
    pub fn micros() -> i64 {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        i64::try_from(now.as_micros()).unwrap_or(i64::MAX)
    }
}

impl Shared {
    fn serve(&self, mut connection: TcpStream) {
        // A client may hang up at any time.
        let _ = self.converse(&mut connection);
        let _ = connection.shutdown(Shutdown::Both);
    }

    fn converse(&self, connection: &mut TcpStream) -> io::Result<()> {
        connection.set_nodelay(true)?;
        let mut buffer = Vec::new();
        let mut chunk = [0; 16 * 1024];
        loop {
            while let Some(length) = request_len(&buffer).map_err(io::Error::other)? {
                let request: Vec<u8> = buffer.drain(..length).collect();
                self.commands.fetch_add(1, Ordering::AcqRel);
                let reaction = self.answer(&words(&request));
                connection.write_all(&reaction.bytes)?;
                if reaction.close {
                    return Ok(());
                }
            }
            match connection.read(&mut chunk)? {
                0 => return Ok(()),
                read => buffer.extend(&chunk[..read]),
            }
        }
    }

    fn answer(&self, words: &[String]) -> Reaction {
        let Some(name) = words.first() else {
            return Frame::Error("ERR no command".into()).into();
        };
        let call = Call::read(words);
        if let Some(reaction) = (self.react)(name, call.as_ref()) {
            return reaction;
        }
        let text = |text: &str| Frame::text(text);
        match name.to_ascii_uppercase().as_str() {
            "HELLO" => Frame::Map(vec![
                (text("server"), text("redis")),
                (text("proto"), Frame::Int(3)),
            ]),
            "CLIENT" => match words
                .get(1)
                .map(|word| word.to_ascii_uppercase())
                .as_deref()
            {
                Some("INFO") => text("id=7 addr=127.0.0.1:50000 laddr=127.0.0.1:1 name="),
                Some("KILL") => Frame::Int(1),
                _ => Frame::Simple("OK".into()),
            },
            "SUBSCRIBE" => Frame::Push(vec![
                text("subscribe"),
                text(words.get(1).map_or("", String::as_str)),
                Frame::Int(1),
            ]),
            "PING" => match words.get(1) {
                Some(number) => text(number),
                None => Frame::Simple("PONG".into()),
            },
            "INFO" => text("maxmemory:0\r\nmaxmemory_policy:noeviction\r\n"),
            "EVAL" | "EVALSHA" if call.is_none() => {
                let number = words.last().map_or("", String::as_str);
                Frame::Array(vec![Frame::Int(Impostor::micros()), text(""), text(number)])
            }
            "EVAL" | "EVALSHA" => Frame::Error("ERR not today".into()),
            _ => Frame::Simple("OK".into()),
        }
        .into()
    }
}

impl Drop for Impostor {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Release);
        for connection in lock(&self.shared.connections).drain(..) {
            // It may be closed already.
            let _ = connection.shutdown(Shutdown::Both);
        }
        // Wakes the thread that accepts.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

impl fmt::Debug for Impostor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Impostor")
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

/// The words of a request: an array of bulk strings.
fn words(request: &[u8]) -> Vec<String> {
    let mut words = Vec::new();
    let Some((_, mut at)) = line_at(request, 0) else {
        return words;
    };
    while let Some((line, next)) = line_at(request, at) {
        let length = std::str::from_utf8(&line[1..])
            .ok()
            .and_then(|digits| digits.parse().ok());
        let Some(word) = length.and_then(|length: usize| request.get(next..next + length)) else {
            break;
        };
        words.push(String::from_utf8_lossy(word).into_owned());
        at = next + word.len() + 2;
    }
    words
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
