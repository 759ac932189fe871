//! The resource process: one thread per connection, one mutex around all registers.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use distlock::__inside::Rules;

use super::fence::{Caller, Fence};
use super::{Answer, Request};
use crate::history::{Accessed, Recorder, now};

/// Options of the resource process
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory of the log
    #[arg(long)]
    dir: PathBuf,
}

/// Serves until stdin closes, which also happens when the supervisor ends.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let log = Recorder::create(&args.dir.join("resource.jsonl"))?;
    let fence_reads = Rules::in_force().fence_reads;
    let store = Arc::new(Mutex::new(Store::new(log, fence_reads)));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    println!("listening {}", listener.local_addr()?);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let store = store.clone();
            // An error means that the worker was killed.
            std::thread::spawn(move || serve(stream, &store));
        }
    });
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    Ok(())
}

fn serve(stream: TcpStream, store: &Mutex<Store>) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    let mut answers = stream.try_clone()?;
    for line in BufReader::new(stream).lines() {
        let request = serde_json::from_str(&line?)?;
        let answer = store
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .serve(request);
        let mut line = serde_json::to_vec(&answer)?;
        line.push(b'\n');
        answers.write_all(&line)?;
    }
    Ok(())
}

#[derive(Debug, Default)]
struct Register {
    fenced: u64,
    unfenced: u64,
    fence: Fence,
}

/// All registers, and the log of all accesses to them.
#[derive(Debug)]
struct Store {
    registers: HashMap<String, Register>,
    log: Recorder,
    /// If false, reads are not checked and do not raise the highest token (a saboteur).
    fence_reads: bool,
}

impl Store {
    fn new(log: Recorder, fence_reads: bool) -> Self {
        Store {
            registers: HashMap::new(),
            log,
            fence_reads,
        }
    }

    /// Executes and logs a request. The caller has locked the store, so the log is in order.
    fn serve(&mut self, request: Request) -> Answer {
        let Request {
            key,
            by,
            token,
            shared,
            fenced,
            write,
        } = request;
        let register = self.registers.entry(key.clone()).or_default();
        let is_checked = fenced && (self.fence_reads || write.is_some());
        let accepted = !is_checked || register.fence.admit(Caller { by, token, shared });
        let value = if fenced {
            &mut register.fenced
        } else {
            &mut register.unfenced
        };
        if accepted && let Some(written) = write {
            *value = written;
        }
        let answer = accepted.then_some(*value);
        self.log.record(&Accessed {
            at: now(),
            key,
            fenced,
            by,
            token,
            write,
            accepted,
        });
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{self, OpId};

    fn store(fence_reads: bool) -> (tempfile::TempDir, Store) {
        let dir = tempfile::tempdir().unwrap();
        let log = Recorder::create(&dir.path().join("resource.jsonl")).unwrap();
        (dir, Store::new(log, fence_reads))
    }

    fn access(store: &mut Store, token: u64, fenced: bool, write: Option<u64>) -> Answer {
        let by = OpId {
            worker: 0,
            generation: 0,
            op: token,
        };
        store.serve(Request {
            key: "k".into(),
            by,
            token,
            shared: false,
            fenced,
            write,
        })
    }

    /// Order: 1 reads, 2 reads, 1 writes, 2 writes. Unless reads are checked, 1's update is lost.
    #[test]
    fn a_read_by_a_newer_holder_rejects_the_older_one() {
        for (fence_reads, first_write) in [(true, None), (false, Some(1))] {
            let (_dir, mut store) = store(fence_reads);
            assert_eq!(access(&mut store, 1, true, None), Some(0));
            assert_eq!(access(&mut store, 2, true, None), Some(0));
            assert_eq!(access(&mut store, 1, true, Some(1)), first_write);
            assert_eq!(access(&mut store, 2, true, Some(1)), Some(1));
            assert_eq!(access(&mut store, 1, true, Some(2)), None);
        }
    }

    #[test]
    fn the_unfenced_copy_takes_everything_and_all_is_logged_in_order() {
        let (dir, mut store) = store(true);
        assert_eq!(access(&mut store, 2, true, Some(9)), Some(9));
        assert_eq!(access(&mut store, 1, true, Some(8)), None);
        assert_eq!(access(&mut store, 2, false, Some(7)), Some(7));
        assert_eq!(access(&mut store, 1, false, Some(3)), Some(3));
        assert_eq!(access(&mut store, 2, true, None), Some(9));
        let logged = history::stream::<Accessed>(&dir.path().join("resource.jsonl")).unwrap();
        let logged: Vec<_> = logged
            .map(|access| access.unwrap())
            .map(|access| (access.token, access.fenced, access.write, access.accepted))
            .collect();
        let expected = [
            (2, true, Some(9), true),
            (1, true, Some(8), false),
            (2, false, Some(7), true),
            (1, false, Some(3), true),
            (2, true, None, true),
        ];
        assert_eq!(logged, expected);
    }
}
