//! Conversion of an [`Error`] into a response of axum.

use axum_core::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::status::StatusCode;

use crate::error::Error;

/// With the feature `axum`, a handler of axum 0.8 may return `Result<_, distlock::Error>`.
///
/// The status shows whether the body under the lock has started, because that decides whether a
/// client may repeat the request. An error describes only its own lock, so the table applies to
/// handlers that make one locked call:
///
/// | error | status | `code` | `Retry-After` | what was done |
/// |---|---|---|---|---|
/// | [`Busy`](Error::Busy), [`QueueFull`](Error::QueueFull) | 423 Locked | `lock-busy` | 1 | other calls hold the lock or wait for it; this lock was not acquired |
/// | [`Unavailable`](Error::Unavailable) | 503 Service Unavailable | `lock-store-unavailable` | 1, unless the outage cannot end by itself ([`is_retryable`](Error::is_retryable)) | this lock was not acquired |
/// | [`ShutDown`](Error::ShutDown) | 503 Service Unavailable | `lock-shut-down` | 1, for another instance | this lock was not acquired |
/// | [`Lost`](Error::Lost) | 409 Conflict | `lock-lost` | none | the work was done, in whole or in part: check its effects before you repeat it |
/// | [`MaxHoldExceeded`](Error::MaxHoldExceeded) | 409 Conflict | `lock-max-hold-exceeded` | none | the same |
/// | [`Released`](Error::Released) | 500 Internal Server Error | `lock-released` | none | the service used a hold after its release |
/// | [`AlreadyRan`](Error::AlreadyRan) | 409 Conflict | `lock-already-ran` | none | an earlier call has done the work; this call did nothing |
/// | [`RunIfFalse`](Error::RunIfFalse) | 412 Precondition Failed | `lock-skipped` | none | the call was skipped; this lock was not acquired |
/// | [`InvalidValue`](Error::InvalidValue) | 400 Bad Request | `lock-invalid-value` | none | a value of the request cannot be used for the lock; this lock was not acquired |
/// | all others | 500 Internal Server Error | `lock-misconfigured` | none | misuse by the service; this lock was not acquired |
///
/// A handler may make a second locked call, after the first one or within it. If the second call
/// fails with [`Busy`](Error::Busy), half of the work may be done. The status is nevertheless 423,
/// and a client that repeats the request does that half twice. Map such errors yourself, or make
/// that half safe to repeat. The same applies to errors of
/// [`LockManager::revoke`](crate::LockManager::revoke): its [`Unavailable`](Error::Unavailable)
/// does not show whether the lock was revoked.
///
/// `Retry-After` is in seconds. It only keeps clients from retrying at once, because the time at
/// which a lock becomes free is unknown.
///
/// The response body is `application/problem+json` (RFC 9457) and constant for each row of the
/// table. It contains no key, holder, address or message of the store. For logging, the error
/// itself is stored in the extensions of the response:
///
/// ```
/// # use axum_core as axum;
/// use axum::response::{IntoResponse, Response};
/// use distlock::{LockManager, distributed_lock};
///
/// #[distributed_lock(key = "inventory:<item_id>", wait = "0s")]
/// async fn reduce(item_id: u64) -> Result<(), distlock::Error> {
///     Ok(())
/// }
///
/// async fn log(response: Response) -> Response {
///     if let Some(error) = response.extensions().get::<distlock::Error>() {
///         eprintln!("{error}"); // with the key, the holder and since when
///     }
///     response
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// let locks = LockManager::in_memory();
/// let _other = locks.lock("inventory:42").acquire().await?;
/// let reduced = distlock::with_manager(locks, reduce(42)).await;
/// let response = log(reduced.into_response()).await;
/// assert_eq!(response.status(), 423);
/// assert_eq!(response.headers()["retry-after"], "1");
/// # Ok(()) }
/// ```
impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let (status, body) = problem(&self);
        let content_type = [(CONTENT_TYPE, "application/problem+json")];
        let mut response = (status, content_type, body).into_response();
        if self.is_retryable() || matches!(self, Error::ShutDown { .. }) {
            let headers = response.headers_mut();
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response.extensions_mut().insert(self);
        response
    }
}

