//! A deterministic simulation: managers with the real Redis store, a faulty network with a server
//! behind it, virtual time, and an oracle.
//!
//! Every seed is a world of two to four clients. A client is complete as in production, except for
//! the sockets and the clock. The same seed gives the same trace, line by line.
//!
//! `world` assembles it, `workload` has the calls, and `nemesis` has the faults beyond those of
//! single messages (`faulty`). `oracle` and `connections` check invariants; `time` has the clocks.
//!
//! A simulation that never fails proves nothing. So each of the following was broken once, in a
//! copy, and was found. `ten_thousand_seeds` stops at the first violation, so the seed is also the
//! number of worlds it took.
//!
//! | broken on purpose | found at seed | violation |
//! |---|---|---|
//! | `safe_until` counts from the reply | 3 | a hold is valid for longer than the server keeps it, less the grace period |
//! | only a renewal counts from its reply | 12 | the same |
//! | a pushed grant counts from its arrival | 0 | the same |
//! | SUBSCRIBE after the first acquires | 0 | acquires on a connection that does not listen |
//! | there is no second release | 155 | an acquire that arrived after its release is not cancelled |
//! | no acquire is repeated after a reconnect | (`everything_happens`) | too few acquires are repeated at once |
//! | cancel, then acquire again with the same id | 3 | an acquire is applied after its release |
//! | a hold takes the token of an older push | 4006 | the server has another token |
//! | boot clock = tokio's `Instant` | 2 | a hold stays valid through a suspend |
//! | validity = lease + grace | 0 | a hold is valid for longer than the server keeps it, less the grace period |
//! | no queue checks | 80 | a key cannot be acquired after the faults |
//! | a dropped call leaves its entry | 682 | something is left behind |
//! | `is_held` ignores the deadline | 5 | the driver loops forever, so the world never ends |
//! | the body is not stopped at its loss | 28 | a body continues after validity |
//! | a renewal creates the lock anew | 0 | a lock that was gone exists again |
//! | a release deletes another owner's lock | 0 | a lock was deleted by another owner |
//! | a new caller passes the queue | 4 | a caller passes a waiter |
//! | a renewal or confirmation extends a neighbor's hold | 9 | it changed the hold of another owner |
//! | a release without a hold frees a neighbor's permit | 2 | the same |
//! | a repeated downgrade takes a new token | 7 | the same |
//! | a downgrade keeps the writer's token | 7 | the same |
//! | a repeated acquire counts twice | 9 | it gave an owner what it did not request |
//! | one holder more than the capacity | 7 | it left more held than fits |
//! | a newcomer, or a waiter that fits, passes the queue | 7 | it let an owner pass another |
//! | a release serves only a free lock | 7 | it did not serve the head of the queue |
//! | a downgrade serves no waiter | 10 | the same |
//! | each reader has its own token | 7 | a body uses a lower token than another before it |
//! | silent clients are granted again | 136 | a key cannot be acquired after the faults |
//! | the write hold ends with its downgrade's reply | 10 | two clients hold the lock together |
//! | the read hold counts from its downgrade's reply | 164 | a hold is valid for longer than the server keeps it, less the grace period |
//! | a counted grant without a call is released as a mutex's | 420 | a release did not serve the head of the queue |
//! | a renewal's reply counts for the hold after the downgrade | 345 | a hold that a client lost is not gone |
//! | `min_hold` frees the weight | 25 | it changed the hold of another owner |
//! | a writer takes the last token | 7 | a token is issued twice |
//! | the previous token is ignored | 2 | a token is issued twice |

use std::sync::Arc;
use std::time::Duration;

use crate::__inside::seeded::SeededRandom;
use crate::error::LockKind;
use crate::key::LockKey;
use crate::protocol::kind::Kind;
use crate::protocol::timing::Timing;

mod connections;
pub(crate) mod faulty;
mod nemesis;
mod oracle;
mod time;
mod trace;
mod workload;
mod world;

#[cfg(test)]
mod tests;

use trace::Trace;
use workload::work;
use world::{Client, World};

/// Simulates one world.
pub(crate) fn live(seed: u64) -> Trace {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(simulate(seed))
}

