//! What can be broken.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    // A worker's process.
    ClientStop,
    ClientKill,
    /// It is stopped, and its monotonic clock stands still meanwhile.
    ClientSuspend,
    // A worker's link.
    BlackHole,
    DropToServer,
    DropToClient,
    HalfOpen,
    Reset,
    Delay,
    DelayReplies,
    SwallowReply,
    Drip,
    DropPushes,
    /// Replies and pushes arrive together, late.
    HoldReplies,
    /// Requests arrive after the client gave up their connection.
    HoldRequests,
    DelayRenewals,
    /// Its connections are reset, and new ones refused.
    CutOff,
    // A server.
    ServerStop,
    RestartLossless,
    RestartLossy,
    FlushAll,
    ClockStep,
    ScriptFlush,
    OutOfMemory,
    Refuse,
    RefuseThenKillPubsub,
    KillClients,
    KillPubsub,
    PauseWrites,
    Busy,
    TakeRight,
    ForeignFence,
    /// It comes back with what it had when the run began, as from an old snapshot.
    Rewind,
    // A primary and its replica.
    /// The primary dies, and comes back without its data when it is replaced.
    FailoverKill,
    /// And the replica that takes its place was cut off before.
    FailoverBehind,
    /// The primary is frozen until it is replaced, and takes itself for the primary for a while.
    FailoverStop,
    /// A sentinel is told to replace it, without any need.
    FailoverCommand,
    /// A replica of a cluster replaces its primary once it has all that the primary has.
    FailoverAgreed,
    ReplicaStop,
    /// It stands still, and has lost its connection when it goes on: it fetches what it missed.
    ReplicaCut,
    /// It dies, and comes back without its data.
    ReplicaKill,
    SentinelsStop,
    /// Slots of a cluster go to another primary, and stay half way for a while.
    SlotsMove,
    // What the checker makes of faults at several servers of a quorum.
    /// Fewer servers than a quorum serve.
    Outage,
    /// Fewer than a quorum grant, and holders keep what they have.
    Shortage,
}

impl Kind {
    /// Whether a worker's process stands still meanwhile.
    pub(crate) fn stops_worker(self) -> bool {
        matches!(self, Kind::ClientStop | Kind::ClientSuspend)
    }

    /// Whether the server forgets all that it has.
    pub(crate) fn forgets(self) -> bool {
        use Kind::{FlushAll, RestartLossy, Rewind};
        matches!(self, RestartLossy | FlushAll | Rewind)
    }

    /// Whether the server keeps its locks and its clock.
    pub(crate) fn is_lossless(self) -> bool {
        let forgets = self.forgets() || self == Kind::ClockStep;
        !forgets && (!self.is_failover() || self == Kind::FailoverAgreed)
    }

    /// Whether fencing tokens are forgotten.
    pub(crate) fn forgets_tokens(self) -> bool {
        self.forgets() || self == Kind::ForeignFence
    }

    /// Whether a replica takes the place of its primary, with what was copied to it.
    pub(crate) fn is_failover(self) -> bool {
        use Kind::{FailoverAgreed, FailoverBehind, FailoverCommand, FailoverKill, FailoverStop};
        matches!(
            self,
            FailoverKill | FailoverBehind | FailoverStop | FailoverCommand | FailoverAgreed
        )
    }

    /// Whether only the replica does not hear the primary.
    pub(crate) fn is_of_replica(self) -> bool {
        use Kind::{ReplicaCut, ReplicaKill, ReplicaStop};
        matches!(self, ReplicaStop | ReplicaCut | ReplicaKill)
    }

    /// Whether servers say nothing meanwhile.
    pub(crate) fn is_silent(self) -> bool {
        use Kind::{Busy, RestartLossless, RestartLossy, Rewind, ServerStop};
        matches!(
            self,
            ServerStop | RestartLossless | RestartLossy | Rewind | Busy
        )
    }

    /// Whether no holder loses its lock by it. `acknowledged`: locks need the replica.
    pub(crate) fn spares_holders(self, acknowledged: bool) -> bool {
        use Kind::{DropPushes, OutOfMemory, ScriptFlush, SentinelsStop, Shortage, SlotsMove};
        let harmless = matches!(
            self,
            OutOfMemory | ScriptFlush | DropPushes | SentinelsStop | SlotsMove | Shortage
        );
        harmless || self.is_of_replica() && !acknowledged
    }

    /// Whether a link must understand commands for it.
    pub(crate) fn reads_commands(self) -> bool {
        matches!(
            self,
            Kind::SwallowReply | Kind::DropPushes | Kind::DelayRenewals
        )
    }

    /// Whether it is over as soon as it was done.
    pub(crate) fn is_instant(self) -> bool {
        use Kind::{FlushAll, KillClients, KillPubsub, Reset, ScriptFlush};
        matches!(
            self,
            Reset | FlushAll | ScriptFlush | KillClients | KillPubsub
        )
    }

    /// From its begin to its second part: from held requests to the reset of the client's side,
    /// from the cut of a replica to the death of its primary, from the begin of a slot's move to
    /// its first key.
    pub(crate) fn second_part(self) -> Option<Duration> {
        match self {
            Kind::HoldRequests => Some(Duration::from_millis(150)),
            Kind::FailoverBehind => Some(Duration::from_millis(400)),
            Kind::SlotsMove => Some(Duration::from_millis(60)),
            _ => None,
        }
    }
}
