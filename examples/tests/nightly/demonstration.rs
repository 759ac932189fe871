//! `nightly --replicas`, when what it is to show does not happen.

use std::process::Command;

use distlock_tests::RedisServer;

#[test]
fn the_demonstration_says_when_it_has_not_killed_whom_it_was_to_kill() {
    let server = RedisServer::start();
    let line = "--replicas 2 --periods 2 --period 1s --work 0s --kill";
    let run = Command::new(env!("CARGO_BIN_EXE_nightly"))
        .args(line.split(' '))
        .env("DISTLOCK_URL", server.url())
        .output()
        .unwrap();
    let shown = String::from_utf8(run.stdout).unwrap();
    let errors = String::from_utf8_lossy(&run.stderr);
    // It may be that it has caught one between two commands.
    assert_eq!(run.status.success(), shown.contains("killed"), "{shown}");
    assert_ne!(
        errors.contains("nobody was killed"),
        shown.contains("killed"),
        "{errors}"
    );
    assert_eq!(server.client().keys("jobs:*"), Vec::<String>::new());
}

#[test]
fn without_a_server_it_says_what_to_do() {
    let server = RedisServer::start();
    server.kill();
    for arguments in [&["--replicas", "2"][..], &[]] {
        let run = Command::new(env!("CARGO_BIN_EXE_nightly"))
            .args(arguments)
            .env(
                "DISTLOCK_URL",
                server.url().replace("redis://", "redis://:hunter2@"),
            )
            .output()
            .unwrap();
        let errors = String::from_utf8(run.stderr).unwrap();
        assert_eq!(run.status.code(), Some(1), "{errors}");
        assert!(errors.contains("Connection refused"), "{errors}");
        assert!(!errors.contains("hunter2"), "{errors}");
    }
}
