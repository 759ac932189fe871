//! All profiles, and the faults of a full run.

use crate::kind::Kind;
use crate::profile::{Faults, Load, Profile};
use crate::servers::Topology;

type Kinds = &'static [(Kind, u32)];

const PROCESS: Kinds = &[
    (Kind::ClientStop, 6),
    (Kind::ClientKill, 2),
    (Kind::ClientSuspend, 2),
];

const LINK: Kinds = &[
    (Kind::BlackHole, 2),
    (Kind::DropToServer, 2),
    (Kind::DropToClient, 2),
    (Kind::HalfOpen, 2),
    (Kind::Reset, 2),
    (Kind::Delay, 3),
    (Kind::DelayReplies, 3),
    (Kind::SwallowReply, 3),
    (Kind::Drip, 2),
    (Kind::DropPushes, 4),
    (Kind::HoldReplies, 2),
    (Kind::HoldRequests, 2),
    (Kind::DelayRenewals, 2),
    (Kind::CutOff, 3),
];

const ONE_SERVER: Kinds = &[
    (Kind::ServerStop, 6),
    (Kind::RestartLossless, 2),
    (Kind::RestartLossy, 3),
    (Kind::FlushAll, 4),
    (Kind::ClockStep, 5),
    (Kind::ScriptFlush, 4),
    (Kind::OutOfMemory, 4),
    (Kind::Refuse, 3),
    (Kind::RefuseThenKillPubsub, 2),
    (Kind::KillClients, 3),
    (Kind::KillPubsub, 3),
    (Kind::PauseWrites, 3),
    (Kind::Busy, 3),
    (Kind::TakePermission, 3),
    (Kind::ForeignFence, 3),
];

const WATCHED: Kinds = &[
    (Kind::FailoverKill, 4),
    (Kind::FailoverBehind, 3),
    (Kind::FailoverStop, 4),
    (Kind::FailoverCommand, 5),
    (Kind::ReplicaStop, 5),
    (Kind::ReplicaCut, 5),
    (Kind::ReplicaKill, 5),
    (Kind::SentinelsStop, 3),
    (Kind::ScriptFlush, 2),
    (Kind::KillClients, 2),
    (Kind::KillPubsub, 2),
    (Kind::PauseWrites, 2),
];

const SHARDED: Kinds = &[
    (Kind::SlotsMove, 14),
    (Kind::FailoverKill, 4),
    (Kind::FailoverBehind, 2),
    (Kind::FailoverStop, 4),
    (Kind::FailoverAgreed, 4),
    (Kind::ServerStop, 3),
    (Kind::ReplicaStop, 2),
    (Kind::ScriptFlush, 1),
    (Kind::KillClients, 2),
    (Kind::KillPubsub, 2),
    (Kind::PauseWrites, 2),
    (Kind::Busy, 1),
];

/// A server that forgets grants again only once all that it forgot is older than a lease.
const INDEPENDENT: Kinds = &[
    (Kind::ServerStop, 6),
    (Kind::RestartLossy, 6),
    (Kind::FlushAll, 3),
    (Kind::ScriptFlush, 2),
    (Kind::OutOfMemory, 2),
    (Kind::Refuse, 2),
    (Kind::KillClients, 2),
    (Kind::KillPubsub, 2),
    (Kind::PauseWrites, 2),
    (Kind::Busy, 1),
    (Kind::TakePermission, 2),
];

/// Faults at other servers of a quorum of five, at the same time as `INDEPENDENT`.
const MORE_INDEPENDENT: Kinds = &[
    (Kind::ServerStop, 4),
    (Kind::RestartLossy, 2),
    (Kind::FlushAll, 2),
    (Kind::KillClients, 1),
    (Kind::PauseWrites, 1),
    (Kind::OutOfMemory, 1),
];

const DATABASE: Kinds = &[
    (Kind::ServerStop, 6),
    (Kind::RestartLossless, 3),
    (Kind::ClockStep, 4),
    (Kind::KillClients, 5),
    (Kind::KillPubsub, 4),
    (Kind::PauseWrites, 3),
    (Kind::TakePermission, 3),
    (Kind::Refuse, 2),
];

/// Returns the faults that the servers of a topology can have, one at a time from each entry.
pub(crate) fn usual(topology: Topology) -> Vec<Faults> {
    match topology {
        Topology::Standalone | Topology::Tls => vec![faults(ONE_SERVER, (200, 900))],
        Topology::Postgres => vec![faults(DATABASE, (300, 1_200))],
        Topology::Sentinel | Topology::Replicas => vec![faults(WATCHED, (800, 2_500))],
        Topology::Cluster => vec![faults(SHARDED, (300, 1_200))],
        Topology::Quorum3 => vec![faults(INDEPENDENT, (300, 1_500))],
        Topology::Quorum5 => vec![
            faults(INDEPENDENT, (300, 1_500)),
            faults(MORE_INDEPENDENT, (1_000, 4_000)),
        ],
    }
}

const fn faults(kinds: Kinds, pause: (u64, u64)) -> Faults {
    Faults {
        kinds,
        pause,
        length: None,
    }
}

const fn lasting(kinds: Kinds, pause: (u64, u64), length: (u64, u64)) -> Faults {
    Faults {
        kinds,
        pause,
        length: Some(length),
    }
}

const NONE: Faults = faults(&[], (1_000, 1_000));

/// Bodies that coincide with more faults than usual.
const LONGER: [u32; 6] = [300, 520, 80, 80, 20, 0];

