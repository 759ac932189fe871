//! What can happen next, and what it does.

use std::fmt;

use crate::config::{Config, Faults};
use crate::server::Script;
use crate::state::{
    CLIENTS, Call, Client, Command, Id, Link, Message, Phase, Proof, Renewal, Sight, Signal, State,
    Undo, client_name,
};

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

impl Config {
    /// Nothing has happened yet.
    pub(crate) fn initial(&self) -> State {
        let mut state = State {
            faults: self.faults,
            ..State::default()
        };
        for (client, calls) in state.clients.iter_mut().zip(self.calls) {
            client.calls = *calls;
        }
        state
    }

    /// All that can happen next.
    pub(crate) fn steps(&self, state: &State, steps: &mut Vec<Action>) {
        for client in 0..self.calls.len().min(CLIENTS) {
            if !state.clients[client].crashed {
                self.client_steps(state, client, steps);
            }
            self.network_steps(state, client, steps);
        }
        if state.server.refusing {
            steps.push(Action::Accept);
        }
        if state.faults.flushes > 0 {
            steps.push(Action::Flush);
        }
        if state.faults.refusals > 0 && !state.server.refusing {
            steps.push(Action::Refuse);
        }
        if state.faults.late_ticks > 0 || !self.is_anything_due(state) {
            steps.push(Action::Tick);
        }
    }

    fn client_steps(&self, state: &State, c: usize, steps: &mut Vec<Action>) {
        let client = &state.clients[c];
        let can_send = self.can_send(client);
        match client.call {
            Call::Idle => {
                if client.calls > 0 && can_send && state.fresh_id(c).is_some() {
                    steps.push(Action::Start(c));
                }
            }
            Call::Waiting { phase, signal, .. } => {
                match (phase, signal) {
                    (Phase::ToAsk | Phase::Queued { .. }, Signal::Granted(proof)) => {
                        if proof.left > 0 {
                            steps.push(Action::Believe(c));
                        }
                        if proof.left == 0 || self.doubt {
                            steps.push(Action::ConfirmFirst(c));
                        }
                    }
                    (Phase::Queued { .. }, Signal::Yours) => steps.push(Action::ConfirmFirst(c)),
                    _ => {}
                }
                match phase {
                    Phase::ToAsk if can_send => steps.push(Action::Ask(c)),
                    Phase::Queued { .. } if can_send && signal == Signal::Missing => {
                        steps.push(Action::Ask(c));
                    }
                    Phase::Queued { may_look: true } if can_send && self.rules.drive => {
                        steps.push(Action::Look(c));
                    }
                    Phase::Asking(0) | Phase::Confirming(0, _) => steps.push(Action::TimeOut(c)),
                    Phase::Failed if !client.undo.is_full() => {
                        if !self.rules.no_way_back || state.fresh_id(c).is_some() {
                            steps.push(Action::Again(c));
                        }
                    }
                    _ => {}
                }
                let gives_up = !matches!(phase, Phase::Confirming(..) | Phase::Failed);
                if gives_up && state.faults.give_ups > 0 && !client.undo.is_full() {
                    steps.push(Action::GiveUp(c));
                }
            }
            Call::Holding {
                proof,
                confirmed,
                confirming,
                ..
            } => {
                if !client.undo.is_full() {
                    steps.push(Action::End(c));
                }
                if proof.left > 0 && !confirmed && !confirming && can_send {
                    steps.push(Action::Confirm(c));
                }
                if self.renewals
                    && confirmed
                    && proof.left > 0
                    && proof.left < self.times.lease
                    && client.renewal == Renewal::None
                {
                    steps.push(Action::Renew(c));
                }
            }
        }
        for undo in client.undo.iter() {
            if !undo.sent && can_send && !(undo.second && undo.late > 0) {
                steps.push(Action::Release(c, undo.id));
            }
        }
        if let Renewal::Answered(..) = client.renewal {
            steps.push(Action::ReadRenewal(c));
        }
        if self.can_read(client) {
            steps.push(Action::Read(c));
        }
        match client.link {
            Link::Up => {
                // One old connection at a time.
                if !client.old_lives {
                    if state.faults.cuts > 0 {
                        steps.push(Action::Cut(c));
                    }
                    if state.faults.closes > 0 {
                        steps.push(Action::Close(c));
                    }
                }
            }
            Link::Closed => steps.push(Action::Notice(c)),
            Link::Down => steps.push(Action::Reconnect(c)),
        }
        if state.faults.crashes > 0 && !(client.link == Link::Up && client.old_lives) {
            steps.push(Action::Crash(c));
        }
    }

