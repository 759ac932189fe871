//! All profiles.

use super::faults::{
    ANY_SERVER, ANY_SHARDED, ANY_VOTER, ANY_WATCHED, FAILOVERS, LINK, MORE_VOTERS, MOVES, NONE,
    PROCESS, REPLICA,
};
use super::{Bodies, Faults, Load, Profile};
use crate::plan::Kind;

const USUAL: Bodies = Bodies {
    ms_1: 600,
    ms_5: 280,
    ms_20: 100,
    long: 8,
    blocking: 4,
    blocking_long: 0,
};

/// Bodies that meet more faults.
const LONGER: Bodies = Bodies {
    ms_1: 300,
    ms_5: 520,
    ms_20: 80,
    long: 80,
    blocking: 20,
    blocking_long: 0,
};

/// No body; a profile names those that it has.
const BODIES: Bodies = Bodies {
    ms_1: 0,
    ms_5: 0,
    ms_20: 0,
    long: 0,
    blocking: 0,
    blocking_long: 0,
};

/// A third of the bodies outlast a lease.
const OFTEN_LONG: Bodies = Bodies {
    ms_1: 1,
    ms_5: 1,
    ms_20: 2,
    long: 2,
    ..BODIES
};

const SHORT: Bodies = Bodies {
    ms_1: 1,
    ms_5: 1,
    ..BODIES
};

const USUAL_LOAD: Load = Load {
    tasks: 12,
    queue_tasks: 20,
    keepers: 4,
    hot_keys: 4,
    hot_share: 0.25,
    think: (0, 30),
    bodies: USUAL,
    doors: [3, 3, 3, 1],
    dropped: 0.03,
    waits: &[(200, 4), (1_000, 4), (6_000, 2)],
};

/// Fewer keys and tasks, so that every call meets another.
const NARROW_LOAD: Load = Load {
    queue_tasks: 0,
    hot_keys: 2,
    hot_share: 0.3,
    think: (0, 40),
    bodies: LONGER,
    ..USUAL_LOAD
};

/// The narrow load on all keys alike.
const EVEN_LOAD: Load = Load {
    hot_keys: 0,
    ..NARROW_LOAD
};

/// Callers that wait for long and never give up.
const PATIENT_LOAD: Load = Load {
    waits: &[(20_000, 1)],
    doors: [0, 1, 1, 0],
    dropped: 0.0,
    bodies: SHORT,
    ..EVEN_LOAD
};

const ALL: Profile = Profile {
    name: "all",
    workers: 6,
    keys: 64,
    leases: &[(300, 6), (1_000, 3), (3_000, 1)],
    process: PROCESS,
    link: LINK,
    server: faults(ANY_SERVER, (200, 900)),
    watched: faults(ANY_WATCHED, (1_500, 4_000)),
    replica: REPLICA,
    sharded: faults(ANY_SHARDED, (500, 2_000)),
    moves: MOVES,
    voters: faults(ANY_VOTER, (300, 1_500)),
    more_voters: faults(MORE_VOTERS, (1_000, 4_000)),
    forgetful: false,
    apart: false,
    spared: 0,
    load: USUAL_LOAD,
};

const fn faults(kinds: &'static [(Kind, u32)], pause: (u64, u64)) -> Faults {
    Faults { kinds, pause }
}

/// A profile without faults, for one kind of bug.
const fn narrow(name: &'static str, lease: u64) -> Profile {
    Profile {
        name,
        workers: 4,
        keys: 12,
        leases: match lease {
            300 => &[(300, 1)],
            1_000 => &[(1_000, 1)],
            3_000 => &[(3_000, 1)],
            8_000 => &[(8_000, 1)],
            _ => panic!("the lease has no table"),
        },
        process: NONE,
        link: NONE,
        server: NONE,
        watched: NONE,
        replica: NONE,
        sharded: NONE,
        moves: NONE,
        voters: NONE,
        more_voters: NONE,
        spared: 1,
        load: NARROW_LOAD,
        ..ALL
    }
}

