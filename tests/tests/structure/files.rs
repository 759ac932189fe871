//! The files of the workspace.

use std::fs;

use distlock_tests::documents::workspace;

/// Reads the Rust files of a package by their path below its `src`.
pub(crate) fn rust_files(package: &str) -> Vec<(String, String)> {
    let src = format!("{package}/src/");
    let files = files_below(&src, "rs");
    files
        .into_iter()
        .map(|(path, text)| (path[src.len()..].to_owned(), text))
        .collect()
}

/// Reads the files below a folder with an extension, sorted by their path below the workspace.
pub(crate) fn files_below(folder: &str, extension: &str) -> Vec<(String, String)> {
    let mut folders = vec![workspace().join(folder)];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the workspace") {
            let path = entry.expect("a readable folder").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                let text = fs::read_to_string(&path).expect("a text file");
                let path = path.strip_prefix(workspace()).expect("below the workspace");
                files.push((path.to_string_lossy().into_owned(), text));
            }
        }
    }
    assert!(!files.is_empty(), "{folder} has no .{extension} files");
    files.sort();
    files
}
