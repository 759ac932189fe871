//! The steps of the model.

use super::config::{Config, LEASE};
use super::state::{End, Phase, State, Status};
use super::wire::{ATTEMPTS, Body, Command, Message, Owner, Script};
use crate::tokens::Tokens as _;

/// The number of kinds of steps.
pub const KINDS: usize = 18;

/// One step. The numbers identify a client and a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    /// A call begins.
    Start(usize),
    /// A node applies a client's next command.
    Serve(usize, usize),
    /// A node applies the next command of a client's lost connection.
    ServeOld(usize, usize),
    /// The remaining commands of a lost connection are never applied.
    DropOld(usize, usize),
    /// A client reads the next reply or push.
    Read(usize, usize),
    /// A client acquires on a node again, or yields a confirmed vote because it has too few votes.
    Acquire(usize, usize),
    /// A client gives up its connection to a node that is down.
    Notice(usize, usize),
    /// A client connects again.
    Connect(usize, usize),
    /// A holder renews.
    Renew(usize),
    /// A body ends.
    End(usize),
    /// Time passes.
    Tick,
    /// A node returns with its data.
    Up(usize),
    /// Fault: a client gives up a connection.
    Cut(usize, usize),
    /// Fault: a client can no longer reach a node.
    Sever(usize, usize),
    /// Fault: a node serves no client.
    Down(usize),
    /// Fault: a node loses its data and its connections.
    Forget(usize),
    /// Fault: a client crashes.
    Crash(usize),
    /// Fault: a call is given up.
    GiveUp(usize),
}

impl Action {
    /// Returns the node of the step, by its place among the columns.
    pub(crate) fn node(&mut self) -> Option<&mut usize> {
        match self {
            Action::Serve(_, node)
            | Action::ServeOld(_, node)
            | Action::DropOld(_, node)
            | Action::Read(_, node)
            | Action::Acquire(_, node)
            | Action::Notice(_, node)
            | Action::Connect(_, node)
            | Action::Cut(_, node)
            | Action::Sever(_, node)
            | Action::Up(node)
            | Action::Down(node)
            | Action::Forget(node) => Some(node),
            _ => None,
        }
    }
}

impl Config {
    /// Adds the steps that are not faults.
    pub(crate) fn regular<const N: usize, const C: usize>(
        &self,
        state: &State<N, C>,
        steps: &mut Vec<Action>,
    ) {
        let steps_before = steps.len();
        for client in 0..C {
            let caller = state.clients[client];
            for node in 0..N {
                let column = &state.columns[node];
                let (serves, end) = (!column.node.down, &column.ends[client]);
                if serves && !end.to_node.is_empty() {
                    steps.push(Action::Serve(client, node));
                }
                if serves && !end.old.is_empty() {
                    steps.push(Action::ServeOld(client, node));
                }
                if !end.old.is_empty() {
                    steps.push(Action::DropOld(client, node));
                }
                if caller.crashed {
                    continue;
                }
                if end.up && !end.to_client.is_empty() {
                    steps.push(Action::Read(client, node));
                }
                if end.up && !serves && end.old.is_empty() {
                    steps.push(Action::Notice(client, node));
                }
                if !end.up && serves && !end.severed {
                    steps.push(Action::Connect(client, node));
                }
                let is_acquiring = matches!(caller.phase, Phase::Acquiring | Phase::Confirming(_))
                    && matches!(
                        end.status,
                        Status::Queued | Status::NotVoting | Status::Vote(_)
                    );
                let gives_back = self.rules.yields
                    && caller.phase == Phase::Acquiring
                    && matches!(end.status, Status::Confirmed(_));
                if (is_acquiring || gives_back) && end.up && serves && end.fresh {
                    steps.push(Action::Acquire(client, node));
                }
            }
        }
        // A body may run for any time, so its end does not delay a tick.
        let is_quiet = steps.len() == steps_before;
        if is_quiet || state.faults.late_ticks > 0 {
            steps.push(Action::Tick);
        }
        for (client, caller) in state.clients.iter().enumerate() {
            if matches!(caller.phase, Phase::Holding(_) | Phase::Lost) && !caller.crashed {
                steps.push(Action::End(client));
            }
        }
    }