type Kinds = &'static [(Kind, u32)];
type Pause = (u64, u64);

impl Profile {
    const fn process(self, kinds: Kinds, pause: Pause) -> Self {
        let process = faults(kinds, pause);
        Profile { process, ..self }
    }

    const fn link(self, kinds: Kinds, pause: Pause) -> Self {
        let link = faults(kinds, pause);
        Profile { link, ..self }
    }

    const fn server(self, kinds: Kinds, pause: Pause) -> Self {
        let server = faults(kinds, pause);
        Profile { server, ..self }
    }

    const fn watched(self, kinds: Kinds, pause: Pause) -> Self {
        let watched = faults(kinds, pause);
        Profile { watched, ..self }
    }

    const fn voters(self, kinds: Kinds, pause: Pause) -> Self {
        let voters = faults(kinds, pause);
        Profile { voters, ..self }
    }

    const fn load(self, load: Load) -> Self {
        Profile { load, ..self }
    }

    const fn keys(self, keys: u32) -> Self {
        Profile { keys, ..self }
    }

    const fn spared(self, spared: u32) -> Self {
        Profile { spared, ..self }
    }

    /// Shorter leases as well.
    const fn also_short(self) -> Self {
        Profile {
            leases: &[(300, 1), (1_000, 1)],
            ..self
        }
    }
}

