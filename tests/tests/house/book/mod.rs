//! What readers copy works: the Rust code and the commands of the documents are run by tests, and their links lead
//! somewhere.

use std::path::Path;

use distlock_tests::documents::{blocks, document, workspace};

use crate::library::entries;
use crate::none;

mod code;
mod commands;
mod links;

/// A document: its path below the workspace, and its text.
type Document = (String, String);

/// What is written for users: the README files of what they run, and all of the book.
fn documents() -> Vec<Document> {
    let mut documents: Vec<_> = ["README.md", "distlock-cli/README.md"]
        .map(|path| (path.to_owned(), document(path)))
        .into();
    for folder in ["docs", "examples"] {
        below(&workspace().join(folder), &mut documents);
    }
    documents
}

fn below(folder: &Path, documents: &mut Vec<Document>) {
    for path in entries(folder) {
        if path.is_dir() {
            below(&path, documents);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            let path = path.strip_prefix(workspace()).expect("below the workspace");
            let path = path.to_string_lossy().into_owned();
            documents.push((path.clone(), document(&path)));
        }
    }
}

#[test]
fn rust_code_of_the_book_is_tested() {
    none(
        &code::untested(&documents(), &document("tests/src/examples.rs")),
        "Rust code in docs is run: name its document in tests/src/examples.rs",
    );
}

#[test]
fn commands_are_run_by_tests() {
    let documents = documents();
    none(
        &commands::unnamed(&documents),
        "a block of commands is ```sh name, or with what they say ```console name, and no other block of its document \
         has that name",
    );
    none(
        &commands::not_run(&documents, commands::RUN_BY, commands::ELSEWHERE, &|path| {
            document(path)
        }),
        "a block of commands is run by a test, which names it (RUN_BY in tests/tests/house/book/commands.rs)",
    );
    none(
        &commands::not_started(&documents, commands::STARTED_BY, &|path| document(path)),
        "a command in prose is started by a test (STARTED_BY in tests/tests/house/book/commands.rs)",
    );
    none(
        &commands::unmarked(&documents),
        "what readers are told to type stands in a block ```sh name; a synopsis has brackets",
    );
}

#[test]
fn links_lead_somewhere() {
    let mut documents = documents();
    for path in [
        "CONTRIBUTING.md",
        "SAFETY.md",
        "BENCHMARKS.md",
        "lua/README.md",
    ] {
        documents.push((path.to_owned(), document(path)));
    }
    none(
        &links::broken(&documents, &|path| {
            let file = workspace().join(path);
            match file.extension().is_some_and(|extension| extension == "md") {
                true => std::fs::read_to_string(file).ok(),
                false => file.exists().then(String::new),
            }
        }),
        "a link leads to a file of this repository, and to a heading in it",
    );
}
