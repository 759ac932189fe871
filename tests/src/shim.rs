//! Small C libraries that are preloaded into a process, to change the behavior of its libc.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles `source` in `dir` to a library for `LD_PRELOAD`, with the C compiler that Rust needs.
///
/// # Panics
///
/// Panics if `source` does not compile, or there is no compiler.
#[track_caller]
pub fn preloadable(dir: &Path, name: &str, source: &str) -> PathBuf {
    let (file, library) = (
        dir.join(format!("{name}.c")),
        dir.join(format!("{name}.so")),
    );
    fs::write(&file, source)
        .unwrap_or_else(|error| panic!("cannot write to {}: {error}", dir.display()));
    let compiler = Command::new("cc")
        .args(["-O1", "-shared", "-fPIC", "-o"])
        .args([&library, &file])
        .output()
        .unwrap_or_else(|error| panic!("cannot run the C compiler `cc`: {error}"));
    let messages = String::from_utf8_lossy(&compiler.stderr);
    assert!(compiler.status.success(), "cc failed:\n{messages}");
    library
}
