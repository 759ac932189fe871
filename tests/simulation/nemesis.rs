//! Faults of connections, processes and the server, at times that the seed chooses.

use std::sync::Arc;
use std::time::Duration;

use super::world::{Client, World};
use crate::__inside::seeded::SeededRandom;
use crate::__inside::simulation::faulty::{Fault, Millis, Role};

/// The choice of faults. Faults that excuse violations are rare, so that most worlds excuse none.
const CHOICES: &[Fault] = &[
    Fault::Reset,
    Fault::Reset,
    Fault::Reset,
    Fault::Silence,
    Fault::Silence,
    Fault::Partition,
    Fault::Partition,
    Fault::Pause,
    Fault::Pause,
    Fault::Pause,
    Fault::Suspend,
    Fault::Suspend,
    Fault::Crash,
    Fault::StepBack,
    Fault::StepBack,
    Fault::Refusal,
    Fault::ScriptFlush,
];

const FORGETFUL: &[Fault] = &[
    Fault::Amnesia,
    Fault::Restart,
    Fault::StepForward,
    Fault::StepBack,
];

/// Schedules all faults before `end`.
pub(crate) fn plan(
    world: &Arc<World>,
    clients: &[Arc<Client>],
    end: Millis,
    random: &SeededRandom,
) {
    let now = world.network.now();
    let forgetful = random.chance(250);
    for _ in 0..random.between(0, 6) {
        let when = random.between(0, end - 1);
        let fault = if forgetful && random.chance(400) {
            *random.pick(FORGETFUL)
        } else {
            *random.pick(CHOICES)
        };
        let (at, client) = (world.clone(), random.pick(clients).clone());
        let clients = clients.to_vec();
        let lasts = *random.pick(&[5, 30, 120, 400, 900]);
        let lasts = lasts.min(end - when);
        let role = *random.pick(&[
            Role::Commands,
            Role::Commands,
            Role::Renewals,
            Role::RuntimeConnection,
        ]);
        let server_knows = random.chance(500);
        world.network.at(now + when, move || {
            strike(&at, fault, &clients, client, lasts, role, server_knows);
        });
    }
}

fn strike(
    world: &Arc<World>,
    fault: Fault,
    clients: &[Arc<Client>],
    client: Arc<Client>,
    lasts: Millis,
    role: Role,
    server_knows: bool,
) {
    let now = world.network.now();
    let of_client = !matches!(
        fault,
        Fault::Amnesia
            | Fault::Restart
            | Fault::StepForward
            | Fault::StepBack
            | Fault::Refusal
            | Fault::ScriptFlush
            | Fault::Suspend
    );
    if of_client && (client.host.is_killed() || client.host.stopped_until().is_some()) {
        return;
    }
    let affected = of_client.then_some(client.index);
    world
        .oracle
        .fault(fault, affected, format_args!("{lasts} ms, {role:?}"));
    let step = i64::try_from(lasts).unwrap();
    match fault {
        Fault::Reset => client.site.lose(role, server_knows, "reset"),
        Fault::Silence => client.site.silence(role),
        Fault::Partition => client.site.partition(now + lasts),
        Fault::Amnesia | Fault::Restart => {
            world.server.forget(&world.keys);
            world.oracle.forgot();
            if fault == Fault::Restart {
                world.server.forgets_scripts();
                for client in clients {
                    client.site.lose_all("restart");
                }
            }
        }
        Fault::StepForward | Fault::StepBack => {
            let step = if fault == Fault::StepBack {
                -step
            } else {
                step
            };
            world.time.step_server(step);
            world.oracle.stepped(step);
        }
        Fault::Refusal => {
            world.conditions.set_refusing(true);
            let later = world.clone();
            world.network.at(now + lasts, move || {
                later.conditions.set_refusing(false);
            });
        }
        Fault::ScriptFlush => world.server.forgets_scripts(),
        Fault::Pause => {
            client.host.stop(now, now + lasts);
            world.network.at(now + lasts, move || {
                client.host.go_on(now + lasts);
            });
        }
        Fault::Suspend => {
            world.time.sleep(Duration::from_millis(lasts));
            world.oracle.slept();
        }
        Fault::Crash => {
            client.site.crash();
            client.host.kill(now);
        }
        _ => unreachable!("single messages have their faults from the network"),
    }
}
