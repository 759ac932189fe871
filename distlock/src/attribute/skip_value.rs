//! The value of a skipped call.

use crate::error::Error;

/// A return type of functions with `on_busy = "skip"`.
#[diagnostic::on_unimplemented(
    message = "`on_busy = \"skip\"` cannot return from a skipped call as `{Self}`",
    label = "expected `()`, `Option<T>`, `Result<(), E>` or `Result<Option<T>, E>`",
    note = "return one of these types, or choose the value of a skipped call with `on_busy = |error| ...`"
)]
pub trait SkipValue: Sized {
    /// Returns the value. The parameter makes it a function like `on_busy`.
    fn skipped(error: Error) -> Self;
}

#[diagnostic::do_not_recommend]
impl SkipValue for () {
    fn skipped(_: Error) -> Self {}
}

#[diagnostic::do_not_recommend]
impl<T> SkipValue for Option<T> {
    fn skipped(_: Error) -> Self {
        None
    }
}

#[diagnostic::do_not_recommend]
impl<E> SkipValue for Result<(), E> {
    fn skipped(_: Error) -> Self {
        Ok(())
    }
}

#[diagnostic::do_not_recommend]
impl<T, E> SkipValue for Result<Option<T>, E> {
    fn skipped(_: Error) -> Self {
        Ok(None)
    }
}
