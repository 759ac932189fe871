//! The worker processes.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use distlock_tests::Worker;

use super::Setup;
use crate::history::{SupervisorEvent, now};
use crate::saboteurs::VARIABLE;
use crate::suspend::Suspends;

/// All workers, by number.
#[derive(Debug)]
pub(crate) struct Crew {
    suspends: Option<Suspends>,
    members: Vec<Member>,
}

#[derive(Debug, Default)]
struct Member {
    generation: u32,
    /// `None` between a kill and the start of the next generation.
    process: Option<Worker>,
}

impl Crew {
    pub(crate) fn start(setup: &Setup, suspends: Option<Suspends>) -> anyhow::Result<Self> {
        let mut crew = Crew {
            suspends,
            members: Vec::new(),
        };
        for worker in 0..setup.options.workers {
            crew.members.push(Member::default());
            crew.spawn(setup, worker)?;
        }
        for member in &crew.members {
            if let Some(process) = &member.process {
                process.expect_line("connected", Duration::from_secs(30));
            }
        }
        Ok(crew)
    }

    /// Starts the next generation of a worker.
    pub(crate) fn spawn(&mut self, setup: &Setup, worker: u32) -> anyhow::Result<()> {
        let options = &setup.options;
        let member = &mut self.members[worker as usize];
        member.generation += 1;
        let generation = member.generation;
        let ports: Vec<_> = setup.links(worker).iter().map(|link| link.port()).collect();
        let program = std::env::current_exe().context("cannot find the program to start again")?;
        let mut command = Command::new(program);
        command
            .arg("worker")
            .args(["--number", &worker.to_string()])
            .args(["--generation", &generation.to_string()])
            .args(["--profile", options.profile.name])
            .args(["--seed", &options.seed.to_string()])
            .args(["--keys", &options.keys.to_string()])
            .args(["--topology", &options.topology.name()])
            .args(["--resource", &setup.resource.to_string()])
            .arg("--dir")
            .arg(&setup.dir)
            .env("DISTLOCK_URL", setup.target.url(&ports));
        for server in setup.target.addresses() {
            command.args(["--server", &server.to_string()]);
        }
        if let Some(authority) = setup.target.authority() {
            command.arg("--authority").arg(authority);
        }
        if let Some(name) = &options.sabotage {
            command.env(VARIABLE, name);
        }
        if let Some(suspends) = &self.suspends {
            suspends.preload(worker, &mut command);
        }
        let process = Worker::spawn(&mut command);
        setup.log.record(&SupervisorEvent::WorkerStarted {
            at: now(),
            worker,
            generation,
            pid: process.pid(),
        });
        member.process = Some(process);
        Ok(())
    }

    pub(crate) fn stop_process(&mut self, worker: u32) {
        if let Some(process) = &mut self.members[worker as usize].process {
            process.stop_process();
        }
    }

    pub(crate) fn cont_process(&mut self, worker: u32) {
        if let Some(process) = &mut self.members[worker as usize].process {
            process.cont_process();
        }
    }

    /// Resumes a suspended worker as if no time had passed.
    pub(crate) fn resume(&mut self, worker: u32, stopped: Duration) -> anyhow::Result<()> {
        if let Some(suspends) = &mut self.suspends {
            suspends.take_out(worker, stopped)?;
        }
        self.cont_process(worker);
        Ok(())
    }

    pub(crate) fn kill(&mut self, setup: &Setup, worker: u32) {
        if let Some(process) = self.members[worker as usize].process.take() {
            process.kill();
            self.ended(setup, worker);
        }
    }

    fn ended(&self, setup: &Setup, worker: u32) {
        setup.log.record(&SupervisorEvent::WorkerEnded {
            at: now(),
            worker,
            generation: self.members[worker as usize].generation,
        });
    }

    /// Stops all workers from beginning new calls, and waits until the running calls have returned.
    /// Records a worker that exceeds `within` as stuck.
    pub(crate) fn quiet(&mut self, setup: &Setup, within: Duration) {
        for member in &mut self.members {
            if let Some(process) = &mut member.process {
                process.send("quiet");
            }
        }
        let deadline = Instant::now() + within;
        let mut busy: Vec<u32> = (0..setup.options.workers).collect();
        while !busy.is_empty() && Instant::now() < deadline {
            busy.retain(|worker| {
                let process = &self.members[*worker as usize].process;
                let lines = process.as_ref().map(Worker::drain_lines);
                !lines.is_none_or(|lines| lines.iter().any(|line| line == "idle"))
            });
            std::thread::sleep(Duration::from_millis(5));
        }
        for worker in busy {
            let generation = self.members[worker as usize].generation;
            setup.log.record(&SupervisorEvent::WorkerStuck {
                at: now(),
                worker,
                generation,
            });
        }
    }

    /// Stops all workers, and waits until each has exited.
    pub(crate) fn stop(&mut self, setup: &Setup) {
        for member in &mut self.members {
            if let Some(process) = &mut member.process {
                process.send("stop");
            }
        }
        for worker in 0..setup.options.workers {
            if let Some(mut process) = self.members[worker as usize].process.take() {
                // Stdin stays open, because the census counts the thread that reads it.
                process.expect_line("stopped", Duration::from_secs(30));
                process.wait(Duration::from_secs(30));
                self.ended(setup, worker);
            }
        }
    }
}
