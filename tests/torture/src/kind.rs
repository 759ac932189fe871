//! The kinds of faults.

use std::time::Duration;

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    // Faults of a worker process.
    ClientStop,
    ClientKill,
    /// Stops the process; its monotonic clock does not advance meanwhile.
    ClientSuspend,
    // Faults of a worker's link.
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
    /// Delays replies and pushes, then delivers them together.
    HoldReplies,
    /// Delivers requests after the client has given up their connection.
    HoldRequests,
    DelayRenewals,
    /// Resets the connections of the link and refuses new ones.
    CutOff,
    // Faults of a server.
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
    TakePermission,
    ForeignFence,
    // Faults of a primary and its replica.
    /// The primary dies. Once it has been replaced, it restarts without its data.
    FailoverKill,
    /// As `FailoverKill`, but the replica that is promoted was cut off before.
    FailoverBehind,
    /// The primary is frozen until it is replaced, and then acts as a primary for a while.
    FailoverStop,
    /// A sentinel is ordered to replace a healthy primary.
    FailoverCommand,
    /// A replica of a cluster replaces its primary once it has all of the primary's data.
    FailoverAgreed,
    ReplicaStop,
    /// The replica is frozen. Its connection is closed meanwhile, so it must fetch what it missed.
    ReplicaCut,
    /// The replica dies and restarts without its data.
    ReplicaKill,
    SentinelsStop,
    /// Slots of a cluster move to another primary, and stay half moved for a while.
    SlotsMove,
    // Derived by the checker from faults at several servers of a quorum.
    /// Fewer servers than a quorum serve.
    Outage,
    /// Fewer servers than a quorum grant, but holders keep their locks.
    Shortage,
}

impl Kind {
    /// Returns true if a worker process is stopped during the fault.
    pub(crate) fn stops_worker(self) -> bool {
        matches!(self, Kind::ClientStop | Kind::ClientSuspend)
    }

    /// Returns true if the server forgets all its data.
    pub(crate) fn forgets(self) -> bool {
        matches!(self, Kind::RestartLossy | Kind::FlushAll)
    }

    /// Returns true if the server keeps its locks and its clock.
    pub(crate) fn is_lossless(self) -> bool {
        let forgets = self.forgets() || self == Kind::ClockStep;
        !forgets && (!self.is_failover() || self == Kind::FailoverAgreed)
    }

    /// Returns true if fencing tokens are forgotten.
    pub(crate) fn forgets_tokens(self) -> bool {
        self.forgets() || self == Kind::ForeignFence
    }

    /// Returns true if a replica replaces its primary, with the data copied to it so far.
    pub(crate) fn is_failover(self) -> bool {
        use Kind::{FailoverAgreed, FailoverBehind, FailoverCommand, FailoverKill, FailoverStop};
        matches!(
            self,
            FailoverKill | FailoverBehind | FailoverStop | FailoverCommand | FailoverAgreed
        )
    }

    /// Returns true if the fault only separates the replica from the primary.
    pub(crate) fn is_of_replica(self) -> bool {
        use Kind::{ReplicaCut, ReplicaKill, ReplicaStop};
        matches!(self, ReplicaStop | ReplicaCut | ReplicaKill)
    }

    /// Returns true if servers do not answer during the fault.
    pub(crate) fn is_silent(self) -> bool {
        use Kind::{Busy, RestartLossless, RestartLossy, ServerStop};
        matches!(self, ServerStop | RestartLossless | RestartLossy | Busy)
    }

    /// Returns true if no holder loses its lock. `acknowledged` means that locks need the replica.
    pub(crate) fn spares_holders(self, acknowledged: bool) -> bool {
        use Kind::{DropPushes, OutOfMemory, ScriptFlush, SentinelsStop, Shortage, SlotsMove};
        let harmless = matches!(
            self,
            OutOfMemory | ScriptFlush | DropPushes | SentinelsStop | SlotsMove | Shortage
        );
        harmless || self.is_of_replica() && !acknowledged
    }

    /// Returns true if the proxy must parse commands for this fault.
    pub(crate) fn reads_commands(self) -> bool {
        matches!(
            self,
            Kind::SwallowReply | Kind::DropPushes | Kind::DelayRenewals
        )
    }

    /// Returns true if the fault ends as soon as it has begun.
    pub(crate) fn is_instant(self) -> bool {
        use Kind::{FlushAll, KillClients, KillPubsub, Reset, ScriptFlush};
        matches!(
            self,
            Reset | FlushAll | ScriptFlush | KillClients | KillPubsub
        )
    }

    /// Returns the time from the beginning of the fault to its second part.
    /// - `HoldRequests`: the reset of the client's side.
    /// - `FailoverBehind`: the death of the primary after the cut of its replica.
    /// - `SlotsMove`: the move of the first key.
    pub(crate) fn second_part(self) -> Option<Duration> {
        match self {
            Kind::HoldRequests => Some(Duration::from_millis(150)),
            Kind::FailoverBehind => Some(Duration::from_millis(400)),
            Kind::SlotsMove => Some(Duration::from_millis(60)),
            _ => None,
        }
    }
}