pub(super) const PROFILES: &[Profile] = &[
    ALL,
    // Nothing goes wrong, and bodies block the only thread of their runtime for longer than the lease.
    narrow("calm", 300).load(Load {
        bodies: Bodies {
            blocking_long: 10,
            ..LONGER
        },
        ..NARROW_LOAD
    }),
    narrow("pause", 300)
        .process(&[(Kind::ClientStop, 1)], (200, 900))
        .link(&[(Kind::DelayRepliesBit, 1)], (200, 1_000)),
    // With sentinels only.
    narrow("failovers", 300)
        .process(&[(Kind::ClientStop, 1)], (200, 900))
        .watched(FAILOVERS, (2_000, 4_000)),
    // Where replicas acknowledge: what a replica had not received is forgotten while it is held.
    narrow("behind", 300)
        .watched(&[(Kind::FailoverBehind, 1)], (1_000, 2_000))
        .load(Load {
            tasks: 4,
            keepers: 12,
            ..NARROW_LOAD
        }),
    // Beyond what a quorum promises: its servers are said to forget nothing, and come back from old snapshots.
    Profile {
        forgetful: true,
        ..narrow("forgetting", 3_000)
            .voters(&[(Kind::NodeRewind, 1)], (20, 300))
            .load(Load {
                hot_keys: 4,
                hot_share: 0.5,
                bodies: OFTEN_LONG,
                ..NARROW_LOAD
            })
    },
    // A node forgets as soon as all vote again.
    narrow("losses", 3_000)
        .voters(&[(Kind::FlushAll, 1), (Kind::NodeLoss, 1)], (20, 300))
        .load(Load {
            hot_share: 0.5,
            bodies: OFTEN_LONG,
            ..NARROW_LOAD
        }),
    // Each worker is cut off from two nodes again and again.
    narrow("partitions", 1_000)
        .link(&[(Kind::CutOff, 3), (Kind::BlackHole, 1)], (200, 1_000))
        .spared(2),
    // One of three nodes is away for long, and all callers go on waiting.
    narrow("two-of-three", 300)
        .keys(4)
        .voters(&[(Kind::NodeStopLong, 1)], (300, 600))
        .load(Load {
            think: (0, 60),
            ..PATIENT_LOAD
        }),
    // One of three nodes is away for long, with a clock of its own, and new workers have never seen it.
    Profile {
        apart: true,
        ..narrow("newcomers", 1_000)
            .process(&[(Kind::ClientKill, 1)], (300, 900))
            .voters(&[(Kind::NodeStop, 1)], (100, 400))
    },
    narrow("swallow", 8_000).link(&[(Kind::SwallowReply, 1)], (50, 400)),
    narrow("slow-replies", 300).link(&[(Kind::DelayRepliesLong, 1)], (100, 400)),
    narrow("oom", 300)
        .also_short()
        .server(&[(Kind::OutOfMemoryLong, 1)], (200, 600)),
    narrow("refuse", 300)
        .also_short()
        .process(&[(Kind::ClientKill, 1)], (500, 2_000))
        .server(
            &[(Kind::Refuse, 1), (Kind::RefuseThenKillPubsub, 2)],
            (100, 500),
        ),
    narrow("frozen-waiters", 8_000)
        .keys(3)
        .process(&[(Kind::ClientStopLong, 1)], (300, 1_000))
        .spared(3)
        .load(Load {
            tasks: 6,
            ..PATIENT_LOAD
        }),
    narrow("drop-pushes", 300)
        .also_short()
        .link(&[(Kind::DropPushes, 1)], (50, 300)),
    // After each lost connection there is time to see whether its successor is subscribed.
    narrow("subscriptions", 1_000)
        .link(&[(Kind::Reset, 1)], (2_600, 3_400))
        .load(Load {
            queue_tasks: 20,
            ..NARROW_LOAD
        }),
    narrow("late-pushes", 300).link(&[(Kind::HoldReplies, 1)], (50, 400)),
    narrow("suspend", 1_000).process(&[(Kind::ClientSuspend, 1)], (300, 1_000)),
    narrow("renew-late", 300).link(&[(Kind::DelayRenewals, 1)], (50, 300)),
    // Calls are dropped while their asks are on a slow lane.
    narrow("slow-lanes", 3_000)
        .link(&[(Kind::DelayRenewalsBit, 1)], (30, 90))
        .load(Load {
            tasks: 20,
            dropped: 0.6,
            bodies: USUAL,
            ..NARROW_LOAD
        }),
    // Nothing goes wrong, but bodies block the only thread of their runtime while it is granted locks.
    narrow("blocked", 3_000).load(Load {
        hot_share: 0.6,
        bodies: Bodies {
            blocking: 0,
            blocking_long: 15,
            ..USUAL
        },
        ..NARROW_LOAD
    }),
    // Bodies that write after they were stopped, while others have read.
    Profile {
        workers: 6,
        ..narrow("stale", 1_000)
            .keys(5)
            .spared(2)
            .process(&[(Kind::ClientStopOver, 1)], (600, 1_500))
            .load(Load {
                tasks: 6,
                bodies: Bodies {
                    ms_20: 1,
                    long: 2,
                    blocking: 4,
                    ..BODIES
                },
                dropped: 0.0,
                ..EVEN_LOAD
            })
    },
    // Scripts fail in the middle.
    narrow("rights", 3_000)
        .server(&[(Kind::TakeTime, 1)], (3_200, 3_400))
        .load(Load {
            bodies: USUAL,
            ..NARROW_LOAD
        }),
    // The server reads asks of clients that are dead.
    narrow("late-asks", 3_000)
        .server(&[(Kind::ServerStopAndKill, 1)], (500, 1_000))
        .load(Load {
            bodies: USUAL,
            ..NARROW_LOAD
        }),
    // Locks of dead holders expire, before a queue and newcomers.
    narrow("expiry", 300)
        .keys(3)
        .process(
            &[(Kind::ClientStopOver, 1), (Kind::ClientKill, 1)],
            (300, 900),
        )
        .spared(2)
        .load(Load {
            tasks: 10,
            think: (0, 150),
            bodies: Bodies {
                ms_1: 1,
                ms_5: 2,
                ms_20: 3,
                ..BODIES
            },
            doors: [2, 2, 2, 3],
            waits: &[(1_000, 1), (6_000, 3)],
            ..EVEN_LOAD
        }),
];
