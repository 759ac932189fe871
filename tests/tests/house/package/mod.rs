//! What is published: product code and its small tests, all that it needs, and nothing of what proves it.

use std::process::Command;

use crate::library::{Sources, entries, sources_of, workspace};
use crate::none;

mod members;
#[cfg(test)]
mod tests;
mod words;

/// Words for proof, which lives below `tests/`. They are looked for in the names of files, and in names in code; in prose
/// they may stand.
const PROOF: &[&str] = &[
    "simulation",
    "equivalence",
    "garbage",
    "faulty",
    "property",
    "properties",
    "oracle",
    "nemesis",
];

/// How the words for what breaks the lock on purpose begin.
const SABOTAGE: &str = "sabot";

/// The one file of the product that knows of saboteurs: it says which rules of the protocol are kept.
const SABOTAGED: &str = "protocol/rules.rs";

/// What the package has beside its sources.
const FILES: &[&str] = &[
    "Cargo.toml",
    "README.md",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "src/lib.rs",
];

/// The files that `cargo package` would publish.
fn published() -> Vec<String> {
    let listed = Command::new(env!("CARGO"))
        .args(["package", "-p", "distlock", "--list", "--allow-dirty"])
        .current_dir(workspace())
        .output()
        .expect("cargo can be run");
    let complaint = String::from_utf8_lossy(&listed.stderr);
    assert!(listed.status.success(), "cargo package --list: {complaint}");
    let listed = String::from_utf8(listed.stdout).expect("names of files");
    listed.lines().map(str::to_owned).collect()
}

/// The published part of the sources.
fn published_sources() -> Sources {
    let published = published();
    let mut sources = sources_of("distlock");
    sources.retain(|(path, _)| published.contains(&format!("src/{path}")));
    sources
}

/// Of the files that must be there, those that are not. The scripts reach the package through a symlink; without it the
/// crate would not compile elsewhere.
fn missing(published: &[String], scripts: &[String]) -> Vec<String> {
    let needed = FILES.iter().map(|file| (*file).to_owned());
    needed
        .chain(scripts.iter().map(|script| format!("lua/{script}")))
        .filter(|file| !published.contains(file))
        .collect()
}

#[test]
fn the_package_has_all_that_it_needs() {
    let scripts: Vec<_> = entries(&workspace().join("lua"))
        .iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "lua"))
        .filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
        .collect();
    assert!(!scripts.is_empty(), "there are no scripts in lua");
    none(
        &missing(&published(), &scripts),
        "the package of distlock lacks a file",
    );
}

#[test]
fn the_package_has_no_proof_in_it() {
    let published = published();
    let mut mistakes = words::in_paths(&published);
    mistakes.extend(words::in_code(&published_sources()));
    none(
        &mistakes,
        "proof lives below tests/, and product code does not speak of it",
    );
}

#[test]
fn no_product_type_has_another_shape_in_tests() {
    none(
        &members::conditional(&sources_of("distlock")),
        "only whole `mod`s and `use`s are for tests, so that what is tested is what is published",
    );
}

#[test]
fn one_file_knows_of_saboteurs() {
    none(
        &words::of_saboteurs(&sources_of("distlock")),
        "saboteurs break the rules, and all else from outside",
    );
}
