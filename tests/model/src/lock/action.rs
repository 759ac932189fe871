//! The steps of the model.

use super::state::Id;

/// The number of kinds of steps.
pub const KINDS: usize = 28;

/// One step. The number is the client's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    /// A call begins: it asks with a new id.
    Start(usize),
    /// A waiting call asks (again) with the same id.
    Ask(usize),
    /// A command's deadline has passed: the client no longer waits for its answer.
    TimeOut(usize),
    /// A pushed grant is believed: the body starts.
    Believe(usize),
    /// A confirmation is sent before the body starts.
    ConfirmFirst(usize),
    /// An id that could not be confirmed is cancelled; the next attempt has a new id.
    Again(usize),
    /// The watchdog confirms a short grant.
    Confirm(usize),
    /// The body ends, or is stopped because the hold is lost.
    End(usize),
    /// A release (or cancel) is sent.
    Release(usize, Id),
    /// A look is sent.
    Look(usize),
    /// A renewal is sent.
    Renew(usize),
    /// A renewal is applied.
    ServeRenewal(usize),
    /// A renewal's answer is read.
    ReadRenewal(usize),
    /// A renewal's connection is lost, with what was in flight.
    LoseRenewal(usize),
    /// The first message of the connection is read.
    Read(usize),
    /// The first command of the connection is applied.
    Serve(usize),
    /// The first command of the old connection is applied.
    ServeOld(usize),
    /// The server notices that the old connection is gone: its remaining commands are not applied.
    DropOld(usize),
    /// The client notices that its connection was closed.
    Notice(usize),
    /// A new connection: kill, subscribe.
    Reconnect(usize),
    /// Time passes.
    Tick,
    /// The server accepts writes again.
    Accept,
    /// Fault: the client gives up its connection.
    Cut(usize),
    /// Fault: the server closes the connection.
    Close(usize),
    /// Fault: the client crashes.
    Crash(usize),
    /// Fault: the call's `wait` ends.
    GiveUp(usize),
    /// Fault: the server loses its data.
    Flush,
    /// Fault: the server refuses writes from now on.
    Refuse,
}
