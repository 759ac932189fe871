//! A folder of the crates has so few files that its list shows what is in it.

use std::fs::{self, DirEntry};
use std::io;
use std::path::{Path, PathBuf};

use distlock_tests::documents::workspace;

const MAX_RUST_FILES: usize = 16;
const MAX_ENTRIES: usize = 18;

/// Returns the folders below this one, and itself, that have too many files or entries.
fn crowded(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let path = |entry: io::Result<DirEntry>| entry.expect("an entry").path();
    let entries: Vec<PathBuf> = entries.map(path).collect();
    let is_rust = |path: &&PathBuf| path.extension().is_some_and(|extension| extension == "rs");
    let rust_files = entries.iter().filter(is_rust).count();

    let folders = entries.iter().filter(|path| path.is_dir());
    let mut crowded: Vec<String> = folders.flat_map(|folder| crowded(folder)).collect();
    if rust_files > MAX_RUST_FILES || entries.len() > MAX_ENTRIES {
        crowded.push(folder.display().to_string());
    }
    crowded
}

#[test]
fn folders_are_small() {
    for package in ["distlock", "distlock-macros", "distlock-cli"] {
        assert_eq!(crowded(&workspace().join(package).join("src")), [""; 0]);
    }
}

#[test]
fn a_crowded_folder_is_found() {
    for (extension, allowed) in [("rs", MAX_RUST_FILES), ("md", MAX_ENTRIES)] {
        let folder = tempfile::tempdir().expect("a folder");
        for file in 0..=allowed {
            assert_eq!(crowded(folder.path()), [""; 0]);
            let file = folder.path().join(format!("{file}.{extension}"));
            fs::write(file, "").expect("a file");
        }
        assert_eq!(crowded(folder.path()).len(), 1);
    }
}
