//! A run: serves the orders and the stock to the workers, over TCP, until all orders are finished.
//!
//! If a worker has ended, its order may or may not have reached the stock. Another worker gets the
//! order in either case, because the stock remembers which orders are fulfilled.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::connection::{Connection, parse};
use crate::ledger::{Call, Kill, Ledger, Reading};
use crate::options::RunOptions;
use crate::orders::{MOST_WANTED, Order, Shop};
use crate::report::{Report, title};
use crate::worker::{TASKS, WorkerOptions};

/// Runs all orders of the shop once.
pub(crate) async fn run(shop: &Shop, options: &RunOptions, locked: bool) -> Result<Report> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let mut workers = start_workers(options, locked, &listener)?;
    // All workers begin at the same time.
    let mut streams = Vec::new();
    while streams.len() < usize::from(options.workers) * TASKS {
        tokio::select! {
            accepted = listener.accept() => streams.push(accepted?.0),
            Some(ended) = workers.join_next() => bail!("{} before the run", ended??),
        }
    }
    let victim_item = (locked && options.kill_one).then_some(MOST_WANTED);
    let server = Arc::new(Server {
        locked,
        ledger: Mutex::new(Ledger::new(shop, victim_item)),
        changed: Notify::new(),
        started: Instant::now(),
    });
    let serve = |stream| server.clone().serve(stream);
    let mut connections: JoinSet<_> = streams.into_iter().map(serve).collect();
    while !server.ledger().is_complete() {
        tokio::select! {
            // A connection ends before its worker, and the loop has ended after the last order.
            biased;
            Some(_) = connections.join_next() => {}
            Some(ended) = workers.join_next() => eprintln!("{}: {}", title(locked), ended??),
            else => bail!("no worker is left to fulfil the orders"),
        }
    }
    connections.join_all().await;
    while let Some(ended) = workers.join_next().await {
        ended??;
    }
    Ok(Report::new(locked, shop, &server.ledger()))
}

/// Starts the workers. Each returns how it ended.
fn start_workers(
    options: &RunOptions,
    locked: bool,
    listener: &TcpListener,
) -> Result<JoinSet<Result<String>>> {
    let mut workers = JoinSet::new();
    let mut pids = Vec::new();
    for number in 1..=options.workers {
        let worker = WorkerOptions {
            store: options.store.clone(),
            server: listener.local_addr()?,
            number,
            locked,
        };
        if options.store.is_memory() {
            workers.spawn(async move {
                worker.work().await?;
                Ok(format!("worker {number} has ended"))
            });
        } else {
            let mut child = worker.spawn_process()?;
            let pid = child.id().unwrap_or_default();
            pids.push(pid.to_string());
            workers.spawn(async move {
                let status = child.wait().await?;
                Ok(format!("process {pid} has ended ({status})"))
            });
        }
    }
    if !pids.is_empty() {
        eprintln!("{}: worker processes {}", title(locked), pids.join(" "));
    }
    Ok(workers)
}

/// State shared by the connections of a run.
struct Server {
    locked: bool,
    ledger: Mutex<Ledger>,
    /// Notifies that an order was put back, or the last one finished.
    changed: Notify,
    started: Instant,
}

/// The worker at the other end of a connection.
#[derive(Clone, Copy)]
struct Worker {
    number: u16,
    pid: u32,
}

impl Server {
    /// Serves one task of a worker until no order is left, or until the worker has ended.
    async fn serve(self: Arc<Self>, stream: TcpStream) -> io::Result<()> {
        let mut connection = Connection::new(stream)?;
        let greeting = connection.receive().await?.unwrap_or_default();
        let ["worker", number, pid] = words(&greeting)[..] else {
            return Err(unknown(&greeting));
        };
        let worker = Worker {
            number: parse(number)?,
            pid: parse(pid)?,
        };
        while let Some(order) = self.next_order().await {
            match self.fulfil(&mut connection, worker, order).await {
                Ok(Some(is_confirmed)) => self.finish(order, is_confirmed),
                Ok(None) | Err(_) => {
                    self.ledger().put_back(order);
                    self.changed.notify_waiters();
                    return Ok(());
                }
            }
        }
        connection.send("end").await
    }

    /// Gives an order to a worker and replies to its requests. Returns whether the order was
    /// confirmed or rejected, or `None` if the worker has ended.
    async fn fulfil(
        &self,
        connection: &mut Connection,
        worker: Worker,
        order: Order,
    ) -> io::Result<Option<bool>> {
        let mut called = self.now();
        let mut call = None;
        connection.send(&order.id.to_string()).await?;
        while let Ok(Some(request)) = connection.receive().await {
            let now = self.now();
            let reply: String = match (&words(&request)[..], call) {
                (["read", token], _) => {
                    // Without a lock a call does not wait.
                    let called = if self.locked { called } else { now };
                    let begun = Call::new(order, worker.number, called, now);
                    let (number, reading) = self.ledger().read(begun, parse(token)?);
                    call = Some(number);
                    if self.ledger().take_victim(order.item_id) {
                        self.kill(worker, order, now);
                        // The worker holds the lock, and never receives this reply.
                        continue;
                    }
                    match reading {
                        Reading::Left(left) => left.to_string(),
                        Reading::Fulfilled => "fulfilled".into(),
                        Reading::Stale => "stale".into(),
                    }
                }
                (["write", left, token], Some(call)) => {
                    let (left, token) = (parse(left)?, parse(token)?);
                    match self.ledger().write(call, left, token, now) {
                        true => "written".into(),
                        false => "stale".into(),
                    }
                }
                (["retry"], _) => {
                    if let Some(call) = call.take() {
                        self.ledger().stop(call, now);
                    }
                    called = now;
                    "retry".into()
                }
                (["confirmed"], _) => return Ok(Some(true)),
                (["rejected"], _) => return Ok(Some(false)),
                _ => return Err(unknown(&request)),
            };
            if connection.send(&reply).await.is_err() {
                break;
            }
        }
        if let Some(call) = call {
            self.ledger().stop(call, self.now());
        }
        Ok(None)
    }

    /// Waits for an order. Returns `None` once all are finished.
    async fn next_order(&self) -> Option<Order> {
        loop {
            let changed = self.changed.notified();
            {
                let mut ledger = self.ledger();
                let order = ledger.next_order();
                if order.is_some() || ledger.is_complete() {
                    return order;
                }
            }
            changed.await;
        }
    }

    fn finish(&self, order: Order, is_confirmed: bool) {
        let mut ledger = self.ledger();
        ledger.finish(order, is_confirmed);
        let (finished, orders) = (ledger.finished(), ledger.orders);
        if finished * 4 / orders != (finished - 1) * 4 / orders {
            let seconds = self.now().as_secs_f64();
            let title = title(self.locked);
            eprintln!("{title:<13} {finished:>4}/{orders} orders, {seconds:.1} s");
        }
        if ledger.is_complete() {
            self.changed.notify_waiters();
        }
    }

    fn kill(&self, Worker { pid, .. }: Worker, order: Order, now: Duration) {
        let process = i32::try_from(pid).ok().and_then(Pid::from_raw);
        // An error means that it has ended already.
        let _ = process.map(|process| kill_process(process, Signal::KILL));
        let item = order.item_id;
        eprintln!("killed process {pid} (SIGKILL) while it held the lock of item {item}");
        self.ledger().kill = Some(Kill { pid, item, at: now });
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }
}

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

fn unknown(request: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("unknown request `{request}`"),
    )
}
