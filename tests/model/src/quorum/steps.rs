//! What can happen next.

use std::fmt;

use super::config::{Config, LEASE};
use super::state::{Phase, Stand, State};
use super::wire::{ATTEMPTS, Command, Message};

/// One step. The numbers are a client's and a node's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    /// A call begins.
    Start(usize),
    /// A node applies a client's next command.
    Serve(usize, usize),
    /// A node applies the next command of a client's lost connection.
    ServeOld(usize, usize),
    /// What is left on a lost connection is never applied.
    DropOld(usize, usize),
    /// A client reads the next answer or push.
    Read(usize, usize),
    /// A client asks a node again, or gives back what no other has confirmed.
    Ask(usize, usize),
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
    /// A node comes back with its data.
    Up(usize),
    /// Fault: a client gives up a connection.
    Cut(usize, usize),
    /// Fault: a client cannot reach a node any more.
    Sever(usize, usize),
    /// Fault: a node serves nobody.
    Down(usize),
    /// Fault: a node loses its data, and its connections.
    Forget(usize),
    /// Fault: a client is lost.
    Crash(usize),
    /// Fault: a call is given up.
    GiveUp(usize),
}

impl Action {
    /// The node that it is about, by its place among the columns.
    pub(crate) fn node(&mut self) -> Option<&mut usize> {
        match self {
            Action::Serve(_, node)
            | Action::ServeOld(_, node)
            | Action::DropOld(_, node)
            | Action::Read(_, node)
            | Action::Ask(_, node)
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

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |client: usize| char::from(b'A' + client as u8);
        match *self {
            Action::Start(c) => write!(f, "{} calls", name(c)),
            Action::Serve(c, n) => write!(f, "node {n} applies a command of {}", name(c)),
            Action::ServeOld(c, n) => write!(f, "node {n} applies a late command of {}", name(c)),
            Action::DropOld(c, n) => write!(f, "node {n} drops {}'s old connection", name(c)),
            Action::Read(c, n) => write!(f, "{} hears node {n}", name(c)),
            Action::Ask(c, n) => write!(f, "{} asks node {n} again", name(c)),
            Action::Notice(c, n) => write!(f, "{} notices that node {n} is away", name(c)),
            Action::Connect(c, n) => write!(f, "{} connects to node {n} again", name(c)),
            Action::Renew(c) => write!(f, "{} renews", name(c)),
            Action::End(c) => write!(f, "{} ends its body", name(c)),
            Action::Tick => write!(f, "a tick passes"),
            Action::Up(n) => write!(f, "node {n} is back"),
            Action::Cut(c, n) => write!(f, "{} loses its connection to node {n} (fault)", name(c)),
            Action::Sever(c, n) => write!(f, "{} cannot reach node {n} any more (fault)", name(c)),
            Action::Down(n) => write!(f, "node {n} is down (fault)"),
            Action::Forget(n) => write!(f, "node {n} loses its data (fault)"),
            Action::Crash(c) => write!(f, "{} is lost (fault)", name(c)),
            Action::GiveUp(c) => write!(f, "{} gives up (fault)", name(c)),
        }
    }
}

impl Config {
    /// The steps that nobody's bad luck is needed for.
    pub(crate) fn regular<const N: usize, const C: usize>(
        &self,
        state: &State<N, C>,
        steps: &mut Vec<Action>,
    ) {
        let steps_before = steps.len();
        for client in 0..C {
            let who = state.clients[client];
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
                if who.crashed {
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
                let asks = matches!(who.phase, Phase::Asking | Phase::Confirming(_))
                    && matches!(end.stand, Stand::Queued | Stand::NotVoting | Stand::Vote(_));
                let gives_back = self.rules.yields
                    && who.phase == Phase::Asking
                    && matches!(end.stand, Stand::Confirmed(_));
                if (asks || gives_back) && end.up && serves && end.fresh {
                    steps.push(Action::Ask(client, node));
                }
            }
        }
        // Bodies take as long as they like.
        let is_quiet = steps.len() == steps_before;
        if is_quiet || state.faults.late_ticks > 0 {
            steps.push(Action::Tick);
        }
        for (client, who) in state.clients.iter().enumerate() {
            if matches!(who.phase, Phase::Holding(_) | Phase::Lost) && !who.crashed {
                steps.push(Action::End(client));
            }
        }
    }

