//! A disk of one server that can be full, without the rights to mount one.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::shim::preloadable;

/// The files of one server's disk.
#[derive(Debug)]
pub(super) struct Disk {
    library: PathBuf,
    switch: PathBuf,
}

impl Disk {
    /// Builds the library that the server preloads in `dir`. The disk has space.
    #[track_caller]
    pub(super) fn build(dir: &Path) -> Disk {
        let switch = dir.join("disk.bin");
        fs::write(&switch, [0])
            .unwrap_or_else(|error| panic!("cannot write to {}: {error}", dir.display()));
        Disk {
            library: preloadable(dir, "disk", include_str!("disk.c")),
            switch,
        }
    }

    /// Makes the process of `command` use this disk.
    pub(super) fn preload(&self, command: &mut Command) {
        command
            .env("LD_PRELOAD", &self.library)
            .env("DISK_FILE", &self.switch);
    }

    #[track_caller]
    pub(super) fn set_full(&self, is_full: bool) {
        // Written in place, because the process has mapped this file.
        let file = File::options().write(true).open(&self.switch);
        let written = file.and_then(|file| file.write_all_at(&[u8::from(is_full)], 0));
        written.unwrap_or_else(|error| panic!("cannot fill the server's disk: {error}"));
    }
}
