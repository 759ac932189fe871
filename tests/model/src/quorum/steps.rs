//! The steps of the model.

use super::config::{Config, LEASE};
use super::state::{Phase, State};
use super::wire::{Body, Command, Reply};
use crate::tokens::{Token, Tokens as _};

/// The number of kinds of steps.
pub const KINDS: usize = 12;

/// One step. The numbers identify a client and a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    /// An attempt begins, with this floor token.
    Start(usize, Token),
    /// A node applies a client's next command.
    Serve(usize, usize),
    /// A node applies the next command of a client's lost connection.
    ServeOld(usize, usize),
    /// A client reads the next reply.
    Read(usize, usize),
    /// A client connects again.
    Connect(usize, usize),
    /// A holder renews.
    Renew(usize),
    /// A body ends.
    End(usize),
    /// Time passes.
    Tick,
    /// Fault: a client gives up a connection.
    Cut(usize, usize),
    /// Fault: a client's address of the first node leads to the second one.
    Stray(usize, usize, usize),
    /// Fault: a node loses its data and its connections.
    Forget(usize),
    /// Fault: a call is given up.
    GiveUp(usize),
}

impl Action {
    /// Returns the nodes of the step, by their places among the columns.
    pub(crate) fn nodes(&mut self) -> [Option<&mut usize>; 2] {
        match self {
            Action::Stray(_, node, other) => [Some(node), Some(other)],
            Action::Serve(_, node)
            | Action::ServeOld(_, node)
            | Action::Read(_, node)
            | Action::Connect(_, node)
            | Action::Cut(_, node)
            | Action::Forget(node) => [Some(node), None],
            _ => [None, None],
        }
    }
}

