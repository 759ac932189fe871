//! What can be broken.

use std::time::Duration;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    // A worker's process.
    ClientStop,
    ClientStopLong,
    /// For longer than the server keeps its locks.
    ClientStopOver,
    ClientKill,
    ClientSuspend,
    // A worker's link.
    BlackHole,
    DropToServer,
    DropToClient,
    HalfOpen,
    Reset,
    Delay,
    DelayReplies,
    /// So little that no command deadline passes.
    DelayRepliesBit,
    /// So much that they do.
    DelayRepliesLong,
    SwallowReply,
    Drip,
    DropPushes,
    /// Replies and pushes arrive together, late.
    HoldReplies,
    /// Requests arrive when their connection is long given up.
    HoldRequests,
    DelayRenewals,
    /// Again and again, for a moment: a lane is left alone when it is slow for longer.
    DelayRenewalsBit,
    /// Its connections are reset, and new ones refused.
    CutOff,
    // The server.
    ServerStop,
    /// And a worker dies meanwhile, whose last words the server has still to read.
    ServerStopAndKill,
    RestartLossless,
    RestartLossy,
    FlushAll,
    ClockStep,
    ScriptFlush,
    OutOfMemory,
    OutOfMemoryLong,
    Refuse,
    RefuseThenKillPubsub,
    KillClients,
    KillPubsub,
    PauseWrites,
    Busy,
    TakeRight,
    /// The right that is used first in each script.
    TakeTime,
    ForeignFence,
    // Servers that sentinels watch.
    /// The master dies, and comes back without its data when it is replaced.
    FailoverKill,
    /// And the replica that takes its place was cut off before.
    FailoverBehind,
    /// The master is frozen until it is replaced, and believes to be the master for a while when it wakes up.
    FailoverStop,
    /// A sentinel is told to replace it, without any need.
    FailoverCommand,
    ReplicaStop,
    /// It stands still, and has lost its connection when it goes on: it fetches what it has missed.
    ReplicaCut,
    /// It dies, and comes back without its data: it fetches all of them.
    ReplicaKill,
    SentinelsStop,
    // Servers of a cluster.
    /// The replica of a shard is told to replace its master, which waits until that one has all that it has.
    FailoverAgreed,
    /// Slots of one shard go to another, and rest half way.
    SlotsMove,
    // One of several independent servers.
    /// It is frozen, for less than a lease or for longer.
    NodeStop,
    /// It is frozen until others would long have had their turn.
    NodeStopLong,
    /// It dies, and comes back without its data.
    NodeLoss,
    /// It dies, and comes back with what it had when the run began, as from an old snapshot.
    NodeRewind,
}