    fn network_steps(&self, state: &State, c: usize, steps: &mut Vec<Action>) {
        let client = &state.clients[c];
        if client.link == Link::Up && !client.up.is_empty() {
            steps.push(Action::Serve(c));
        }
        if client.old_lives {
            steps.push(Action::DropOld(c));
            if !client.old.is_empty() {
                steps.push(Action::ServeOld(c));
            }
        }
        match client.renewal {
            Renewal::None => {}
            Renewal::Asked(..) => {
                steps.push(Action::ServeRenewal(c));
                steps.push(Action::LoseRenewal(c));
            }
            Renewal::Answered(..) => steps.push(Action::LoseRenewal(c)),
        }
    }

    fn can_send(&self, client: &Client) -> bool {
        client.link == Link::Up && client.up.len() < self.pipe
    }

    fn can_read(&self, client: &Client) -> bool {
        match client.down.first() {
            // It may have to be given back.
            Some(Message::Push(id, _)) => {
                client.id() == Some(id) || client.undoes(id) || !client.undo.is_full()
            }
            first => first.is_some(),
        }
    }

    /// Whether a prompt system would do something before time passes. Bodies and calls may take their
    /// time, and an old connection may linger.
    fn is_anything_due(&self, state: &State) -> bool {
        state.clients.iter().any(|client| {
            if client.crashed {
                return false;
            }
            let call = match client.call {
                Call::Idle => false,
                Call::Waiting { phase, signal, .. } => {
                    matches!(
                        phase,
                        Phase::ToAsk
                            | Phase::Failed
                            | Phase::Asking(0)
                            | Phase::Confirming(0, _)
                            | Phase::Queued { may_look: true }
                    ) || matches!(phase, Phase::Queued { .. }) && signal != Signal::None
                }
                Call::Holding {
                    proof,
                    confirmed,
                    confirming,
                    ..
                } => proof.left == 0 || !confirmed && !confirming,
            };
            let undo = client
                .undo
                .iter()
                .any(|undo| !undo.sent && !(undo.second && undo.late > 0));
            call || undo
                || client.link != Link::Up
                || !client.up.is_empty()
                || !client.down.is_empty()
                || client.renewal != Renewal::None
        })
    }

    /// What a step that can be taken makes of a state.
    pub(crate) fn after(&self, state: &State, action: Action) -> State {
        let mut next = *state;
        self.apply(&mut next, action);
        next.renumber(self.rules.grant_age && self.rules.token_of_proof);
        next
    }

