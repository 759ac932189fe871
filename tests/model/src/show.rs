//! States and steps in words.

use std::fmt::Write as _;

use crate::action::Action;
use crate::state::{Call, Client, Link, Phase, Renewal, Signal, State, client_name};
use crate::wire::{Command, Message, Proof, Sight};

/// A step, and what it was about.
pub(crate) fn step(before: &State, action: Action, after: &State) -> String {
    let mut text = action.to_string();
    let detail = match action {
        Action::Read(c) => before.clients[c].down.first().map(message),
        Action::Serve(c) => before.clients[c].up.first().map(|sent| {
            let answer = after.clients[c].down.as_slice().last();
            let is_new = after.clients[c].down.len() > before.clients[c].down.len();
            let answer = answer
                .filter(|_| is_new)
                .map(|answer| format!(" -> {}", message(*answer)));
            command(sent) + &answer.unwrap_or_default()
        }),
        Action::ServeOld(c) => before.clients[c].old.first().map(command),
        Action::Start(c) | Action::Ask(c) | Action::Again(c) => {
            after.clients[c].id().map(|id| id.to_string())
        }
        _ => None,
    };
    if let Some(detail) = detail {
        let _ = write!(text, ": {detail}");
    }
    text
}

fn command(command: Command) -> String {
    match command {
        Command::Ask { id, .. } => format!("ask {id}"),
        Command::Confirm { id, .. } => format!("confirm {id}"),
        Command::Release { id, .. } => format!("release {id}"),
        Command::Look { id, .. } => format!("look for {id}"),
    }
}

fn proof(proof: Proof) -> String {
    match proof.left {
        0 => "too old".into(),
        left => format!("token {}, good for {left}", proof.token),
    }
}

fn message(message: Message) -> String {
    match message {
        Message::Held(id, by) => format!("{id} holds ({})", proof(by)),
        Message::Queued(id) => format!("{id} is queued"),
        Message::Late(id) => format!("the ask of {id} came too late"),
        Message::AskFailed(id) => format!("the ask of {id} was refused"),
        Message::Confirmed(id, by) => format!("{id} is confirmed ({})", proof(by)),
        Message::NotYours(id) => format!("the lock is not {id}'s"),
        Message::ConfirmFailed(id) => format!("the confirmation of {id} was refused"),
        Message::Seen(id, Sight::Yours) => format!("the lock is {id}'s"),
        Message::Seen(id, Sight::Queued) => format!("{id} is in the queue"),
        Message::Seen(id, Sight::Missing) => format!("{id} is missing"),
        Message::Released(id) => format!("{id} is released"),
        Message::ReleaseFailed(id) => format!("the release of {id} was refused"),
        Message::Push(id, by) => format!("grant to {id} ({})", proof(by)),
    }
}

/// A state in one line.
pub(crate) fn state(state: &State) -> String {
    let mut text = String::from("server:");
    match state.server.lock {
        Some(lock) => {
            let _ = write!(
                text,
                " lock {} (token {}, ttl {})",
                lock.owner, lock.token, lock.ttl
            );
        }
        None => text += " free",
    }
    if !state.server.queue.is_empty() {
        text += ", queue";
        for entry in state.server.queue.iter() {
            let _ = write!(text, " {}{}", entry.id, if entry.marked { "*" } else { "" });
        }
    }
    if state.server.refusing {
        text += ", refusing";
    }
    for (number, of) in state.clients.iter().enumerate() {
        if *of != Client::default() {
            let _ = write!(text, " | {}: {}", client_name(number), client(of));
        }
    }
    text
}

fn client(client: &Client) -> String {
    if client.crashed {
        return "lost".into();
    }
    let mut text = match client.call {
        Call::Idle => "idle".to_owned(),
        Call::Waiting { id, phase, signal } => {
            let phase = match phase {
                Phase::ToAsk => "will ask",
                Phase::Asking(_) => "asking",
                Phase::Queued { .. } => "queued",
                Phase::Confirming(..) => "proving",
                Phase::Failed => "not proven",
            };
            let signal = match signal {
                Signal::None => String::new(),
                Signal::Granted(by) => format!(", told of a grant ({})", proof(by)),
                Signal::Yours => ", told that it is its own".into(),
                Signal::Missing => ", told to ask again".into(),
            };
            format!("{id} {phase}{signal}")
        }
        Call::Holding {
            id,
            proof: by,
            confirmed,
            ..
        } => {
            let short = if confirmed { "" } else { " for short" };
            match by.left {
                0 => format!("{id} lost"),
                _ => format!("{id} HOLDS{short} ({})", proof(by)),
            }
        }
    };
    for undo in client.undo.iter() {
        let _ = write!(text, ", undoes {}", undo.id);
    }
    match client.link {
        Link::Up => {}
        Link::Closed => text += ", closed",
        Link::Down => text += ", down",
    }
    if client.renewal != Renewal::None {
        text += ", renewing";
    }
    text
}
