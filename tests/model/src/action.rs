//! The steps of the model.

use std::fmt;

use crate::state::{Id, client_name};

/// One step. The number is the client's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A call begins: it asks with a new id.
    Start(usize),
    /// A waiting call asks (again) with the same id.
    Ask(usize),
    /// A command's deadline has passed.
    TimeOut(usize),
    /// A pushed grant is believed: the body starts.
    Believe(usize),
    /// A grant is proven before the body starts.
    ConfirmFirst(usize),
    /// What could not be proven is cancelled; the next attempt has a new id.
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
    /// A renewal's connection is lost, with what was under way.
    LoseRenewal(usize),
    /// The first message of the connection is read.
    Read(usize),
    /// The first command of the connection is applied.
    Serve(usize),
    /// The first command of the old connection is applied.
    ServeOld(usize),
    /// The server notices that the old connection is gone: what is left of it is not applied.
    DropOld(usize),
    /// The client notices that its connection was closed.
    Notice(usize),
    /// A new connection: kill, subscribe.
    Reconnect(usize),
    /// Time passes.
    Tick,
    /// The server takes writes again.
    Accept,
    /// Fault: the client gives up its connection.
    Cut(usize),
    /// Fault: the server closes the connection.
    Close(usize),
    /// Fault: the client is lost.
    Crash(usize),
    /// Fault: the call's `wait` ends.
    GiveUp(usize),
    /// Fault: the server loses its data.
    Flush,
    /// Fault: the server refuses writes from now on.
    Refuse,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (client, what) = match *self {
            Action::Start(c) => (c, "calls, and asks with a new id"),
            Action::Ask(c) => (c, "asks again with the same id"),
            Action::TimeOut(c) => (c, "waits no longer for an answer"),
            Action::Believe(c) => (c, "believes the pushed grant: its body starts"),
            Action::ConfirmFirst(c) => (c, "asks for proof of a grant"),
            Action::Again(c) => (c, "cancels its id and tries again"),
            Action::Confirm(c) => (c, "sends the confirmation of its grant"),
            Action::End(c) => (c, "ends its body"),
            Action::Release(c, id) => {
                return write!(f, "{} sends the release of {id}", client_name(c));
            }
            Action::Look(c) => (c, "sends a look"),
            Action::Renew(c) => (c, "sends a renewal"),
            Action::ServeRenewal(c) => (c, "has its renewal applied"),
            Action::ReadRenewal(c) => (c, "reads the answer to its renewal"),
            Action::LoseRenewal(c) => (c, "loses its renewal"),
            Action::Read(c) => (c, "reads a message"),
            Action::Serve(c) => (c, "has a command applied"),
            Action::ServeOld(c) => (c, "has a command of its old connection applied"),
            Action::DropOld(c) => (c, "has its old connection dropped by the server"),
            Action::Notice(c) => (c, "notices that its connection was closed"),
            Action::Reconnect(c) => (c, "has a new connection"),
            Action::Tick => return f.write_str("a tick passes"),
            Action::Accept => return f.write_str("the server takes writes again"),
            Action::Cut(c) => (c, "loses its connection (fault)"),
            Action::Close(c) => (c, "has its connection closed by the server (fault)"),
            Action::Crash(c) => (c, "is lost (fault)"),
            Action::GiveUp(c) => (c, "gives up its call (fault)"),
            Action::Flush => return f.write_str("the server loses its data (fault)"),
            Action::Refuse => return f.write_str("the server refuses writes (fault)"),
        };
        write!(f, "{} {what}", client_name(client))
    }
}

impl Action {
    /// How many kinds of steps there are.
    pub const KINDS: usize = 28;

    /// The kind of the step.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            Action::Start(..) => "Start",
            Action::Ask(..) => "Ask",
            Action::TimeOut(..) => "TimeOut",
            Action::Believe(..) => "Believe",
            Action::ConfirmFirst(..) => "ConfirmFirst",
            Action::Again(..) => "Again",
            Action::Confirm(..) => "Confirm",
            Action::End(..) => "End",
            Action::Release(..) => "Release",
            Action::Look(..) => "Look",
            Action::Renew(..) => "Renew",
            Action::ServeRenewal(..) => "ServeRenewal",
            Action::ReadRenewal(..) => "ReadRenewal",
            Action::LoseRenewal(..) => "LoseRenewal",
            Action::Read(..) => "Read",
            Action::Serve(..) => "Serve",
            Action::ServeOld(..) => "ServeOld",
            Action::DropOld(..) => "DropOld",
            Action::Notice(..) => "Notice",
            Action::Reconnect(..) => "Reconnect",
            Action::Tick => "Tick",
            Action::Accept => "Accept",
            Action::Cut(..) => "Cut",
            Action::Close(..) => "Close",
            Action::Crash(..) => "Crash",
            Action::GiveUp(..) => "GiveUp",
            Action::Flush => "Flush",
            Action::Refuse => "Refuse",
        }
    }
}
