//! The faults and their frequencies.

use std::sync::atomic::{AtomicBool, Ordering};

use super::network::Millis;
use crate::__inside::seeded::SeededRandom;

/// A fault of a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    DelayedRequest,
    DelayedReply,
    /// Never applied and not answered.
    DroppedRequest,
    /// Applied but not answered.
    DroppedReply,
    /// Applied twice.
    Duplicate,
    /// Requests of the same client that were sent later are applied earlier.
    Reorder,
    DelayedPush,
    DroppedPush,
    DuplicatePush,
    /// A connection ends at the client; the server may notice or not.
    Reset,
    /// A connection swallows everything from now on.
    Silence,
    /// Nothing passes between a client and the server for a while; then everything sent arrives.
    Partition,
    /// The server forgets everything.
    Amnesia,
    /// The server forgets everything, and all its connections end.
    Restart,
    StepForward,
    StepBack,
    /// The server rejects writes for a while.
    Refusal,
    /// A client's process is stopped for a while.
    Pause,
    /// The machines sleep: all clocks advance, and no timer does.
    Suspend,
    /// A client's process is killed.
    Crash,
    /// The server forgets its scripts.
    ScriptFlush,
}

impl Fault {
    /// Returns true if the fault may delay a client's releases for longer than a reconnect takes.
    pub(crate) fn hinders(self) -> bool {
        self > Fault::Reset && self != Fault::ScriptFlush
    }

    pub(crate) fn name(self) -> &'static str {
        ALL[self as usize].1
    }
}

/// All faults in order, with their names and their minimum number in 400 worlds.
pub(crate) const ALL: [(Fault, &str, u64); 21] = [
    (Fault::DelayedRequest, "faults: delayed request", 400),
    (Fault::DelayedReply, "faults: delayed reply", 400),
    (Fault::DroppedRequest, "faults: dropped request", 500),
    (Fault::DroppedReply, "faults: dropped reply", 350),
    (Fault::Duplicate, "faults: duplicate", 400),
    (Fault::Reorder, "faults: reorder", 500),
    (Fault::DelayedPush, "faults: delayed push", 35),
    (Fault::DroppedPush, "faults: dropped push", 30),
    (Fault::DuplicatePush, "faults: duplicate push", 30),
    (Fault::Reset, "faults: reset", 70),
    (Fault::Silence, "faults: silence", 50),
    (Fault::Partition, "faults: partition", 50),
    (Fault::Amnesia, "faults: amnesia", 15),
    (Fault::Restart, "faults: restart", 15),
    (Fault::StepForward, "faults: step forward", 18),
    (Fault::StepBack, "faults: step back", 60),
    (Fault::Refusal, "faults: refusal", 25),
    (Fault::Pause, "faults: pause", 80),
    (Fault::Suspend, "faults: suspend", 60),
    (Fault::Crash, "faults: crash", 25),
    (Fault::ScriptFlush, "faults: script flush", 30),
];

/// The behavior of the network.
#[derive(Debug)]
pub(crate) struct Conditions {
    /// Bounds of the one-way latency, in milliseconds.
    pub(crate) latency: (Millis, Millis),
    pub(crate) longest_delay: Millis,
    /// Rates of the faults of single messages, per thousand messages.
    rates: [u64; 9],
    /// Set if many acquires arrive after their connection was replaced.
    delays_acquires: bool,
    calm: AtomicBool,
    refusing: AtomicBool,
}

impl Conditions {
    /// Draws conditions in which some faults never occur, so that a world may have only a few
    /// kinds. `deadline` is the command timeout of the shortest lease: if every command were too
    /// slow, nothing would happen at all.
    pub(crate) fn drawn(deadline: Millis, random: &SeededRandom) -> Self {
        let slowest = *random.pick(&[0, 1, 1, 2, 5, 20]);
        let slowest = slowest.min(deadline / 5);
        // The next connection is then ready before the delayed requests arrive.
        let delays_acquires = random.chance(150);
        let slowest = if delays_acquires {
            slowest.min(1)
        } else {
            slowest
        };
        // Grants are few, so if their messages have faults, many have them.
        let bad_pushes = random.chance(200);
        let rates = std::array::from_fn(|fault| {
            if delays_acquires && fault == Fault::DelayedRequest as usize {
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
            longest_delay: if delays_acquires {
                deadline
            } else {
                *random.pick(&[20, 80, 300, 1_200])
            },
            rates,
            delays_acquires,
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

    pub(crate) fn delays_acquires(&self) -> bool {
        self.delays_acquires
    }

    /// Returns true if a fault hits this message.
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
