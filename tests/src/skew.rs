//! A wall clock of one server that can be stepped.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::shim::preloadable;

/// The source of the library that the server preloads.
const SOURCE: &str = include_str!("skew.c");

/// The files of one server's clock.
#[derive(Debug)]
pub(crate) struct Skew {
    library: PathBuf,
    offset: PathBuf,
}

impl Skew {
    /// Builds the library in `dir`, with no offset.
    pub(crate) fn build(dir: &Path) -> Skew {
        let offset = dir.join("skew.bin");
        fs::write(&offset, 0i64.to_ne_bytes())
            .unwrap_or_else(|error| panic!("cannot write to {}: {error}", dir.display()));
        Skew {
            library: preloadable(dir, "skew", SOURCE),
            offset,
        }
    }

    /// Makes the process of `command` use this clock.
    pub(crate) fn preload(&self, command: &mut Command) {
        command
            .env("LD_PRELOAD", &self.library)
            .env("SKEW_FILE", &self.offset);
    }

    /// Sets the offset from the true time.
    pub(crate) fn set(&self, ahead: bool, by: Duration) -> io::Result<()> {
        let micros = by.as_micros() as i64;
        let micros = if ahead { micros } else { -micros };
        // Written in place, because the process has mapped this file.
        fs::File::options()
            .write(true)
            .open(&self.offset)?
            .write_all_at(&micros.to_ne_bytes(), 0)
    }
}
