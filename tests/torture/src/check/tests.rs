//! A whole run, from its files to its verdict.

use std::path::Path;

use super::testing::{Call, History};
use super::*;
use crate::history::{OpId, Outcome, Recorder};
use crate::resource::{Access, Request};

fn write<E: serde::Serialize>(dir: &Path, name: &str, events: impl IntoIterator<Item = E>) {
    let recorder = Recorder::create(&dir.join(name)).unwrap();
    for event in events {
        recorder.record(&event);
    }
}

fn clean(seconds: u64) -> History {
    let mut history = History::default();
    history
        .call(Call::new(1, 1, "k", 0).held(10, 20, 100))
        .call(Call::new(2, 1, "k", 5).held(25, 30, 101))
        .call(Call::new(2, 2, "k", 5).returned(30, Outcome::Dropped));
    if let Some(SupervisorEvent::Run { header, .. }) = history.supervisor.first_mut() {
        header.seconds = seconds;
    }
    history
}

fn judged(mut history: History, damage: impl Fn(&Path)) -> anyhow::Result<Verdict> {
    let dir = tempfile::tempdir().unwrap();
    write(
        dir.path(),
        "supervisor.jsonl",
        &history.done(100).supervisor,
    );
    let accessed = Accessed {
        at: 1,
        request: Request {
            key: "k".into(),
            by: OpId {
                worker: 1,
                generation: 0,
                op: 1,
            },
            token: 100,
            shared: false,
            access: Access::Write {
                fenced: true,
                value: 1,
            },
        },
        accepted: true,
    };
    write(dir.path(), "resource.jsonl", [accessed]);
    for worker in [1, 2] {
        let name = format!("worker-{worker}-0.jsonl");
        write(dir.path(), &name, history.of_worker(worker));
    }
    damage(dir.path());
    check(dir.path())
}

/// Adds a line at the end or at the beginning of a file.
fn add(path: &Path, line: &str, at_end: bool) {
    let text = std::fs::read_to_string(path).unwrap();
    let text = if at_end {
        text + line
    } else {
        format!("{line}\n{text}")
    };
    std::fs::write(path, text).unwrap();
}

#[test]
fn a_clean_run_passes() {
    // The last line of a process that was killed while it wrote.
    let killed = |dir: &Path| add(&dir.join("worker-2-0.jsonl"), "{\"event\":\"ca", true);
    let verdict = judged(clean(5), killed).unwrap();
    assert_eq!(verdict.violated(), []);
    assert!(verdict.passed());
}

#[test]
fn violated_invariants_are_named() {
    let mut history = clean(5);
    history.call(Call::new(1, 2, "k", 26).held(28, 29, 90));
    let verdict = judged(history, |_| {}).unwrap();
    let expected = [Invariant::Exclusion, Invariant::Tokens];
    assert_eq!(verdict.violated(), expected);
}

#[test]
fn a_run_that_was_too_easy_does_not_pass() {
    let verdict = judged(clean(60), |_| {}).unwrap();
    assert!(!verdict.passed());
}

#[test]
fn a_damaged_history_is_an_error() {
    let damaged = |dir: &Path| add(&dir.join("worker-1-0.jsonl"), "damaged", false);
    assert!(judged(clean(5), damaged).is_err());
}
