//! Items that generated code calls. They are not public API and change without notice.

pub(crate) mod as_lock_manager;
pub(crate) mod from_lock_error;
pub(crate) mod skip_value;
pub(crate) mod templates;

use std::borrow::Cow;
use std::fmt::{self, Write};
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

pub use crate::attribute::skip_value::SkipValue;

use crate::attribute::from_lock_error::FromLockError;
use crate::config::options::Options;
use crate::error::{Error, HoldKind};
use crate::key::{Escaped, LockKey, MAX_KEY, cut_off};
use crate::lock::forward::setters;
use crate::lock::guard::LockGuard;
use crate::lock::guards::Guards;
use crate::lock::installed::installed;
use crate::lock::run::{Run, RunStage};
use crate::lock::scope;
use crate::manager::LockManager;
use crate::manager::engine::call_events;
use crate::manager::telemetry::logging;
use crate::manager::telemetry::span::RunSpan;
use crate::protocol::kind::Kind;

/// A builder that joins the parts of a template into a key, in one allocation. Where the length of
/// a value is unknown at compile time, `capacity` has room for the longest legal key.
#[derive(Debug)]
pub struct KeyBuilder {
    template: &'static str,
    key: String,
    /// The error of the first value that cannot be used.
    error: Option<Box<Error>>,
    /// The placeholder of the longest value, and its length in the key.
    longest: (&'static str, usize),
}

impl KeyBuilder {
    #[must_use]
    pub fn new(template: &'static str, capacity: usize) -> Self {
        KeyBuilder {
            template,
            key: String::with_capacity(capacity),
            error: None,
            longest: ("", 0),
        }
    }

    #[must_use]
    pub fn literal(mut self, part: &'static str) -> Self {
        self.key.push_str(part);
        self
    }

    #[must_use]
    pub fn value(self, placeholder: &'static str, value: &dyn fmt::Display) -> Self {
        // A colon is always escaped, so this escapes nothing more.
        self.value_before(placeholder, value, ':')
    }

    /// Appends a value that is followed by text that begins with `end`, and then by another value.
    /// Because `end` is escaped in the value, it marks where the value ends.
    #[must_use]
    pub fn value_before(
        mut self,
        placeholder: &'static str,
        value: &dyn fmt::Display,
        end: char,
    ) -> Self {
        let start = self.key.len();
        let written = write!(Escaped::before(&mut self.key, end), "{value}");
        let (template, length) = (self.template, self.key.len() - start);
        if self.error.is_none() && written.is_err() {
            let what = format!("<{placeholder}> in the template \"{template}\"");
            self.error = Some(Box::new(cut_off(&self.key, &what)));
        } else if self.error.is_none() && length == 0 {
            let detail = format!(
                "it is empty in the template \"{template}\", and all such calls would share one lock; pass a value, \
                 or check it before the call"
            );
            self.error = Some(Box::new(Error::invalid_value(placeholder, detail)));
        }
        if length > self.longest.1 {
            self.longest = (placeholder, length);
        }
        self
    }

    /// Returns the key, checked as for an acquisition.
    pub fn key(self) -> Result<String, Error> {
        let key = self.finish()?;
        LockKey::new(&key)?;
        Ok(key)
    }

    fn finish(self) -> Result<String, Error> {
        if let Some(error) = self.error {
            return Err(*error);
        }
        let (template, total, (placeholder, length)) =
            (self.template, self.key.len(), self.longest);
        if total <= MAX_KEY {
            return Ok(self.key);
        }
        let detail = format!(
            "it takes {length} of the {total} bytes of a key of the template \"{template}\", and at most {MAX_KEY} are \
             allowed; pass an id or a hash instead of the whole value"
        );
        Err(Error::invalid_value(placeholder, detail))
    }
}

/// A value that may be part of a key.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be part of a lock key",
    label = "this placeholder's type does not implement `Display`",
    note = "name a field or a method whose value implements `Display`, such as `<order.id>`",
    note = "an `Option` has no text of its own: take the value out before the call, or let a method of `self` choose the text"
)]
pub trait KeyValue {
    fn display(&self) -> &dyn fmt::Display;
}

