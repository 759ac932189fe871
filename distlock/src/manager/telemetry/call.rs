//! A call, as those see it who observe: it begins, and comes out in one way, also if it is dropped.

use std::borrow::Cow;
use std::sync::Arc;

use crate::error::{Error, Holder};
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::manager::engine::core::Core;
use crate::observer::delivery::Told;
use crate::observer::event::{Event, Path, Refused, UNLABELLED};
use crate::util::clock::Moment;

/// A call that asks for a lock. Without observers there is nothing in it.
pub(crate) struct Call {
    begun: Option<Box<Begun>>,
    /// It was told once that it stands in the queue.
    pub(crate) was_queued: bool,
}

struct Begun {
    core: Arc<Core>,
    lock: Cow<'static, str>,
    key: Arc<str>,
    started: Moment,
    told: Told,
}

/// A call that did not get its lock.
#[derive(Debug)]
pub(crate) struct NotAcquired {
    pub(crate) error: Error,
    /// Why, for those who observe; `None` for a mistake of its caller, which they are not told of.
    pub(crate) outcome: Option<Refused>,
}

impl From<Error> for NotAcquired {
    fn from(error: Error) -> Self {
        let outcome = match &error {
            Error::Busy { .. } => Some(Refused::Busy),
            Error::Unavailable { .. } => Some(Refused::Unavailable),
            Error::ForeignKey { .. } => Some(Refused::Foreign),
            Error::ShutDown { .. } => Some(Refused::Closed),
            Error::Lost { .. } | Error::HoldLimit { .. } => Some(Refused::Lost),
            _ => None,
        };
        NotAcquired { error, outcome }
    }
}

/// The name of a lock that may have none.
pub(crate) fn name(label: Option<&Cow<'static, str>>) -> Cow<'static, str> {
    label.cloned().unwrap_or(Cow::Borrowed(UNLABELLED))
}

impl Call {
    pub(crate) fn begin(
        core: &Arc<Core>,
        key: &LockKey,
        label: Option<&Cow<'static, str>>,
        started: Moment,
    ) -> Self {
        let begun = core.observed.as_ref().map(|observed| {
            let (lock, key) = (name(label), key.shared());
            let told = observed.tell(Event::Asking {
                lock: lock.clone(),
                key: key.clone(),
            });
            Box::new(Begun {
                core: core.clone(),
                lock,
                key,
                started,
                told,
            })
        });
        Call {
            begun,
            was_queued: false,
        }
    }

    /// What is to be told of the hold that it becomes.
    pub(crate) fn told(&self) -> Told {
        self.begun
            .as_ref()
            .map_or(Told::Nothing, |begun| begun.told)
    }

    pub(crate) fn queued(&self, holder: Option<Holder>) {
        if let Some(begun) = &self.begun {
            begun.tell(|| Event::Queued {
                lock: begun.lock.clone(),
                key: begun.key.clone(),
                holder,
            });
        }
    }

    /// It has its lock, which was granted then at the earliest, if it was handed on and that is
    /// known.
    pub(crate) fn acquired(
        mut self,
        path: Path,
        fencing_token: FencingToken,
        granted_at: Option<Moment>,
    ) {
        if let Some(begun) = self.begun.take() {
            let now = begun.core.clock.now();
            begun.tell(|| Event::Acquired {
                lock: begun.lock.clone(),
                key: begun.key.clone(),
                waited: now.since(begun.started),
                path,
                fencing_token,
                handoff: granted_at.map(|granted_at| now.since(granted_at)),
            });
        }
    }

    pub(crate) fn refused(mut self, outcome: Refused) {
        if let Some(begun) = self.begun.take() {
            begun.refused(outcome);
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if let Some(begun) = &self.begun {
            begun.refused(Refused::Cancelled);
        }
    }
}

impl Begun {
    fn refused(&self, outcome: Refused) {
        let now = self.core.clock.now();
        self.tell(|| Event::NotAcquired {
            lock: self.lock.clone(),
            key: self.key.clone(),
            waited: now.since(self.started),
            outcome,
        });
    }

    fn tell(&self, event: impl FnOnce() -> Event) {
        self.core.tell_more(self.told, event);
    }
}
