//! The calls: commands, replies, pushes, renewals, and the end of a hold.

use super::config::Request;
use super::server::{Reply, Script};
use super::state::{Call, Command, Flag, Phase, Record, State};
use super::steps::CountedLock;
use crate::explore::Claim;
use crate::tokens::Token;

impl Call {
    pub(crate) fn send(&mut self, phase: Phase, command: Command) {
        (self.phase, self.command) = (phase, Some(command));
    }

    fn hold(&mut self, token: Token, request: Request, confirmed: bool) {
        self.writes = request == Request::WRITE && self.phase != Phase::Downgrading;
        (self.phase, self.token, self.valid) = (Phase::Holding, token, true);
        self.confirmed = confirmed;
    }

    /// Ends the hold or the wait, and releases. The reply to a command in flight does not matter.
    pub(crate) fn leave(&mut self) {
        if self.valid && self.writes {
            self.write_token = self.token;
        }
        self.late = self.late.or(self.command);
        (self.valid, self.writes) = (false, false);
        (self.confirmed, self.accessed) = (false, false);
        self.send(Phase::Releasing, Command::Release);
    }

    pub(crate) fn crash(&mut self) {
        self.leave();
        *self = Call {
            phase: Phase::Crashed,
            late: self.late,
            write_token: self.write_token,
            ..Call::default()
        };
    }

    pub(crate) fn downgrade(&mut self, write_ends_first: bool) {
        self.write_token = self.token;
        self.send(Phase::Downgrading, Command::Downgrade);
        if write_ends_first {
            (self.valid, self.accessed) = (false, false);
        }
    }

    fn handle_reply(&mut self, request: Request, reply: Reply) {
        self.command = None;
        match (self.phase, reply) {
            // It releases again once no earlier command can be applied any longer.
            (Phase::Releasing, _) if self.late.is_some() => self.command = Some(Command::Release),
            (Phase::Releasing, _) => (self.phase, self.token) = (Phase::Ended, 0),
            (Phase::Holding, Reply::Held(token)) if token == self.token => self.confirmed = true,
            (Phase::Acquiring, Reply::Queued) => self.phase = Phase::Queued,
            (Phase::Acquiring | Phase::Confirming | Phase::Downgrading, Reply::Held(token)) => {
                self.hold(token, request, true);
            }
            _ => self.leave(),
        }
    }

    /// Takes a pushed grant. A grant that may have expired is confirmed before the body.
    pub(crate) fn handle_push(&mut self, request: Request, record: Option<Record>) {
        let token = self.push;
        let is_fresh = |record: Record| record.token == token && !record.expired;
        match self.phase {
            // It is taken out once the call is queued.
            Phase::Acquiring => return,
            Phase::Queued if record.is_some_and(is_fresh) => self.hold(token, request, false),
            Phase::Queued => self.send(Phase::Confirming, Command::Confirm),
            // It belongs to no call, so it is given back.
            Phase::Ended => self.send(Phase::Releasing, Command::Release),
            _ => {}
        }
        self.push = 0;
    }
}

impl CountedLock {
    fn script<'a>(&'a self, state: &'a mut State, call: usize) -> Script<'a> {
        let caller = Some(self.client(call));
        Script {
            lock: self,
            state,
            caller,
        }
    }

    /// Runs the script of a command.
    pub(crate) fn serve(&self, state: &mut State, call: usize, command: Command) -> Reply {
        let mut script = self.script(state, call);
        match command {
            Command::Acquire => script.acquire(call),
            Command::Confirm => script.extend(call, None),
            Command::Downgrade => script.downgrade(call),
            Command::Release => {
                script.release(call, false);
                Reply::Released
            }
        }
    }

    /// Runs the script of the command in flight, and takes its reply.
    pub(crate) fn exchange(&self, state: &mut State, call: usize) {
        if let Some(command) = state.calls[call].command {
            let reply = self.serve(state, call, command);
            state.calls[call].handle_reply(self.request(call), reply);
        }
    }

    /// Stops a script after its first write.
    pub(crate) fn stop(&self, state: &mut State, call: usize) {
        let used = state.server.used;
        if state.calls[call].phase == Phase::Acquiring {
            self.script(state, call).acquire(call);
            state.server.used = used;
        } else {
            self.script(state, call).release(call, true);
        }
    }

    /// The server applies a renewal, and its reply arrives.
    pub(crate) fn renew(&self, state: &mut State, call: usize) {
        let token = std::mem::take(&mut state.calls[call].renewal);
        let reply = self.script(state, call).extend(call, Some(token));
        let caller = &mut state.calls[call];
        let is_current = caller.phase == Phase::Holding && caller.token == token;
        let is_hold = matches!(caller.phase, Phase::Holding | Phase::Downgrading);
        let counts = is_current || is_hold && !self.rules.renewal_of_token;
        if reply == Reply::Rejected && counts {
            caller.leave();
            let lives = |record: Record| record.flag == Flag::Held && !record.expired;
            let is_wrong = state.server.records[call].is_some_and(lives);
            state.violate(Claim::Lifetime, is_wrong);
        }
    }

    pub(crate) fn check_queue(&self, state: &mut State, client: usize) {
        let mut script = self.script(state, 0);
        script.caller = Some(client);
        script.check_queue();
        for number in self.calls_of(client) {
            let call = &mut state.calls[number];
            if call.phase != Phase::Queued || state.server.is_queued(number) {
            } else if state.server.records[number].is_some() {
                call.send(Phase::Confirming, Command::Confirm);
            } else {
                call.send(Phase::Acquiring, Command::Acquire);
            }
        }
    }
}
