//! The commands and the Rust code of the documents for users are run by tests.
//!
//! A test runs a block of commands with `Commands::of(document, name)`, and gives a program the
//! arguments in prose with `typed(document, command)`. These checks look for such strings.

use std::collections::BTreeSet;

use distlock_tests::documents::{Block, blocks, document};

use crate::files::files_below;

/// Commands in prose that are run in another way.
const RUN_OTHERWISE: &[&str] = &[
    // examples/shop/tests/real and examples/traced/tests
    "examples/shop/servers.sh cargo run -p shop",
    "cargo run -p traced",
    // distlock-cli/tests/cli/cron.rs
    "examples/cli.sh jobs:report echo done",
];

/// A file: its path below the workspace, and its text.
type File = (String, String);

/// Returns the documents for users: the README files of what they run, and the book.
fn documents() -> Vec<File> {
    let readme_files = ["README.md", "distlock-cli/README.md"];
    let mut documents = readme_files
        .map(|path| (path.to_owned(), document(path)))
        .to_vec();
    documents.extend(files_below("docs", "md"));
    documents.extend(files_below("examples", "md"));
    documents
}

/// Returns the tests and scripts that run documented commands.
fn runners() -> Vec<File> {
    let mut runners = files_below("examples", "rs");
    runners.extend(files_below("distlock-cli/tests", "rs"));
    runners.extend(files_below("tests/book", "sh"));
    runners
}

/// Returns true if a runner names a block of commands together with its document.
fn is_block_run(path: &str, block: &Block, runners: &[File]) -> bool {
    let name = format!("\"{}\"", block.name);
    let quoted = [format!("\"{path}\""), format!(" {path} ")];
    let is_named = ["sh", "console"].contains(&&*block.language) && !block.name.is_empty();
    let names_it =
        |(_, text): &File| text.contains(&name) && quoted.iter().any(|path| text.contains(path));
    // The workflow runs test.sh.
    (is_named && runners.iter().any(names_it)) || block.text.starts_with("./test.sh")
}

/// Returns true for `cargo run` and for a script with arguments, unless a word in capitals stands
/// for a value.
fn is_command(code: &str) -> bool {
    let is_value = |word: &str| word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase());
    let program = code.split_once(' ').map_or("", |(program, _)| program);
    let is_script = program.ends_with(".sh") && program != "./test.sh";
    (is_script || code.starts_with("cargo run")) && !code.split(' ').any(is_value)
}

/// Returns the commands and blocks of commands that no runner quotes.
fn commands_not_run((path, text): &File, runners: &[File]) -> Vec<String> {
    let mut blocks = blocks(text);
    blocks.retain(|block| ["sh", "console", "bash", "shell"].contains(&&*block.language));
    blocks.retain(|block| !is_block_run(path, block, runners));
    let place = |block: &Block| format!("{path}:{}: {} {}", block.line, block.language, block.name);
    let mut not_run: Vec<_> = blocks.iter().map(place).collect();

    // Between blocks is prose, in which every second part between backquotes is code.
    let prose = text.split("```").step_by(2);
    let code = prose.flat_map(|prose| prose.split('`').skip(1).step_by(2));
    for command in code.filter(|code| is_command(code) && !RUN_OTHERWISE.contains(code)) {
        let quoted = format!("\"{command}\"");
        if !runners.iter().any(|(_, text)| text.contains(&quoted)) {
            not_run.push(format!("{path}: `{command}`"));
        }
    }
    not_run
}

/// Returns the lines of the Rust code in a chapter that tests/src/examples.rs does not compile.
fn code_not_run((path, text): &File, doctests: &str) -> Vec<String> {
    let chapter = path.strip_prefix("docs/").unwrap_or("");
    let is_doctest = doctests.contains(&format!("\"{chapter}\""));
    let mut blocks = blocks(text);
    blocks.retain(|block| block.language.starts_with("rust"));
    // tests/migration compiles what the chapters on migration have of other crates.
    let may_ignore = ["migration.md", "migration-databases.md"].contains(&chapter);
    blocks.retain(|block| !is_doctest || block.language.contains("ignore") && !may_ignore);
    let place = |block: &Block| format!("{path}:{}", block.line);
    blocks.iter().map(place).collect()
}

/// Returns the first sentence of a page that is about the page or its readers.
fn sentence_about_itself(text: &str) -> Option<String> {
    let first = text
        .lines()
        .find(|line| !line.is_empty() && !line.starts_with('#'))?;
    let first = first.to_lowercase();
    let readers = "authors|contributors|developers|engineers|everyone|operators|readers|reviewers|rust developers|users|you";
    let is_for_readers = |rest: &str| readers.split('|').any(|reader| rest.starts_with(reader));
    let mut pages = ["page", "chapter", "document", "example"].into_iter();
    let is_about_page = pages.any(|page| first.contains(&format!("this {page}")));
    let is_about_readers = first.strip_prefix("for ").is_some_and(is_for_readers);
    (is_about_page || is_about_readers).then_some(first)
}

#[test]
fn no_page_begins_with_a_sentence_about_itself() {
    let folders = ["docs", "examples", "lua", "distlock", "distlock-cli"];
    let mut pages: Vec<File> = folders.map(|folder| files_below(folder, "md")).concat();
    let others = "BENCHMARKS.md CHANGELOG.md CONTRIBUTING.md README.md SAFETY.md SECURITY.md tests/FAULTS.md";
    pages.extend(
        others
            .split(' ')
            .map(|path| (path.to_owned(), document(path))),
    );
    for (path, text) in pages {
        assert_eq!(sentence_about_itself(&text), None, "{path}");
    }
    for (begins, is_found) in [
        ("All of this chapter", true),
        ("For operators and users: it", true),
        ("For work in a request, set `wait`", false),
    ] {
        let found = sentence_about_itself(&format!("# A\n\n{begins}\n"));
        assert_eq!(found.is_some(), is_found, "{begins}");
    }
}