/// Bodies of which a third outlast a lease.
const OFTEN_LONG: [u32; 6] = [1, 1, 2, 2, 0, 0];

const USUAL_LOAD: Load = Load {
    tasks: 12,
    queue_tasks: 20,
    keepers: 4,
    transfers: 3,
    hot_keys: 4,
    hot_share: 0.25,
    think: (0, 30),
    bodies: [600, 280, 100, 8, 4, 0],
    calls: [3, 3, 3, 1, 1],
    counted_calls: [2, 1, 1],
    once_calls: 1,
    dropped: 0.03,
    waits: &[(200, 4), (1_000, 4), (6_000, 2)],
};

/// Fewer keys and tasks, so that every call competes with others.
const NARROW_LOAD: Load = Load {
    queue_tasks: 0,
    hot_keys: 2,
    hot_share: 0.3,
    think: (0, 40),
    bodies: LONGER,
    ..USUAL_LOAD
};

const ALL: Profile = Profile {
    name: "all",
    workers: 6,
    keys: 64,
    leases: &[(300, 6), (1_000, 3), (3_000, 1)],
    process: faults(PROCESS, (2_000, 5_500)),
    link: faults(LINK, (900, 2_700)),
    servers: None,
    apart: false,
    spared: 0,
    load: USUAL_LOAD,
};

/// The base without faults.
const NARROW: Profile = Profile {
    workers: 4,
    keys: 12,
    leases: &[(300, 1)],
    process: NONE,
    link: NONE,
    servers: Some(NONE),
    spared: 1,
    load: NARROW_LOAD,
    ..ALL
};

pub(crate) const PROFILES: &[Profile] = &[
    ALL,
    // Bodies block a thread of their runtime for longer than the lease.
    Profile {
        name: "calm",
        load: Load {
            bodies: [300, 520, 80, 80, 20, 10],
            ..NARROW_LOAD
        },
        ..NARROW
    },
    Profile {
        name: "pause",
        process: faults(&[(Kind::ClientStop, 1)], (200, 900)),
        ..NARROW
    },
    // With required replicas: the promoted replica has not received locks that are still held.
    Profile {
        name: "behind",
        servers: Some(faults(&[(Kind::FailoverBehind, 1)], (1_000, 2_000))),
        load: Load {
            tasks: 4,
            keepers: 12,
            ..NARROW_LOAD
        },
        ..NARROW
    },
    // A server of a quorum forgets as soon as all servers grant again.
    Profile {
        name: "losses",
        leases: &[(3_000, 1)],
        servers: Some(faults(
            &[(Kind::FlushAll, 1), (Kind::RestartLossy, 1)],
            (20, 300),
        )),
        load: Load {
            hot_share: 0.5,
            bodies: OFTEN_LONG,
            ..NARROW_LOAD
        },
        ..NARROW
    },
    // Workers are repeatedly cut off from servers of a quorum, often from two at once.
    Profile {
        name: "partitions",
        leases: &[(1_000, 1)],
        link: faults(&[(Kind::CutOff, 3), (Kind::BlackHole, 1)], (200, 1_000)),
        spared: 2,
        ..NARROW
    },
    // One of three servers is away for long, and all callers keep waiting. The lease is long, so
    // that a lock that no client holds would be noticed.
    Profile {
        name: "two-of-three",
        keys: 4,
        leases: &[(3_000, 1)],
        servers: Some(lasting(
            &[(Kind::ServerStop, 1)],
            (300, 600),
            (6_000, 8_000),
        )),
        load: Load {
            hot_keys: 0,
            think: (0, 60),
            bodies: [1, 1, 0, 0, 0, 0],
            calls: [0, 1, 1, 0, 0],
            counted_calls: [0; 3],
            dropped: 0.0,
            waits: &[(20_000, 1)],
            ..NARROW_LOAD
        },
        ..NARROW
    },
    // All calls for two keys, in both orders.
    Profile {
        name: "transfers",
        keys: 4,
        load: Load {
            hot_keys: 0,
            bodies: [1, 1, 0, 0, 0, 0],
            calls: [0, 1, 0, 0, 3],
            counted_calls: [0; 3],
            once_calls: 0,
            ..NARROW_LOAD
        },
        ..NARROW
    },
    // One of three servers is away for long, its clock differs, and new workers have never seen it.
    Profile {
        name: "newcomers",
        leases: &[(1_000, 1)],
        process: faults(&[(Kind::ClientKill, 1)], (300, 900)),
        servers: Some(lasting(&[(Kind::ServerStop, 1)], (100, 400), (300, 3_500))),
        apart: true,
        ..NARROW
    },
    Profile {
        name: "oom",
        leases: &[(300, 1), (1_000, 1)],
        servers: Some(lasting(&[(Kind::OutOfMemory, 1)], (200, 600), (300, 1_500))),
        ..NARROW
    },
    Profile {
        name: "suspend",
        leases: &[(1_000, 1)],
        process: faults(&[(Kind::ClientSuspend, 1)], (300, 1_000)),
        ..NARROW
    },
    // Bodies write after a stop, while other holders have read meanwhile.
    Profile {
        name: "stale",
        workers: 6,
        keys: 5,
        leases: &[(1_000, 1)],
        spared: 2,
        process: lasting(&[(Kind::ClientStop, 1)], (600, 1_500), (1_300, 2_400)),
        load: Load {
            tasks: 6,
            hot_keys: 0,
            bodies: [0, 0, 1, 2, 4, 0],
            dropped: 0.0,
            ..NARROW_LOAD
        },
        ..NARROW
    },
];