    fn apply(&self, state: &mut State, action: Action) {
        let times = self.times;
        match action {
            Action::Start(c) => {
                let id = state.fresh_id(c);
                let client = &mut state.clients[c];
                client.calls -= 1;
                client.call = Call::Waiting {
                    id: id.unwrap_or_default(),
                    phase: Phase::ToAsk,
                    signal: Signal::None,
                };
                self.send_ask(client);
            }
            Action::Ask(c) => self.send_ask(&mut state.clients[c]),
            Action::TimeOut(c) => self.time_out(&mut state.clients[c]),
            Action::Believe(c) => {
                if let Call::Waiting {
                    id,
                    signal: Signal::Granted(proof),
                    ..
                } = state.clients[c].call
                {
                    self.start_body(state, c, id, proof, false);
                }
            }
            Action::ConfirmFirst(c) => self.confirm_first(&mut state.clients[c]),
            Action::Again(c) => {
                let fresh = if self.rules.no_way_back {
                    state.fresh_id(c)
                } else {
                    state.clients[c].id()
                };
                let client = &mut state.clients[c];
                self.undo_call(client);
                client.call = Call::Waiting {
                    id: fresh.unwrap_or_default(),
                    phase: Phase::ToAsk,
                    signal: Signal::None,
                };
            }
            Action::Confirm(c) => {
                let client = &mut state.clients[c];
                if let Call::Holding { id, confirming, .. } = &mut client.call {
                    *confirming = true;
                    client.up.push(Command::Confirm {
                        id: *id,
                        left: times.lease,
                        heard: true,
                    });
                }
            }
            Action::End(c) | Action::GiveUp(c) => {
                let client = &mut state.clients[c];
                self.undo_call(client);
                client.call = Call::Idle;
                if action == Action::GiveUp(c) {
                    state.faults.give_ups -= 1;
                }
            }
            Action::Release(c, id) => {
                let client = &mut state.clients[c];
                for undo in client.undo.iter_mut() {
                    undo.sent |= undo.id == id;
                }
                client.up.push(Command::Release { id, heard: true });
            }
            Action::Look(c) => {
                let client = &mut state.clients[c];
                if let Call::Waiting { id, phase, .. } = &mut client.call {
                    *phase = Phase::Queued { may_look: false };
                    client.up.push(Command::Look {
                        id: *id,
                        heard: true,
                    });
                }
            }
            Action::Renew(c) => {
                let client = &mut state.clients[c];
                if let Call::Holding { id, proof, .. } = client.call {
                    client.renewal = Renewal::Asked(id, proof.token, times.lease);
                }
            }
            Action::ServeRenewal(c) => {
                if let Renewal::Asked(id, token, left) = state.clients[c].renewal {
                    let answer = self.script(state, c).renew(id, token);
                    let client = &mut state.clients[c];
                    client.renewal = match answer {
                        Some(_) | None if client.crashed => Renewal::None,
                        Some(true) => Renewal::Answered(id, Some(left)),
                        Some(false) => Renewal::Answered(id, None),
                        None => Renewal::None,
                    };
                }
            }
            Action::ReadRenewal(c) => {
                let client = &mut state.clients[c];
                if let Renewal::Answered(of, until) = client.renewal {
                    client.renewal = Renewal::None;
                    if let Call::Holding { id, proof, .. } = &mut client.call
                        && *id == of
                        && proof.left > 0
                    {
                        // Gone: lost at once.
                        proof.left = until.map_or(0, |until| proof.left.max(until));
                    }
                }
            }
            Action::LoseRenewal(c) => state.clients[c].renewal = Renewal::None,
            Action::Read(c) => self.read(state, c),
            Action::Serve(c) => {
                if let Some(command) = state.clients[c].up.pop_front()
                    && let Some(answer) = self.serve(state, c, command)
                {
                    state.clients[c].down.push(answer);
                }
            }
            Action::ServeOld(c) => {
                if let Some(command) = state.clients[c].old.pop_front() {
                    self.serve(state, c, command);
                }
                Self::forget_old(&mut state.clients[c]);
            }
            Action::DropOld(c) => {
                let client = &mut state.clients[c];
                client.old.clear();
                client.old_lives = false;
            }
            Action::Notice(c) => self.lose_connection(&mut state.clients[c]),
            Action::Reconnect(c) => {
                let client = &mut state.clients[c];
                client.link = Link::Up;
                if self.rules.kill_old {
                    client.old.clear();
                    client.old_lives = false;
                }
                Self::forget_old(client);
                if let Call::Waiting {
                    phase: Phase::Queued { .. },
                    signal,
                    ..
                } = &mut client.call
                    && !matches!(signal, Signal::Granted(_))
                {
                    *signal = Signal::Missing;
                }
            }
            Action::Tick => {
                if state.faults.late_ticks != Faults::ANY && self.is_anything_due(state) {
                    // The calm continuation ticks without asking.
                    state.faults.late_ticks = state.faults.late_ticks.saturating_sub(1);
                }
                tick(state, self.rules.drive);
            }
            Action::Accept => state.server.refusing = false,
            Action::Cut(c) => {
                state.faults.cuts -= 1;
                let client = &mut state.clients[c];
                client.old = client.up;
                client.old_lives = true;
                self.lose_connection(client);
            }
            Action::Close(c) => {
                state.faults.closes -= 1;
                let client = &mut state.clients[c];
                client.up.clear();
                client.link = Link::Closed;
            }
            Action::Crash(c) => {
                state.faults.crashes -= 1;
                let client = &mut state.clients[c];
                let is_up = client.link == Link::Up;
                let mut left = Client {
                    crashed: true,
                    old: if is_up { client.up } else { client.old },
                    old_lives: is_up || client.old_lives,
                    renewal: client.renewal,
                    ..Client::default()
                };
                left.old.iter_mut().for_each(unhear);
                if let Renewal::Answered(..) = left.renewal {
                    left.renewal = Renewal::None;
                }
                *client = left;
            }
            Action::Flush => {
                state.faults.flushes -= 1;
                state.server.lock = None;
                state.server.queue.clear();
                state.server.era = true;
            }
            Action::Refuse => {
                state.faults.refusals -= 1;
                state.server.refusing = true;
            }
        }
    }

