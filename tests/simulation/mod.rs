//! A deterministic simulation: whole managers with their store in Redis, a faulty network and a server behind it,
//! virtual time, and an oracle.
//!
//! Each seed is a world of two to four clients, with everything that a client is in production except
//! the sockets and the clock. The same seed gives the same trace, line by line.
//!
//! `world` puts it together, `workload` is what the clients do, `nemesis` what befalls them beside what
//! befalls single messages (`faulty`), `oracle` and `connections` what must always hold, `time` the clocks.
//!
//! A simulation that never fails shows nothing, so each of these was broken once, in a copy, and found
//! (`ten_thousand_seeds` stops at the first violation, so the seed is also how many worlds it took):
//!
//! | broken | found at seed | because |
//! |---|---|---|
//! | `safe_until` counts from the reply | 3 | believes beyond what the server keeps, less its grace |
//! | a renewal, and nothing else, counts from its reply | 12 | the same |
//! | a pushed grant counts from its arrival | 0 | the same |
//! | the old connection is not killed | 409, 320 | an ask is applied after its release; where kills are denied, it is not undone |
//! | SUBSCRIBE after the first asks | 0 | asks on a connection that does not listen |
//! | where kills are denied, no second release | 320 | an ask that came after its release is not undone |
//! | nobody asks again after a reconnect | (`everything_happens`) | too few ask again at once |
//! | undo, then ask again with the same id | 3 | an ask is applied after its release |
//! | a hold takes the token of an older push | 4006 | the server says another token |
//! | boot clock = tokio's `Instant` | 2 | believes through a suspend |
//! | validity = lease + grace | 0 | believes beyond what the server keeps, less its grace |
//! | nobody looks | 80 | a key cannot be had after the chaos |
//! | a dropped call leaves its entry | 682 | something is left behind |
//! | `is_held` ignores the deadline | 5 | the watchdog turns for ever: the world never ends |
//! | the body is not stopped at its loss | 28 | a body goes on after validity |
//! | a renewal creates the lock anew | 0 | made something of a lock that was gone |
//! | a release touches another's lock | 0 | made nothing of a lock that is not its own |
//! | a newcomer passes the queue | 4 | passes somebody in the queue |
//! | the previous token is ignored | 2 | a token is given twice |

use std::sync::Arc;
use std::time::Duration;

use crate::__inside::seeded::SeededRandom;
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

/// Lives through one world.
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
            tasks.push(tokio::spawn(client.host.clone().within(Box::pin(task))));
        }
    }
    world.pause(end).await;
    heal(&world, &clients);
    let auditor = world.client(clients.len(), &random).await;
    audit(&world, &auditor).await;
    for task in tasks {
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

/// Nothing goes wrong from now on, and what went wrong is over.
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

/// Every key can be had again within lease + grace + 1 s.
async fn audit(world: &Arc<World>, auditor: &Arc<Client>) {
    let longest = Timing::new(world.longest_lease());
    let bound = longest.ttl() + Duration::from_secs(1);
    let audits: Vec<_> = (world.keys.iter())
        .map(|key| {
            let lock = auditor.manager.lock(key.as_str());
            let lock = lock.lease(Duration::from_millis(500)).wait(bound);
            let (world, auditor, key) = (world.clone(), auditor.clone(), key.clone());
            world.oracle.count("calls");
            tokio::spawn(async move {
                match lock.acquire().await {
                    Ok(guard) => {
                        let hold = guard.held();
                        world.oracle.acquired(&world.server, auditor.index, &hold);
                        // Nothing goes wrong any more.
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

/// Everything ends, and nothing is left behind.
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
    // What min_hold keeps ends by itself.
    tokio::time::sleep(world.min_hold).await;
    let is_left = |key| {
        let left = world.server.snapshot(key);
        left.hold.is_some() || !left.queue.is_empty()
    };
    if world.oracle.has_stepped_back() && world.keys.iter().any(is_left) {
        // An ask is refused after its time, by the server's clock. One that was late, and was applied
        // because that clock had stepped back, may outlive its release; its TTL ends it.
        world.oracle.count("excused: left behind");
        tokio::time::sleep(Duration::from_secs(20)).await;
    }
    for key in &world.keys {
        let left = world.server.snapshot(key);
        if left.hold.is_some() || !left.queue.is_empty() {
            world
                .oracle
                .violated(format_args!("{key} is left behind: {left:?}"));
        }
    }
}