    /// Adds every step that can be taken next.
    pub(crate) fn next_steps<const N: usize, const C: usize>(
        &self,
        state: &State<N, C>,
        steps: &mut Vec<Action>,
    ) {
        self.regular(state, steps);
        let faults = state.faults;
        let down = state.columns.iter().filter(|column| column.node.down);
        let may_fall = faults.downs > 0 && down.count() < N - self.setup.quorum();
        for (place, column) in state.columns.iter().enumerate() {
            // Nodes that are down from the beginning stay down.
            if column.node.down && self.setup.down == 0 {
                steps.push(Action::Up(place));
            }
            if !column.node.down && may_fall {
                steps.push(Action::Down(place));
            }
            if !column.node.down && faults.losses > 0 {
                steps.push(Action::Forget(place));
            }
        }
        for client in 0..C {
            let caller = state.clients[client];
            if caller.crashed {
                continue;
            }
            if caller.phase == Phase::Idle && caller.calls > 0 && caller.number < ATTEMPTS {
                steps.push(Action::Start(client));
            }
            let is_waiting = matches!(
                caller.phase,
                Phase::Acquiring | Phase::Confirming(_) | Phase::Cut
            );
            if is_waiting && faults.give_ups > 0 {
                steps.push(Action::GiveUp(client));
            }
            if faults.crashes > 0 && caller.phase != Phase::Idle {
                steps.push(Action::Crash(client));
            }
            let renews = |end: &End| {
                end.up && end.fresh && !end.renewing && matches!(end.status, Status::Confirmed(_))
            };
            if self.renewals
                && matches!(caller.phase, Phase::Holding(_))
                && state.ends(client).any(renews)
            {
                steps.push(Action::Renew(client));
            }
            for (place, end) in state.ends(client).enumerate() {
                if end.up && end.old.is_empty() && faults.cuts > 0 {
                    steps.push(Action::Cut(client, place));
                }
                if !end.severed && end.old.is_empty() && faults.severs > 0 {
                    steps.push(Action::Sever(client, place));
                }
            }
        }
    }

    /// Takes a step, without sorting the columns.
    pub(crate) fn apply<const N: usize, const C: usize>(
        &self,
        state: &mut State<N, C>,
        action: Action,
    ) {
        match action {
            Action::Start(client) => {
                state.clients[client].calls -= 1;
                state.begin(client);
                state.settle(self, client);
            }
            Action::Serve(client, node) => {
                state.spread_tokens();
                let command = state.columns[node].ends[client].to_node.remove(0);
                self.serve(state, client, node, command, true);
            }
            Action::ServeOld(client, node) => {
                state.spread_tokens();
                let command = state.columns[node].ends[client].old.remove(0);
                self.serve(state, client, node, command, false);
            }
            Action::DropOld(client, node) => state.columns[node].ends[client].old.clear(),
            Action::Read(client, node) => {
                let message = state.columns[node].ends[client].to_client.remove(0);
                state.handle(self, client, node, message);
            }
            Action::Acquire(client, node) => {
                let owner = state.owner(client);
                let end = &mut state.columns[node].ends[client];
                end.fresh = false;
                if let Status::Confirmed(token) = end.status {
                    (end.status, end.proof) = (Status::Yielding(token, false), 0);
                    state.settle(self, client);
                } else {
                    end.send(owner, Script::Acquire(None));
                }
            }
            Action::Notice(client, node) => self.lose(state, client, node),
            Action::Connect(client, node) => {
                state.columns[node].ends[client].up = true;
                state.settle(self, client);
            }
            Action::Renew(client) => {
                let owner = state.owner(client);
                let Phase::Holding(token) = state.clients[client].phase else {
                    unreachable!("only holders renew");
                };
                for end in state.ends_mut(client) {
                    let is_to_renew =
                        end.fresh && !end.renewing && matches!(end.status, Status::Confirmed(_));
                    if end.up && is_to_renew {
                        end.send(owner, Script::Renew(token));
                        (end.renewing, end.fresh, end.age) = (true, false, 0);
                    }
                }
            }
            Action::End(client) => {
                state.abandon(self, client, Phase::Idle);
                state.settle(self, client);
            }
            Action::Tick => self.tick(state),
            Action::Up(node) => state.columns[node].node.down = false,
            Action::Cut(client, node) => {
                state.faults.cuts -= 1;
                self.lose(state, client, node);
            }
            Action::Sever(client, node) => {
                state.faults.severs -= 1;
                state.columns[node].ends[client].severed = true;
                self.lose(state, client, node);
            }
            Action::Down(node) => {
                state.faults.downs -= 1;
                state.columns[node].node.down = true;
            }
            Action::Forget(node) => {
                state.faults.losses -= 1;
                let newest = state.newest();
                state.columns[node].node.forget(&self.rules, newest);
                for client in 0..C {
                    let end = &mut state.columns[node].ends[client];
                    // The node was restarted, so the commands in flight to it are lost.
                    end.to_node.clear();
                    end.old.clear();
                    self.lose(state, client, node);
                }
            }
            Action::Crash(client) => {
                state.faults.crashes -= 1;
                for node in 0..N {
                    self.lose(state, client, node);
                }
                state.clients[client].crashed = true;
                for end in state.ends_mut(client) {
                    // The client's knowledge no longer matters.
                    *end = End {
                        old: end.old,
                        ..End::default()
                    };
                }
            }
            Action::GiveUp(client) => {
                state.faults.give_ups -= 1;
                state.abandon(self, client, Phase::Idle);
                state.settle(self, client);
            }
        }
    }