#[diagnostic::do_not_recommend]
impl<T: fmt::Display> KeyValue for T {
    fn display(&self) -> &dyn fmt::Display {
        self
    }
}

/// A value of `metadata`.
#[diagnostic::on_unimplemented(
    message = "`metadata` cannot be a `{Self}`",
    label = "expected a value that is `Into<String>`, such as `&str`",
    note = "write its text, such as `metadata = job.to_string()`"
)]
pub trait MetadataText {
    fn into_text(self) -> String;
}

#[diagnostic::do_not_recommend]
impl<T: Into<String>> MetadataText for T {
    fn into_text(self) -> String {
        self.into()
    }
}

/// A value of `once_for`.
#[diagnostic::on_unimplemented(
    message = "`once_for` cannot be a `{Self}`",
    label = "expected a value that implements `Display`",
    note = "name a field or a method whose value implements `Display`, such as `once_for = event.id`"
)]
pub trait OnceForValue {
    fn display(&self) -> &dyn fmt::Display;
}

#[diagnostic::do_not_recommend]
impl<T: fmt::Display> OnceForValue for T {
    fn display(&self) -> &dyn fmt::Display {
        self
    }
}

/// The type of a method with a function for its key. The `Self` of a trait is none, because it may
/// be unsized, so a function is not added to a trait unnoticed.
#[diagnostic::on_unimplemented(
    message = "`key_fn` cannot add a function to a trait",
    label = "this method is in a trait, or in the impl of an unsized type",
    note = "write `key_fn` on a function, or on a method in an impl of a type, and call that from here"
)]
pub trait KeyFnOwner {
    fn check();
}

#[diagnostic::do_not_recommend]
impl<T> KeyFnOwner for T {
    fn check() {}
}

/// The type of `on_error` and `on_busy`; an alias, because in `fn(..) -> R` no lifetime of `R` may
/// be omitted.
pub type OnError<R> = fn(Error) -> R;

/// [`FromLockError`] for the type behind a returned `impl Trait`, which only the compiler knows.
#[diagnostic::on_unimplemented(
    message = "`#[distributed_lock]` cannot return a lock failure as the `{Self}` behind this `impl Trait`",
    label = "the return value of a call without its lock is not known",
    note = "choose the value with `on_error = |error| ...`, a closure that returns the type that the body returns, or write a return type that names `Result<_, E>` where `E: From<distlock::Error>`"
)]
pub trait FromLockErrorBehindImpl: Sized {
    fn from_lock_error(error: Error) -> Self;
}

#[diagnostic::do_not_recommend]
impl<T: FromLockError> FromLockErrorBehindImpl for T {
    fn from_lock_error(error: Error) -> Self {
        FromLockError::from_lock_error(error)
    }
}

/// The lock request of an annotated function.
#[derive(Debug)]
#[must_use]
pub struct LockedCall {
    key: KeyBuilder,
    /// The keys behind the first.
    more_keys: Vec<KeyBuilder>,
    kind: Kind,
    options: Options,
    finish_on_loss: bool,
    manager: Option<LockManager>,
}

impl LockedCall {
    pub fn new(key: KeyBuilder) -> Self {
        let options = Options {
            label: Some(Cow::Borrowed(key.template)),
            ..Options::default()
        };
        LockedCall {
            key,
            more_keys: Vec::new(),
            kind: Kind::Mutex,
            options,
            finish_on_loss: false,
            manager: None,
        }
    }

    /// Adds a key. `label` names all keys of the function in logs and metrics.
    pub fn and(mut self, key: KeyBuilder, label: &'static str) -> Self {
        self.more_keys.push(key);
        self.options.label = Some(Cow::Borrowed(label));
        self
    }

    pub fn permits(mut self, permits: u32, weight: u32) -> Self {
        self.kind = Kind::Permits { permits, weight };
        self
    }

    pub fn read(mut self) -> Self {
        self.kind = Kind::Read;
        self
    }

