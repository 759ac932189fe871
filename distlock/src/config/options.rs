//! Options of a lock.

use std::borrow::Cow;
use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::error::Error;
use crate::key::{FAILED, cut_off};
use crate::util::visible::{cleaned, text_of};

pub(crate) const DEFAULT_LEASE: Duration = Duration::from_secs(30);
pub(crate) const DEFAULT_WAIT: Duration = Duration::from_secs(10);
pub(crate) const MIN_LEASE: Duration = Duration::from_millis(50);
pub(crate) const MAX_DURATION: Duration = Duration::from_secs(24 * 60 * 60);

/// Default time for which the last token of a key is remembered.
pub(crate) const DEFAULT_FENCE_TTL: Duration = Duration::from_secs(2 * 60 * 60);
pub(crate) const FENCE_TTL_RANGE: RangeInclusive<Duration> =
    Duration::from_secs(60)..=Duration::from_secs(366 * 24 * 60 * 60);

/// The period of `once_per`, and the time for which `once_for` remembers a success.
const RECORD_RANGE: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(366 * 24 * 60 * 60);
pub(crate) const DEFAULT_RECORD_TTL: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Upper limit of a value of `once_for`, in bytes.
const MAX_ONCE_VALUE: usize = 128;

/// Upper limit of the metadata of a hold, in bytes.
pub(crate) const MAX_METADATA: usize = 256;

/// The copies of a write, besides the server's memory, that a hold requires before it counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Durability {
    /// Number of replicas.
    pub(crate) replicas: u32,
    /// True if the write must be on the server's disk, and on the disk of each of these replicas.
    pub(crate) fsync: bool,
}

impl Durability {
    /// The server's reply is enough.
    pub(crate) const NONE: Durability = Durability {
        replicas: 0,
        fsync: false,
    };

    pub(crate) fn is_none(self) -> bool {
        self == Self::NONE
    }

    /// Returns the durability that satisfies both.
    pub(crate) fn and(self, other: Durability) -> Durability {
        Durability {
            replicas: self.replicas.max(other.replicas),
            fsync: self.fsync || other.fsync,
        }
    }
}

/// The defaults of a manager for the options of its locks. `None` for the built-in value.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Defaults {
    pub(crate) lease: Option<Duration>,
    pub(crate) wait: Option<Duration>,
    pub(crate) durability: Durability,
}

/// What the options of a lock take from its manager, and from the call that it is part of.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Inherited {
    pub(crate) defaults: Defaults,
    /// True if `max_hold` counts from the start of the body instead of from the acquisition, as the
    /// call waits for further keys in between.
    pub(crate) max_hold_from_start: bool,
}

/// The options of a [`Lock`](crate::Lock), as its user has set them. `None` stands for the default
/// of its manager.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    pub(crate) lease: Option<Duration>,
    pub(crate) wait: Option<Duration>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) min_hold: Option<Duration>,
    /// At most one successful run in each period.
    pub(crate) once_per: Option<Duration>,
    /// At most one successful run for this value; an error if its `Display` returned one.
    pub(crate) once_for: Option<Result<String, fmt::Error>>,
    /// `None` for the default.
    pub(crate) record_ttl: Option<Duration>,
    pub(crate) min_replicas: Option<u32>,
    pub(crate) fsync: Option<bool>,
    pub(crate) label: Option<Cow<'static, str>>,
    /// True if a call that ends as busy is a skip, which is no failure.
    pub(crate) skips_busy: bool,
    /// The text about the hold that other clients see. An empty text is none.
    pub(crate) metadata: Option<String>,
    pub(crate) inherited: Inherited,
}

impl Options {
    /// Returns the options of a lock of which the user sets none.
    pub(crate) fn of(defaults: &Defaults) -> Self {
        let inherited = Inherited {
            defaults: *defaults,
            max_hold_from_start: false,
        };
        Options {
            inherited,
            ..Options::default()
        }
    }

    pub(crate) fn lease(&self) -> Duration {
        self.lease
            .or(self.inherited.defaults.lease)
            .unwrap_or(DEFAULT_LEASE)
    }

    pub(crate) fn wait(&self) -> Duration {
        self.wait
            .or(self.inherited.defaults.wait)
            .unwrap_or(DEFAULT_WAIT)
    }

    pub(crate) fn durability(&self) -> Durability {
        Durability {
            replicas: self
                .min_replicas
                .unwrap_or(self.inherited.defaults.durability.replicas),
            fsync: self
                .fsync
                .unwrap_or(self.inherited.defaults.durability.fsync),
        }
    }

    pub(crate) fn set_once_for(&mut self, value: &dyn fmt::Display) {
        self.once_for = Some(text_of(value));
    }

    pub(crate) fn set_metadata(&mut self, text: &str) {
        self.metadata = Some(cleaned(text, MAX_METADATA));
    }

