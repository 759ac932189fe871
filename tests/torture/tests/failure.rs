//! What a run that fails prints.

use std::process::Command;

#[test]
fn a_run_that_fails_prints_its_reason_without_a_backtrace() {
    let output = Command::new(env!("CARGO_BIN_EXE_torture"))
        .args(["--profile", "all", "--seconds", "1"])
        .env("RUST_BACKTRACE", "1")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let printed = String::from_utf8(output.stderr).unwrap();
    assert_eq!(printed, "error: a run takes at least two seconds\n");
}
