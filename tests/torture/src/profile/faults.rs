//! Which faults a full run has, and how often.

use super::Faults;
use crate::plan::Kind;

pub(super) const NONE: Faults = Faults {
    kinds: &[],
    pause: (1_000, 1_000),
};

pub(super) const PROCESS: Faults = Faults {
    kinds: &[
        (Kind::ClientStop, 6),
        (Kind::ClientKill, 2),
        (Kind::ClientSuspend, 2),
    ],
    pause: (2_000, 5_500),
};

pub(super) const LINK: Faults = Faults {
    kinds: &[
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
    ],
    pause: (900, 2_700),
};

pub(super) const ANY_SERVER: &[(Kind, u32)] = &[
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
    (Kind::TakeRight, 3),
    (Kind::ForeignFence, 3),
];

pub(super) const FAILOVERS: &[(Kind, u32)] = &[
    (Kind::FailoverKill, 1),
    (Kind::FailoverBehind, 1),
    (Kind::FailoverStop, 1),
    (Kind::FailoverCommand, 1),
];

/// Where sentinels watch.
pub(super) const ANY_WATCHED: &[(Kind, u32)] = &[
    (Kind::FailoverKill, 4),
    (Kind::FailoverBehind, 3),
    (Kind::FailoverStop, 4),
    (Kind::FailoverCommand, 5),
    (Kind::SentinelsStop, 4),
    (Kind::ScriptFlush, 2),
    (Kind::KillClients, 2),
    (Kind::KillPubsub, 2),
    (Kind::PauseWrites, 2),
];

/// None of which costs anybody a lock, unless it needs the replica's word.
pub(super) const REPLICA: Faults = Faults {
    kinds: &[
        (Kind::ReplicaStop, 1),
        (Kind::ReplicaCut, 1),
        (Kind::ReplicaKill, 1),
    ],
    pause: (3_000, 7_000),
};

/// In a cluster, at one shard at a time.
pub(super) const ANY_SHARDED: &[(Kind, u32)] = &[
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

pub(super) const MOVES: Faults = Faults {
    kinds: &[(Kind::SlotsMove, 1)],
    pause: (200, 1_200),
};

/// At one of several independent servers. What it forgets was more than a lease ago when it votes again.
pub(super) const ANY_VOTER: &[(Kind, u32)] = &[
    (Kind::NodeStop, 6),
    (Kind::NodeLoss, 6),
    (Kind::FlushAll, 3),
    (Kind::ScriptFlush, 2),
    (Kind::OutOfMemory, 2),
    (Kind::Refuse, 2),
    (Kind::KillClients, 2),
    (Kind::KillPubsub, 2),
    (Kind::PauseWrites, 2),
    (Kind::Busy, 1),
    (Kind::TakeRight, 2),
];

/// At others of them at the same time.
pub(super) const MORE_VOTERS: &[(Kind, u32)] = &[
    (Kind::NodeStop, 4),
    (Kind::KillClients, 1),
    (Kind::PauseWrites, 1),
    (Kind::OutOfMemory, 1),
];
