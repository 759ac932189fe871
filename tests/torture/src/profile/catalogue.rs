//! All profiles.

use super::faults::{
    ANY_SERVER, ANY_SHARDED, ANY_VOTER, ANY_WATCHED, FAILOVERS, LINK, LOSSLESS_SHARDED,
    MORE_VOTERS, MOVES, NONE, PROCESS, REPLICA,
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

/// Where bodies should meet faults.
const LONGER: Bodies = Bodies {
    ms_1: 300,
    ms_5: 520,
    ms_20: 80,
    long: 80,
    blocking: 20,
    blocking_long: 0,
};

/// A third of them outlast a lease.
const OFTEN_LONG: Bodies = Bodies {
    ms_1: 1,
    ms_5: 1,
    ms_20: 2,
    long: 2,
    blocking: 0,
    blocking_long: 0,
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

/// Fewer keys, fewer tasks: every call meets another.
const NARROW_LOAD: Load = Load {
    tasks: 12,
    queue_tasks: 0,
    hot_keys: 2,
    hot_share: 0.3,
    think: (0, 40),
    bodies: LONGER,
    ..USUAL_LOAD
};

const NARROW: Profile = Profile {
    name: "",
    workers: 4,
    keys: 12,
    leases: &[(300, 1)],
    process: NONE,
    link: NONE,
    server: NONE,
    watched: NONE,
    replica: NONE,
    sharded: NONE,
    moves: NONE,
    voters: NONE,
    more_voters: NONE,
    forgetful: false,
    apart: false,
    lossless: false,
    spared: 1,
    load: NARROW_LOAD,
    without_kill: false,
};

const ALL: Profile = Profile {
    name: "all",
    workers: 6,
    keys: 64,
    leases: &[(300, 6), (1_000, 3), (3_000, 1)],
    process: PROCESS,
    link: LINK,
    server: Faults {
        kinds: ANY_SERVER,
        pause: (200, 900),
    },
    watched: Faults {
        kinds: ANY_WATCHED,
        pause: (1_500, 4_000),
    },
    replica: REPLICA,
    sharded: Faults {
        kinds: ANY_SHARDED,
        pause: (500, 2_000),
    },
    moves: MOVES,
    voters: Faults {
        kinds: ANY_VOTER,
        pause: (300, 1_500),
    },
    more_voters: Faults {
        kinds: MORE_VOTERS,
        pause: (1_000, 4_000),
    },
    forgetful: false,
    apart: false,
    lossless: false,
    spared: 0,
    load: USUAL_LOAD,
    without_kill: false,
};

pub(super) const PROFILES: &[Profile] = &[
    ALL,
    Profile {
        name: "lossless",
        lossless: true,
        watched: Faults {
            pause: (200, 900),
            ..ALL.watched
        },
        sharded: Faults {
            kinds: LOSSLESS_SHARDED,
            pause: (200, 900),
        },
        ..ALL
    },
    // Nothing goes wrong, and bodies block the only thread of their runtime for longer than the lease.
    Profile {
        name: "calm",
        load: Load {
            bodies: Bodies {
                blocking_long: 10,
                ..LONGER
            },
            ..NARROW_LOAD
        },
        ..NARROW
    },
    Profile {
        name: "pause",
        process: Faults {
            kinds: &[(Kind::ClientStop, 1)],
            pause: (200, 900),
        },
        link: Faults {
            kinds: &[(Kind::DelayRepliesBit, 1)],
            pause: (200, 1_000),
        },
        ..NARROW
    },
    // Under sentinels only.
    Profile {
        name: "failovers",
        process: Faults {
            kinds: &[(Kind::ClientStop, 1)],
            pause: (200, 900),
        },
        watched: Faults {
            kinds: FAILOVERS,
            pause: (2_000, 4_000),
        },
        ..NARROW
    },
    // Where replicas have to acknowledge. What a replica had not heard is forgotten while it is held.
    Profile {
        name: "behind",
        watched: Faults {
            kinds: &[(Kind::FailoverBehind, 1)],
            pause: (1_000, 2_000),
        },
        load: Load {
            tasks: 4,
            keepers: 12,
            ..NARROW_LOAD
        },
        ..NARROW
    },
    // Over a quorum only: one node at a time is away, or forgets, and nobody loses anything.
    Profile {
        name: "voters",
        leases: &[(300, 1), (1_000, 1)],
        voters: Faults {
            kinds: &[
                (Kind::NodeStop, 3),
                (Kind::NodeLoss, 2),
                (Kind::FlushAll, 1),
            ],
            pause: (3_000, 4_000),
        },
        load: Load {
            queue_tasks: 12,
            ..NARROW_LOAD
        },
        ..NARROW
    },
    // Beyond what a quorum promises: its servers are said to forget nothing, and come back from old snapshots.
    Profile {
        name: "forgetting",
        leases: &[(3_000, 1)],
        voters: Faults {
            kinds: &[(Kind::NodeRewind, 1)],
            pause: (20, 300),
        },
        forgetful: true,
        load: Load {
            hot_keys: 4,
            hot_share: 0.5,
            bodies: OFTEN_LONG,
            ..NARROW_LOAD
        },
        ..NARROW
    },
    // A node forgets as soon as all vote again.
    Profile {
        name: "losses",
        leases: &[(3_000, 1)],
        voters: Faults {
            kinds: &[(Kind::FlushAll, 1), (Kind::NodeLoss, 1)],
            pause: (20, 300),
        },
        load: Load {
            hot_share: 0.5,
            bodies: OFTEN_LONG,
            ..NARROW_LOAD
        },
        ..NARROW
    },
    // Each worker is cut off from two nodes again and again.
    Profile {
        name: "partitions",
        leases: &[(1_000, 1)],
        link: Faults {
            kinds: &[(Kind::CutOff, 3), (Kind::BlackHole, 1)],
            pause: (200, 1_000),
        },
        spared: 2,
        ..NARROW
    },
    // One of three nodes is away for long, and nobody stops waiting.
    Profile {
        name: "two-of-three",
        keys: 4,
        voters: Faults {
            kinds: &[(Kind::NodeStopLong, 1)],
            pause: (300, 600),
        },
        load: Load {
            hot_keys: 0,
            think: (0, 60),
            waits: &[(20_000, 1)],
            doors: [0, 1, 1, 0],
            dropped: 0.0,
            bodies: Bodies {
                ms_1: 1,
                ms_5: 1,
                ms_20: 0,
                long: 0,
                blocking: 0,
                blocking_long: 0,
            },
            ..NARROW_LOAD
        },
        ..NARROW
    },
    // One of three nodes is away for long, with a clock of its own, and workers come that have never heard of it.
    Profile {
        name: "newcomers",
        leases: &[(1_000, 1)],
        apart: true,
        process: Faults {
            kinds: &[(Kind::ClientKill, 1)],
            pause: (300, 900),
        },
        voters: Faults {
            kinds: &[(Kind::NodeStop, 1)],
            pause: (100, 400),
        },
        ..NARROW
    },
    // Each worker is cut off from one node, and from another one a while later.
    Profile {
        name: "cut-off",
        leases: &[(300, 1), (1_000, 1)],
        link: Faults {
            kinds: &[(Kind::CutOff, 3), (Kind::BlackHole, 1), (Kind::HalfOpen, 1)],
            pause: (3_000, 20_000),
        },
        ..NARROW
    },
    // In a cluster only.
    Profile {
        name: "resharding",
        leases: &[(300, 1), (1_000, 1)],
        moves: MOVES,
        load: Load {
            queue_tasks: 20,
            ..NARROW_LOAD
        },
        ..NARROW
    },
    Profile {
        name: "kill",
        leases: &[(300, 1), (1_000, 1)],
        process: Faults {
            kinds: &[(Kind::ClientKill, 1)],
            pause: (300, 1_500),
        },
        ..NARROW
    },
    Profile {
        name: "swallow",
        leases: &[(8_000, 1)],
        link: Faults {
            kinds: &[(Kind::SwallowReply, 1)],
            pause: (50, 400),
        },
        ..NARROW
    },
    Profile {
        name: "slow-replies",
        link: Faults {
            kinds: &[(Kind::DelayRepliesLong, 1)],
            pause: (100, 400),
        },
        ..NARROW
    },
    Profile {
        name: "late",
        leases: &[(1_500, 1)],
        link: Faults {
            kinds: &[(Kind::HoldRequests, 1)],
            pause: (200, 1_000),
        },
        without_kill: true,
        ..NARROW
    },
    Profile {
        name: "oom",
        leases: &[(300, 1), (1_000, 1)],
        server: Faults {
            kinds: &[(Kind::OutOfMemoryLong, 1)],
            pause: (200, 600),
        },
        ..NARROW
    },
    Profile {
        name: "refuse",
        leases: &[(300, 1), (1_000, 1)],
        process: Faults {
            kinds: &[(Kind::ClientKill, 1)],
            pause: (500, 2_000),
        },
        server: Faults {
            kinds: &[(Kind::Refuse, 1), (Kind::RefuseThenKillPubsub, 2)],
            pause: (100, 500),
        },
        ..NARROW
    },
    Profile {
        name: "frozen-waiters",
        keys: 3,
        leases: &[(8_000, 1)],
        process: Faults {
            kinds: &[(Kind::ClientStopLong, 1)],
            pause: (300, 1_000),
        },
        spared: 3,
        load: Load {
            tasks: 6,
            hot_keys: 0,
            waits: &[(20_000, 1)],
            dropped: 0.0,
            bodies: Bodies {
                ms_1: 1,
                ms_5: 1,
                ms_20: 0,
                long: 0,
                blocking: 0,
                blocking_long: 0,
            },
            doors: [0, 1, 1, 0],
            ..NARROW_LOAD
        },
        ..NARROW
    },
    Profile {
        name: "drop-pushes",
        leases: &[(300, 1), (1_000, 1)],
        link: Faults {
            kinds: &[(Kind::DropPushes, 1)],
            pause: (50, 300),
        },
        ..NARROW
    },
    Profile {
        name: "resets",
        leases: &[(1_000, 1)],
        link: Faults {
            kinds: &[(Kind::Reset, 1)],
            pause: (200, 900),
        },
        server: Faults {
            kinds: &[(Kind::KillPubsub, 1)],
            pause: (300, 900),
        },
        load: Load {
            queue_tasks: 20,
            ..NARROW_LOAD
        },
        ..NARROW
    },
    // After each lost connection there is time to see whether it is listened to again.
    Profile {
        name: "subscriptions",
        leases: &[(1_000, 1)],
        link: Faults {
            kinds: &[(Kind::Reset, 1)],
            pause: (2_600, 3_400),
        },
        load: Load {
            queue_tasks: 20,
            ..NARROW_LOAD
        },
        ..NARROW
    },
    Profile {
        name: "late-pushes",
        link: Faults {
            kinds: &[(Kind::HoldReplies, 1)],
            pause: (50, 400),
        },
        ..NARROW
    },
    Profile {
        name: "suspend",
        leases: &[(1_000, 1)],
        process: Faults {
            kinds: &[(Kind::ClientSuspend, 1)],
            pause: (300, 1_000),
        },
        ..NARROW
    },
    Profile {
        name: "foreign-fence",
        leases: &[(300, 1), (1_000, 1)],
        server: Faults {
            kinds: &[(Kind::ForeignFence, 2), (Kind::TakeRight, 2)],
            pause: (50, 200),
        },
        ..NARROW
    },
    Profile {
        name: "renew-late",
        link: Faults {
            kinds: &[(Kind::DelayRenewals, 1)],
            pause: (50, 300),
        },
        ..NARROW
    },
    // Calls are dropped while their asks are on a slow lane.
    Profile {
        name: "slow-lanes",
        leases: &[(3_000, 1)],
        link: Faults {
            kinds: &[(Kind::DelayRenewalsBit, 1)],
            pause: (30, 90),
        },
        load: Load {
            tasks: 20,
            dropped: 0.6,
            bodies: USUAL,
            ..NARROW_LOAD
        },
        ..NARROW
    },
    // Nothing goes wrong, but bodies block the only thread of their runtime while it is granted locks.
    Profile {
        name: "blocked",
        leases: &[(3_000, 1)],
        load: Load {
            hot_share: 0.6,
            bodies: Bodies {
                blocking: 0,
                blocking_long: 15,
                ..USUAL
            },
            ..NARROW_LOAD
        },
        ..NARROW
    },
    Profile {
        name: "flush",
        leases: &[(1_000, 1), (3_000, 1)],
        server: Faults {
            kinds: &[(Kind::FlushAll, 1)],
            pause: (300, 900),
        },
        ..NARROW
    },
    Profile {
        name: "restart",
        leases: &[(300, 1), (1_000, 1)],
        server: Faults {
            kinds: &[(Kind::RestartLossy, 1), (Kind::RestartLossless, 1)],
            pause: (400, 1_200),
        },
        ..NARROW
    },
    // Bodies that write after they were stopped, while others have read.
    Profile {
        name: "stale",
        workers: 6,
        leases: &[(1_000, 1)],
        keys: 5,
        spared: 2,
        process: Faults {
            kinds: &[(Kind::ClientStopOver, 1)],
            pause: (600, 1_500),
        },
        load: Load {
            tasks: 6,
            hot_keys: 0,
            bodies: Bodies {
                ms_1: 0,
                ms_5: 0,
                ms_20: 1,
                long: 2,
                blocking: 4,
                blocking_long: 0,
            },
            dropped: 0.0,
            ..NARROW_LOAD
        },
        ..NARROW
    },
    // Answers to asks arrive when the lock they tell of has expired, and others have it.
    Profile {
        name: "stopped-asks",
        keys: 12,
        spared: 2,
        leases: &[(1_500, 1)],
        process: Faults {
            kinds: &[(Kind::ClientStopOver, 1)],
            pause: (200, 600),
        },
        link: Faults {
            kinds: &[(Kind::DelayRepliesBit, 1)],
            pause: (1, 2),
        },
        load: Load {
            tasks: 8,
            hot_keys: 0,
            think: (0, 60),
            bodies: Bodies {
                ms_1: 0,
                ms_5: 1,
                ms_20: 5,
                long: 0,
                blocking: 0,
                blocking_long: 0,
            },
            ..NARROW_LOAD
        },
        ..NARROW
    },
    // Scripts fail in the middle.
    Profile {
        name: "rights",
        leases: &[(3_000, 1)],
        server: Faults {
            kinds: &[(Kind::TakeTime, 1)],
            pause: (3_200, 3_400),
        },
        load: Load {
            bodies: USUAL,
            ..NARROW_LOAD
        },
        ..NARROW
    },
    // The server reads asks of the dead.
    Profile {
        name: "late-asks",
        leases: &[(3_000, 1)],
        server: Faults {
            kinds: &[(Kind::ServerStopAndKill, 1)],
            pause: (500, 1_000),
        },
        load: Load {
            bodies: USUAL,
            ..NARROW_LOAD
        },
        ..NARROW
    },
    // Locks expire behind the dead, before a queue and newcomers.
    Profile {
        name: "expiry",
        keys: 3,
        leases: &[(300, 1)],
        process: Faults {
            kinds: &[(Kind::ClientStopOver, 1), (Kind::ClientKill, 1)],
            pause: (300, 900),
        },
        spared: 2,
        load: Load {
            tasks: 10,
            hot_keys: 0,
            think: (0, 150),
            bodies: Bodies {
                ms_1: 1,
                ms_5: 2,
                ms_20: 3,
                long: 0,
                blocking: 0,
                blocking_long: 0,
            },
            doors: [2, 2, 2, 3],
            waits: &[(1_000, 1), (6_000, 3)],
            ..NARROW_LOAD
        },
        ..NARROW
    },
];