    /// Makes a busy call a skip. Without an explicit `wait`, the call then tries once.
    pub(crate) fn skip_busy(&mut self) {
        self.skips_busy = true;
        self.wait.get_or_insert(Duration::ZERO);
    }

    /// Returns true if a call with these options that fails with `error` is skipped.
    pub(crate) fn is_skip(&self, error: &Error) -> bool {
        self.skips_busy && error.is_skip()
    }

    /// Returns true if the call runs at most once per period or for a value.
    pub(crate) fn is_once(&self) -> bool {
        self.once_per.is_some() || self.once_for.is_some()
    }

    /// Returns the metadata, unless it is empty.
    pub(crate) fn metadata(&self) -> Option<&str> {
        self.metadata.as_deref().filter(|text| !text.is_empty())
    }

    /// Checks every duration, and the value of `once_for`.
    pub(crate) fn check(&self, key: &str) -> Result<(), Error> {
        let refuse = |what: &str, value: Duration, bound: &str| {
            Err(Error::config(format!(
                "lock `{key}`: {what} is {value:?}; set it to {bound}"
            )))
        };
        let in_range = check_times(self.lease(), self.wait());
        in_range.map_err(|reason| Error::config(format!("lock `{key}`: {reason}")))?;
        if self.max_hold.is_some_and(|limit| limit.is_zero()) {
            let bound = "more than zero, or leave it out for no limit";
            return refuse("max_hold", Duration::ZERO, bound);
        }
        self.check_once(key)?;
        let Some(min_hold) = self.min_hold else {
            return Ok(());
        };
        if let Some(max_hold) = self.max_hold.filter(|max_hold| min_hold > *max_hold) {
            let bound = format!("at most the max_hold of {max_hold:?}, or raise that");
            return refuse("min_hold", min_hold, &bound);
        }
        // At the end of `min_hold` the key is free, and such a call would run the job a second
        // time.
        if let Some(wait) = self.wait.or(self.inherited.defaults.wait)
            && !min_hold.is_zero()
            && wait >= min_hold
        {
            let bound =
                format!("less than the min_hold of {min_hold:?} (0s tries once), or raise that");
            return refuse("the wait", wait, &bound);
        }
        if min_hold > MAX_DURATION {
            return refuse("min_hold", min_hold, "at most 24h");
        }
        Ok(())
    }

    fn check_once(&self, key: &str) -> Result<(), Error> {
        for (name, value) in [("once_per", self.once_per), ("record_ttl", self.record_ttl)] {
            if let Some(value) = value.filter(|value| !RECORD_RANGE.contains(value)) {
                return Err(Error::config(format!(
                    "lock `{key}`: {name} is {value:?}; set it to at least 1s and at most 366d"
                )));
            }
        }
        let value = self.once_for.as_ref();
        let mistake = if self.once_per.is_some() && value.is_some() {
            "once_per and once_for are both set; leave one out".to_owned()
        } else if self.is_once() && self.min_hold.is_some() {
            "min_hold is set together with once_per or once_for, which do its work; leave it out"
                .to_owned()
        } else if self.record_ttl.is_some() && value.is_none() {
            "record_ttl is set without once_for; leave it out (once_per remembers a success for two periods)".to_owned()
        } else {
            return value.map_or(Ok(()), |value| check_once_value(key, value.as_deref()));
        };
        Err(Error::config(format!("lock `{key}`: {mistake}")))
    }
}

fn check_once_value(key: &str, value: Result<&str, &fmt::Error>) -> Result<(), Error> {
    let detail = match value {
        Err(fmt::Error) => return Err(cut_off(key, "its once_for")),
        // A part of it was escaped.
        Ok(value) if value.contains(FAILED) => return Err(cut_off(key, "its once_for")),
        Ok("") => format!("it is empty for lock `{key}`; pass what the run is for, such as a date"),
        Ok(value) if value.len() > MAX_ONCE_VALUE => format!(
            "it has {} bytes for lock `{key}`; shorten it to {MAX_ONCE_VALUE}, for example by a hash",
            value.len()
        ),
        Ok(_) => return Ok(()),
    };
    Err(Error::invalid_value("once_for", detail))
}

/// Returns the mistake in a lease and a wait, of a lock or of its manager.
pub(crate) fn check_times(lease: Duration, wait: Duration) -> Result<(), String> {
    if !(MIN_LEASE..=MAX_DURATION).contains(&lease) {
        return Err(format!(
            "the lease is {lease:?}; set it to at least 50ms and at most 24h"
        ));
    }
    if wait > MAX_DURATION {
        return Err(format!(
            "the wait is {wait:?}; set it to at most 24h (0s tries once)"
        ));
    }
    Ok(())
}
