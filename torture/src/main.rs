//! Torture: real processes, real faults, a checker.

mod history;

fn main() {}
