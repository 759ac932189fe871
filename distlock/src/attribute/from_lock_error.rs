//! Conversion of a lock error into the return value of a function.

use crate::error::Error;

/// Conversion of a lock error into the return value of an annotated function.
///
/// Every `Result<T, E>` where `E: From<distlock::Error>` implements it. Implement it for your own
/// response type, or choose the value with `on_error = ...` on the attribute.
///
/// ```
/// use distlock::{Error, FromLockError, distributed_lock};
///
/// struct Response(u16);
///
/// impl FromLockError for Response {
///     fn from_lock_error(error: Error) -> Self {
///         Response(if error.is_busy() { 423 } else { 503 })
///     }
/// }
///
/// #[distributed_lock(key = "stock")]
/// async fn reserve() -> Response {
///     Response(200)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::Error> {
/// // Without a manager there is no lock, and the body does not run.
/// assert_eq!(reserve().await.0, 503);
/// # Ok(()) }
/// ```
#[diagnostic::on_unimplemented(
    message = "`#[distributed_lock]` cannot return a lock failure as `{Self}`",
    label = "expected `Result<_, E>` where `E: From<distlock::Error>`",
    note = "implement `From<distlock::Error>` for the error type, or choose the value with `on_error = |error| ...`"
)]
pub trait FromLockError: Sized {
    /// Returns the value for a lock that could not be acquired, or was lost.
    ///
    /// ```
    /// use distlock::{Error, FromLockError};
    ///
    /// let converted = Result::<u32, Error>::from_lock_error(Error::NotInstalled);
    /// assert!(matches!(converted, Err(Error::NotInstalled)));
    /// ```
    fn from_lock_error(error: Error) -> Self;
}

#[diagnostic::do_not_recommend]
impl<T, E: From<Error>> FromLockError for Result<T, E> {
    fn from_lock_error(error: Error) -> Self {
        Err(E::from(error))
    }
}
