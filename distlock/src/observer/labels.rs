//! The values of labels in metrics, logs and spans.

use std::fmt;

use crate::observer::event::{
    AcquireFailure, AcquirePath, CommandOutcome, Connection, HoldOutcome, Operation, RecordOutcome,
    ReleaseOutcome, RenewalOutcome, SkipKind,
};

/// Upper limit of the names of locks of which metrics, and the log of skips, keep a record.
pub(crate) const MAX_NAMES: usize = 500;

macro_rules! labels {
    ($($name:ident { $($variant:ident = $label:literal),+ $(,)? })+) => {$(
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
    AcquirePath {
        Free = "free",
        HandedOff = "handed_off",
        QueueCheck = "queue_check",
        Reentered = "reentered",
    }
    AcquireFailure {
        Busy = "busy",
        QueueFull = "queue_full",
        Unavailable = "unavailable",
        Cancelled = "cancelled",
        KeyConflict = "key_conflict",
        WrongKind = "wrong_kind",
        ShutDown = "shut_down",
        Lost = "lost",
        AlreadyRan = "already_ran",
    }
    SkipKind {
        Busy = "busy",
        AlreadyRan = "already_ran",
        RunIf = "run_if",
    }
    RecordOutcome {
        Recorded = "recorded",
        Refused = "refused",
        Unknown = "unknown",
    }
    HoldOutcome {
        Released = "released",
        Lost = "lost",
        MaxHoldExceeded = "max_hold_exceeded",
        Panicked = "panicked",
        Cancelled = "cancelled",
    }
    ReleaseOutcome {
        Released = "released",
        NotHeld = "not_held",
        Unconfirmed = "unconfirmed",
    }
    RenewalOutcome {
        Ok = "ok",
        Failed = "failed",
        Gone = "gone",
    }
    Operation {
        Acquire = "acquire",
        Confirm = "confirm",
        Renew = "renew",
        Downgrade = "downgrade",
        Release = "release",
        CheckQueue = "check_queue",
        Inspect = "inspect",
        List = "list",
        Revoke = "revoke",
        DeleteRecord = "delete_record",
    }
    CommandOutcome {
        Ok = "ok",
        TimedOut = "timed_out",
        Unreachable = "unreachable",
        Rejected = "rejected",
        Denied = "denied",
    }
    Connection {
        Commands = "commands",
        Renewals = "renewals",
        Acks = "acks",
    }
}
