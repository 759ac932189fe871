//! What can go wrong, and how often.

use std::sync::atomic::{AtomicBool, Ordering};

use super::network::Millis;
use crate::__inside::seeded::SeededRandom;

/// Everything that goes wrong in a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    DelayedRequest,
    DelayedReply,
    /// Never applied, and not answered.
    DroppedRequest,
    /// Applied, and not answered.
    DroppedReply,
    /// Applied twice.
    Duplicate,
    /// Requests of the same client that were sent later are applied earlier.
    Reorder,
    DelayedPush,
    DroppedPush,
    DuplicatePush,
    /// A connection ends, and both sides know.
    Reset,
    /// A connection swallows everything from now on.
    Silence,
    /// Nothing passes between a client and the server for a while; then what was sent arrives.
    Partition,
    /// The server forgets everything.
    Amnesia,
    /// It forgets everything, and all its connections end.
    Restart,
    StepForward,
    StepBack,
    /// The server refuses to write for a while.
    Refusal,
    /// A client's process is stopped for a while.
    Pause,
    /// The machines sleep: all clocks go on, and no timer does.
    Suspend,
    /// A client's process is killed.
    Crash,
    /// The server forgets its scripts.
    ScriptFlush,
    /// A client may not kill its old connection.
    DeniedKill,
}

impl Fault {
    pub(crate) const ALL: [Fault; 22] = [
        Fault::DelayedRequest,
        Fault::DelayedReply,
        Fault::DroppedRequest,
        Fault::DroppedReply,
        Fault::Duplicate,
        Fault::Reorder,
        Fault::DelayedPush,
        Fault::DroppedPush,
        Fault::DuplicatePush,
        Fault::Reset,
        Fault::Silence,
        Fault::Partition,
        Fault::Amnesia,
        Fault::Restart,
        Fault::StepForward,
        Fault::StepBack,
        Fault::Refusal,
        Fault::Pause,
        Fault::Suspend,
        Fault::Crash,
        Fault::ScriptFlush,
        Fault::DeniedKill,
    ];

    /// Whether it may keep a client from what it owes for longer than a connection takes.
    pub(crate) fn hinders(self) -> bool {
        self > Fault::Reset && !matches!(self, Fault::ScriptFlush | Fault::DeniedKill)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Fault::DelayedRequest => "faults: delayed request",
            Fault::DelayedReply => "faults: delayed reply",
            Fault::DroppedRequest => "faults: dropped request",
            Fault::DroppedReply => "faults: dropped reply",
            Fault::Duplicate => "faults: duplicate",
            Fault::Reorder => "faults: reorder",
            Fault::DelayedPush => "faults: delayed push",
            Fault::DroppedPush => "faults: dropped push",
            Fault::DuplicatePush => "faults: duplicate push",
            Fault::Reset => "faults: reset",
            Fault::Silence => "faults: silence",
            Fault::Partition => "faults: partition",
            Fault::Amnesia => "faults: amnesia",
            Fault::Restart => "faults: restart",
            Fault::StepForward => "faults: step forward",
            Fault::StepBack => "faults: step back",
            Fault::Refusal => "faults: refusal",
            Fault::Pause => "faults: pause",
            Fault::Suspend => "faults: suspend",
            Fault::Crash => "faults: crash",
            Fault::ScriptFlush => "faults: script flush",
            Fault::DeniedKill => "faults: denied kill",
        }
    }
}

/// How the network behaves.
#[derive(Debug)]
pub(crate) struct Conditions {
    /// One way, in milliseconds.
    pub(crate) latency: (Millis, Millis),
    pub(crate) longest_delay: Millis,
    /// Times in a thousand messages, for the faults of single messages.
    rates: [u64; 9],
    /// Whether no client may kill its old connection.
    denies_kills: bool,
    calm: AtomicBool,
    refusing: AtomicBool,
}

impl Conditions {
    /// Conditions of which some never occur, so that what goes wrong can also be a few things only.
    /// `deadline` is that of the commands with the shortest lease: where every command is too slow
    /// nothing happens at all.
    pub(crate) fn drawn(deadline: Millis, random: &SeededRandom) -> Self {
        let slowest = *random.pick(&[0, 1, 1, 2, 5, 20]);
        let slowest = slowest.min(deadline / 5);
        // Where old connections live on it matters what is still on its way when the next one is up.
        let denies_kills = random.chance(150);
        let slowest = if denies_kills {
            slowest.min(1)
        } else {
            slowest
        };
        // Grants are few, so where their messages suffer, many do.
        let bad_pushes = random.chance(200);
        let rates = std::array::from_fn(|fault| {
            if denies_kills && fault == Fault::DelayedRequest as usize {
                random.between(100, 400)
            } else if bad_pushes && fault >= Fault::DelayedPush as usize {
                random.between(100, 500)
            } else if random.chance(500) {
                random.between(1, 120)
            } else {
                0
            }
        });
        Conditions {
            latency: (0, slowest),
            longest_delay: if denies_kills {
                deadline
            } else {
                *random.pick(&[20, 80, 300, 1_200])
            },
            rates,
            denies_kills,
            calm: AtomicBool::new(random.chance(50)),
            refusing: AtomicBool::new(false),
        }
    }

    pub(crate) fn becomes_calm(&self) {
        self.calm.store(true, Ordering::Relaxed);
        self.set_refusing(false);
    }

    pub(super) fn is_calm(&self) -> bool {
        self.calm.load(Ordering::Relaxed)
    }

    pub(crate) fn set_refusing(&self, refusing: bool) {
        self.refusing.store(refusing, Ordering::Relaxed);
    }

    pub(super) fn is_refusing(&self) -> bool {
        self.refusing.load(Ordering::Relaxed)
    }

    pub(crate) fn denies_kills(&self) -> bool {
        self.denies_kills
    }

    /// Whether a fault hits this message.
    pub(super) fn hits(&self, fault: Fault, random: &SeededRandom) -> bool {
        !self.is_calm() && random.chance(self.rates[fault as usize])
    }

    pub(super) fn latency(&self, random: &SeededRandom) -> Millis {
        random.between(self.latency.0, self.latency.1)
    }

    pub(super) fn delay(&self, random: &SeededRandom) -> Millis {
        random.between(1, self.longest_delay)
    }
}
