//! How what happens is called in labels.

use std::fmt;

use crate::observer::event::{
    CallOutcome, HoldOutcome, Link, Loss, Operation, Path, Refused, ReleaseOutcome, RenewalOutcome,
};

impl Path {
    /// The name for a label: `free`, `handed`, `looked`, `reentered`.
    ///
    /// ```
    /// use distlock::observer::Path;
    ///
    /// assert_eq!(Path::Handed.as_str(), "handed");
    /// assert_eq!(Path::Handed.to_string(), "handed");
    /// ```
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Path::Free => "free",
            Path::Handed => "handed",
            Path::Looked => "looked",
            Path::Reentered => "reentered",
        }
    }
}

impl Refused {
    /// The name for a label: `busy`, `full`, `unavailable`, `cancelled`, `foreign`, `closed`,
    /// `lost`.
    ///
    /// ```
    /// use distlock::observer::Refused;
    ///
    /// assert_eq!(Refused::Unavailable.as_str(), "unavailable");
    /// assert_eq!(Refused::Unavailable.to_string(), "unavailable");
    /// ```
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Refused::Busy => "busy",
            Refused::Full => "full",
            Refused::Unavailable => "unavailable",
            Refused::Cancelled => "cancelled",
            Refused::Foreign => "foreign",
            Refused::Closed => "closed",
            Refused::Lost => "lost",
        }
    }
}

impl HoldOutcome {
    /// The name for a label: `released`, `lost`, `hold_limit`, `panicked`, `cancelled`.
    ///
    /// ```
    /// use distlock::observer::HoldOutcome;
    ///
    /// assert_eq!(HoldOutcome::HoldLimit.as_str(), "hold_limit");
    /// assert_eq!(HoldOutcome::HoldLimit.to_string(), "hold_limit");
    /// ```
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            HoldOutcome::Released => "released",
            HoldOutcome::Lost => "lost",
            HoldOutcome::HoldLimit => "hold_limit",
            HoldOutcome::Panicked => "panicked",
            HoldOutcome::Cancelled => "cancelled",
        }
    }
}

impl Loss {
    /// The name for a label: `expired`, `gone`, `revoked`, `closed`.
    ///
    /// ```
    /// use distlock::observer::Loss;
    ///
    /// assert_eq!(Loss::Expired.as_str(), "expired");
    /// assert_eq!(Loss::Expired.to_string(), "expired");
    /// ```
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Loss::Expired => "expired",
            Loss::Gone => "gone",
            Loss::Revoked => "revoked",
            Loss::Closed => "closed",
        }
    }
}

impl ReleaseOutcome {
    /// The name for a label: `released`, `not_held`, `unanswered`.
    ///
    /// ```
    /// use distlock::observer::ReleaseOutcome;
    ///
    /// assert_eq!(ReleaseOutcome::NotHeld.as_str(), "not_held");
    /// ```
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            ReleaseOutcome::Released => "released",
            ReleaseOutcome::NotHeld => "not_held",
            ReleaseOutcome::Unanswered => "unanswered",
        }
    }
}

impl RenewalOutcome {
    /// The name for a label: `ok`, `failed`, `gone`.
    ///
    /// ```
    /// use distlock::observer::RenewalOutcome;
    ///
    /// assert_eq!(RenewalOutcome::Failed.as_str(), "failed");
    /// ```
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            RenewalOutcome::Ok => "ok",
            RenewalOutcome::Failed => "failed",
            RenewalOutcome::Gone => "gone",
        }
    }
}

impl Operation {
    /// The name for a label: `ask`, `confirm`, `renew`, `release`, `look`, `inspect`, `list`,
    /// `revoke`.
    ///
    /// ```
    /// use distlock::observer::Operation;
    ///
    /// assert_eq!(Operation::Ask.as_str(), "ask");
    /// ```
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Operation::Ask => "ask",
            Operation::Confirm => "confirm",
            Operation::Renew => "renew",
            Operation::Release => "release",
            Operation::Look => "look",
            Operation::Inspect => "inspect",
            Operation::List => "list",
            Operation::Revoke => "revoke",
        }
    }
}

impl CallOutcome {
    /// The name for a label: `ok`, `timed_out`, `unreachable`, `refused`, `denied`.
    ///
    /// ```
    /// use distlock::observer::CallOutcome;
    ///
    /// assert_eq!(CallOutcome::TimedOut.as_str(), "timed_out");
    /// ```
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            CallOutcome::Ok => "ok",
            CallOutcome::TimedOut => "timed_out",
            CallOutcome::Unreachable => "unreachable",
            CallOutcome::Refused => "refused",
            CallOutcome::Denied => "denied",
        }
    }
}

impl Link {
    /// The name for a label: `commands`, `renewals`, `acks`.
    ///
    /// ```
    /// use distlock::observer::Link;
    ///
    /// assert_eq!(Link::Renewals.as_str(), "renewals");
    /// assert_eq!(Link::Renewals.to_string(), "renewals");
    /// ```
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Link::Commands => "commands",
            Link::Renewals => "renewals",
            Link::Acks => "acks",
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for HoldOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