    fn script<'a>(&self, state: &'a mut State, client: usize) -> Script<'a> {
        Script {
            state,
            rules: self.rules,
            times: self.times,
            client,
        }
    }

    /// Applies a command. The answer, if somebody waits for it.
    fn serve(&self, state: &mut State, c: usize, command: Command) -> Option<Message> {
        let mut script = self.script(state, c);
        let (answer, heard) = match command {
            Command::Ask {
                id,
                by,
                left,
                heard,
            } => (Some(script.ask(id, by, left)), heard),
            Command::Confirm { id, left, heard } => (Some(script.confirm(id, left)), heard),
            Command::Release { id, heard } => (Some(script.release(id)), heard),
            Command::Look { id, heard } => (script.look(id), heard),
        };
        answer.filter(|_| heard)
    }

    fn send_ask(&self, client: &mut Client) {
        if let Call::Waiting { id, phase, signal } = &mut client.call {
            if *signal == Signal::Missing {
                *signal = Signal::None;
            }
            *phase = Phase::Asking(self.times.deadline);
            client.up.push(Command::Ask {
                id: *id,
                by: self.times.deadline,
                left: self.times.lease,
                heard: true,
            });
        }
    }

    /// Nobody waits any more for answers to the current call.
    fn stop_listening(&self, client: &mut Client) {
        let Some(current) = client.id() else { return };
        for command in client.up.iter_mut() {
            match command {
                Command::Ask { id, .. } | Command::Confirm { id, .. } if *id == current => {
                    unhear(command);
                }
                _ => {}
            }
        }
        client.down.retain(|message| match message {
            Message::Held(id, _)
            | Message::Queued(id)
            | Message::Late(id)
            | Message::AskFailed(id)
            | Message::Confirmed(id, _)
            | Message::NotYours(id)
            | Message::ConfirmFailed(id)
            | Message::Seen(id, _) => *id != current,
            _ => true,
        });
    }

    fn time_out(&self, client: &mut Client) {
        self.stop_listening(client);
        self.ask_failed(client);
    }

    /// An ask or a confirmation brought nothing.
    fn ask_failed(&self, client: &mut Client) {
        if let Call::Waiting { id, phase, signal } = client.call {
            let phase = match phase {
                Phase::Asking(_) => {
                    if !self.rules.no_way_back && !client.undo.is_full() {
                        // Undone, and asked for again: what the rule forbids.
                        undo(client, id);
                    }
                    Phase::ToAsk
                }
                Phase::Confirming(..) => Phase::Failed,
                other => other,
            };
            client.call = Call::Waiting { id, phase, signal };
        }
    }

    fn confirm_first(&self, client: &mut Client) {
        let can_send = self.can_send(client);
        if let Call::Waiting { id, phase, signal } = &mut client.call {
            let pushed = match *signal {
                Signal::Granted(proof) if !self.rules.token_of_proof => proof.token,
                _ => 0,
            };
            *signal = Signal::None;
            if can_send {
                *phase = Phase::Confirming(self.times.deadline, pushed);
                client.up.push(Command::Confirm {
                    id: *id,
                    left: self.times.lease,
                    heard: true,
                });
            } else {
                *phase = Phase::Failed;
            }
        }
    }

    /// The call is over: whatever its id has in the server is taken back.
    fn undo_call(&self, client: &mut Client) {
        self.stop_listening(client);
        if let Some(id) = client.id() {
            undo(client, id);
        }
    }

    /// The client knows that its connection is lost: what it waits for will not come.
    fn lose_connection(&self, client: &mut Client) {
        client.link = Link::Down;
        client.up.clear();
        client.down.clear();
        let lives_on = !self.rules.kill_old && self.rules.undo_twice;
        for command in client.old.iter_mut() {
            unhear(command);
            if let Command::Ask { id, by, .. } = *command
                && lives_on
            {
                let current = match client.call {
                    Call::Waiting { id, .. } | Call::Holding { id, .. } => Some(id),
                    Call::Idle => None,
                };
                if current == Some(id) {
                    client.late = client.late.max(by);
                }
                for undo in client.undo.iter_mut().filter(|undo| undo.id == id) {
                    undo.late = undo.late.max(by);
                }
            }
        }
        for undo in client.undo.iter_mut() {
            undo.sent = false;
        }
        if let Call::Holding { confirming, .. } = &mut client.call {
            *confirming = false;
        }
        self.ask_failed(client);
    }

    /// Without the kill an old connection is of interest while it has commands.
    fn forget_old(client: &mut Client) {
        if client.link == Link::Up && client.old.is_empty() {
            client.old_lives = false;
        }
    }

    fn read(&self, state: &mut State, c: usize) {
        let client = &mut state.clients[c];
        let Some(message) = client.down.pop_front() else {
            return;
        };
        match (message, &mut client.call) {
            (Message::Push(of, pushed), Call::Waiting { id, signal, .. }) if of == *id => {
                let mut proof = pushed;
                if !self.rules.grant_age {
                    proof.left = self.times.grant;
                }
                // The first one stays, as in a slot.
                if !matches!(signal, Signal::Granted(_)) {
                    *signal = Signal::Granted(proof);
                }
            }
            (Message::Push(of, _), Call::Holding { id, .. }) if of == *id => {}
            (Message::Push(of, _), _) => undo(client, of),
            (Message::Released(of), _) => released(client, of),
            (Message::ReleaseFailed(of), _) => {
                for undo in client.undo.iter_mut().filter(|undo| undo.id == of) {
                    undo.sent = false;
                }
            }
            (
                Message::Held(of, proof) | Message::Confirmed(of, proof),
                Call::Waiting { id, phase, signal },
            ) if of == *id => {
                let pushed = match (*phase, *signal) {
                    (Phase::Confirming(_, token), _) => token,
                    (_, Signal::Granted(pushed)) => pushed.token,
                    _ => 0,
                };
                if proof.left == 0 {
                    *phase = Phase::Failed;
                } else {
                    let mut proof = proof;
                    if !self.rules.token_of_proof && pushed != 0 {
                        proof.token = pushed;
                    }
                    self.start_body(state, c, of, proof, true);
                }
            }
            (
                Message::Confirmed(of, by),
                Call::Holding {
                    id,
                    proof,
                    confirmed,
                    confirming,
                },
            ) if of == *id => {
                *confirming = false;
                if proof.left > 0 {
                    *confirmed = true;
                    if proof.token != by.token && self.rules.token_of_proof {
                        // Granted again meanwhile, for a body that never ran.
                        proof.left = 0;
                    } else {
                        proof.left = proof.left.max(by.left);
                    }
                }
            }
            (Message::NotYours(of), Call::Holding { id, proof, .. }) if of == *id => {
                proof.left = 0;
            }
            (Message::ConfirmFailed(of), Call::Holding { id, confirming, .. }) if of == *id => {
                *confirming = false;
            }
            (
                Message::NotYours(of) | Message::ConfirmFailed(of),
                Call::Waiting { id, phase, .. },
            ) if of == *id => *phase = Phase::Failed,
            (Message::Queued(of), Call::Waiting { id, phase, .. }) if of == *id => {
                *phase = Phase::Queued { may_look: false };
            }
            (Message::Late(of) | Message::AskFailed(of), Call::Waiting { id, phase, .. })
                if of == *id =>
            {
                *phase = Phase::ToAsk;
            }
            (Message::Seen(of, sight), Call::Waiting { id, phase, signal }) if of == *id => {
                // An answer to an earlier look says nothing about an ask.
                if matches!(phase, Phase::Queued { .. }) && !matches!(signal, Signal::Granted(_)) {
                    match sight {
                        Sight::Yours => *signal = Signal::Yours,
                        Sight::Missing => *signal = Signal::Missing,
                        Sight::Queued => {}
                    }
                }
            }
            _ => {}
        }
    }

    fn start_body(&self, state: &mut State, c: usize, id: Id, proof: Proof, confirmed: bool) {
        let (token, era) = state.last;
        // What was granted before a loss of data is not compared with what was granted after it.
        if proof.era >= era {
            state.wrongs.inverted |= proof.token <= token;
            state.last = (proof.token, proof.era);
        }
        state.clients[c].call = Call::Holding {
            id,
            proof,
            confirmed,
            confirming: false,
        };
    }
}

