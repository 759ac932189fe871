//! The steps of the model.

use super::state::Id;

/// The number of kinds of steps.
pub const KINDS: usize = 29;

/// One step. The number identifies the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    /// A call begins and acquires with a new id.
    Start(usize),
    /// A waiting call acquires, or acquires again, with the same id.
    Acquire(usize),
    /// A command's deadline has passed, and the client no longer waits for its reply.
    TimeOut(usize),
    /// A body starts on a pushed grant.
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
    /// A queue check is sent.
    CheckQueue(usize),
    /// A renewal is sent.
    Renew(usize),
    /// A renewal is applied.
    ServeRenewal(usize),
    /// A renewal's reply is read.
    ReadRenewal(usize),
    /// A renewal's connection is lost, with the message in flight.
    LoseRenewal(usize),
    /// The first message of the connection is read.
    Read(usize),
    /// The first command of the connection is applied.
    Serve(usize),
    /// The first command of the old connection is applied.
    ServeOld(usize),
    /// The server notices the end of the old connection, and drops its remaining commands.
    DropOld(usize),
    /// The client notices that its connection was closed.
    Notice(usize),
    /// The client reconnects and subscribes.
    Reconnect(usize),
    /// Time passes.
    Tick,
    /// The server accepts writes again.
    Accept,
    /// Fault: the client gives up its connection.
    Cut(usize),
    /// Fault: the server closes the connection.
    Close(usize),
    /// Fault: the second command in flight is applied first, because one of them is a release.
    Overtake(usize),
    /// Fault: the client crashes.
    Crash(usize),
    /// Fault: the call's `wait` ends.
    GiveUp(usize),
    /// Fault: the server loses its data.
    Flush,
    /// Fault: the server refuses writes from now on.
    Refuse,
}