async fn simulate(seed: u64) -> Trace {
    let random = SeededRandom::new(seed);
    let world = World::new(&random);
    let network = world.network.clone();
    let running = tokio::spawn(async move { network.run().await });

    let mut clients = Vec::new();
    for index in 0..random.between(2, 4) {
        let index = usize::try_from(index).unwrap();
        clients.push(world.client(index, &random).await);
    }
    let end = random.between(600, 2_500);
    nemesis::plan(&world, &clients, end, &random);
    let mut tasks = Vec::new();
    for client in &clients {
        for _ in 0..random.between(1, 3) {
            let task = work(world.clone(), client.clone(), random.fork());
            let task = tokio::spawn(client.host.clone().within(Box::pin(task)));
            tasks.push((client.host.clone(), task));
        }
    }
    world.pause(end).await;
    heal(&world, &clients);
    let auditor = world.client(clients.len(), &random).await;
    audit(&world, &auditor).await;
    for (host, task) in tasks {
        if host.is_killed() {
            // A process that was killed wakes none of its tasks.
            task.abort();
            continue;
        }
        match tokio::time::timeout(Duration::from_secs(60), task).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => world.oracle.violated(format_args!("a task: {error}")),
            Err(_) => world.oracle.violated(format_args!("a call never ends")),
        }
    }
    close(&world, &clients, &auditor).await;
    running.abort();
    world.network.end();
    world.oracle.take_trace()
}

/// Ends the fault phase and all its faults.
fn heal(world: &World, clients: &[Arc<Client>]) {
    let now = world.network.now();
    world.oracle.line(format_args!("the chaos is over"));
    world.conditions.becomes_calm();
    for client in clients {
        client.host.go_on(now);
        client.site.partition(now);
        client.site.lose_silent();
    }
    world.end();
}

/// Checks that every key can be acquired again within lease + grace + 1 s.
async fn audit(world: &Arc<World>, auditor: &Arc<Client>) {
    let longest = Timing::new(world.longest_lease());
    let bound = longest.ttl() + Duration::from_secs(1);
    let audits: Vec<_> = (world.keys.iter().zip(&world.kinds))
        .map(|(key, kind)| {
            let lock = auditor.manager.lock(key.as_str());
            let lock = lock.of_kind(match *kind {
                LockKind::Mutex => Kind::Mutex,
                LockKind::ReadWrite => Kind::Write,
                LockKind::Semaphore { permits } => Kind::Permits {
                    permits,
                    weight: permits,
                },
            });
            let lock = lock.lease(Duration::from_millis(500)).wait(bound);
            let (world, auditor, key) = (world.clone(), auditor.clone(), key.clone());
            world.oracle.count("calls");
            tokio::spawn(async move {
                match lock.acquire().await {
                    Ok(guard) => {
                        let hold = guard.held().0;
                        world.oracle.acquired(&world.server, auditor.index, &hold);
                        // No more faults occur, so the release must succeed.
                        let released = guard.release().await;
                        world.oracle.gave_back(auditor.index, &hold);
                        if let Err(error) = released {
                            world
                                .oracle
                                .violated(format_args!("after the chaos: {error}"));
                        }
                    }
                    Err(error) => world
                        .oracle
                        .violated(format_args!("{key} cannot be had after the chaos: {error}")),
                }
            })
        })
        .collect();
    for audit in audits {
        if let Err(error) = audit.await {
            world.oracle.violated(format_args!("the audit: {error}"));
        }
    }
}

/// Shuts everything down, and checks that nothing is left behind.
async fn close(world: &World, clients: &[Arc<Client>], auditor: &Arc<Client>) {
    for client in clients.iter().chain([auditor]) {
        if !client.host.is_killed() {
            let shutdown = client.manager.shutdown();
            if (tokio::time::timeout(Duration::from_secs(10), shutdown).await).is_err() {
                world
                    .oracle
                    .violated(format_args!("the shutdown of c{} hangs", client.index));
            }
        }
    }
    world.oracle.count_owners();
    world.oracle.end();
    // A lock kept by `min_hold` expires by itself.
    tokio::time::sleep(world.min_hold).await;
    let is_left = |key: &LockKey| {
        let left = world.server.snapshot(key);
        left.holds().next().is_some() || !left.queue.is_empty()
    };
    if world.oracle.has_stepped_back() && world.keys.iter().any(is_left) {
        // The server rejects an acquire after its deadline, by the server's clock. If that clock
        // stepped back, a late acquire may be applied and outlive its release until its TTL ends.
        world.oracle.count("excused: left behind");
        tokio::time::sleep(Duration::from_secs(20)).await;
    }
    for key in &world.keys {
        if is_left(key) {
            let left = world.server.snapshot(key);
            world
                .oracle
                .violated(format_args!("{key} is left behind: {left:?}"));
        }
    }
}
