//! A whole run, from its files to its verdict.

use std::path::Path;

use super::testing::{History, Server, Story};
use super::*;
use crate::history::{Outcome, Recorder};

fn write(dir: &Path, name: &str, events: &[impl serde::Serialize]) {
    let recorder = Recorder::create(&dir.join(name)).unwrap();
    for event in events {
        recorder.record(event);
    }
}

fn files(dir: &Path, history: &History, server: &Server) {
    write(dir, "supervisor.jsonl", &history.supervisor);
    write(dir, "server.jsonl", &server.events);
    write(dir, "resource.jsonl", &Vec::<ResourceEvent>::new());
    for worker in [1, 2] {
        let events: Vec<_> = history
            .stories
            .iter()
            .filter(|story| story.worker == worker)
            .flat_map(|story| story.events.clone())
            .collect();
        write(dir, &format!("worker-{worker}-0.jsonl"), &events);
    }
}

fn clean() -> (History, Server) {
    let mut history = History::default();
    history
        .call(Story::new(1, 1, "k", 0).held(10, 20, 100))
        .call(Story::new(2, 1, "k", 5).held(25, 30, 101))
        .call(Story::new(2, 2, "k", 5).returned(30, Outcome::Dropped));
    let mut server = Server::default();
    server.take(9, "k", "a:1", 100, 1250);
    server.queue(10, "k", "b:1");
    server.hand_over(21, "k", "a:1", "b:1", 101, 1250);
    server.confirm(25, "k", "b:1", 1250);
    server.release(31, "k", "b:1");
    (history, server)
}

#[test]
fn a_clean_run_passes() {
    let dir = tempfile::tempdir().unwrap();
    let (mut history, server) = clean();
    if let SupervisorEvent::Run { seconds, .. } = &mut history.supervisor[0] {
        *seconds = 5;
    }
    files(dir.path(), &history, &server);
    // The last line of a process that was killed while it wrote.
    let path = dir.path().join("worker-2-0.jsonl");
    let mut text = std::fs::read_to_string(&path).unwrap();
    text.push_str("{\"event\":\"acq");
    std::fs::write(&path, text).unwrap();
    let verdict = check(dir.path()).unwrap();
    assert_eq!(verdict.failed(), []);
    assert!(verdict.passed());
    assert_eq!(verdict.findings.len(), 16);
    assert_eq!(verdict.figures.acquired, 2);
    assert_eq!(verdict.figures.pushed_percent, 50.0);
}

#[test]
fn what_fails_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let (mut history, mut server) = clean();
    history.call(Story::new(1, 2, "k", 26).held(28, 29, 90));
    server.take(40, "k", "a:2", 102, 1250);
    server.release(41, "k", "b:2");
    files(dir.path(), &history, &server);
    let verdict = check(dir.path()).unwrap();
    assert_eq!(verdict.failed(), [Id::I1, Id::I3, Id::I5, Id::I11]);
    assert!(!verdict.passed());
}

#[test]
fn a_run_that_was_too_easy_does_not_pass() {
    let dir = tempfile::tempdir().unwrap();
    let (history, server) = clean();
    files(dir.path(), &history, &server);
    let verdict = check(dir.path()).unwrap();
    assert_eq!(verdict.failed(), []);
    assert!(!verdict.passed());
}

#[test]
fn a_damaged_history_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let (history, server) = clean();
    files(dir.path(), &history, &server);
    let path = dir.path().join("server.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, format!("damaged\n{text}")).unwrap();
    assert!(check(dir.path()).is_err());
}