/// Returns the names in a row of the table of rules that its places do not contain, and the places
/// that do not exist. Names precede their places: `` `name`, `other` (path.rs, `script.lua`) ``.
fn stale_names(row: &str, sources: &[File]) -> Vec<String> {
    let quoted = |text: &str| -> Vec<String> {
        let words = text.split('`').skip(1).step_by(2);
        words.map(str::to_owned).collect()
    };
    let mut stale = Vec::new();
    for part in row.split(')') {
        let Some((before, places)) = part.split_once('(') else {
            continue;
        };
        let mut words = BTreeSet::new();
        for place in places.split(", ").map(|place| place.trim_matches('`')) {
            let is_at = |path: &str| {
                let path = path.trim_start_matches("distlock/src");
                path.ends_with(&format!("/{place}")) || path.contains(&format!("/{place}/"))
            };
            let found: Vec<_> = sources.iter().filter(|(path, _)| is_at(path)).collect();
            if found.is_empty() {
                stale.push(place.to_owned());
            }
            let is_between = |c: char| !c.is_alphanumeric() && c != '_';
            words.extend(found.iter().flat_map(|(_, text)| text.split(is_between)));
        }
        let names = quoted(before.rsplit(';').next().unwrap_or_default());
        let has = |name: &String| {
            name.rsplit("::")
                .next()
                .is_some_and(|last| words.contains(last))
        };
        stale.extend(names.into_iter().filter(|name| !has(name)));
    }
    stale
}

#[test]
fn rules_are_kept_where_the_table_says() {
    let sources = [files_below("distlock/src", "rs"), files_below("lua", "lua")].concat();
    let page = document("docs/internals/rules-in-code.md");
    let is_rule = |row: &&str| row.starts_with("| R") || row.starts_with("| P");
    let rows: Vec<_> = page.lines().filter(is_rule).collect();
    assert!(rows.len() > 40, "{rows:?}");
    for row in rows {
        assert_eq!(stale_names(row, &sources), [""; 0], "{row}");
    }
    for (row, count) in [
        ("`grant_next` (`next.lua`)", 0),
        ("`grant_previous` (`next.lua`)", 1),
        ("`grant_next` (`previous.lua`)", 2),
    ] {
        assert_eq!(stale_names(row, &sources).len(), count, "{row}");
    }
}

/// A block is ```` ```sh NAME ````, or ```` ```console NAME ```` with its output; its test names
/// it.
#[test]
fn commands_of_the_documents_are_run() {
    let runners = runners();
    for document in documents() {
        assert_eq!(commands_not_run(&document, &runners), [""; 0]);
    }
}

/// A chapter with Rust code is named in tests/src/examples.rs, and none of its code is ignored.
#[test]
fn rust_code_of_the_book_is_run() {
    let doctests = document("tests/src/examples.rs");
    for chapter in files_below("docs", "md") {
        assert_eq!(code_not_run(&chapter, &doctests), [""; 0]);
    }
}

/// The first test that CONTRIBUTING.md shows is one that runs.
#[test]
fn the_first_test_is_run() {
    let tests = document("tests/tests/conformance/pair.rs");
    let shown = blocks(&document("CONTRIBUTING.md"));
    let mut shown = shown.iter().filter(|block| block.language == "rust");
    assert!(shown.clone().count() > 0 && shown.all(|block| tests.contains(&block.text)));
}

#[test]
fn commands_that_are_not_run_are_found() {
    let test = r#"Commands::of("d.md", "a"); typed("d.md", "cargo run -- -x");"#;
    let runners = [("t.rs".to_owned(), test.to_owned())];
    for (path, text, count) in [
        ("d.md", "```sh a\nls\n```", 0),
        ("d.md", "```sh b\nls\n```", 1),
        ("e.md", "```sh a\nls\n```", 1),
        ("d.md", "```sh\nls\n```", 1),
        ("d.md", "```bash a\nls\n```", 1),
        ("d.md", "```text\n`cargo run`\n```", 0),
        ("d.md", "`cargo run -- -x`, `x.sh`", 0),
        ("d.md", "```sh a\nls\n```\n| `cargo run -- -y` |", 1),
        ("d.md", "`cargo run -- --store LINE`, `x.sh y`", 1),
    ] {
        let found = commands_not_run(&(path.to_owned(), text.to_owned()), &runners);
        assert_eq!(found.len(), count, "{text}: {found:?}");
    }
}

#[test]
fn code_that_is_not_run_is_found() {
    for (path, language, count) in [
        ("docs/a.md", "rust,no_run", 0),
        ("docs/a.md", "rust,ignore", 1),
        ("docs/migration.md", "rust,ignore", 0),
        ("docs/migration-databases.md", "rust,ignore", 0),
        ("docs/b.md", "rust", 1),
        ("docs/b.md", "text", 0),
    ] {
        let chapter = (path.to_owned(), format!("```{language}\n```\n"));
        let doctests = r#""a.md" "migration.md" "migration-databases.md""#;
        let found = code_not_run(&chapter, doctests);
        assert_eq!(found.len(), count, "{path} {language}");
    }
}
