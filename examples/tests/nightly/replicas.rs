//! Replicas of the job as processes, and what their records say.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use distlock_tests::{RedisServer, Resp, Worker};

/// For whatever is waited for here, on a loaded machine.
pub(crate) const SOON: Duration = Duration::from_secs(60);

const JOB: &str = "report";

/// What the record of a period says.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) by: String,
    pub(crate) attempts: u32,
    pub(crate) token: u64,
    pub(crate) done: bool,
}

pub(crate) type Periods = BTreeMap<u64, Seen>;

pub(crate) struct Replicas {
    workers: BTreeMap<String, Worker>,
    client: Resp,
}

impl Replicas {
    pub(crate) fn start(server: &RedisServer, names: &[&str]) -> Self {
        let mut replicas = Replicas {
            workers: BTreeMap::new(),
            client: server.client(),
        };
        for name in names {
            replicas.add(server, name, "2s", "1s");
        }
        replicas
    }

    pub(crate) fn add(&mut self, server: &RedisServer, name: &str, period: &str, work: &str) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nightly"));
        command
            .args(["--job", JOB, "--name", name])
            .args(["--period", period, "--work", work])
            .env("DISTLOCK_URL", server.url());
        let worker = Worker::spawn(&mut command);
        self.workers.insert(name.to_owned(), worker);
    }

    /// What all records say.
    pub(crate) fn periods(&mut self) -> Periods {
        let prefix = format!("jobs:{{{JOB}}}:period:");
        let keys = self.client.keys(&format!("{prefix}*").replace('{', "\\{"));
        let mut periods = Periods::new();
        for key in keys {
            let words = ["HMGET", &key, "by", "attempts", "token", "done"];
            let fields = self.client.cmd(&words);
            let [by, attempts, token, done] = fields.array() else {
                panic!("{key}: {fields:?}");
            };
            let seen = Seen {
                by: by.text().unwrap().to_owned(),
                attempts: attempts.text().unwrap().parse().unwrap(),
                token: token.text().unwrap().parse().unwrap(),
                done: done.text().is_some(),
            };
            periods.insert(key.strip_prefix(&prefix).unwrap().parse().unwrap(), seen);
        }
        periods
    }

    #[track_caller]
    pub(crate) fn until(&mut self, shows: impl Fn(&Periods) -> bool) {
        let until = Instant::now() + SOON;
        loop {
            let periods = self.periods();
            if shows(&periods) {
                return;
            }
            assert!(Instant::now() < until, "not within {SOON:?}: {periods:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[track_caller]
    pub(crate) fn until_done(&mut self, count: usize) {
        self.until(|periods| periods.values().filter(|record| record.done).count() >= count);
    }

    /// Stops a replica (SIGSTOP) that has begun a period and has not done it: the period, its name, and its token.
    pub(crate) fn freeze_one_that_works(&mut self) -> (u64, String, u64) {
        let until = Instant::now() + SOON;
        while Instant::now() < until {
            let periods = self.periods();
            let begun = periods.into_iter().find(|(_, record)| !record.done);
            if let Some((period, Seen { by, .. })) = begun {
                self.worker(&by).stop_process();
                // What it had sent before it stopped is carried out by now.
                self.client.cmd(&["PING"]);
                let now = self.periods().remove(&period).unwrap();
                if !now.done && now.by == by {
                    return (period, by, now.token);
                }
                self.worker(&by).cont_process();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("no replica was seen at work within {SOON:?}");
    }

    pub(crate) fn thaw(&mut self, name: &str) {
        self.worker(name).cont_process();
    }

    pub(crate) fn kill(&mut self, name: &str) {
        self.workers.remove(name).unwrap().kill();
    }

    pub(crate) fn terminate(&mut self, name: &str) {
        let mut worker = self.workers.remove(name).unwrap();
        assert!(worker.terminate(SOON).success());
    }

    /// Ends all that are left: what the records say then.
    pub(crate) fn end(mut self) -> Periods {
        for worker in self.workers.values_mut() {
            assert!(worker.terminate(SOON).success());
        }
        self.periods()
    }

    fn worker(&mut self, name: &str) -> &mut Worker {
        self.workers.get_mut(name).unwrap()
    }
}

/// Where nobody was stopped or killed, one replica works and the others wait: without the lock all would begin.
#[track_caller]
pub(crate) fn assert_one_attempt_each(periods: &Periods, but_for: u64) {
    let done = periods.iter().filter(|(_, record)| record.done);
    for (period, record) in done.filter(|(period, _)| **period != but_for) {
        assert_eq!(record.attempts, 1, "{period}: {periods:?}");
    }
}

/// No period is left out, and for each that is done there is one report, by who has its record.
#[track_caller]
pub(crate) fn assert_each_was_done_once(server: &RedisServer, periods: &Periods) {
    let done = || periods.iter().filter(|(_, record)| record.done);
    let expected = done().map(|(period, record)| format!("period {period}, by {}", record.by));
    let expected: Vec<_> = expected.collect();
    let key = format!("jobs:{{{JOB}}}:reports");
    let reports = server.client().cmd(&["LRANGE", &key, "0", "-1"]);
    let reports = reports.array().iter().filter_map(|report| report.text());
    let mut reports: Vec<_> = reports.map(str::to_owned).collect();
    reports.sort();
    assert_eq!(reports, expected, "{periods:?}");
    let numbers: Vec<_> = done().map(|(period, _)| *period).collect();
    for pair in numbers.windows(2) {
        assert_eq!(pair[0] + 1, pair[1], "a period was left out: {periods:?}");
    }
}