impl Kind {
    /// As it stands in the history, where the checker knows some of the words.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::ClientStop | Kind::ClientStopLong | Kind::ClientStopOver => "client_stop",
            Kind::ClientKill => "client_kill",
            Kind::ClientSuspend => "client_suspend_stop",
            Kind::BlackHole => "black_hole",
            Kind::DropToServer => "drop_to_server",
            Kind::DropToClient => "drop_to_client",
            Kind::HalfOpen => "half_open",
            Kind::Reset => "reset",
            Kind::Delay => "delay",
            Kind::DelayReplies | Kind::DelayRepliesBit | Kind::DelayRepliesLong => "delay_replies",
            Kind::SwallowReply => "swallow_reply",
            Kind::Drip => "drip",
            Kind::DropPushes => "drop_pushes",
            Kind::HoldReplies => "hold_replies",
            Kind::HoldRequests => "hold_requests",
            Kind::DelayRenewals | Kind::DelayRenewalsBit => "delay_renewals",
            Kind::ServerStop => "server_stop",
            Kind::ServerStopAndKill => "server_stop_and_kill",
            Kind::RestartLossless => "restart_lossless",
            Kind::RestartLossy => "restart_lossy",
            Kind::FlushAll => "flushall",
            Kind::ClockStep => "clock_step",
            Kind::ScriptFlush => "script_flush",
            Kind::OutOfMemory | Kind::OutOfMemoryLong => "oom",
            Kind::Refuse => "refuse",
            Kind::RefuseThenKillPubsub => "refuse_then_kill_pubsub",
            Kind::KillClients => "kill_clients",
            Kind::KillPubsub => "kill_pubsub",
            Kind::PauseWrites => "pause_writes",
            Kind::Busy => "busy",
            Kind::TakeRight => "take_right",
            Kind::TakeTime => "take_time",
            Kind::ForeignFence => "foreign_fence",
            Kind::FailoverKill => "failover_kill",
            Kind::FailoverBehind => "failover_behind",
            Kind::FailoverStop => "failover_stop",
            Kind::FailoverCommand => "failover_command",
            Kind::ReplicaStop => "replica_stop",
            Kind::ReplicaCut => "replica_cut",
            Kind::ReplicaKill => "replica_kill",
            Kind::SentinelsStop => "sentinels_stop",
            Kind::FailoverAgreed => "failover_agreed",
            Kind::SlotsMove => "slots_move",
            Kind::CutOff => "cut_off",
            Kind::NodeStop | Kind::NodeStopLong => "node_stop",
            Kind::NodeLoss => "node_loss",
            Kind::NodeRewind => "node_rewind",
        }
    }

    /// Whether the server keeps its locks and its clock.
    pub(crate) fn is_lossless(self) -> bool {
        let forgets = self.forgets() || self == Kind::ClockStep;
        !forgets && (!self.is_failover() || self == Kind::FailoverAgreed)
    }

    /// Whether a server forgets all that it has.
    pub(crate) fn forgets(self) -> bool {
        matches!(
            self,
            Kind::RestartLossy | Kind::FlushAll | Kind::NodeLoss | Kind::NodeRewind
        )
    }

    /// Whether another server takes the master's place, with what had been copied to it.
    pub(crate) fn is_failover(self) -> bool {
        matches!(
            self,
            Kind::FailoverKill
                | Kind::FailoverBehind
                | Kind::FailoverStop
                | Kind::FailoverCommand
                | Kind::FailoverAgreed
        )
    }

    /// Whether the replica does not hear the master.
    pub(crate) fn is_of_replica(self) -> bool {
        matches!(
            self,
            Kind::ReplicaStop | Kind::ReplicaCut | Kind::ReplicaKill
        )
    }

    /// Whether it is about servers that sentinels watch.
    pub(crate) fn is_of_watched(self) -> bool {
        self.is_failover() || self.is_of_replica() || self == Kind::SentinelsStop
    }

    /// Whether a node of a cluster may say nothing for a while because of it, or another one take its place.
    pub(crate) fn stalls(self) -> bool {
        let is_pause = matches!(self, Kind::ServerStop | Kind::PauseWrites | Kind::Busy);
        self.is_failover() || is_pause
    }

    /// Whether a link must know what it forwards.
    pub(crate) fn reads_commands(self) -> bool {
        matches!(
            self,
            Kind::SwallowReply | Kind::DropPushes | Kind::DelayRenewals | Kind::DelayRenewalsBit
        )
    }

    /// From its begin to its second part: from the hold of requests to the reset of the client's side, from the stop
    /// of a server to the death of a worker, or of another server, from the begin of a slot's move to its rest.
    pub(crate) fn second_part(self) -> Option<Duration> {
        match self {
            Kind::HoldRequests | Kind::ServerStopAndKill => Some(Duration::from_millis(150)),
            Kind::FailoverBehind => Some(Duration::from_millis(400)),
            Kind::SlotsMove => Some(Duration::from_millis(60)),
            _ => None,
        }
    }

    /// Whether fencing tokens are forgotten.
    pub(super) fn forgets_tokens(self) -> bool {
        self.forgets() || self == Kind::ForeignFence
    }

    /// Whether it is over as soon as it was done.
    pub(crate) fn is_instant(self) -> bool {
        matches!(
            self,
            Kind::Reset | Kind::FlushAll | Kind::ScriptFlush | Kind::KillClients | Kind::KillPubsub
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::plan;
    use crate::profile::Profile;
    use crate::topology::Topology;

    #[test]
    fn a_failover_is_told_by_its_name_and_loses_locks_but_where_it_is_agreed() {
        let all = Profile::named("all").unwrap();
        for topology in [Topology::Sentinel, Topology::Cluster] {
            let planned = plan(all, topology, 1, 1, Duration::from_secs(600));
            assert!(planned.iter().any(|fault| fault.kind.is_failover()));
            for kind in planned.iter().map(|fault| fault.kind) {
                let called = kind.name().starts_with("failover_");
                assert_eq!(kind.is_failover(), called, "{kind:?}");
                let forgets = called && kind != Kind::FailoverAgreed;
                assert_eq!(kind.is_lossless(), !forgets, "{kind:?}");
                assert_eq!(topology.keeps_locks(kind, all), !forgets, "{kind:?}");
                // What is believed there has been copied.
                assert!(Topology::Replicas.keeps_locks(kind, all), "{kind:?}");
            }
        }
    }
}
