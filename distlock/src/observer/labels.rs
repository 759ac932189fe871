//! What observers, metrics, logs and spans name by a label.

use std::fmt;

use crate::error::Error;

/// Upper limit of the names of locks of which metrics, and the log of skips, keep a record.
pub(crate) const MAX_NAMES: usize = 500;

/// Defines enums whose variants each have a label.
macro_rules! labels {
    ($(
        $(#[$attribute:meta])*
        $name:ident { $($(#[$doc:meta])* $variant:ident = $label:literal,)+ }
    )+) => {$(
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$doc])* $variant,)+
        }

        impl $name {
            #[doc = concat!("Returns the value for a label, one of", $(" `", $label, "`",)+ ".")]
            ///
            /// ```
            #[doc = concat!("use distlock::observer::", stringify!($name), ";")]
            ///
            $(#[doc = concat!("assert_eq!(", stringify!($name), "::", stringify!($variant), ".as_str(), \"", $label, "\");")])+
            /// ```
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $($name::$variant => $label,)+
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    )+};
}

labels! {
    /// How a call got its lock.
    ///
    /// ```
    /// use distlock::observer::AcquirePath;
    ///
    /// // Only these calls have waited for another holder.
    /// let contended = |path| matches!(path, AcquirePath::HandedOff | AcquirePath::QueueCheck);
    /// assert!(contended(AcquirePath::HandedOff) && !contended(AcquirePath::Free));
    /// ```
    AcquirePath {
        /// The lock was free.
        Free = "free",
        /// The previous holder's release handed it off, and the server notified the waiter. Over a
        /// quorum, which has no hand-off: the call had to wait.
        HandedOff = "handed_off",
        /// A periodic check of the queue, every 500 ms, found that the lock was handed off or free.
        QueueCheck = "queue_check",
        /// Its own call tree already held it.
        Reentered = "reentered",
    }

    /// Why a call did not get its lock.
    ///
    /// ```
    /// use distlock::observer::AcquireFailure;
    ///
    /// // Contention is not an outage: it needs no alert.
    /// let alerts = |why| !matches!(why, AcquireFailure::Busy | AcquireFailure::Cancelled);
    /// assert!(alerts(AcquireFailure::Unavailable) && !alerts(AcquireFailure::Busy));
    /// ```
    AcquireFailure {
        /// For all of the call's `wait`, other calls held the lock or were ahead in its queue, or
        /// `min_hold` kept its key.
        Busy = "busy",
        /// The queue of the lock was full.
        QueueFull = "queue_full",
        /// The store could not be used.
        Unavailable = "unavailable",
        /// The call was dropped, for example by a timeout around it.
        Cancelled = "cancelled",
        /// A value that distlock did not write is stored at one of the lock's keys.
        KeyConflict = "key_conflict",
        /// The key is in use as another kind of lock.
        WrongKind = "wrong_kind",
        /// The manager was shut down.
        ShutDown = "shut_down",
        /// The outer hold, which the call was to re-enter, is lost.
        Lost = "lost",
        /// The work of `once_per` or `once_for` has already succeeded. No failure of the lock.
        AlreadyRan = "already_ran",
    }

    /// Why a call was skipped. [`SkipReason`](crate::SkipReason) has the details of a busy lock and
    /// of work that has succeeded.
    ///
    /// ```
    /// use distlock::observer::SkipKind;
    ///
    /// // Another replica is doing the work.
    /// let is_in_progress = |skip| matches!(skip, SkipKind::Busy);
    /// assert!(is_in_progress(SkipKind::Busy) && !is_in_progress(SkipKind::AlreadyRan));
    /// ```
    SkipKind {
        /// For all of the call's `wait`, other calls held the lock or were ahead in its queue, or
        /// `min_hold` kept its key.
        Busy = "busy",
        /// The work of `once_per` or `once_for` has already succeeded.
        AlreadyRan = "already_ran",
        /// The `run_if` of an annotated function was false.
        RunIf = "run_if",
    }

    /// How a hold ended.
    ///
    /// ```
    /// use distlock::observer::HoldOutcome;
    ///
    /// // A worker that is asked to stop drops its work: that is not a failure.
    /// let failed = |outcome| !matches!(outcome, HoldOutcome::Released | HoldOutcome::Cancelled);
    /// assert!(failed(HoldOutcome::Lost) && !failed(HoldOutcome::Released));
    /// ```
    HoldOutcome {
        /// The holder finished and released the lock.
        Released = "released",
        /// The lock was lost, see [`Event::Lost`](crate::observer::Event::Lost).
        Lost = "lost",
        /// The hold reached its `max_hold`.
        MaxHoldExceeded = "max_hold_exceeded",
        /// The holder panicked.
        Panicked = "panicked",
        /// The guard, or the future that ran the body, was dropped without a release.
        Cancelled = "cancelled",
    }

    /// Whether a success was recorded.
    ///
    /// ```
    /// use distlock::observer::RecordOutcome;
    ///
    /// // The work may run again within its period.
    /// let may_repeat = |outcome| !matches!(outcome, RecordOutcome::Recorded);
    /// assert!(may_repeat(RecordOutcome::Refused) && !may_repeat(RecordOutcome::Recorded));
    /// ```
    RecordOutcome {
        /// The store has the record.
        Recorded = "recorded",
        /// The store could not write the record, or the hold was lost before its release.
        Refused = "refused",
        /// The success may be recorded or not: no release got a reply, or a reply was lost and
        /// later ones do not show it.
        Unknown = "unknown",
    }

    /// The result of the first attempt to release a lock.
    ///
    /// ```
    /// use distlock::observer::ReleaseOutcome;
    ///
    /// // The next holder may have to wait until the lease has ended.
    /// let delays_others = |outcome| outcome == ReleaseOutcome::Unconfirmed;
    /// assert!(delays_others(ReleaseOutcome::Unconfirmed));
    /// assert!(!delays_others(ReleaseOutcome::Released));
    /// ```
    ReleaseOutcome {
        /// The lock is free, or has its next holder.
        Released = "released",
        /// The store no longer had the lock, although it should have.
        NotHeld = "not_held",
        /// There was no reply, or an error. The release is retried in the background.
        Unconfirmed = "unconfirmed",
    }

    /// The result of a batch of renewals, see [`Event::Renewed`](crate::observer::Event::Renewed).
    ///
    /// ```
    /// use distlock::observer::RenewalOutcome;
    ///
    /// // A failed renewal is retried: nothing is lost yet.
    /// let warns = |outcome| outcome == RenewalOutcome::Failed;
    /// assert!(warns(RenewalOutcome::Failed) && !warns(RenewalOutcome::Gone));
    /// ```
    RenewalOutcome {
        /// All holds were renewed.
        Ok = "ok",
        /// Some holds could not be renewed.
        Failed = "failed",
        /// Some holds are lost, and all others were renewed.
        Gone = "gone",
    }

    /// A command to the store.
    ///
    /// ```
    /// use distlock::observer::Operation;
    ///
    /// // An uncontended call sends these two.
    /// let call_operations = [Operation::Acquire, Operation::Release].map(Operation::as_str);
    /// assert_eq!(call_operations.join("+"), "acquire+release");
    /// ```
    Operation {
        /// Takes a lock, or a place in its queue.
        Acquire = "acquire",
        /// Extends a grant that was handed off to the whole lease.
        Confirm = "confirm",
        /// Renews holds.
        Renew = "renew",
        /// Turns a write hold into a read hold.
        Downgrade = "downgrade",
        /// Releases a lock, or leaves its queue.
        Release = "release",
        /// Checks the locks that calls wait for.
        CheckQueue = "check_queue",
        /// Reads the state of a lock.
        Inspect = "inspect",
        /// Lists the locks that are held.
        List = "list",
        /// Revokes a lock.
        Revoke = "revoke",
        /// Deletes a success record.
        DeleteRecord = "delete_record",
    }

    /// The result of a command to the store.
    ///
    /// ```
    /// use distlock::observer::CommandOutcome;
    ///
    /// // These pass by themselves, once the network or the server is back.
    /// let passes = |outcome| matches!(outcome, CommandOutcome::TimedOut | CommandOutcome::Unreachable);
    /// assert!(passes(CommandOutcome::TimedOut) && !passes(CommandOutcome::Denied));
    /// ```
    CommandOutcome {
        /// There was a reply, whatever it says about the lock.
        Ok = "ok",
        /// There was no reply in time.
        TimedOut = "timed_out",
        /// There was no connection.
        Unreachable = "unreachable",
        /// The store rejected the command: out of memory, a read-only replica, too few replicas.
        Rejected = "rejected",
        /// The user lacks a permission or is unknown, or a certificate is not accepted.
        Denied = "denied",
    }

    /// The purpose of a connection.
    ///
    /// ```
    /// use distlock::observer::Connection;
    ///
    /// // Without this one, every hold ends at its safe deadline.
    /// let renews = |connection| connection == Connection::Renewals;
    /// assert!(renews(Connection::Renewals) && !renews(Connection::Commands));
    /// ```
    #[derive(PartialOrd, Ord)]
    Connection {
        /// Acquires, releases, and pushes from the server.
        Commands = "commands",
        /// Renewals.
        Renewals = "renewals",
        /// Acknowledgments of replicas and disks.
        Acks = "acks",
    }
}
impl AcquireFailure {
    /// Returns the name of an error in events and spans; `None` for a mistake of the caller.
    pub(crate) fn of(error: &Error) -> Option<Self> {
        match error {
            Error::QueueFull { .. } => Some(AcquireFailure::QueueFull),
            Error::Busy { .. } => Some(AcquireFailure::Busy),
            Error::Unavailable { .. } => Some(AcquireFailure::Unavailable),
            Error::KeyConflict { .. } => Some(AcquireFailure::KeyConflict),
            Error::WrongKind { .. } => Some(AcquireFailure::WrongKind),
            Error::AlreadyRan { .. } => Some(AcquireFailure::AlreadyRan),
            Error::ShutDown { .. } => Some(AcquireFailure::ShutDown),
            Error::Lost { .. } | Error::MaxHoldExceeded { .. } | Error::Released { .. } => {
                Some(AcquireFailure::Lost)
            }
            _ => None,
        }
    }
}
