//! A library as its sources describe it: files, the modules in them, and what a path names.

use std::path::{Path, PathBuf};
use std::{fs, io};

pub(crate) mod builds;
pub(crate) mod imports;
pub(crate) mod modules;
pub(crate) mod paths;
pub(crate) mod resolve;

/// Source files: the path below `src`, with `/`, and the text.
pub(crate) type Sources = Vec<(String, String)>;

/// The folder of the workspace.
pub(crate) fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("this package has a folder of its own")
}

/// All Rust files of a package of this workspace.
pub(crate) fn sources_of(package: &str) -> Sources {
    let root = workspace().join(package).join("src");
    let mut folders = vec![root.clone()];
    let mut sources = Sources::new();
    while let Some(folder) = folders.pop() {
        for path in entries(&folder) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let below = path.strip_prefix(&root).expect("a file below src");
                let parts: Vec<_> = below.iter().map(|part| part.to_string_lossy()).collect();
                sources.push((parts.join("/"), read(&path)));
            }
        }
    }
    sources.sort();
    assert!(!sources.is_empty(), "{} has no sources", root.display());
    sources
}

/// What a folder has in it, in order.
pub(crate) fn entries(folder: &Path) -> Vec<PathBuf> {
    let listed = fs::read_dir(folder).and_then(|entries| {
        let paths = entries.map(|entry| Ok(entry?.path()));
        paths.collect::<io::Result<Vec<_>>>()
    });
    let mut paths = listed.unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    paths.sort();
    paths
}

/// The text of a file.
pub(crate) fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Sources that a test makes up.
pub(crate) fn made_up(files: &[(&str, &str)]) -> Sources {
    files
        .iter()
        .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()))
        .collect()
}