    pub fn write(mut self) -> Self {
        self.kind = Kind::Write;
        self
    }

    /// Makes a busy call a skip that has no value. Follows `wait`, which is 0 if it is not set.
    pub fn skip_busy(mut self) -> Self {
        self.options.skip_busy();
        self
    }

    /// Makes a busy call a skip that has another value, for which it waits as usual.
    pub fn replace_busy(mut self) -> Self {
        self.options.skips_busy = true;
        self
    }

    pub fn finish_on_loss(mut self) -> Self {
        self.finish_on_loss = true;
        self
    }

    pub fn manager(mut self, manager: &LockManager) -> Self {
        self.manager = Some(manager.clone());
        self
    }

    /// Builds the keys, selects the manager and acquires the locks.
    async fn acquire(self) -> Result<(Guards, RunSpan), Error> {
        let installed = installed();
        let manager = self
            .manager
            .or_else(scope::task_manager)
            .or_else(|| installed.clone());
        let build = |key: KeyBuilder| {
            let template = key.template;
            let key = key.finish()?;
            if let (Some(manager), Some(installed)) = (&manager, &installed) {
                templates::record(template, manager, installed);
            }
            Ok(key)
        };
        let first = build(self.key)?;
        let more = self.more_keys.into_iter().map(build);
        let more = more.collect::<Result<Vec<_>, _>>()?;
        let manager = manager.as_ref().ok_or(Error::NotInstalled)?;
        if more.is_empty() {
            let mut lock = manager.lock(first).of_kind(self.kind);
            lock.options = Options {
                inherited: lock.options.inherited,
                ..self.options
            };
            return lock.acquire_for_run().await;
        }
        let mut locks = manager.lock_all(std::iter::once(first).chain(more));
        locks.options = Options {
            inherited: locks.options.inherited,
            ..self.options
        };
        locks.acquire_for_run().await
    }
}

setters! {
    LockedCall, options:
    "Sets how long a hold stays taken at least" min_hold(shortest: Duration) |options| options.min_hold = Some(shortest),
    "Sets a period" once_per(period: Duration) |options| options.once_per = Some(period),
    "Sets what the call is for" once_for(value: &dyn fmt::Display) |options| options.set_once_for(value),
    "Sets how long a success is remembered" record_ttl(ttl: Duration) |options| options.record_ttl = Some(ttl),
}

/// Gives the compiler the return type of a body, in code that never runs.
#[must_use]
pub const fn returns<T>() -> Option<T> {
    None
}

/// Acquires the lock, runs the body and releases the lock. Instantiated once per annotated
/// function, so it is kept small.
///
/// The compiler follows a chain of calls only up to its `recursion_limit`, so this function decides
/// how deep annotated functions can nest. Layout computation stops at a box, so the body is boxed.
/// A `Send` proof continues through boxes, and through a caller's variables in their order. The
/// first two arguments are temporaries of the caller that live as long as this future. Because of
/// them, the compiler first proves the deep types of this crate, which are then known wherever the
/// chain ends. Next it proves the body, with nothing between it and its caller. A type-erased
/// future stops the compiler in both cases.
pub fn run<F: Future>(
    _runtime: &mut PhantomData<LockGuard>,
    _body: &mut PhantomData<F>,
    request: Result<LockedCall, Bypass>,
    body: F,
    on_error: OnError<F::Output>,
    succeeded: fn(&F::Output) -> bool,
    on_busy: Option<OnError<F::Output>>,
) -> impl Future<Output = F::Output> + use<F> {
    let (stage, finish_on_loss) = first_stage(request);
    Locked {
        run: Run::new(stage, finish_on_loss, body, succeeded),
        on_error,
        on_busy,
    }
}

/// What a call does without acquiring its locks.
#[derive(Debug)]
pub enum Bypass {
    /// `run_if` was false.
    Skip {
        /// The template of the key, which is not built.
        template: &'static str,
        label: &'static str,
        kind: HoldKind,
    },
    /// `lock_if` was false.
    RunUnlocked,
}

