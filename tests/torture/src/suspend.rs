//! Simulated suspends: a worker is stopped, and its monotonic clocks do not advance meanwhile.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};

const SOURCE: &str = include_str!("suspend.c");

/// The preloaded library, and the clock file of each worker with its total suspended time.
#[derive(Debug)]
pub(crate) struct Suspends {
    library: PathBuf,
    clocks: Vec<(PathBuf, Duration)>,
}

impl Suspends {
    /// Compiles the library. A C compiler exists wherever Rust links programs.
    pub(crate) fn build(dir: &Path, workers: u32) -> anyhow::Result<Self> {
        let (source, library) = (dir.join("suspend.c"), dir.join("suspend.so"));
        fs::write(&source, SOURCE)?;
        let compiler = Command::new("cc")
            .args(["-O1", "-shared", "-fPIC", "-o"])
            .args([&library, &source])
            .output()
            .context("cannot run the C compiler `cc`")?;
        let messages = String::from_utf8_lossy(&compiler.stderr);
        ensure!(compiler.status.success(), "cc failed:\n{messages}");
        let clocks = (0..workers).map(|worker| {
            let path = dir.join(format!("suspended-{worker}"));
            fs::write(&path, 0_i64.to_ne_bytes())?;
            Ok((path, Duration::ZERO))
        });
        let clocks = clocks.collect::<std::io::Result<_>>()?;
        Ok(Suspends { library, clocks })
    }

    /// Makes the process of `command` a worker that can be suspended.
    pub(crate) fn preload(&self, worker: u32, command: &mut Command) {
        command
            .env("LD_PRELOAD", &self.library)
            .env("SUSPEND_FILE", &self.clocks[worker as usize].0);
    }

    /// Subtracts the time of a stop from the worker's monotonic clock, before the worker continues.
    pub(crate) fn take_out(&mut self, worker: u32, stopped: Duration) -> anyhow::Result<()> {
        let (path, total) = &mut self.clocks[worker as usize];
        *total += stopped;
        let nanos = i64::try_from(total.as_nanos()).context("a very long suspend")?;
        // Written in place, because the process has mapped this file.
        let file = File::options().write(true).open(path)?;
        file.write_all_at(&nanos.to_ne_bytes(), 0)?;
        Ok(())
    }
}