    pub(crate) fn steps<const N: usize, const C: usize>(
        &self,
        state: &State<N, C>,
        steps: &mut Vec<Action>,
    ) {
        self.regular(state, steps);
        let faults = state.faults;
        let down = state.columns.iter().filter(|column| column.node.down);
        let may_fall = faults.downs > 0 && down.count() < N - self.quorum;
        for (place, column) in state.columns.iter().enumerate() {
            // Those that are down from the beginning stay so.
            if column.node.down && self.down == 0 {
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
            let who = state.clients[client];
            if who.crashed {
                continue;
            }
            if who.phase == Phase::Idle && who.calls > 0 && who.number < ATTEMPTS {
                steps.push(Action::Start(client));
            }
            let is_waiting = matches!(who.phase, Phase::Asking | Phase::Confirming(_) | Phase::Cut);
            if is_waiting && faults.give_ups > 0 {
                steps.push(Action::GiveUp(client));
            }
            if faults.crashes > 0 && who.phase != Phase::Idle {
                steps.push(Action::Crash(client));
            }
            let renews = |end: &super::state::End| {
                end.up && end.fresh && !end.renewing && matches!(end.stand, Stand::Confirmed(_))
            };
            if self.renewals
                && matches!(who.phase, Phase::Holding(_))
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

    /// The state after a step, its columns as they were.
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
                let command = state.columns[node].ends[client].to_node.pop_front();
                self.serve(state, client, node, command.expect("it is under way"), true);
            }
            Action::ServeOld(client, node) => {
                state.spread_tokens();
                let command = state.columns[node].ends[client].old.pop_front();
                self.serve(
                    state,
                    client,
                    node,
                    command.expect("it is under way"),
                    false,
                );
            }
            Action::DropOld(client, node) => state.columns[node].ends[client].old.clear(),
            Action::Read(client, node) => {
                let message = state.columns[node].ends[client].to_client.pop_front();
                state.hear(self, client, node, message.expect("it is under way"));
            }
            Action::Ask(client, node) => {
                let owner = state.owner(client);
                let end = &mut state.columns[node].ends[client];
                end.fresh = false;
                if let Stand::Confirmed(token) = end.stand {
                    (end.stand, end.proof) = (Stand::Yielding(token, false), 0);
                    state.settle(self, client);
                } else {
                    end.to_node.push(Command::Ask(owner, None));
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
                        end.fresh && !end.renewing && matches!(end.stand, Stand::Confirmed(_));
                    if end.up && is_to_renew {
                        end.to_node.push(Command::Renew(owner, token));
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
                    // It was restarted: what was under way to it is gone.
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
                    // What it knew does not matter any more.
                    *end = super::state::End {
                        old: end.old,
                        ..Default::default()
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
        let listens = |owner: super::wire::Owner| ends[owner.client()].up;
        let said = column.node.apply(&self.rules, command, listens);
        if is_heard {
            column.ends[client].to_client.push(said.answer);
        }
        if let Some(push) = said.push {
            let to = push.owner().client();
            if column.ends[to].up {
                column.ends[to].to_client.push(push);
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
                    if let Message::HandedOn(_, _, left) = message {
                        *left = left.saturating_sub(1);
                    }
                }
                end.old.retain(|command| !command.has_deadline());
                end.proof = end.proof.saturating_sub(1);
                if end.renewing || matches!(end.stand, Stand::Asking | Stand::Confirming(_)) {
                    end.age = (end.age + 1).min(LEASE);
                }
            }
        }
        for client in 0..C {
            if matches!(state.clients[client].phase, Phase::Holding(_))
                && self.rules.lapses
                && !state.is_valid(client, self.quorum)
            {
                state.clients[client].phase = Phase::Lost;
            }
            state.settle(self, client);
        }
    }

    /// The state after a step, in the order and with the tokens that all equal states have. `names`: which node is which.
    pub(crate) fn after<const N: usize, const C: usize>(
        &self,
        state: &State<N, C>,
        action: Action,
        names: Option<&mut [usize; N]>,
    ) -> State<N, C> {
        let mut next = *state;
        self.apply(&mut next, action);
        next.number_tokens();
        let mut order: [usize; N] = std::array::from_fn(|place| place);
        order.sort_by_key(|place| next.columns[*place].rank());
        let columns = next.columns;
        next.columns = order.map(|place| columns[place]);
        if let Some(names) = names {
            let before = *names;
            *names = order.map(|place| before[place]);
        }
        next
    }
}