/// Returns the first stage of a call, and its `finish_on_loss`.
fn first_stage(request: Result<LockedCall, Bypass>) -> (RunStage, bool) {
    match request {
        Ok(request) => {
            let finish_on_loss = request.finish_on_loss;
            (
                RunStage::Acquiring(Box::pin(request.acquire())),
                finish_on_loss,
            )
        }
        Err(Bypass::Skip {
            template,
            label,
            kind,
        }) => {
            let skipped = async move {
                let error = Error::RunIfFalse {
                    template: template.to_owned(),
                };
                // The expression of `manager` is not evaluated.
                if let Some(manager) = scope::task_manager().or_else(installed)
                    && manager.core().check_process().is_ok()
                {
                    call_events::publish_run_if_false(manager.core(), label, template, kind);
                    logging::skipped(manager.core(), label, &error);
                }
                Err(error)
            };
            (RunStage::Acquiring(Box::pin(skipped)), false)
        }
        Err(Bypass::RunUnlocked) => (RunStage::Unlocked, false),
    }
}

/// The future of [`run`]. It has its own type, because every adapter of the standard library would
/// be compiled once per annotated function.
struct Locked<F: Future> {
    run: Run<F>,
    on_error: OnError<F::Output>,
    /// `None` for a function that does not skip.
    on_busy: Option<OnError<F::Output>>,
}

/// No field is pinned in place, because the body is boxed.
impl<F: Future> Unpin for Locked<F> {}

impl<F: Future> Future for Locked<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        match self.run.poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(output)) => Poll::Ready(output),
            // An error of the body is an output, so this one is of the call's own locks.
            Poll::Ready(Err(error)) => Poll::Ready(match self.on_busy {
                Some(on_busy) if error.is_skip() => on_busy(error),
                _ => (self.on_error)(error),
            }),
        }
    }
}

/// The `succeeded` function without `min_hold` and success records, where the result is not used.
pub fn always<T>(_: &T) -> bool {
    true
}

/// A probe for success, by autoref: a `Result` must be `Ok`, and any other value is a success.
#[derive(Debug)]
pub struct Probe<'a, T>(pub &'a T);

pub trait ProbeResult {
    fn __distlock_succeeded(&self) -> bool;
}

pub trait ProbeAny {
    fn __distlock_succeeded(&self) -> bool;
}

impl<T, E> ProbeResult for &Probe<'_, Result<T, E>> {
    fn __distlock_succeeded(&self) -> bool {
        self.0.is_ok()
    }
}

impl<T> ProbeAny for Probe<'_, T> {
    fn __distlock_succeeded(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn building_a_legal_key_allocates_once() {
        const PREFIX: &str = "inventory:";
        let room = MAX_KEY - PREFIX.len();
        for value in [
            u64::MAX.to_string(),
            i128::MIN.to_string(),
            uuid::Uuid::max().to_string(),
            "warehouse {north}: shelf 7".to_owned(),
            "x".repeat(room),
            ":".repeat(room / "%3A".len()),
            "\u{3000}".repeat(room / "%E3%80%80".len()),
        ] {
            let builder = KeyBuilder::new("inventory:<item>", MAX_KEY);
            let allocated = (builder.key.as_ptr(), builder.key.capacity());
            let key = builder.literal(PREFIX).value("item", &value).finish();
            let key = key.expect("a legal key");
            assert!(key.len() <= MAX_KEY, "{key} is not legal");
            assert_eq!((key.as_ptr(), key.capacity()), allocated, "{key} moved");
        }
    }

    #[test]
    fn the_first_empty_value_is_named_with_its_template() {
        let builder = KeyBuilder::new("<shop>:<item>:<size>", 0);
        let builder = builder.value("shop", &7).literal(":").value("item", &"");
        let error = builder.literal(":").value("size", &"").finish();
        let error = error.expect_err("two values are empty").to_string();
        for part in ["`item`", "\"<shop>:<item>:<size>\""] {
            assert!(error.contains(part), "{error} lacks {part}");
        }
        assert!(!error.contains("`size`"), "{error}");
    }
}
