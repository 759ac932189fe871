//! The program on a terminal: a command that reads from it, keys that stop and interrupt, and the
//! live view.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Instant;

use distlock_tests::{RedisServer, eventually};
use nix::pty::{Winsize, openpty};

use crate::support::{SOON, distlock, named};

/// A terminal with a program on it.
struct Terminal {
    keyboard: File,
    shown: Receiver<Vec<u8>>,
    seen: String,
    child: Child,
}

impl Terminal {
    /// Starts a program as the leader of a session of its own, which has this terminal.
    fn start(program: &Command) -> Self {
        let size = Winsize {
            ws_row: 24,
            ws_col: 80,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let pair = openpty(&size, None).expect("a terminal");
        let end = || Stdio::from(pair.slave.try_clone().expect("a descriptor"));
        let mut command = Command::new("setsid");
        command
            .args(["--ctty", "--wait"])
            .arg(program.get_program())
            .args(program.get_args())
            .env("TERM", "xterm");
        for (name, value) in program.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn();
        let keyboard = File::from(pair.master);
        let mut screen = keyboard.try_clone().expect("a descriptor");
        let (sender, shown) = channel();
        // Ends when no process has the terminal open.
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read) = screen.read(&mut bytes) {
                if read == 0 || sender.send(bytes[..read].to_vec()).is_err() {
                    return;
                }
            }
        });
        Terminal {
            keyboard,
            shown,
            seen: String::new(),
            child: child.expect("setsid of util-linux"),
        }
    }

    fn types(&mut self, keys: &str) {
        self.keyboard
            .write_all(keys.as_bytes())
            .expect("a terminal");
    }

    /// Waits until `part` has been shown, and drops all output up to it.
    #[track_caller]
    fn shows(&mut self, part: &str) {
        let deadline = Instant::now() + SOON;
        loop {
            if let Some(at) = self.seen.find(part) {
                self.seen.drain(..at + part.len());
                return;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.shown.recv_timeout(left) {
                Ok(bytes) => self.seen.push_str(&String::from_utf8_lossy(&bytes)),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    panic!("{part:?} was not shown, but {:?}", self.seen)
                }
            }
        }
    }

    #[track_caller]
    fn ends_with(mut self, code: i32) {
        eventually(SOON, || self.child.try_wait().expect("a state").is_some());
        let status = self.child.wait().expect("an end");
        assert_eq!(status.code(), Some(code), "{}", self.seen);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // For a test that has failed. The terminal closes with its descriptors, which ends the
        // rest.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_keys_for_an_interrupt_and_a_stop_are_the_command_s() {
    let server = RedisServer::start();
    let mut terminal = Terminal::start(&distlock(&server.url(), "run k -- cat"));
    // The terminal's own echo, then the output of `cat`.
    terminal.types("first\n");
    terminal.shows("first\r\nfirst");
    // Ctrl-Z, which must not stop the program while it has a lock.
    terminal.types("\u{1a}");
    terminal.shows("it continues");
    terminal.types("second\n");
    terminal.shows("second\r\nsecond");
    // Ctrl-C.
    terminal.types("\u{3}");
    terminal.ends_with(128 + 2);
}

#[tokio::test]
async fn the_live_view_shows_locks_until_it_is_quit() {
    let server = RedisServer::start();
    let locks = named(&server.url(), "holder").await;
    let _held = locks.lock("shop:1").acquire().await.expect("a free lock");
    let watches = distlock(&server.url(), "watch --interval 50ms");
    let mut terminal = Terminal::start(&watches);
    // The view moves the cursor across existing spaces instead of writing them.
    terminal.shows("acquisitions/s");
    terminal.shows("shop:1");
    terminal.shows("quits,");
    let _other = locks.lock("shop:2").acquire().await.expect("a free lock");
    terminal.shows("shop:2");
    terminal.types("q");
    // The previous screen is restored.
    terminal.shows("\u{1b}[?1049l");
    terminal.ends_with(0);
}