fn unhear(command: &mut Command) {
    match command {
        Command::Ask { left, heard, .. } | Command::Confirm { left, heard, .. } => {
            (*left, *heard) = (0, false);
        }
        Command::Release { heard, .. } | Command::Look { heard, .. } => *heard = false,
    }
}

fn undo(client: &mut Client, id: Id) {
    let late = if client.id() == Some(id) {
        std::mem::take(&mut client.late)
    } else {
        0
    };
    if !client.undoes(id) {
        client.undo.push(Undo {
            id,
            late,
            ..Undo::default()
        });
    }
}

fn released(client: &mut Client, id: Id) {
    for undo in client.undo.iter_mut().filter(|undo| undo.id == id) {
        // An old connection may still apply its ask, so it is released once more, after that.
        let again = undo.late > 0 && !undo.second;
        (undo.sent, undo.second) = (!again, true);
    }
    client.undo.retain(|undo| undo.id != id || !undo.sent);
}

fn tick(state: &mut State, looks: bool) {
    let less = |left: &mut u8| *left = left.saturating_sub(1);
    if let Some(lock) = &mut state.server.lock {
        less(&mut lock.ttl);
        if lock.ttl == 0 {
            state.server.lock = None;
        }
    }
    for client in &mut state.clients {
        match &mut client.call {
            Call::Idle => {}
            Call::Waiting { phase, signal, .. } => {
                match phase {
                    Phase::Asking(timer) | Phase::Confirming(timer, _) => less(timer),
                    Phase::Queued { may_look } => {
                        let sent = |command: &Command| matches!(command, Command::Look { .. });
                        let seen = |message: &Message| matches!(message, Message::Seen(..));
                        *may_look =
                            looks && !client.up.iter().any(sent) && !client.down.iter().any(seen);
                    }
                    Phase::ToAsk | Phase::Failed => {}
                }
                if let Signal::Granted(proof) = signal {
                    less(&mut proof.left);
                }
            }
            Call::Holding { proof, .. } => less(&mut proof.left),
        }
        less(&mut client.late);
        for undo in client.undo.iter_mut() {
            less(&mut undo.late);
        }
        for command in client.up.iter_mut().chain(client.old.iter_mut()) {
            match command {
                Command::Ask { by, left, .. } => {
                    less(by);
                    less(left);
                }
                Command::Confirm { left, .. } => less(left),
                Command::Release { .. } | Command::Look { .. } => {}
            }
        }
        for message in client.down.iter_mut() {
            if let Message::Held(_, proof)
            | Message::Confirmed(_, proof)
            | Message::Push(_, proof) = message
            {
                less(&mut proof.left);
            }
        }
        match &mut client.renewal {
            Renewal::Asked(_, _, left) | Renewal::Answered(_, Some(left)) => less(left),
            _ => {}
        }
    }
}
