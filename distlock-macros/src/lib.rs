//! The attribute of the crate `distlock`, which re-exports it: depend
//! on `distlock`, not on this crate.

mod args;
mod captures;
mod duration;
mod expand;
mod function;
mod mistakes;
mod path;
mod template;

/// Runs an `async fn` under a distributed lock.
///
/// Each call acquires the lock of its key, waiting at most `wait`; runs the body while the lease is
/// renewed; stops the body if the lock can no longer be proven to be held; releases. Inside the
/// body, `distlock::current()` is the held lock with its fencing token.
///
/// ```
/// use distlock::{LockManager, distributed_lock};
///
/// #[distributed_lock(key = "inventory:<item_id>", lease = "15s", wait = "5s")]
/// async fn reserve(item_id: u64) -> Result<u64, distlock::Error> {
///     Ok(distlock::current().fencing_token().get())
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::Error> {
/// distlock::install(LockManager::memory())?;
/// let first = reserve(42).await?;
/// assert!(reserve(42).await? > first, "each acquisition has a greater token");
/// # Ok(()) }
/// ```
///
/// The signature stays as it is, and type errors in the body are those of the plain function.
///
/// # Arguments
///
/// | argument | meaning | default | consequence |
/// |---|---|---|---|
/// | `key = "..."` | what is locked, see [the grammar](#key-templates) | required | calls with the same key exclude each other, also calls of different functions |
/// | `lease = "15s"` | for how long the store keeps the key without a renewal; 50ms to 24h | 30s | short: a crashed holder frees the key soon. Long: the body survives longer outages of the store |
/// | `wait = "5s"` | for how long a call waits for the lock, an outage of the store included; 0s to 24h | 10s | afterwards the call fails with `Error::Busy` or `Error::Unavailable`; `"0s"` tries once |
/// | `max_hold = "5m"` | for how long the body may run | no limit | afterwards the body is stopped and the call fails with `Error::MaxHoldExceeded`; with `on_lost = "finish"` it runs on without the lock |
/// | `min_hold = "10m"` | keeps a job from running twice within a period: after a success (`Ok`, or any value that is no `Result`) the key stays taken until this long after the acquisition; up to 24h | freed when the body ends | a job that fires on two replicas a moment apart runs once, when `min_hold` covers the difference. A `wait` that is given must be shorter |
/// | `min_replicas = 1` | how many replicas of the server must have acknowledged the lock, and each renewal, before it counts | the manager's, which is 0 | a master that dies right after it granted the lock takes it with it only if none of these replicas is promoted; too few: the call fails with `Error::Unavailable` |
/// | `manager = expr` | the `LockManager` to use: one, or a type of your own that implements `AsLockManager`, or a reference, `Box` or `Arc` of these; a place or a value, it may mention `self` and the parameters and is borrowed only until the body starts | the one of `distlock::with_manager`, else of `distlock::install` | without a manager the call fails with `Error::NotInstalled` |
/// | `on_lost = "cancel"` or `"finish"` | what happens to the body when the lock is lost | `"cancel"` | `"cancel"`: the body is dropped at its next await, the call fails with `Error::Lost`. `"finish"`: the body runs to its end without the lock and its result is returned; `current().is_held()` tells |
/// | `on_error = expr` | a path or a closure `fn(distlock::Error) -> R`, where `R` is what the function returns | `R: FromLockError`, which every `Result<T, E>` with `E: From<distlock::Error>` is | needed when the function does not return such a `Result`; it cannot capture parameters, as the body owns them |
/// | `crate = ::path` | where the crate `distlock` is found | `::distlock` | needed when `distlock` is renamed or re-exported; the path is absolute |
///
/// Durations are whole numbers with the units `h`, `m`, `s` and `ms`, from large to small: `"15s"`,
/// `"500ms"`, `"1m30s"`. They are checked at compile time.
///
/// `fsync` is no argument: it is set for all locks of a manager, or with `Lock::fsync`.
///
/// # Key templates
///
/// | in the key | stands for |
/// |---|---|
/// | `<item_id>` | a parameter, a name that a parameter's pattern binds, or a const generic |
/// | `<order.id>`, `<pair.0>` | its fields; raw identifiers with or without their `r#` |
/// | `<self.tenant()>` | methods without arguments, and `self` in a method |
/// | `<<`, `>>` | a literal `<` and `>` |
/// | `{`, `}` | themselves: one pair marks the part that Redis Cluster hashes, as in `{tenant:<tenant>}:stock` or `{stock}:<item_id>`; in a key without placeholders it ends with a colon, `{stock:}` |
/// | anything else but control characters | itself |
///
/// What would insert a value in another language is an error here, because such a key would be the
/// same for every call: braces around a parameter's name or nearly its name, a path, an index, a
/// format or an expression; `#name` and `$name`; `/:name`, and `:name` at the key's start. With a
/// colon at its end, any text in braces is a hash tag: `{item_id:}`.
///
/// Values are inserted by `Display`, by reference and once, before the body starts. They are
/// escaped as by `distlock::escape`, and so is, in a value, the first character of the text between
/// it and the next: of `move-<from>-<to>`, no two lists of arguments give the same key. Hence there
/// must be text between two values, and it does not begin with `%`. Text that begins with `:` is
/// what `escape` escapes anyway; keys with it look the same in code that makes them by hand. An
/// empty value fails with `Error::InvalidKey`. A key is at most 512 bytes long, and making it takes
/// one allocation.
///
/// # Failure
///
/// A lock that cannot be had, or is lost, becomes the function's own return value: through
/// `From<distlock::Error>` for the error of a returned `Result`, also behind an alias such as
/// `anyhow::Result`; else through `on_error`. The body runs locked or not at all.
///
/// # Drop order
///
/// Parameters that the body uses are moved into it and dropped when it ends, before the release.
/// Parameters that it never mentions, and those matched by `_`, are dropped after the release; of a
/// `self` taken by value, this goes for each field. Below `#[async_trait]`, all parameters are
/// dropped before the release. A body that is stopped is dropped where it stands, its parameters
/// with it; the lock is already over then.
///
/// # Other attributes
///
/// | with | order |
/// |---|---|
/// | `#[tokio::main]`, `#[tokio::test]` | `#[distributed_lock]` above: they take the `async` away |
/// | `#[tracing::instrument]` | either; below, its span covers the waiting, too |
/// | `#[async_trait]` | `#[distributed_lock]` on the methods of the impl, or on default methods; parameters that appear in the key need a name instead of a pattern |
/// | a second `#[distributed_lock]` | the lower one is acquired first and released last; every function must nest its locks in the same order |
///
/// In a trait, the attribute goes onto methods with a body. Nothing requires the body to be `Send`.
///
/// # Nesting
///
/// Each call puts the body's future into a box, so a chain of calls makes no future large. But the
/// compiler follows the chain when it proves that what is spawned is `Send`, and gives up at the
/// crate's `recursion_limit`, by default 128, with "overflow evaluating the requirement". Measured
/// with rustc 1.95, 18 annotated functions nest, or 10 with `#[tracing::instrument]` on each; one
/// less if the last of them awaits something as deep as a `TcpStream`; and 64 where no `Send` is
/// asked for.
///
/// The remedy is `Box::pin` around one call of the chain, as a trait object, into which the
/// compiler does not look:
///
/// ```text
/// let next: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(reserve(db, item_id));
/// next.await
/// ```
///
/// `#![recursion_limit = "256"]` at the root of the crate that spawns helps, too.
#[proc_macro_attribute]
pub fn distributed_lock(
    args: proc_macro::TokenStream,
    item: proc_macro::TokenStream,
) -> proc_macro::TokenStream {
    expand::distributed_lock(args.into(), &item.into()).into()
}
