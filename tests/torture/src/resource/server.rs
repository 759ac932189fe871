//! The resource process: one thread per connection, one mutex around all registers.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use distlock::__inside::Rules;

use super::fence::{Caller, Fence};
use super::{Access, Answer, Request};
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
    fenced: i64,
    unfenced: i64,
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
        let accepted = self.admit(&request);
        let answer = accepted.then(|| self.access(&request));
        self.log.record(&Accessed {
            at: now(),
            request,
            accepted,
        });
        answer
    }

    fn register(&mut self, key: &str) -> &mut Register {
        self.registers.entry(key.to_owned()).or_default()
    }

    /// Returns true if no token of the request is stale, or none is checked.
    fn admit(&mut self, request: &Request) -> bool {
        let Request { by, shared, .. } = *request;
        let is_read = matches!(request.access, Access::Read { .. });
        if !request.access.is_fenced() || is_read && !self.fence_reads {
            return true;
        }
        let mut admit = |key: &str, token| {
            let caller = Caller { by, token, shared };
            self.register(key).fence.admit(caller)
        };
        admit(&request.key, request.token)
            && match &request.access {
                Access::Move { to, to_token, .. } => admit(to, *to_token),
                _ => true,
            }
    }

    /// Executes an accepted request.
    fn access(&mut self, request: &Request) -> i64 {
        if let Access::Move { values, to, .. } = &request.access {
            self.register(to).fenced = values[1];
        }
        let register = self.register(&request.key);
        let value = if request.access.is_fenced() {
            &mut register.fenced
        } else {
            &mut register.unfenced
        };
        match request.access {
            Access::Write { value: new, .. }
            | Access::Move {
                values: [new, _], ..
            } => *value = new,
            Access::Read { .. } | Access::Enter { .. } | Access::Leave => {}
        }
        *value
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

    fn serve(store: &mut Store, key: &str, token: u64, access: Access) -> Answer {
        let by = OpId {
            worker: 0,
            generation: 0,
            op: token,
        };
        store.serve(Request {
            key: key.into(),
            by,
            token,
            shared: false,
            access,
        })
    }

    fn access(store: &mut Store, token: u64, fenced: bool, write: Option<i64>) -> Answer {
        let access = match write {
            None => Access::Read { fenced },
            Some(value) => Access::Write { fenced, value },
        };
        serve(store, "k", token, access)
    }

    #[test]
    fn a_move_with_a_stale_token_of_either_account_changes_none() {
        for (token, to_token, expected) in [
            (5, 5, [Some(-3), Some(3)]),
            (4, 5, [Some(0), Some(0)]),
            (5, 4, [Some(0), Some(0)]),
        ] {
            let (_dir, mut store) = store(true);
            for key in ["k", "to"] {
                serve(&mut store, key, 5, Access::Read { fenced: true });
            }
            let moved = Access::Move {
                amount: 3,
                values: [-3, 3],
                to: "to".into(),
                to_token,
            };
            serve(&mut store, "k", token, moved);
            let read = |key| serve(&mut store, key, 6, Access::Read { fenced: true });
            assert_eq!(["k", "to"].map(read), expected, "{token} {to_token}");
        }
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
            .map(
                |Accessed {
                     request, accepted, ..
                 }| (request.token, request.access, accepted),
            )
            .collect();
        let write = |fenced, value| Access::Write { fenced, value };
        let expected = [
            (2, write(true, 9), true),
            (1, write(true, 8), false),
            (2, write(false, 7), true),
            (1, write(false, 3), true),
            (2, Access::Read { fenced: true }, true),
        ];
        assert_eq!(logged, expected);
    }
}
