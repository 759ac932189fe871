//! The protocol rules (`docs/internals/design.md` and `rules.md`) that tests can disable one at a
//! time. The models in `tests/model` have lists of their own.

/// Returns true, unless the build is made to break one rule, and it is this one.
#[cfg(not(sabotage))]
macro_rules! rule {
    ($rule:ident) => {
        true
    };
}

#[cfg(sabotage)]
macro_rules! rule {
    ($rule:ident) => {
        $crate::protocol::rules::Rules::in_force().$rule
    };
}

pub(crate) use rule;

#[cfg(distlock_inside)]
macro_rules! rules {
    ($($(#[$doc:meta])* $rule:ident = $saboteur:literal,)*) => {
        /// The rules in force.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub struct Rules {
            $($(#[$doc])* pub $rule: bool,)*
        }

        impl Rules {
            /// The protocol with all its rules.
            pub const ALL: Rules = Rules { $($rule: true,)* };

            /// The names of the saboteurs that break the rules, in the same order.
            pub const SABOTEURS: &[&str] = &[$($saboteur,)*];

            /// Returns all rules except that of `saboteur`, or `None` if there is no such name.
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

#[cfg(distlock_inside)]
rules! {
    /// R1: an owner id whose acquire was cancelled never acquires again.
    cancel_is_final = "acquire-after-cancel",
    /// R1: an acquire that went unanswered is repeated with the same owner id, or cancelled.
    same_id = "no-idempotent-acquire",
    /// R2: an owner with an unanswered acquire is released again after its apply deadline.
    cancel_twice = "cancelled-once",
    /// R2: the server does not apply an acquire after its apply deadline.
    apply_by = "no-apply-by",
    /// R3: an acquire that failed after it was sent is cancelled, whatever the server replied.
    cancel_failed = "failed-acquire-not-cancelled",
    /// R3: a granting script writes before it publishes, so that a refusing server stops it.
    write_first = "publish-before-write",
    /// R4: an unconfirmed grant is short.
    short_grant = "long-grant-lease",
    /// R5: a script that finds the lock free hands it to the next waiter, and a waiting client
    /// checks its queues at intervals.
    check_queue = "no-queue-check",
    /// R6: a client that is dead, or let its last grant expire, is granted nothing.
    skips_silent = "silent-not-skipped",
    /// R7: a newcomer never overtakes a queue.
    queue_order = "newcomer-passes",
    /// R8: no acquire is sent before the connection is subscribed.
    subscribe_first = "acquire-before-subscribe",
    /// R9: a hold ends at its safe deadline.
    safe_deadline = "no-safe-deadline",
    /// R10: the safe deadline counts from the send of the proving command.
    deadline_from_send = "deadline-from-reply",
    /// R11: local time continues while the machine is suspended.
    boot_clock = "clock-stops-in-suspend",
    /// R12: the validity of a pushed grant counts from when the grant was made.
    grant_age = "grant-age-unchecked",
    /// R13: a hold takes its token from the reply that proved it.
    token_of_proof = "token-of-push",
    /// R17: background work does not run where callers can block it.
    own_thread = "watchdog-on-user-runtime",
    /// R18: a release frees only the lock of its own owner id.
    own_lock_only = "del-without-token",
    /// R19: a renewal never creates a lock.
    renew_only = "renew-recreates",
    /// R19: a renewal needs no memory in the server.
    renew_in_place = "renew-by-set",
    /// R25: the resource checks the token on every access.
    fence_reads = "fence-not-on-read",
    /// R26: a call that stops waiting cancels its queue entry.
    cancel_queued = "entry-leaked",
    /// R37: a hold that its call does not claim is released.
    release_unused = "grant-not-taken",
    /// R38: a lock with `min_replicas` or `fsync` is held only once that is acknowledged.
    acknowledged = "acks-ignored",
    /// Quorum: a client holds a lock over independent servers once more than half of them have
    /// granted it.
    majority = "minority-acquires",
    /// Quorum: every node that counts for a hold knows its token.
    written_back = "no-write-back",
    /// Quorum: a hold is extended only where a quorum still has it.
    quorum_extends = "minority-extends",
    /// Quorum: a node that may have forgotten a lock grants none for a while.
    quarantine = "no-quarantine",
    /// Quorum: a failed attempt is released on every node to which it was sent.
    released_everywhere = "refused-not-released",
    /// Quorum: a server counts once, whatever addresses reach it.
    one_vote = "server-counts-twice",
    /// Several keys: all calls acquire their locks in the same order.
    one_order = "keys-in-given-order",
    /// Several keys: keys that name the same lock count once.
    locks_once = "equal-keys-count-twice",
    /// Several keys: the script that takes all locks takes none if one of them is not free.
    all_or_nothing = "takes-held-keys",
    /// K17: permits are granted by the number of their own call.
    own_number = "number-of-the-last-call",
    /// P3: a call that is handed the lock reads the success record before its body.
    confirm_once = "once-on-push",
    /// P7: a period is shorter by a slack, so that a timer that fires early is not skipped.
    slack = "no-slack",
    /// P9: a call that runs at most once does not re-enter a hold of its own call tree.
    once_outermost = "once-reentered",
    /// P10: only a success under a valid hold is recorded.
    success_only = "failure-recorded",
    /// D-1: a verb of PostgreSQL locks the lock's row by a statement of its own before it decides.
    row_first = "one-statement",
    /// D-1: so does a release.
    release_locks = "release-unlocked",
    /// D-2: the clock is read after the lock's row is locked.
    clock_after_row = "time-before-wait",
    /// D-3: a hold that a transaction has checked in is held, even beyond its TTL.
    pinned_is_held = "pinned-taken-over",
    /// D-3: no verb waits for a transaction that has checked in.
    pinned_not_awaited = "pinned-awaited",
    /// `check_in` keeps the hold until the transaction ends.
    check_in_locks = "check-in-unlocked",
    /// A grant is notified after its commit.
    grant_notified = "notify-lost",
    /// R2 in PostgreSQL: a cancel that finds nothing is remembered.
    cancel_remembered = "no-tombstone",
    /// D-4: a liveness lock is taken only in a session that gets its own messages.
    session_proven = "probe-skipped",
    /// D-5: a reply proves nothing if its commit no longer waited for the standby.
    replica_waited = "warning-believed",
    /// P20: a quorum records no success, because a restarted server may forget it.
    no_quorum_records = "once-over-quorum",
}

#[cfg(distlock_inside)]
impl Rules {
    /// Returns the rules that this process keeps: all, unless its build is made to break one, and
    /// `DISTLOCK_SABOTAGE` names its saboteur.
    ///
    /// # Panics
    ///
    /// If there is no saboteur of that name.
    #[must_use]
    pub fn in_force() -> Rules {
        static CHOSEN: once_cell::sync::Lazy<Rules> = once_cell::sync::Lazy::new(|| {
            let name = std::env::var("DISTLOCK_SABOTAGE").unwrap_or_default();
            if name.is_empty() || cfg!(not(sabotage)) {
                return Rules::ALL;
            }
            Rules::broken_by(&name).unwrap_or_else(|| {
                let known = Rules::SABOTEURS;
                panic!("DISTLOCK_SABOTAGE=`{name}`: there is no such saboteur, only {known:?}")
            })
        });
        *CHOSEN
    }
}
