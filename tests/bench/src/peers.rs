//! Other locks over Redis. The package `tests/peers` is built only if they are measured.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, ensure};

pub(crate) const RSLOCK: &str = "rslock";
pub(crate) const RLOCK: &str = "rlock";
/// It has a mutex, too; measured are its readers and writers.
pub(crate) const DISTKIT: &str = "distkit";
/// The names of the crates with a mutex, which are also the names of the lockers.
pub(crate) const NAMES: [&str; 3] = [RSLOCK, "async-redis-lock", RLOCK];

/// Builds the peers and returns the path of the program.
pub(crate) fn build() -> anyhow::Result<PathBuf> {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let target = env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| here.join("../../target"), PathBuf::from)
        .join("peers");
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "--release", "--locked", "--manifest-path"])
        .arg(here.join("../peers/Cargo.toml"))
        .arg("--target-dir")
        .arg(&target)
        .status()
        .context("cannot run cargo")?;
    ensure!(status.success(), "the peers cannot be built");
    Ok(target.join("release/peers"))
}
