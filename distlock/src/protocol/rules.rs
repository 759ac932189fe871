//! The rules of the protocol (`docs/design.md`) that something in this project can take away, to
//! see what happens then: each of them once, for the code that keeps it, the model and the torture.

macro_rules! rules {
    ($($(#[$what:meta])* $rule:ident = $saboteur:literal,)*) => {
        /// Which rules are in force.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(unreachable_pub, dead_code)] // Proof reads all of it, the library a part.
        pub struct Rules {
            $($(#[$what])* pub $rule: bool,)*
        }

        #[allow(unreachable_pub, dead_code)] // Proof reads all of it, the library a part.
        impl Rules {
            /// The protocol.
            pub const ALL: Rules = Rules { $($rule: true,)* };

            /// Who breaks them, in their order.
            pub const SABOTEURS: &[&str] = &[$($saboteur,)*];

            /// All rules but the one that a saboteur breaks; `None` if there is no such saboteur.
            #[must_use]
            pub fn broken_by(saboteur: &str) -> Option<Rules> {
                match saboteur {
                    $($saboteur => Some(Rules { $rule: false, ..Rules::ALL }),)*
                    _ => None,
                }
            }
        }
    };
}

rules! {
    /// R1: an id that was undone is never asked for again.
    no_way_back = "undo-then-ask-again",
    /// R1: an ask that went unanswered is repeated with the same id, or undone.
    same_id = "no-idempotent-acquire",
    /// R2: a new connection kills the old one in the server before anything else.
    kill_old = "old-connection-lives",
    /// R2: where it cannot, what was undone is undone again after its ask's apply-by.
    undo_twice = "undone-once",
    /// R2: what a lane did not answer is released on that lane, or after its end.
    follow_lane = "lane-overtaken",
    /// R2: an ask is not applied after its time.
    apply_by = "no-apply-by",
    /// R3: what fails after it was asked is undone, whatever the server said.
    undo_what_failed = "set-before-incr",
    /// R3: a granting script writes, so that a refusing server stops it, before it publishes.
    write_first = "publish-before-write",
    /// R4: an unconfirmed grant is short.
    short_grant = "long-grant-lease",
    /// R5: whoever finds the lock free drives the queue, and a waiting client looks from time to
    /// time.
    drive = "no-look",
    /// R6: a dead client's entries go together.
    purge = "dead-not-purged",
    /// R7: a newcomer never passes a queue.
    queue_order = "newcomer-passes",
    /// R8: nothing is asked before the connection listens.
    listen_first = "ask-before-subscribe",
    /// R9: a hold is over at its safe deadline.
    safe_deadline = "no-validity",
    /// R10: the safe deadline counts from the send.
    from_send = "validity-from-reply",
    /// R11: local time goes on while the machine sleeps.
    boot_clock = "instant-instead-of-boottime",
    /// R12: a pushed grant is believed for its age only.
    grant_age = "grant-age-unchecked",
    /// R13: a hold takes its token from the reply that proved it.
    token_of_proof = "token-of-push",
    /// R17: background work does not run where callers can block it.
    own_thread = "watchdog-on-user-runtime",
    /// R18: a release frees its own lock only.
    own_lock_only = "del-without-token",
    /// R19: a renewal never makes a lock.
    renew_only = "renew-recreates",
    /// R19: a renewal needs no memory.
    renew_in_place = "renew-by-set",
    /// R25: the resource checks tokens at every access.
    fence_reads = "fence-not-on-read",
    /// R26: whoever stops waiting leaves the queue.
    leave_queue = "entry-leaked",
    /// R37: what its call does not take is given back.
    take_or_leave = "grant-not-taken",
    /// R38: a lock that needs replicas counts once they have it.
    acknowledged = "acks-ignored",
    /// Quorum: over independent servers a lock is its holder's once more than half of them have
    /// voted for it.
    majority = "minority-elects",
    /// Quorum: and once so many have confirmed that: a vote may be over when it is counted.
    confirmed_votes = "stale-votes-count",
    /// Quorum: whoever has too few votes gives them to lower tickets.
    gives_way = "no-yield",
    /// Quorum: a hold is extended where a quorum still has it.
    quorum_extends = "minority-extends",
    /// Quorum: all nodes of a hold know its token.
    written_back = "no-write-back",
    /// Quorum: a node that may have forgotten a vote does not vote for a while.
    quarantine = "no-quarantine",
}

#[allow(unreachable_pub)]
impl Rules {
    /// The rules that this process keeps: all of them, but in a build that is made to break one.
    #[must_use]
    pub fn in_force() -> Rules {
        in_force()
    }
}

#[cfg(not(sabotage))]
const fn in_force() -> Rules {
    Rules::ALL
}

/// All rules but the one that `DISTLOCK_SABOTAGE` names.
///
/// # Panics
///
/// When it names none.
#[cfg(sabotage)]
fn in_force() -> Rules {
    static CHOSEN: once_cell::sync::Lazy<Rules> = once_cell::sync::Lazy::new(|| {
        let name = std::env::var("DISTLOCK_SABOTAGE").unwrap_or_default();
        if name.is_empty() {
            return Rules::ALL;
        }
        Rules::broken_by(&name).unwrap_or_else(|| {
            let known = Rules::SABOTEURS;
            panic!("DISTLOCK_SABOTAGE=`{name}`: there is no such saboteur, only {known:?}")
        })
    });
    *CHOSEN
}