/// Returns the status and the body for an error. The body contains only text that is known at
/// compile time, so nothing needs escaping.
fn problem(error: &Error) -> (StatusCode, String) {
    let (status, code, detail) = match error {
        Error::Busy { .. } | Error::QueueFull { .. } => (
            StatusCode::LOCKED,
            "lock-busy",
            "other calls hold the lock or wait for it: the lock was not acquired; retry later",
        ),
        Error::Unavailable { .. } => (
            StatusCode::SERVICE_UNAVAILABLE,
            "lock-store-unavailable",
            "the lock store is unavailable: the lock was not acquired; retry if `Retry-After` is set",
        ),
        Error::ShutDown { .. } => (
            StatusCode::SERVICE_UNAVAILABLE,
            "lock-shut-down",
            "this instance is shutting down: the lock was not acquired; retry later",
        ),
        Error::Lost { .. } => (
            StatusCode::CONFLICT,
            "lock-lost",
            "the request lost its lock: its work may be partly done; check its effects before you repeat it",
        ),
        Error::MaxHoldExceeded { .. } => (
            StatusCode::CONFLICT,
            "lock-max-hold-exceeded",
            "the request exceeded the time limit of its lock: its work may be partly done; check its effects before \
             you repeat it",
        ),
        Error::AlreadyRan { .. } => (
            StatusCode::CONFLICT,
            "lock-already-ran",
            "an earlier call has already done this work: this call did nothing",
        ),
        Error::RunIfFalse { .. } => (
            StatusCode::PRECONDITION_FAILED,
            "lock-skipped",
            "a condition of the service is false, so the call was skipped: the lock was not acquired",
        ),
        Error::InvalidValue { .. } => (
            StatusCode::BAD_REQUEST,
            "lock-invalid-value",
            "a value of the request cannot be used for a lock: the lock was not acquired; send another value",
        ),
        Error::Released { .. } => (
            StatusCode::INTERNAL_SERVER_ERROR,
            "lock-released",
            "the service used a lock after its release: the work may be partly done; check its effects before you \
             repeat it",
        ),
        Error::InvalidKey { .. }
        | Error::KeyConflict { .. }
        | Error::WrongKind { .. }
        | Error::UpgradeDeadlock { .. }
        | Error::Config { .. }
        | Error::NotInstalled
        | Error::AlreadyInstalled => (
            StatusCode::INTERNAL_SERVER_ERROR,
            "lock-misconfigured",
            "the service misuses its locks: the lock was not acquired; see the service's log",
        ),
    };
    let title = status.canonical_reason().unwrap_or_default();
    let number = status.as_u16();
    let body =
        format!(r#"{{"title":"{title}","status":{number},"code":"{code}","detail":"{detail}"}}"#);
    (status, body)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::error::{BodyState, Holder, LockKind, Outage};
    use crate::fencing::FencingToken;
    use crate::loss::LossReason;

    /// A text that no response may contain.
    const SECRET: &str = "tenant-7";

    fn secret() -> String {
        SECRET.to_owned()
    }

    fn unavailable(outage: Outage) -> Error {
        Error::Unavailable {
            key: Some(secret()),
            waited: Duration::ZERO,
            outage,
            detail: secret(),
            source: Some(Arc::new(std::io::Error::other(SECRET))),
        }
    }

    fn lost(body: BodyState) -> Error {
        Error::Lost {
            key: secret(),
            fencing_token: Some(FencingToken::new(7)),
            body,
            reason: LossReason::Revoked { by: Some(secret()) },
        }
    }

    /// Returns the status, `Retry-After` and body of the response to an error.
    fn answer(error: Error) -> (u16, Option<String>, String) {
        let (_, body) = problem(&error);
        let response = error.into_response();
        let headers = response.headers();
        assert_eq!(headers[CONTENT_TYPE], "application/problem+json");
        let again = headers.get(RETRY_AFTER);
        let again = again.map(|seconds| seconds.to_str().unwrap().to_owned());
        (response.status().as_u16(), again, body)
    }

    #[test]
    fn each_error_has_its_status_and_code() {
        const UNAVAILABLE: &str = "lock-store-unavailable";
        let holder = Holder {
            client: secret(),
            metadata: Some(secret()),
            kind: crate::error::HoldKind::Mutex,
            weight: 1,
            fencing_token: None,
            held_since: SystemTime::now(),
            kept_until: None,
            this_process: false,
        };
        let busy = Error::Busy {
            key: secret(),
            waited: Duration::from_secs(5),
            holders: vec![holder.clone()],
            held_keys: vec![secret()],
        };
        let limit = Error::MaxHoldExceeded {
            key: secret(),
            fencing_token: Some(FencingToken::new(7)),
            max_hold: Duration::from_secs(5),
            body: BodyState::Completed,
        };
        let invalid = Error::InvalidKey {
            key: secret(),
            detail: secret(),
        };
        let invalid_value = Error::invalid_value(SECRET, secret());
        let key_conflict = Error::KeyConflict {
            key: secret(),
            detail: secret(),
        };
        let wrong_kind = Error::WrongKind {
            key: secret(),
            requested: LockKind::Mutex,
            existing: LockKind::ReadWrite,
            holders: vec![holder],
        };
        let upgrade = Error::UpgradeDeadlock { key: secret() };
        let skipped = Error::RunIfFalse { template: secret() };
        let config = Error::Config { detail: secret() };
        let shut_down = Error::ShutDown { detail: secret() };
        for (error, status, again, code) in [
            (busy, 423, true, "lock-busy"),
            (unavailable(Outage::TimedOut), 503, true, UNAVAILABLE),
            (unavailable(Outage::Denied), 503, false, UNAVAILABLE),
            (shut_down, 503, true, "lock-shut-down"),
            (lost(BodyState::Completed), 409, false, "lock-lost"),
            (lost(BodyState::Stopped), 409, false, "lock-lost"),
            (limit, 409, false, "lock-max-hold-exceeded"),
            (skipped, 412, false, "lock-skipped"),
            (invalid, 500, false, "lock-misconfigured"),
            (invalid_value, 400, false, "lock-invalid-value"),
            (key_conflict, 500, false, "lock-misconfigured"),
            (wrong_kind, 500, false, "lock-misconfigured"),
            (upgrade, 500, false, "lock-misconfigured"),
            (config, 500, false, "lock-misconfigured"),
            (Error::NotInstalled, 500, false, "lock-misconfigured"),
            (Error::AlreadyInstalled, 500, false, "lock-misconfigured"),
        ] {
            let message = error.to_string();
            let (actual, retry_after, body) = answer(error);
            assert_eq!(actual, status, "{message}");
            assert_eq!(retry_after, again.then(|| "1".to_owned()), "{message}");
            assert!(body.contains(&format!(r#""code":"{code}""#)), "{body}");
            assert!(body.contains(&format!(r#""status":{status}"#)), "{body}");
            assert!(!body.contains(SECRET), "{message}: {body}");
            // A handler may have done work before this call, and under other locks.
            assert!(!body.contains("nothing was done"), "{message}: {body}");
            let is_begun = !body.contains("was not acquired");
            assert_eq!(is_begun, status == 409, "{message}: {body}");
            // After the work has begun, a request must not be repeated without a check.
            let warns = body.contains("check its effects");
            assert_eq!(warns, is_begun, "{message}: {body}");
        }
    }

    #[test]
    fn the_error_is_attached_for_logging() {
        let response = lost(BodyState::Completed).into_response();
        let error = response.extensions().get::<Error>().unwrap();
        assert!(error.to_string().contains(SECRET), "{error}");
    }
}