impl Config {
    /// Adds the steps that are neither faults nor a client's choice.
    pub(crate) fn regular<const N: usize, const C: usize>(
        &self,
        state: &State<N, C>,
        steps: &mut Vec<Action>,
    ) {
        let steps_before = steps.len();
        for client in 0..C {
            for (node, end) in state.ends(client).enumerate() {
                if !end.to_node.is_empty() {
                    steps.push(Action::Serve(client, node));
                }
                if !end.to_client.is_empty() {
                    steps.push(Action::Read(client, node));
                }
            }
        }
        // A body may run for any time, so its end does not delay a tick.
        if steps.len() == steps_before || state.faults.late_ticks > 0 {
            steps.push(Action::Tick);
        }
        for (client, caller) in state.clients.iter().enumerate() {
            if matches!(caller.phase, Phase::Holding(_) | Phase::Lost) {
                steps.push(Action::End(client));
            }
            for (node, end) in state.ends(client).enumerate() {
                if !end.old.is_empty() {
                    steps.push(Action::ServeOld(client, node));
                }
                if !end.up && !end.astray {
                    steps.push(Action::Connect(client, node));
                }
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
        if faults.losses > 0 {
            steps.extend((0..N).map(Action::Forget));
        }
        for client in 0..C {
            let caller = state.clients[client];
            let up = state.ends(client).filter(|end| end.up).count();
            // Clients are interchangeable, so their order is that of their first attempts.
            let is_next = client == 0 || state.clients[client - 1].has_begun();
            if caller.phase == Phase::Idle
                && is_next
                && caller.number < self.calls[client]
                && up >= self.setup.majority()
            {
                let newest = { *state }.newest();
                steps.extend((0..newest + 2).map(|floor| Action::Start(client, floor)));
            }
            if faults.give_ups > 0
                && matches!(caller.phase, Phase::Acquiring | Phase::Confirming(_))
            {
                steps.push(Action::GiveUp(client));
            }
            if self.renewals
                && matches!(caller.phase, Phase::Holding(_))
                && caller.valid.max(caller.renewal) < LEASE
            {
                steps.push(Action::Renew(client));
            }
            for (node, end) in state.ends(client).enumerate() {
                if end.up && end.old.is_empty() && faults.cuts > 0 {
                    steps.push(Action::Cut(client, node));
                }
                if end.up && end.old.is_empty() && faults.strays > 0 {
                    let others = (0..N).filter(|other| *other != node);
                    steps.extend(others.map(|other| Action::Stray(client, node, other)));
                }
            }
        }
    }

    /// Takes a step, without sorting the columns.
    fn apply<const N: usize, const C: usize>(&self, state: &mut State<N, C>, action: Action) {
        match action {
            Action::Start(client, floor) => state.begin(client, floor),
            Action::Serve(client, node) => {
                let command = state.columns[node].ends[client].to_node.remove(0);
                let reply = self.serve(state, node, command);
                if reply.body == Body::Released {
                    // If the reply is lost, the release is repeated, and changes nothing.
                    state.handle(self, client, node, reply);
                } else {
                    state.columns[node].ends[client].to_client.push(reply);
                }
            }
            Action::ServeOld(client, node) => {
                let command = state.columns[node].ends[client].old.remove(0);
                self.serve(state, node, command);
            }
            Action::Read(client, node) => {
                let reply = state.columns[node].ends[client].to_client.remove(0);
                state.handle(self, client, node, reply);
            }
            Action::Connect(client, node) => {
                state.columns[node].ends[client].up = true;
                state.settle(self, client);
            }
            Action::Renew(client) => {
                if let Phase::Holding(token) = state.clients[client].phase {
                    state.renew(client, token);
                }
            }
            Action::End(client) => state.abandon(self, client),
            Action::Tick => self.tick(state),
            Action::Cut(client, node) => {
                state.faults.cuts -= 1;
                state.columns[node].ends[client].lose();
                state.settle(self, client);
            }
            Action::Stray(client, node, other) => {
                state.faults.strays -= 1;
                state.columns[node].ends[client].lose();
                state.columns[node].ends[client].astray = true;
                state.columns[other].ends[client].twice = true;
                state.settle(self, client);
            }
            Action::Forget(node) => {
                state.faults.losses -= 1;
                let newest = state.newest();
                state.columns[node].node.forget(&self.rules, newest);
                for client in 0..C {
                    // The node was restarted, so the commands in flight to it are lost.
                    let end = &mut state.columns[node].ends[client];
                    end.lose();
                    end.old.clear();
                    state.settle(self, client);
                }
            }
            Action::GiveUp(client) => {
                state.faults.give_ups -= 1;
                state.abandon(self, client);
            }
        }
    }

    fn serve<const N: usize, const C: usize>(
        &self,
        state: &mut State<N, C>,
        node: usize,
        mut command: Command,
    ) -> Reply {
        state.spread_tokens();
        if let Some(token) = command.script.token_mut() {
            *token *= 2;
        }
        let body = state.columns[node].node.apply(&self.rules, command);
        let owner = command.owner;
        Reply { owner, body }
    }

    fn tick<const N: usize, const C: usize>(&self, state: &mut State<N, C>) {
        let mut steps = Vec::new();
        let late_ticks = std::mem::take(&mut state.faults.late_ticks);
        self.regular(state, &mut steps);
        state.faults.late_ticks = late_ticks - u8::from(!steps.contains(&Action::Tick));
        for column in &mut state.columns {
            column.node.tick();
            for end in &mut column.ends {
                end.late = false;
                end.old.clear();
            }
        }
        for client in 0..C {
            let caller = &mut state.clients[client];
            caller.valid = caller.valid.saturating_sub(1);
            caller.renewal = caller.renewal.saturating_sub(1);
            match caller.phase {
                Phase::Holding(_) if caller.valid == 0 && self.rules.lapses => {
                    caller.phase = Phase::Lost;
                }
                Phase::Acquiring | Phase::Confirming(_) if caller.valid == 0 => {
                    state.abandon(self, client);
                }
                _ => {}
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