    fn serve<const N: usize, const C: usize>(
        &self,
        state: &mut State<N, C>,
        client: usize,
        node: usize,
        command: Command,
        is_heard: bool,
    ) {
        let column = &mut state.columns[node];
        let ends = column.ends;
        let listens = |owner: Owner| ends[owner.client()].up;
        let response = column.node.apply(&self.rules, command, listens);
        if is_heard {
            column.ends[client].to_client.push(Message {
                owner: command.owner,
                body: response.answer,
            });
        }
        if let Some(push) = response.push {
            let to = &mut column.ends[push.owner.client()];
            if to.up {
                to.to_client.push(push);
            }
        }
    }

    fn lose<const N: usize, const C: usize>(
        &self,
        state: &mut State<N, C>,
        client: usize,
        node: usize,
    ) {
        let phase = state.clients[client].phase;
        let end = &mut state.columns[node].ends[client];
        if end.up {
            end.lose(self, phase);
        }
        state.settle(self, client);
    }

    fn tick<const N: usize, const C: usize>(&self, state: &mut State<N, C>) {
        let mut steps = Vec::new();
        let faults = std::mem::take(&mut state.faults.late_ticks);
        self.regular(state, &mut steps);
        state.faults.late_ticks = faults - u8::from(!steps.contains(&Action::Tick));
        for column in &mut state.columns {
            column.node.tick();
            for end in &mut column.ends {
                end.fresh = true;
                end.late = false;
                for message in end.to_client.iter_mut() {
                    if let Body::HandedOn(_, left) = &mut message.body {
                        *left = left.saturating_sub(1);
                    }
                }
                end.old.retain(|command| !command.script.has_deadline());
                end.proof = end.proof.saturating_sub(1);
                if end.renewing || matches!(end.status, Status::Acquiring | Status::Confirming(_)) {
                    end.age = (end.age + 1).min(LEASE);
                }
            }
        }
        for client in 0..C {
            if matches!(state.clients[client].phase, Phase::Holding(_))
                && self.rules.lapses
                && !state.is_valid(client, self.setup.quorum())
            {
                state.clients[client].phase = Phase::Lost;
            }
            state.settle(self, client);
        }
    }

    /// Returns the state after a step, sorted and with numbered tokens, and the nodes' old places.
    pub(crate) fn step<const N: usize, const C: usize>(
        &self,
        state: &State<N, C>,
        action: Action,
    ) -> (State<N, C>, [usize; N]) {
        let mut next = *state;
        self.apply(&mut next, action);
        next.number_tokens();
        let order = next.arrange();
        (next, order)
    }
}
