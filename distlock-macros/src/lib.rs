//! The attribute of the crate `distlock`, which re-exports it. Depend on `distlock`, not on this
//! crate.

mod args;
mod captures;
mod conditions;
mod duration;
mod errors;
mod expand;
mod function;
mod key_fn;
mod kind;
mod lazy;
mod limits;
mod names;
mod request;
mod template;
mod value;

/// Runs an `async fn` under a distributed lock.
///
/// Each call acquires the lock of its key, waiting at most `wait`. It runs the body while the lease
/// is renewed, stops the body if the lock can no longer be proven to be held, and then releases the
/// lock. Inside the body, `distlock::current()` returns the held lock with its fencing token.
///
// Its test is in `tests/src/examples.rs`: a dependency on `distlock` would be built a second time.
#[cfg_attr(not(doctest), doc = include_str!("../doc/example.md"))]
///
/// The signature does not change, and type errors in the body are those of the plain function.
///
/// # Arguments
///
/// | argument | values | consequences |
/// |---|---|---|
/// | `key = "stock:<item>"` | a string in [the grammar](#key-templates) below, in which `<item>` is the value of that parameter; required, unless there are `keys` | calls with the same key exclude each other, including calls of different functions |
/// | `keys = ["account:<from>", "account:<to>"]` | 1 to 64 such strings in `[...]`; not with `key`, `min_hold`, `once_per`, `once_for`, `permits` or `mode` | the body holds all of these locks; `distlock::current_at(0)` returns the hold of the first one. Keys that are equal for some arguments are one lock. `LockManager::lock_all` describes the order, and deadlocks with nested calls ([example](https://github.com/distlock/distlock/blob/main/docs/recipes/transfer.md)) |
/// | `lease = "15s"` | a duration, 50ms to 24h, default 30s | how long the lock outlives its last renewal; the store frees the key a grace period later. A short lease frees the key of a crashed holder soon. With a long lease, the body survives longer outages of the store. It does not limit the body, because the lease is renewed |
/// | `wait = "5s"` | a duration, 0s to 24h, default 10s; `"0s"` tries once | how long a call waits for the lock, including an outage of the store; afterwards the call fails with `Error::Busy` or `Error::Unavailable` |
/// | `max_hold = "5m"` | a duration, more than 0s; default no limit | afterwards the body is stopped and the call fails with `Error::MaxHoldExceeded`; with `on_lost = "finish"` the body continues without the lock |
/// | `min_hold = "10m"` | a duration, more than 0s, up to 24h. An explicit `wait` must be shorter, and `max_hold` not shorter | keeps the key taken until this long after the acquisition: a job that two instances of a service start a moment apart runs once, if `min_hold` covers the difference. `min_hold` applies only if the body succeeds: with `Ok`, or with any value that is not a `Result` |
/// | `once_per = "1h"` | a duration, 1s to 366d; not with `once_for`, `min_hold`, `lock_if`, `keys`, `permits` or `mode` | in each period, at most one successful run of the key is recorded, over all processes: a later call fails with `Error::AlreadyRan`, or returns what `on_busy` says. A period starts when the successful run acquires the lock; it is no slot of the calendar. `Lock::once_per` describes what counts as a success, and what can lose the record |
/// | `once_for = event.id` | an expression of any type that implements `Display`, with a text of 1 to 128 bytes, or the call fails with `Error::InvalidValue`; not with `once_per` and its exclusions | the same for each value instead of each period, such as the id of an event or the date of a report. Calls for different values of a key wait for each other, and all run |
/// | `record_ttl = "30d"` | a duration, 1s to 366d, default 7d; needs `once_for` | how long the success of a value is remembered |
/// | `on_busy = "skip"` | `"skip"`, or a path or a closure `fn(distlock::Error) -> R`, where `R` is the function's return type | the result of a call that is skipped because the lock is busy, or because its work has already run (`once_per`, `once_for`). `"skip"` is for the return types `()`, `Option<T>`, `Result<(), E>` and `Result<Option<T>, E>`: the call returns `()`, `None`, `Ok(())` or `Ok(None)`, and an unset `wait` is `"0s"`. Only `Error::Busy` and `Error::AlreadyRan` of this call's own lock are skips. Every other error is returned as without `on_busy`, so a function that returns `()` or an `Option` also needs `on_error` |
/// | `run_if = self.is_enabled` | an expression of type `bool`; needs `on_busy` | if it is false, the call is skipped: it acquires nothing, the body does not run, and `on_busy` says what it returns. A function of `on_busy` gets `Error::RunIfFalse` |
/// | `lock_if = shared` | an expression of type `bool` | if it is false, the body runs without the lock, as in a function without the attribute: `distlock::try_current()` returns only a lock of the caller, and no manager is needed |
/// | `min_replicas = 1` | a number; default the manager's setting, 0 if unset | how many replicas must have acknowledged the lock, and each renewal, before it counts: if the primary dies right after it granted the lock, the lock is lost only if none of these replicas is promoted. With too few replicas, the call fails with `Error::Unavailable` |
/// | `permits = 3` | an expression of type `u32`, 1 to 1000; default one call at a time | up to this many calls with the same key run at a time, in all processes together. While calls with that key pass different numbers, the largest is the limit. `distlock::current_permit()` returns the permits, which have no fencing token ([example](https://github.com/distlock/distlock/blob/main/docs/guide/semaphores.md)) |
/// | `weight = pages` | an expression of type `u32`, 1 to `permits`; default 1 | the number of permits that the call holds |
/// | `mode = "read"` | `"read"` or `"write"`; not with `permits` | calls that read the same key run at the same time, and a call that writes runs alone. A write in the body of a read fails with `Error::UpgradeDeadlock` ([example](https://github.com/distlock/distlock/blob/main/docs/guide/readers-writers.md)) |
/// | `manager = self.locks` | a manager, your own type that implements `AsLockManager`, or a reference, `Box` or `Arc` of these. A place or a value | it is borrowed only until the body starts. Default: the manager of `distlock::with_manager`, otherwise of `distlock::install`; without either, the call fails with `Error::NotInstalled` |
/// | `on_lost = "finish"` | `"cancel"`, the default, or `"finish"` | `"cancel"`: the body is dropped at its next await, and the call fails with `Error::Lost`. `"finish"`: the body's own result is returned; `current().is_held()` shows whether the lock is held |
/// | `on_error = convert` | a path or a closure `fn(distlock::Error) -> R`, where `R` is the function's return type | converts the error of the lock; required unless `R: FromLockError`, which every `Result<T, E>` with `E: From<distlock::Error>` implements; it cannot capture parameters, because the body owns them |
/// | `label = "reservations"` | a string without control characters, not empty | names the function in metrics, spans and log lines; without it, the template of the key does |
/// | `metadata = job_id` | an expression of any type that is `Into<String>`: a longer text is cut to 256 bytes, and control characters become blanks | other clients see it as the holder's `Holder::metadata`, in the text of their `Error::Busy`, and in `distlock list` and `inspect`. Put in what finds the job, and no secret |
/// | `key_fn = reserve_key` | the name of a new function; not in a trait or the impl of a trait | generates a function with the same parameters, `self` included, and the same visibility, that returns the key: `Result<String, distlock::Error>`. With `keys`, it returns all of them in their order, such as `Result<[String; 2], distlock::Error>`. It is not `async`, and acquires nothing. For tests, fences and tools |
/// | `crate = ::path` | an absolute path; default `::distlock` | names the crate `distlock`; required if it is renamed or re-exported |
///
/// A duration is a string of whole numbers with the units `d`, `h`, `m`, `s` and `ms`, ordered from
/// large to small: `"15s"`, `"500ms"`, `"1m30s"`. It is checked at compile time. It may also be an
/// expression of type `Duration`, such as `lease = self.config.lease`. A call fails with
/// `Error::Config` if such a duration is out of range, before it sends anything.
///
/// Expressions may mention `self` and the parameters. They are evaluated once per call, before the
/// body starts: `run_if` first, then `lock_if`, and then the key and all others. A condition that
/// is false leaves out what follows. The body owns the parameters, so an expression must not take a
/// value that the body uses: write `metadata = &job` for a `String`. Outside of a closure, an
/// expression has no `return`, `?` or `.await`, which would end the call, or wait, without the
/// lock.
///
/// `fsync` is not an argument. Set it for all locks of a manager, or with `Lock::fsync`.
///
/// # Key templates
///
/// | in the key | becomes |
/// |---|---|
/// | `<item_id>` | a parameter, a name that a parameter's pattern binds, or a const generic |
/// | `<order.id>`, `<pair.0>` | its fields; raw identifiers with or without their `r#` |
/// | `<self.tenant()>` | methods without arguments, and `self` in a method |
/// | `<<`, `>>` | a literal `<` and `>` |
/// | `{`, `}` | literal braces. One pair marks the part that Redis Cluster hashes, as in `{tenant:<tenant>}:stock` or `{stock}:<item_id>`. In a key without placeholders, that part ends with a colon, `{stock:}` |
/// | anything else except control characters | itself |
///
/// Syntax that inserts a value in other languages is an error here, because such a key would be the
/// same for every call. This applies to braces around a parameter's name or nearly its name, a
/// path, an index, a format or an expression. It also applies to `#name`, `$name`, `/:name`, and
/// `:name` at the key's start. Text in braces that ends with a colon is a hash tag: `{item_id:}`.
///
/// Values are formatted with `Display`, by reference and once, before the body starts. They are
/// escaped as by `distlock::escape`. In each value, the first character of the text between it and
/// the next value is escaped too, so no two argument lists for `move-<from>-<to>` give the same
/// key. Therefore two values need text between them that does not begin with `%`. `escape` always
/// escapes `:`, so with text that begins with `:`, code that builds keys by hand gets the same
/// keys. An empty value, or one with which the key has more than 512 bytes, fails with
/// `Error::InvalidValue`, and one whose `Display` returns an error with `Error::InvalidKey`.
/// Building a key takes one allocation.
///
/// # Errors
///
/// If the lock cannot be acquired, or is lost, the function returns the error, unless `on_busy`
/// replaces it. `on_error` converts it if given, otherwise `From<distlock::Error>` for the error of
/// a returned `Result`, even if that is an alias such as `anyhow::Result`. The body does not start
/// without the lock, unless `lock_if` is false. The errors are those of `Lock::run`, and
/// `Error::NotInstalled` if there is no manager.
///
/// # Return type
///
/// A future, a stream or the handle of a task would run after the release. So a return type that
/// names one, at any depth, is a compile error: `impl Stream`, `BoxFuture`, a `Result` with a
/// `JoinHandle`. Await or collect it in the body. If it needs no lock, return it in a type of your
/// own.
///
/// # Panics
///
/// The call panics if its body does. The lock is then released in the background.
///
/// # Cancel safety
///
/// A call that is dropped while it waits leaves neither a lock nor a queue entry behind. A call
/// that is dropped later drops the body at its current await, and releases the lock in the
/// background.
///
/// # Drop order
///
/// Parameters that the body uses are moved into it and dropped when it ends, before the release.
/// Parameters that the body never mentions, and those matched by `_`, are dropped after the
/// release; for a `self` taken by value, this applies to each field. Below `#[async_trait]`, all
/// parameters are dropped before the release. A body that is stopped is dropped at its current
/// await, with its parameters. By then, the hold has ended.
///
/// # Other attributes
///
/// | with | order |
/// |---|---|
/// | `#[tokio::main]`, `#[tokio::test]` | `#[distributed_lock]` above, because they remove the `async` |
/// | `#[tracing::instrument]` | either; if it is below, its span also covers the waiting |
/// | `#[async_trait]` | `#[distributed_lock]` on the methods of the impl, or on default methods; parameters that appear in the key need a name instead of a pattern |
/// | a second `#[distributed_lock]` | the lower one is acquired first and released last; every function must nest its locks in the same order. Prefer `keys` |
///
/// In a trait, write the attribute on methods with a body. The body need not be `Send`.
///
/// # Nesting
///
/// Each call boxes the body's future, so a chain of calls makes no future large. But the compiler
/// follows the chain to prove that a spawned future is `Send`. It stops at the crate's
/// `recursion_limit`, by default 128, with "overflow evaluating the requirement". Measured with
/// rustc 1.95, 18 annotated functions nest, or 10 with `#[tracing::instrument]` on each. It is one
/// less if the last of them awaits something as deep as a `TcpStream`, and 64 if no `Send` is
/// required.
///
/// As a remedy, put `Box::pin` around one call of the chain, as a trait object. The compiler does
/// not look into it:
///
/// ```text
/// let next: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(reserve(db, item_id));
/// next.await
/// ```
///
/// `#![recursion_limit = "256"]` at the root of the spawning crate also helps.
#[proc_macro_attribute]
pub fn distributed_lock(
    args: proc_macro::TokenStream,
    item: proc_macro::TokenStream,
) -> proc_macro::TokenStream {
    expand::distributed_lock(args.into(), &item.into()).into()
}
