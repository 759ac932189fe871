//! The example, as a process.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use distlock_tests::RedisServer;
use distlock_tests::documents::typed;

use crate::exported::Exported;

/// For whatever is waited for here, on a loaded machine.
const TOO_LONG: Duration = Duration::from_secs(60);

pub(crate) struct Operated {
    child: Child,
    listens: SocketAddr,
    said: Mutex<Receiver<String>>,
}

impl Operated {
    /// Starts it, and waits until it is ready.
    pub(crate) fn start(server: &RedisServer) -> Self {
        // Somebody else may take the port before the example does; then it says so, and ends.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let listens = listener.local_addr().unwrap();
        drop(listener);
        let mut child = Command::new(env!("CARGO_BIN_EXE_operated"))
            .args(typed(
                "examples/README.md",
                "cargo run -p examples --bin operated",
            ))
            .args(["--listen", &listens.to_string()])
            .env("DISTLOCK_URL", server.url())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (say, said) = channel();
        thread::spawn(move || {
            // It ends with the process, or when nobody listens any more.
            for line in stdout.lines().map_while(Result::ok) {
                let _ = say.send(line);
            }
        });
        let operated = Operated {
            child,
            listens,
            said: Mutex::new(said),
        };
        operated.until_said("ready");
        operated
    }

    pub(crate) fn until_said(&self, text: &str) {
        let until = Instant::now() + TOO_LONG;
        let said = self.said.lock().unwrap();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let line = said.recv_timeout(left);
            let line = line.unwrap_or_else(|error| panic!("it did not say `{text}`: {error}"));
            if line.contains(text) {
                return;
            }
        }
    }

    fn scrape(&self) -> Exported {
        let mut stream = TcpStream::connect(self.listens).unwrap();
        let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        Exported::parse(&answer)
    }

    /// Looks at the metrics until they show what is to be seen.
    pub(crate) fn scrape_until(&self, shows: impl Fn(&Exported) -> bool) -> Exported {
        let until = Instant::now() + TOO_LONG;
        loop {
            let exported = self.scrape();
            if shows(&exported) {
                return exported;
            }
            assert!(Instant::now() < until, "{exported:?}");
            thread::sleep(Duration::from_millis(100));
        }
    }

    pub(crate) fn terminate(mut self) -> ExitStatus {
        let pid = self.child.id().to_string();
        let sent = Command::new("sh")
            .args(["-c", "kill -s TERM $0", &pid])
            .status()
            .unwrap();
        assert!(sent.success());
        self.child.wait().unwrap()
    }
}

impl Drop for Operated {
    fn drop(&mut self) {
        // It has ended already, or is not needed any more.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
